"""Text that was shown is never taken back, and stop strings are found wherever tokens cut them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phloem.runtime.output import OutputText


class Letters:
    """Every token id is one character."""

    def push(self, token_id: int) -> str:
        return chr(token_id)

    def flush(self) -> str:
        return ""


@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_the_text_ends_before_the_first_stop_string(text: str, stop: list[str]) -> None:
    output = OutputText(Letters(), tuple(stop))
    shown = ""
    for character in text:
        ended = output.push(ord(character))
        shown += output.take()
        assert output.text.startswith(shown)
        if ended:
            break
    output.finish()
    shown += output.take()

    ends = [end for end in range(len(text) + 1) if any(text[:end].endswith(s) for s in stop)]
    if ends:
        seen = text[: ends[0]]
        expected = seen[: min(seen.find(s) for s in stop if s in seen)]
    else:
        expected = text
    assert shown == expected == output.text
    assert output.stopped == bool(ends)


@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_the_text_may_end_behind_the_first_stop_string(text: str, stop: list[str]) -> None:
    output = OutputText(Letters(), tuple(stop), includes_stop=True)
    shown = ""
    for character in text:
        ended = output.push(ord(character))
        shown += output.take()
        if ended:
            break
    output.finish()
    shown += output.take()
    ends = [end for end in range(len(text) + 1) if any(text[:end].endswith(s) for s in stop)]
    assert shown == output.text == (text[: ends[0]] if ends else text)


class Capitals:
    """Stop strings count where they begin with a capital."""

    def push(self, text: str) -> bytes:
        return bytes(character.isupper() for character in text)


@given(st.text("abAB", max_size=30), st.lists(st.text("abAB", min_size=1, max_size=4), max_size=3))
def test_a_stop_string_ends_the_text_only_where_it_counts(text: str, stop: list[str]) -> None:
    output = OutputText(Letters(), tuple(stop), guard=Capitals())
    shown = ""
    for character in text:
        ended = output.push(ord(character))
        shown += output.take()
        if ended:
            break
    output.finish()
    shown += output.take()
    found = [
        (at + len(s), at) for s in stop for at in range(len(text)) if text[at].isupper() and text.startswith(s, at)
    ]
    first = min(found, default=(0, len(text)))[0]
    expected = min((at for end, at in found if end == first), default=len(text))
    assert shown == output.text == text[:expected]


def test_what_follows_a_stop_string_within_its_token_is_cut() -> None:
    class Words(Letters):
        def push(self, token_id: int) -> str:
            return ["one, ", "two; three"][token_id]

    output = OutputText(Words(), (";", "two; t"), includes_stop=True)
    assert not output.push(0) and output.push(1)
    assert output.text == "one, two; t", "the one that begins first"


@given(st.text("ab", max_size=12))
def test_nothing_is_held_back_without_a_reason(text: str) -> None:
    output = OutputText(Letters(), ("abc",))
    shown = ""
    for character in text:
        output.push(ord(character))
        shown += output.take()
        held = output.text[len(shown) :]
        assert "abc".startswith(held)
