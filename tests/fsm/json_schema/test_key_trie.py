"""The strings that are no named key: the quick table against the automaton that algebra made."""

from __future__ import annotations

import json
from contextlib import nullcontext

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintTooLarge
from phloem.fsm.automaton.automaton import Automaton
from phloem.fsm.json_schema import key_trie
from phloem.fsm.json_schema.key_trie import any_text_except, strings_but
from phloem.fsm.network.expression import Embed, Grammar
from phloem.fsm.network.network import build_network
from phloem.fsm.text.json_strings import JsonStrings

from ..vocabularies import BYTES

TEXTS = st.text(st.sampled_from('ab_"\\é~\n'), max_size=4)


def automaton(language: object) -> Automaton:
    return Automaton(build_network(Grammar({"s": Embed(language)}, "s")), BYTES)  # type: ignore[arg-type]


@settings(deadline=None)  # the first one waits for compiled loops
@given(st.frozensets(TEXTS, min_size=1, max_size=6), st.lists(TEXTS, max_size=5))
@example(frozenset(("", "a", "ab", "b_a")), ["", "a", "aa", "ab", "abb", "b_", "b_a", 'a"', "é"])
def test_other_strings_are_all_but_the_excluded_ones(excluded: frozenset[str], texts: list[str]) -> None:
    quick, slow = automaton(strings_but(excluded)), automaton(JsonStrings(any_text_except(excluded)))
    for text in (*texts, *excluded):
        spelt = json.dumps(text, ensure_ascii=False).encode()
        assert quick.is_accepting(quick.advance_bytes(quick.start, spelt)) == (text not in excluded)
        for end in range(len(spelt) + 1):
            states = (each.advance_bytes(each.start, spelt[:end]) for each in (quick, slow))
            mine, theirs = (
                (each.min_bytes(state), each.live_bytes(state).tolist())
                for each, state in zip((quick, slow), states, strict=True)
            )
            assert mine == theirs


@settings(deadline=None)
@given(st.frozensets(TEXTS, min_size=1, max_size=9).filter(any))
def test_the_bound_is_on_beginnings_times_characters(excluded: frozenset[str]) -> None:
    num_beginnings = len({text[:end] for text in excluded for end in range(1, len(text) + 1)})
    num_classes = any_text_except(excluded).alphabet.num_classes
    for more, is_refused in ((1, False), (0, True)):
        any_text_except.cache_clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(key_trie, "MAX_CELLS", (num_beginnings + more) * num_classes)
            with pytest.raises(ConstraintTooLarge, match="too many to distinguish") if is_refused else nullcontext():
                any_text_except(excluded)
