"""`explain_cache`: where the longest match of a prompt ended, and why there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phloem.runtime.cache.cache_explanation import CacheExplanation, CacheReason
from phloem.runtime.engine.engine import Engine
from phloem.runtime.request import SamplingParams

from ..fakes import fake_engine

ONE = SamplingParams(max_tokens=1, temperature=0.0)


def ask(engine: Engine, prompt: str | list[int], **options: Any) -> CacheExplanation:
    usage = engine.generate(prompt, ONE, explain_cache=True, **options).usage
    assert usage.cache_explanation is not None
    assert usage.cache_explanation.num_cached_tokens == usage.cached_tokens
    return usage.cache_explanation


@pytest.mark.parametrize("reason", get_args(CacheReason))
def test_every_reason_has_sentences_and_is_where_reasons_are_listed(reason: CacheReason) -> None:
    for num_cached in (0, 1, 7):
        assert CacheExplanation(reason, num_cached, 9, 1.0, "a", "b").sentence.endswith(".")
    root = Path(__file__).resolve().parents[3]
    assert f"`{reason}`" in (root / "docs" / "server.md").read_text()
    assert f"{reason}:" in (root / "web" / "src" / "views" / "now" / "misses_card.tsx").read_text()


def test_nothing_is_explained_unasked() -> None:
    assert fake_engine().generate("abc", ONE).usage.cache_explanation is None


def test_a_prompt_that_is_all_there_is_complete() -> None:
    engine = fake_engine()
    engine.generate("hello world", ONE)
    assert ask(engine, "hello world") == CacheExplanation("complete", 10, 10, None, "hello worl", "")


def test_new_text_was_never_seen_and_is_shown_where_it_begins() -> None:
    engine = fake_engine()
    engine.generate("the invoice of May", ONE)
    assert ask(engine, "the invoice of June") == CacheExplanation("never_seen", 15, 15, None, "the invoice of ", "June")


FIRST_9 = "The first 9 tokens were cached; "


@pytest.mark.parametrize(
    ("reason", "num_cached", "sentence"),
    [
        ("complete", 9, "All of the prompt was cached; its last token is always computed, for what comes next."),
        ("never_seen", 9, f"{FIRST_9}what follows was never seen, or too long ago to know."),
        ("never_seen", 0, "Nothing of it was cached: it was never seen, or too long ago to know."),
        ("evicted", 9, f"{FIRST_9}of what follows 3 tokens were cached once, and made room for others 41.3 s ago."),
        (
            "evicted",
            0,
            "Nothing of it was cached: 3 tokens of it were cached once, and made room for others 41.3 s ago.",
        ),
        (
            "block_rounding",
            9,
            f"{FIRST_9}keys and values of the next 3 tokens are too, but there was no free block to copy them into.",
        ),
        (
            "no_state",
            0,
            "Nothing of it could be reused: keys and values of its first 3 tokens are cached, but no state of the "
            "recurrent layers is kept after them.",
        ),
        (
            "no_window",
            1,
            "The first 1 token was cached; keys and values of the next 3 tokens are too, but those in layers with a "
            "window have made room for others.",
        ),
        (
            "dropped",
            9,
            f"{FIRST_9}of what follows 3 tokens were computed once, but after a kv_budget had dropped keys, so that "
            "they were not kept.",
        ),
        (
            "other_namespace",
            0,
            "Nothing of it was cached: 3 tokens of it are cached for others (another salt, key or adapter) and not "
            "shared.",
        ),
        ("disabled", 0, "There is no prefix cache."),
    ],
)
def test_an_explanation_says_it_in_words_too(reason: CacheReason, num_cached: int, sentence: str) -> None:
    assert CacheExplanation(reason, num_cached, 12, 41.26, "", "", None, 3).sentence == sentence


def test_special_tokens_are_shown_by_their_names() -> None:
    engine = Engine("nano", device="cpu")
    chats = [[{"role": "user", "content": text}] for text in ("May", "June")]
    told = [engine.chat(chat, ONE, explain_cache=True).usage.cache_explanation for chat in chats]
    assert told[1].agreed_text and told[1].differing_text.startswith("June<|")
    assert any(name in told[1].agreed_text for name in engine.tokenizer.special_ids)
    engine.close()


def test_only_the_requests_own_text_is_shown() -> None:
    engine = fake_engine()
    engine.generate("my password is 1234", ONE)
    found = ask(engine, "my password is what?")
    assert "1234" not in found.agreed_text + found.differing_text
    assert found.differing_text == "what?"


def test_long_texts_are_cut_around_the_divergence() -> None:
    engine = fake_engine()
    engine.generate("a" * 100 + "b" * 50, ONE)
    found = ask(engine, "a" * 100 + "c" * 50)
    assert set(found.agreed_text) == {"a"} and set(found.differing_text) == {"c"}
    assert max(len(found.agreed_text), len(found.differing_text)) <= 40


def test_what_was_evicted_says_so_and_since_when() -> None:
    engine = fake_engine(num_blocks=8)
    engine.generate("the invoice of May", ONE)
    engine.generate(list(range(100, 128)), ONE)
    found = ask(engine, "the invoice of May")
    assert (found.reason, found.num_cached_tokens) == ("evicted", 0)
    assert found.seconds_since_eviction is not None and 0 <= found.seconds_since_eviction < 600


def test_a_chat_whose_last_half_block_went_is_told_that_it_was_evicted() -> None:
    engine = fake_engine(num_blocks=16)
    for text in ("abcdefgh", "abcdefghij"):
        engine.generate(text, SamplingParams(max_tokens=0))
    engine.prefix_cache.pool.free(engine.prefix_cache.tree.evict(1))
    found = ask(engine, "abcdefghij and more")
    assert (found.reason, found.num_cached_tokens, found.differing_text) == ("evicted", 8, "ij and more")


@pytest.mark.parametrize(("allowed", "reason"), [(False, "never_seen"), (True, "other_namespace")])
def test_neighbours_are_told_of_only_if_the_operator_says_so(allowed: bool, reason: str) -> None:
    engine = fake_engine(explain_namespaces=allowed)
    engine.generate("a shared secret", ONE, namespace="tenant")
    found = ask(engine, "a shared secret", namespace="neighbour")
    lost = 12 if allowed else 0  # whole blocks
    assert found == CacheExplanation(reason, 0, 0, None, "", "a shared secret", None, lost)  # type: ignore[arg-type]


def test_without_a_cache_there_is_nothing_to_explain() -> None:
    assert ask(fake_engine(prefix_cache=False), "abc").reason == "disabled"


def test_asking_changes_nothing_for_the_request() -> None:
    asked, plain = fake_engine(num_blocks=16), fake_engine(num_blocks=16)
    for i in range(30):
        prompt = [i % 3, *range(20), i % 7, i]
        one = asked.generate(prompt, ONE, explain_cache=True)
        other = plain.generate(prompt, ONE)
        assert (one.token_ids, one.usage.cached_tokens) == (other.token_ids, other.usage.cached_tokens)


@given(st.lists(st.lists(st.sampled_from([1, 2]), min_size=1, max_size=14), min_size=1, max_size=8))
def test_with_room_for_all_the_divergence_is_where_the_longest_common_prefix_ends(prompts: list[list[int]]) -> None:
    """The oracle: of all token sequences whose KV was computed, the one that agrees furthest."""
    engine = fake_engine(num_blocks=256, check_invariants=False)
    computed: list[list[int]] = []
    for prompt in prompts:
        longest = max((_agreement(prompt[:-1], earlier) for earlier in computed), default=0)
        found = ask(engine, prompt)
        assert found.num_agreeing_tokens == found.num_cached_tokens == longest
        assert found.reason == ("complete" if longest == len(prompt) - 1 else "never_seen")
        computed.append(prompt)


def _agreement(one: list[int], other: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
