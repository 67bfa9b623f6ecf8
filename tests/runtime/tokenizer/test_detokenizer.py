"""Incremental text equals the text of all tokens at once, and is never half a character."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.runtime.tokenizer.detokenizer import Detokenizer

# every byte, halves of characters, whole characters, a special token
TOKEN_BYTES = [bytes([byte]) for byte in range(256)] + [b"\xe6\x9d", b"\xb1\xe4", "東京".encode(), b" the", b""]
TOKEN_IDS = st.lists(st.sampled_from(range(len(TOKEN_BYTES))) | st.sampled_from([*b"\xf0\x9f\x99\x82", 256, 257]))


@settings(deadline=None)
@given(token_ids=TOKEN_IDS)
def test_pushed_text_equals_decoding_at_once(token_ids: list[int]) -> None:
    detokenizer = Detokenizer(TOKEN_BYTES)
    text = "".join(map(detokenizer.push, token_ids)) + detokenizer.flush()
    assert text == b"".join(TOKEN_BYTES[t] for t in token_ids).decode("utf-8", "replace")


@settings(deadline=None)
@given(text=st.text())
def test_byte_by_byte_no_character_is_ever_replaced(text: str) -> None:
    detokenizer = Detokenizer(TOKEN_BYTES)
    pushed = [detokenizer.push(byte) for byte in text.encode()]
    assert "".join(pushed) == text
    assert detokenizer.flush() == ""


@given(st.lists(st.integers(0, 255), max_size=12), st.lists(st.integers(0, 255), max_size=6))
def test_a_fork_goes_on_after_the_same_bytes_and_leaves_the_other_alone(before: list[int], after: list[int]) -> None:
    one = Detokenizer([bytes([byte]) for byte in range(256)])
    shared = "".join(one.push(byte) for byte in before)
    other = one.fork()
    first = shared + "".join(one.push(byte) for byte in after) + one.flush()
    assert shared + other.flush() == bytes(before).decode(errors="replace")
    assert first == bytes([*before, *after]).decode(errors="replace")


def test_an_unfinished_character_waits_for_flush() -> None:
    detokenizer = Detokenizer(TOKEN_BYTES)
    assert [detokenizer.push(byte) for byte in b"a\xf0\x9f\x99"] == ["a", "", "", ""]
    assert detokenizer.flush() == "\ufffd"


def test_a_bad_byte_is_replaced_as_soon_as_it_is_certain() -> None:
    detokenizer = Detokenizer(TOKEN_BYTES)
    assert detokenizer.push(0xFF) == "\ufffd"
    assert detokenizer.push(0xE6) == ""
    assert detokenizer.push(ord("x")) == "\ufffdx"


def test_flush_leaves_it_ready_for_the_next_output() -> None:
    detokenizer = Detokenizer(TOKEN_BYTES)
    detokenizer.push(0xE6)
    detokenizer.flush()
    assert detokenizer.push(ord("x")) == "x"
