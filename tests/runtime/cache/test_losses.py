"""The reason of a miss is that of the most tokens: each cause forced, at every length, and two at a time."""

from __future__ import annotations

from array import array
from typing import NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phloem.radix import Match, pack
from phloem.runtime.cache.cache_explanation import CacheExplanation
from phloem.runtime.cache.dropped_texts import DroppedTexts
from phloem.runtime.cache.kept_state import LostStates
from phloem.runtime.engine.engine import Engine
from phloem.runtime.kv_compress.budget import full_at
from phloem.runtime.request import Request, SamplingParams
from phloem.runtime.sample.output_text import OutputText
from phloem.runtime.sampling_params import LEAST_KV_BUDGET

from ..fakes import fake_engine
from ..kv_compress.keeping import keeping_engine, params_of, prompt_of
from ..recurrent_fake import RecurrentFakeDecoder
from ..windowed_fake import WindowedFakeDecoder

ONE = SamplingParams(max_tokens=1, temperature=0.0)
PROMPT = list(range(40))
REUSABLE = len(PROMPT) - 1


def ask(engine: Engine, prompt: list[int]) -> CacheExplanation:
    found = engine.generate(prompt, ONE, explain_cache=True).usage.cache_explanation
    assert found is not None
    return found


def evict_after(engine: Engine, prompt: list[int], num_tokens: int) -> None:
    """Of what is cached of a prompt nothing stays but the first tokens, which are whole blocks."""
    cache = engine.prefix_cache
    cache.tree.match(pack(prompt[:num_tokens]), "")  # splits the run there
    while cache.tree.peek(pack(prompt), "") > num_tokens:
        cache.supply.free(cache.tree.evict(1))


@pytest.mark.parametrize("left", range(0, 40, 4))
@pytest.mark.parametrize("interval", [0, 16])
def test_of_evicted_tokens_and_those_without_a_state_the_more_are_named(interval: int, left: int) -> None:
    engine = fake_engine(decoder=RecurrentFakeDecoder(), state_interval=interval)
    engine.generate(PROMPT, ONE)
    evict_after(engine, PROMPT, left)
    resumable = left // interval * interval if interval else 0
    without_state, evicted = left - resumable, REUSABLE - left
    expected = ("no_state", without_state) if without_state > evicted else ("evicted", evicted)
    found = ask(engine, PROMPT)
    assert (found.reason, found.num_lost_tokens) == expected
    assert (found.num_cached_tokens, found.num_agreeing_tokens) == (resumable, left)
    assert (found.seconds_since_eviction is None) == (found.reason == "no_state")


def test_where_all_keys_are_there_the_states_that_made_room_are_the_loss() -> None:
    engine = fake_engine(decoder=RecurrentFakeDecoder(), state_interval=16)
    engine.generate(PROMPT, ONE)
    engine.prefix_cache.slots.states.slots.make_room(10**6)  # evicts all
    found = ask(engine, PROMPT)
    assert (found.reason, found.num_lost_tokens, found.state_at) == ("no_state", REUSABLE, REUSABLE)


@pytest.mark.parametrize("left", range(0, 40, 4))
def test_of_evicted_tokens_and_those_without_a_window_the_more_are_named(left: int) -> None:
    engine = fake_engine(decoder=WindowedFakeDecoder(6), num_blocks=84)
    engine.generate(PROMPT, ONE)
    evict_after(engine, PROMPT, left)
    slots = engine.prefix_cache.slots.windows.slots
    slots.forget(list(range(84)))
    expected = ("no_window", left) if left > REUSABLE - left else ("evicted", REUSABLE - left)
    found = ask(engine, PROMPT)
    assert (found.reason, found.num_lost_tokens) == expected
    assert (found.num_cached_tokens, found.num_agreeing_tokens) == (0, left)


