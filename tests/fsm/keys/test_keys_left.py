"""The keys that an object has: what else can be written, and after what nothing can, against brute force."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from phloem._core import fsm as core
from phloem.fsm import Compiler, Vocabulary

COMPILER = Compiler(Vocabulary([bytes((byte,)) for byte in range(256)] + [b""], [256]))
KEYS = st.text("abc", max_size=4).map(lambda key: key + '"')


@settings(deadline=None)
@given(st.lists(KEYS, min_size=1, max_size=12, unique=True), st.sets(KEYS, max_size=3), st.data())
def test_what_was_written_leaves_what_brute_force_says(
    language: list[str], others: set[str], data: st.DataObject
) -> None:
    automaton = COMPILER.choice(language).automaton
    written = {*data.draw(st.lists(st.sampled_from(language), min_size=1)), *others}
    left = set(language) - written

    def can_go_on(beginning: str) -> bool:
        return any(text.startswith(beginning) for text in left)

    beginnings = {text[:end] for text in written & set(language) for end in range(1, len(text) + 1)}
    cuts = {beginning for beginning in beginnings if not can_go_on(beginning) and can_go_on(beginning[:-1])}
    texts = sorted(text.encode() for text in written)
    is_alive, found = core.keys_left(automaton, automaton.start, texts, True)
    assert (is_alive, sorted(found)) == (bool(left), sorted(cut.encode() for cut in cuts))
    assert core.keys_left(automaton, automaton.start, texts, False)[0] == is_alive
