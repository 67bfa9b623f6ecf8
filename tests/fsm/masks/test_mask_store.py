"""The store of mask rows: what it holds, what it evicts, and that its counts of bytes are right."""

from __future__ import annotations

import gc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from phloem.fsm import Compiler
from phloem.fsm.masks.mask_store import ENTRY_BYTES, MaskStore, Row
from phloem.fsm.network.expression import Embed, Grammar, Sequence, literal
from phloem.fsm.text.dfa import of_length
from phloem.fsm.text.json_strings import JsonStrings

from ..vocabularies import BYTES, allowed_ids, mixed_vocabulary

ROW_BYTES = 4 * BYTES.num_words


class Owner:
    """Something that has rows and may go."""


def row_of(content: int) -> Row:
    return Row(np.full(BYTES.num_words, content, np.int32), worst=content)


def test_the_least_recently_used_go_first() -> None:
    store, owner = MaskStore(BYTES, 8 * (ENTRY_BYTES + ROW_BYTES)), Owner()
    shelf = store.shelf_of(owner)
    for state in range(100):
        store.keep(shelf, state, row_of(state))
        for used in (0, 1):
            if used in shelf:
                shelf[used].is_recent = True
    assert {0, 1, 99} <= shelf.keys() and len(shelf) == 8
    assert min(shelf.keys() - {0, 1}) > 90


def test_a_forgotten_constraint_takes_its_rows_and_texts_along() -> None:
    compiler = Compiler(mixed_vocabulary(1000, seed=3))
    store = compiler.json_object().caches.masks.store
    gc.collect()
    before = store.num_bytes
    constraint = compiler.from_grammar(grammar_of_its_own())
    cursor = constraint.cursor()
    for _ in range(8):
        row = cursor.row()
        cursor.advance(next(t for t in allowed_ids(row) if constraint.vocabulary.tokens[t]))
    assert store.num_bytes > before
    del constraint, cursor
    gc.collect()
    assert store.num_bytes == before
    assert row.any()  # an array in use outlives the store's entry


def grammar_of_its_own() -> Grammar:
    """With a text that nothing else has met."""
    text = JsonStrings(of_length(3, 23))
    return Grammar({"s": Sequence((literal("<"), Embed(text), literal(">")))}, "s")


def test_what_takes_the_place_of_the_oldest_stays() -> None:
    store, owner = MaskStore(BYTES, 3 * ENTRY_BYTES + 2 * ROW_BYTES), Owner()
    shelf = store.shelf_of(owner)
    for state, content in ((0, 5), (1, 5), (2, 6), (0, 7)):
        store.keep(shelf, state, row_of(content))
    assert shelf[0].bits[0] == 7 and store.num_bytes <= store.max_bytes


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 12), st.booleans()), max_size=120))
def test_the_accounts_are_right_whatever_happens(happenings: list[tuple[int, int, int, bool]]) -> None:
    store = MaskStore(BYTES, 12 * (ENTRY_BYTES + ROW_BYTES))
    owners = [Owner() for _ in range(4)]
    shelves = [store.shelf_of(owner) for owner in owners]
    for name, state, content, leaves in happenings:
        if leaves and content == 0:
            owners[name] = Owner()
            shelves[name] = store.shelf_of(owners[name])
        elif state in shelves[name] and leaves:
            shelves[name][state].is_recent = True
        else:
            store.keep(shelves[name], state, row_of(content))
            assert shelves[name][state].bits[0] == content
        entries = [row for shelf in shelves for row in shelf.values()]
        arrays = {id(row.bits) for row in entries}
        assert len(arrays) == len({int(row.bits[0]) for row in entries})
        assert store.num_entries == len(entries)
        assert store.num_bytes == len(entries) * ENTRY_BYTES + len(arrays) * ROW_BYTES <= store.max_bytes
