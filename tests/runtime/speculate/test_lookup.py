"""Look-ups: what is expected did follow before, however the text came in, within its memory and its price."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from itertools import pairwise
from operator import eq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.fsm import Vocabulary
from phloem.runtime.speculate import lookup as lookup_module
from phloem.runtime.speculate.lookup import LONGEST_PAUSE, Lookup, Lookups, fold_spaces

NUM_IDS = 64
EOS = 63
SPACED = 32  # ids from here on are those before with a space
TEXTS = st.lists(st.integers(0, 5), min_size=1, max_size=120)


def lookups(max_draft_tokens: int = 8) -> Lookups:
    words = [b"w%d" % i for i in range(SPACED)]
    tokens = [*words, *(b" " + word for word in words[: EOS - SPACED]), b""]
    return Lookups(Vocabulary(tokens, [EOS]), NUM_IDS, max_draft_tokens)


def expect_all(looked_up: Lookup, token_ids: Sequence[int], sizes: Sequence[int], floor: float) -> list[int]:
    """Hands a text over in pieces of these sizes, and the rest at once; what is expected in the end."""
    text = array("i", token_ids)
    end = 0
    for size in sizes:
        end = min(end + size, len(text))
        looked_up.expect(text[:end], floor, 8)
    return looked_up.expect(text, floor, 8)


def goes_on_at(text: Sequence[int], draft: Sequence[int]) -> list[int]:
    """Places of the text at which the draft stands, be it into itself, after the text's last token or after eight
    of which at least three agree with the text's last ones."""
    whole = [*text, *draft]
    fold = [token % SPACED for token in text]
    return [
        place
        for place in range(1, len(text))
        if whole[place : place + len(draft)] == list(draft)
        and (fold[place - 1] == fold[-1] or sum(map(eq, fold[place - 1 :: -1], fold[:-9:-1])) >= 3)
    ]


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.lists(st.integers(1, 9), max_size=30), st.floats(0.0, 0.9))
def test_what_is_expected_has_followed_before(text: list[int], sizes: list[int], floor: float) -> None:
    draft = expect_all(lookups().begin(0), text, sizes, floor)
    assert not draft or goes_on_at(text, draft)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_passage_that_is_copied_is_recognised_by_two_tokens(data: st.DataObject) -> None:
    text = data.draw(st.permutations(range(30)))
    start = data.draw(st.integers(0, 20))
    copied = data.draw(st.integers(2, 29 - start))
    looked_up = lookups().begin(0)
    draft = expect_all(looked_up, [*text, *text[start : start + copied]], [], 0.0)
    rest = [*text[start + copied :], *text[start : start + copied]]
    assert draft == (rest * 2)[:8]


def test_the_longest_agreement_wins_and_among_equals_the_latest() -> None:
    once = [1, 2, 3, 10, 4, 2, 3, 11, 5, 2, 3, 12]
    assert expect_all(lookups().begin(0), [*once, 1, 2, 3], [15], 0.0)[0] == 10
    assert expect_all(lookups().begin(0), [*once, 7, 2, 3], [15], 0.0)[0] == 12


def test_words_are_recognised_behind_a_quote_and_behind_a_space() -> None:
    text = [3, SPACED + 4, SPACED + 5, SPACED + 6, 20, 4, 5]
    assert expect_all(lookups().begin(0), text, [], 0.0)[0] == SPACED + 6


def test_a_run_is_taken_up_again_behind_a_token_that_was_replaced() -> None:
    text = [*range(20), *range(10), 30]  # 10 became 30
    assert expect_all(lookups().begin(0), text, [20, *[1] * 11], 0.0)[:3] == [11, 12, 13]


def test_a_period_is_drafted_beyond_its_end_and_nothing_behind_an_end() -> None:
    assert expect_all(lookups().begin(0), [1, 2, 3, 1, 2, 3, 1], [], 0.0) == [2, 3, 1, 2, 3, 1, 2, 3]
    assert expect_all(lookups().begin(0), [5, 1, 2, EOS, 4, 5, 1], [], 0.0) == [2, EOS]


def test_a_source_is_expected_from_its_beginning_and_anywhere_later() -> None:
    looked_up = lookups().begin(3, source=range(10, 30))
    text = array("i", [1, 2, 3])
    assert looked_up.expect(text, 0.0, 4) == [10, 11, 12, 13]
    text.extend([10, 11, 7, 20, 21])
    assert looked_up.expect(text, 0.0, 4) == [22, 23, 24, 25]