@pytest.mark.parametrize("left", [0, 32])
def test_of_evicted_tokens_and_those_after_dropped_keys_the_more_are_named(left: int) -> None:
    """A request of 90 tokens and 150 more keeps those up to the first compaction in the tree, at token 128."""
    engine = keeping_engine(block_size=16, num_blocks=100)
    prompt = prompt_of(90)
    said = [*prompt, *engine.generate(list(prompt), params_of(64, "sinks")).token_ids]
    evict_after(engine, said, left)
    dropped, evicted = len(said) - 1 - 128, 128 - left
    found = ask(engine, [*said, 1, 2])
    assert (found.reason, found.num_lost_tokens) == max(("dropped", dropped), ("evicted", evicted), key=lambda x: x[1])
    assert found.num_cached_tokens == left


def test_where_the_request_is_not_on_record_any_more_a_block_is_known_to_be_evicted() -> None:
    engine = fake_engine()
    engine.generate(PROMPT, ONE)
    evict_after(engine, PROMPT, 8)
    engine.prefix_cache.traffic.clear()
    found = ask(engine, PROMPT)
    assert (found.reason, found.num_lost_tokens) == ("evicted", engine.config.block_size)


def shared(one: list[int], other: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


LEAST = full_at(LEAST_KV_BUDGET)  # tokens before the first compaction
TEXTS = st.lists(st.integers(0, 1), max_size=6).map(lambda end: [0] * (LEAST - 2) + end)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["", "x"]), TEXTS, st.integers(LEAST - 2, LEAST + 4)),
        max_size=8,
    ),
    TEXTS,
    st.integers(0, LEAST + 4),
    st.integers(0, 5 * 4 * LEAST),
)
def test_dropped_texts_are_those_of_a_dict(
    added: list[tuple[str, str, list[int], int]], asked: list[int], num_tokens: int, most_bytes: int
) -> None:
    texts, kept = DroppedTexts(most_bytes), {}
    for name, namespace, tokens, num_prompt in added:
        params = SamplingParams(kv_budget=LEAST_KV_BUDGET)
        request = Request(name, 0, array("i", [*tokens, 7]), num_prompt, params, 0, cast(OutputText, None))
        request.namespace, request.num_computed_tokens = namespace, len(tokens)
        texts.add(request)
        kept.pop(name, None)
        kept[name] = namespace, tokens, max(LEAST, num_prompt)
        while sum(4 * len(text) for _, text, _ in kept.values()) > most_bytes:
            del kept[next(iter(kept))]
    for namespace in ("", "x"):
        lost = [shared(text, asked) - max(num_tokens, at) for own, text, at in kept.values() if own == namespace]
        assert texts.num_lost(pack(asked), namespace, num_tokens) == max([0, *lost])


class Path(NamedTuple):
    """What `LostStates` looks at in a match."""

    blocks: list[int]
    partial_block: int
    num_partial_tokens: int


BLOCK, BLOCKS = 4, 5


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["add", "add", "add", "forget", "clear"]), st.integers(0, BLOCKS - 1), st.integers(1, BLOCK)
        ),
        max_size=20,
    ),
    st.integers(0, BLOCKS),
    st.integers(0, BLOCK - 1),
)
def test_lost_states_are_those_of_a_dict(did: list[tuple[str, int, int]], num_blocks: int, num_partial: int) -> None:
    """Blocks 0, 1, 2 … of one path, so a state's block says where it was; the last may be matched in part."""
    lost, kept = LostStates(BLOCK), {}
    for what, block, within in did:
        if what == "add":
            lost.add(block, block * BLOCK + within)
            kept[block * BLOCK + within] = block
        elif what == "forget":
            lost.forget(block)
            kept = {number: own for number, own in kept.items() if own != block}
        else:
            lost.clear()
            kept = {}
    partial_block = num_blocks if num_partial and num_blocks < BLOCKS else -1
    length = num_blocks * BLOCK + (num_partial if partial_block >= 0 else 0)
    match = Path(list(range(num_blocks)), partial_block, length % BLOCK)
    assert lost.last_on(cast(Match, match)) == max((number for number in kept if number <= length), default=0)
