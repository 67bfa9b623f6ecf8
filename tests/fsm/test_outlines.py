"""Token masks of regular expressions against `outlines_core.Index`, in every state that both reach.

The index is built eagerly and by another road (a DFA of Rust's regex crate over bytes, every token run in every
state), so where it is right it is a full oracle: the allowed tokens of all states must be equal. It is not always
right. `LACKING` lists the patterns on which it lacks tokens, by fault; in every state where it does, each token that
only we allow is led to a full text that `re` matches, so the fault is shown to be the index's. It never allows more.
"""

from __future__ import annotations

import re

import outlines_core
import pytest

from phloem.fsm import Compiler, Cursor, Vocabulary

from .vocabularies import allowed_ids

PIECES = [
    "12", "2024", "-0", ".5", "ab", "aab", "abc", "the", "  ", " the", "xx", "xxx", "a@b", ".com", "com", "::", "AF",
    "éa", "中文", "no", "yes", "true", '":', '"a"', "\\n", "\n\n", "//", "http", "s://", "((", "a)", "=1",
]  # fmt: skip
TOKENS = [bytes((byte,)) for byte in range(256)]
TOKENS += [piece.encode() for piece in PIECES] + ["中".encode()[:2], "é".encode()[1:] + b"a", b""]
EOS = len(TOKENS) - 1
VOCABULARY = Vocabulary(TOKENS, [EOS])

ALIKE = [
    r"[0-9]+", r"-?[0-9]{1,3}", r"[a-z]*", r"(yes|no|true)", r"ab?c*", r"x{2,5}y?", r"[a-z]+@[a-z]+\.com",
    r"[ab]*abc", r'"[^"\\]*"', r'\{"a":"?[ab]*"?\}', r"[\n ]*", r"https?://[a-z/]+", r"[+-]?0?", r"\(\(a\)\)|\(a\)",
    r"[0-9]{4}-[0-9]{2}", r"a(\n|b)*", r"(a|b)*?c", r"[^\x00-\x7f]", r".[é-中]x", r'"(a|\\["n])*"', r"(?i)ab+c?",
    r"(aa|ab)(the|x)", r"[0-9]{1,3}(,[0-9]{3}){0,2}\.", r"(|a)b", r"a??b",
]  # fmt: skip

DELAYED = "a token that leads from a complete text to an incomplete one is dropped"
"""The crate's DFA reports a match one byte late. A token after which it reports one counts as useless unless the
text is complete, but that match is the one before the token's last byte."""
PREFERRED = "what a preferred alternative has matched is not tried with the others"
"""The DFA looks for the match that a backtracking search would find first; a full match may need another one."""

LACKING = {
    r"(ab)+": DELAYED,
    r"(the )*the": DELAYED,
    r"[A-F0-9]{2}(:[A-F0-9]{2})?": DELAYED,
    r"(a{2}|a{3}b)*": DELAYED,
    r"[1-9][0-9]*(\.[0-9]+)?": DELAYED,
    r"#([0-9a-f]{3}|[0-9a-f]{6})": DELAYED,
    r"[^a]{1,3}": DELAYED,
    r".*": DELAYED,
    r".+": DELAYED,
    r"(?:é|中)+": DELAYED,
    r"[é-中]+": DELAYED,
    r"[^x]*x?": DELAYED,
    r"(a|ab)(c|abc)*": PREFERRED,
    r"(a|ab)": PREFERRED,
    r"(|a)+?": PREFERRED,
}


def differences(pattern: str) -> list[tuple[Cursor, bytes, set[int], set[int]]]:
    """Where they differ: cursor, text so far, tokens only we allow and tokens only the index allows."""
    index = outlines_core.Index(pattern, outlines_core.Vocabulary(EOS, token_ids()))
    found: list[tuple[Cursor, bytes, set[int], set[int]]] = []
    start = Compiler(VOCABULARY).regex(pattern).cursor()
    pending: list[tuple[Cursor, int, bytes]] = [(start, index.get_initial_state(), b"")]
    seen = {(start.state, index.get_initial_state())}
    while pending:
        cursor, state, text = pending.pop()
        ours = set(allowed_ids(cursor.row()))
        theirs = set(index.get_allowed_tokens(state) or [])
        theirs.discard(EOS)
        if index.is_final_state(state):
            theirs.add(EOS)
        if ours != theirs:
            found.append((cursor, text, ours - theirs, theirs - ours))
        for token_id in sorted((ours & theirs) - {EOS}):
            after = cursor.fork()
            assert after.advance(token_id)
            target = index.get_next_state(state, token_id)
            assert target is not None
            if (after.state, target) not in seen:
                seen.add((after.state, target))
                pending.append((after, target, text + TOKENS[token_id]))
    return found


def token_ids() -> dict[bytes, list[int]]:
    return {token: [i for i, other in enumerate(TOKENS) if other == token] for token in TOKENS if token}


def completed(cursor: Cursor, text: bytes, token_id: int) -> bytes:
    """A whole text that begins with the text and the token."""
    cursor = cursor.fork()
    while token_id != EOS:
        assert cursor.advance(token_id)
        text += TOKENS[token_id]
        if cursor.is_accepting:
            break

        def cost(other: int, here: Cursor = cursor) -> int:
            after = here.fork()
            assert after.advance(other)
            return after.min_tokens_to_accept()

        token_id = min((other for other in allowed_ids(cursor.row()) if other < 256), key=cost)
    return text


@pytest.mark.parametrize("pattern", ALIKE)
def test_every_state_allows_the_same_tokens(pattern: str) -> None:
    assert [(text, ours, theirs) for _, text, ours, theirs in differences(pattern)] == []


@pytest.mark.parametrize("pattern", LACKING, ids=lambda pattern: f"{pattern}: {LACKING[pattern]}")
def test_tokens_that_the_index_lacks_lead_to_texts_that_match(pattern: str) -> None:
    found = differences(pattern)
    assert found, "the index has learnt it: move the pattern to ALIKE"
    for cursor, text, ours, theirs in found:
        assert not theirs, (text, [TOKENS[token_id] for token_id in theirs])
        for token_id in ours:
            whole = completed(cursor, text, token_id).decode()
            assert re.fullmatch(pattern, whole), (text, TOKENS[token_id], whole)