def test_behind_the_end_of_a_source_the_text_does_not_begin_again() -> None:
    looked_up = lookups().begin(3, source=[10, 11, 12])
    text = array("i", [1, 2, 3])
    assert looked_up.expect(text, 0.0, 8) == [10, 11, 12]
    text.extend([10, 11])
    assert looked_up.expect(text, 0.0, 8) == [12]
    text.append(12)
    assert looked_up.expect(text, 0.0, 8) == []


def test_a_text_that_repeats_nothing_drafts_nothing_and_is_hardly_looked_at() -> None:
    looked_up, source = lookups().begin(0), random.Random(1)
    text = array("i", source.choices(range(60), k=100))
    num_drafted = num_looks = 0
    for _ in range(800):
        text.append(source.randrange(60))
        if len(text) >= looked_up.due:
            num_looks += 1
            num_drafted += bool(looked_up.expect(text, 0.3, 8))
    assert num_drafted < 10 and num_looks < 2 * 800 / LONGEST_PAUSE
    copied = text[200:260]
    for index, token in enumerate(copied):
        if len(text) >= looked_up.due and looked_up.expect(text, 0.3, 8):
            assert index <= 2 * LONGEST_PAUSE + 1, "a copy is noticed at one look, and believed at the next"
            break
        text.append(token)
    else:
        raise AssertionError("a copy is not noticed")


def num_expected(looked_up: Lookup, text: array[int], floor: float) -> int:
    return len(looked_up.expect(text, floor, 64))


def test_drafts_grow_while_they_are_right_and_shrink_when_they_are_wrong() -> None:
    shared = lookups(max_draft_tokens=64)
    looked_up, text = shared.begin(60), array("i", random.Random(2).sample(range(60), 60))
    at_first = num_expected(looked_up, text + text[:2], 0.3)
    for end in range(3, 25):
        grown = num_expected(looked_up, text + text[:end], 0.3)
    assert grown > 2 * at_first > 0
    said = text + text[:24]
    for token in (59, 58, 57, 56, 55, 54, 53, 52):
        said += array("i", [token, *text[:2]])
        shrunk = num_expected(looked_up, said, 0.3)
    assert shrunk < grown


@settings(max_examples=100, deadline=None)
@given(TEXTS, st.lists(st.integers(1, 9), max_size=30), st.integers(0, 12))
def test_a_higher_floor_and_a_lower_limit_shorten_the_draft(text: list[int], sizes: list[int], limit: int) -> None:
    drafts = [expect_all(lookups().begin(0), text, sizes, floor) for floor in (0.0, 0.3, 0.6, 1.1)]
    for longer, shorter in pairwise(drafts):
        assert longer[: len(shorter)] == shorter
    assert not drafts[-1]
    assert lookups().begin(0).expect(array("i", text), 0.0, limit) == drafts_at_once(text)[:limit]


def drafts_at_once(text: list[int]) -> list[int]:
    return lookups().begin(0).expect(array("i", text), 0.0, 8)


def test_memory_is_bounded_and_what_is_left_is_looked_up_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_module, "MAX_TOKENS", 128)
    source = random.Random(3)
    for num_prompt in (10, 100, 500):
        looked_up, text = lookups().begin(num_prompt), array("i", source.choices(range(40), k=num_prompt))
        for _ in range(300):
            draft = looked_up.expect(text, 0.0, 8)
            assert not draft or goes_on_at(text, draft)
            assert looked_up.num_kept <= 128
            text.extend(source.choices(range(40), k=source.choice([1, 1, 1, 5])))
        copied = text[-20:-12]
        text.extend(copied)
        assert looked_up.expect(text, 0.0, 4) == text[-20:-16].tolist()


def test_every_token_is_compared_as_one_that_begins_with_no_space() -> None:
    vocabulary = Vocabulary([b"a", b" a", b" b", b" ", b"", b"  a"], [4])
    assert fold_spaces(vocabulary, 8).tolist() == [0, 0, 2, 3, 4, 1, 6, 7]
    assert fold_spaces(vocabulary, 8).dtype == np.uint32
