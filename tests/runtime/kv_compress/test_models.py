"""Budgets of keys and values on models: against transformers with the same keys gone, and against the run alone.

The twin decodes with transformers' own model and attention. Its weights say what SnapKV's window looks at; what
they choose is taken out of transformers' cache, layer by layer and head by head.
"""

from __future__ import annotations

import copy
import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import phloem as ph
from phloem.errors import RequestError
from phloem.runtime.execute.kv_cache import KVCache
from phloem.runtime.kv_policies import KV_POLICIES, NUM_SINKS, POOL_WIDTH, WINDOW
from phloem.runtime.models.kv_shape import KVShape

from ..models.oracle import assert_likeliest
from ..models.test_parity import LATENTS, save_confident_model
from .keeping import scored, some_prompt

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "GQA": ("LlamaForCausalLM", {"num_key_value_heads": 2}),
    "norms of queries and keys": ("Qwen3ForCausalLM", {"num_key_value_heads": 2}),
    "latents": ("YoutuForCausalLM", LATENTS),
}
OTHER_GROUPS: dict[str, tuple[str, dict[str, Any]]] = {
    "windows": ("Gemma2ForCausalLM", {"sliding_window": 70, "query_pre_attn_scalar": 20}),
    "windows, and other heads beside": (
        "Gemma4ForCausalLM",
        {
            "sliding_window": 70,
            "layer_types": ["sliding_attention", "full_attention"],
            "global_head_dim": 32,
            "num_global_key_value_heads": 4,
            "attention_k_eq_v": True,
            "hidden_size_per_layer_input": 0,
        },
    ),
    "windows, and layers without keys": (
        "Gemma3nForCausalLM",
        {
            "num_hidden_layers": 4,
            "sliding_window": 70,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "num_kv_shared_layers": 2,
            "hidden_size_per_layer_input": 16,
            "vocab_size_per_layer_input": 1280,
            "laurel_rank": 16,
        },
    ),
    "states": ("Lfm2ForCausalLM", {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False}),
}
LENGTH = 150
SHORTER = 100  # keys are let go of from 128 on, which is in the middle of the answer to most prompts
LOGITS_BOUND = 2e-3  # rounding brings them apart by a fiftieth of it, keys other than transformers' by tenths


class Twin:
    """transformers' model, its cache, and how many heads choose together."""

    def __init__(self, model: Any, num_choices: int, kv_budget: int, kv_policy: str) -> None:
        self.model, self.num_choices, self.kv_budget, self.kv_policy = model, num_choices, kv_budget, kv_policy
        self._num_layers = model.config.num_hidden_layers - getattr(
            model.config, "num_kv_shared_layers", 0
        )  # with keys
        self.keeps_states = "conv" in (getattr(model.config, "layer_types", None) or ())

    @torch.inference_mode()
    def logits(self, prompt: list[int], answer: list[int]) -> torch.Tensor:
        """Those of each token of the answer, `[., V]`, after the prompt and the tokens before it."""
        from transformers import DynamicCache

        # without a configuration its layers keep all keys, windows or not
        cache = DynamicCache(config=self.model.config) if self.keeps_states else DynamicCache()
        token_ids, rows, start = list(prompt), [], 0
        self.received: list[torch.Tensor] = []  # by layer, [num_choices, n]
        full = max(self.kv_budget + 64, self.kv_budget * 5 // 4)
        for token in answer:
            if start and cache.get_seq_length() >= full:
                self._compact(cache, token_ids[:start])
            found = self._forward(cache, token_ids[start:], start)
            self._count(found.attentions, len(prompt) - WINDOW - start)
            rows.append(found.logits[0, -1])
            start = len(token_ids)
            token_ids.append(token)
        return torch.stack(rows)

    def _forward(self, cache: Any, token_ids: list[int], start: int) -> Any:
        positions = torch.arange(start, start + len(token_ids))[None]
        ids = torch.tensor([token_ids])
        # the cache by its place, after ids, mask and positions: transformers renames it to `cache`
        return self.model(ids, None, positions, cache, use_cache=True, output_attentions=True)

    def _by_choice(self, weights: torch.Tensor) -> torch.Tensor:
        """Attention `[1, heads, rows, n]`, summed over rows, then over heads that choose together."""
        return weights[0].sum(1).view(self.num_choices, -1, weights.shape[-1]).sum(1)

    def _count(self, attentions: Any, first_row: int) -> None:
        for layer, weights in enumerate(attentions[: self._num_layers]):
            given = self._by_choice(weights[:, :, max(0, first_row) :])
            if layer < len(self.received):
                given[:, : self.received[layer].shape[1]] += self.received[layer]
            self.received[layer : layer + 1] = [given]

    def _compact(self, cache: Any, token_ids: list[int]) -> None:
        num_keys = cache.get_seq_length()
        layers, groups = [layer for layer in cache.layers if hasattr(layer, "keys")], list(self.received)
        if self.kv_policy == "snapkv":
            looking = copy.deepcopy(cache)
            looking.crop(-WINDOW)
            seen = self._forward(looking, token_ids[-WINDOW:], len(token_ids) - WINDOW).attentions
            groups = [self._by_choice(weights) for weights in seen]
        for number, (layer, of_layer) in enumerate(zip(layers, groups, strict=True)):
            assert of_layer.shape[1] == num_keys
            kept = [self._choose(group.tolist()) for group in of_layer]
            self.received[number] = self.received[number].gather(1, torch.tensor(kept))
            per_choice = layer.keys.shape[1] // self.num_choices
            index = torch.tensor(kept).repeat_interleave(per_choice, 0)[None, :, :, None]
            layer.keys = layer.keys.gather(2, index.expand(-1, -1, -1, layer.keys.shape[-1]))
            layer.values = layer.values.gather(2, index.expand(-1, -1, -1, layer.values.shape[-1]))

    def _choose(self, scores: list[float]) -> list[int]:
        num_keys = len(scores)
        if self.kv_policy == "sinks":
            return [*range(NUM_SINKS), *range(num_keys - self.kv_budget + NUM_SINKS, num_keys)]
        num_last, reach = (self.kv_budget // 2, 0) if self.kv_policy == "h2o" else (WINDOW, POOL_WIDTH // 2)
        others = scores[: num_keys - num_last]
        around = [max(others[max(0, at - reach) : at + reach + 1]) for at in range(len(others))]
        order = sorted(range(len(others)), key=lambda at: (-around[at], at))
        best, rest = order[: self.kv_budget - num_last], order[self.kv_budget - num_last :]
        lead = around[best[-1]] - around[rest[0]]  # none: both stand next to the same key
        assert lead == 0 or lead > 1e-5, "rounding could choose another key: take another prompt"
        return [*sorted(best), *range(num_keys - num_last, num_keys)]


@pytest.fixture(scope="module", params=SHAPES.values(), ids=SHAPES)
def published(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, int]:
    """A folder with random weights and the bundled tokenizer, transformers' model, and how many heads choose."""
    class_name, options = request.param
    folder = tmp_path_factory.mktemp("checkpoint")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers' own
        model = save_confident_model(folder, class_name, options, "eager")
    return folder, model, 1 if options is LATENTS else 2


def params_of(kv_budget: int | None, kv_policy: str = "snapkv", **more: Any) -> ph.SamplingParams:
    more = {"max_tokens": LENGTH, "temperature": 0.0, "ignore_eos": True, "logprobs": 0, **more}
    return ph.SamplingParams(kv_budget=kv_budget, kv_policy=kv_policy, **more)


@pytest.mark.parametrize("policy", ["snapkv", "sinks", "h2o"])
def test_tokens_are_those_of_transformers_with_the_same_keys_gone(
    published: tuple[Path, Any, int], policy: str
) -> None:
    folder, model, num_choices = published
    prompt = some_prompt(200)
    with ph.Engine(str(folder), device="cpu", check_invariants=True, num_blocks=64, max_batch_tokens=90) as engine:
        whole = engine.generate(prompt, params_of(None)).token_ids
        budget = 100 if policy == "sinks" else 64
        completion = engine.generate(prompt, params_of(budget, policy))
    answer = list(completion.token_ids)
    assert len(answer) == LENGTH
    assert completion.token_ids != whole
    logits = Twin(model, num_choices, budget, policy).logits(prompt, answer)
    assert_likeliest(logits, answer, torch.full((LENGTH,), LOGITS_BOUND))
    found = torch.tensor([chosen.logprob for chosen in completion.logprobs])
    torch.testing.assert_close(found, logits.log_softmax(-1).amax(-1), atol=LOGITS_BOUND, rtol=0)


@pytest.mark.parametrize("kind", OTHER_GROUPS)
def test_windows_stay_whole_and_states_go_on(kind: str, tmp_path: Path) -> None:
    has_windows, (class_name, options) = kind.startswith("windows"), OTHER_GROUPS[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers' own
        model = save_confident_model(tmp_path, class_name, {"num_key_value_heads": 2, **options}, "eager")
    prompt, params, said = some_prompt(170), params_of(100, "sinks", max_tokens=40), []
    # windows have slots of their own in the first, and in the second there are too few blocks for that
    for more in ({"max_batch_tokens": 90, "num_blocks": 128}, {"prefix_cache": False, "num_blocks": 64}):
        with ph.Engine(str(tmp_path), device="cpu", check_invariants=True, **more) as engine:
            assert (engine.prefix_cache.slots.windows is not None) == (has_windows and more["num_blocks"] == 128)
            said += [engine.generate(prompt, params) for _ in range(1 + ("max_batch_tokens" in more))]
            for policy, budget, place in (("snapkv", 100, "kv_policy"), ("sinks", 64, "kv_budget")):
                if place == "kv_policy" or has_windows:
                    with pytest.raises(RequestError, match=place):
                        engine.generate(prompt, params_of(budget, policy))
    assert said[1].usage.cached_tokens > 150
    assert len({str(scored(one)) for one in said}) == 1, "a hit is a miss"
    answer = list(said[0].token_ids)
    logits = Twin(model, 2, 100, "sinks").logits(prompt, answer)
    assert_likeliest(logits, answer, torch.full((len(answer),), LOGITS_BOUND))
    found = torch.tensor([chosen.logprob for chosen in said[0].logprobs])
    torch.testing.assert_close(found, logits.log_softmax(-1).amax(-1), atol=LOGITS_BOUND, rtol=0)


@cache
def alone(length: int, seed: int, kv_budget: int, kv_policy: str, kv_dtype: str) -> list[tuple[int, float]]:
    """What the bundled model says without company, drafts and a cache, its prompt in one piece."""
    settings = {"prefix_cache": False, "lookup_drafts": False, "block_size": 16, "num_blocks": 64, "kv_dtype": kv_dtype}
    with ph.Engine(device="cpu", **settings) as engine:
        return scored(engine.generate(some_prompt(length, seed), params_of(kv_budget, kv_policy, max_tokens=SHORTER)))


@settings(deadline=None, max_examples=6)
@given(
    st.lists(
        st.tuples(st.integers(1, 260), st.integers(1, 2), st.sampled_from([64, 80]), st.sampled_from([*KV_POLICIES])),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([1, 4, 16]),
    st.sampled_from([11, 64, 4096]),
    st.sampled_from(["auto", "auto", "int8", "fp8", "int4"]),
    st.booleans(),
)
def test_bits_do_not_depend_on_the_cache_the_chunks_or_the_company(
    asked: list[tuple[int, int, int, str]], block_size: int, chunk: int, kv_dtype: str, ahead: bool
) -> None:
    with ph.Engine(
        device="cpu",
        block_size=block_size,
        num_blocks=900 // block_size,
        max_batch_tokens=chunk,
        kv_dtype=kv_dtype,
        run_ahead=ahead,
        check_invariants=True,
    ) as engine:
        prompts = [some_prompt(length, seed) for length, seed, _, _ in asked]
        for _ in range(2):  # cold, then warm
            completions = engine.generate(
                [*prompts, some_prompt(200)],
                [*(params_of(budget, policy, max_tokens=SHORTER) for _, _, budget, policy in asked), params_of(None)],
            )
            for (length, seed, budget, policy), completion in zip(asked, completions, strict=False):
                assert scored(completion) == alone(length, seed, budget, policy, kv_dtype)


SCHEMA = {
    "type": "object",
    "properties": {"names": {"type": "array", "items": {"type": "string", "maxLength": 9}, "minItems": 9}},
    "required": ["names"],
}


@pytest.mark.parametrize("policy", ["snapkv", "h2o"])
def test_constraints_drafts_and_look_ups_change_nothing(policy: str) -> None:
    texts = set()
    for options in ({"jump": "off", "lookup_drafts": False}, {"jump": "verified"}, {"run_ahead": True}):
        with ph.Engine(device="cpu", check_invariants=True, **options) as engine:
            sampling = params_of(64, policy, max_tokens=400, temperature=0.8, seed=3, ignore_eos=False)
            constraint = ph.json_schema(json.dumps(SCHEMA))
            prompt = "Ada Lovelace, Alan Turing and Grace Hopper. " * 20
            for completion in engine.generate([prompt, prompt], sampling, constraint):
                assert json.loads(completion.text)["names"]
                texts.add((completion.text, *scored(completion)))
    assert len(texts) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.float8_e4m3fn])
@pytest.mark.parametrize("num_parts", [1, 2])
def test_gathered_numbers_are_the_stored_ones(dtype: torch.dtype, num_parts: int) -> None:
    shapes = [KVShape(2, 8, num_parts)] * 3
    kv_cache = KVCache(shapes=shapes, num_blocks=9, block_size=4, dtype=dtype, device=torch.device("cpu"))
    torch.manual_seed(0)
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32}
    stacks = [stack.view(whole[stack.itemsize]) for stack in kv_cache._stacks]
    for stack in stacks:
        stack.copy_(torch.randint(-128, 128, stack.shape))
    before = [stack.clone() for stack in stacks]
    blocks, others = [7, 2, 5], [8, 0]
    places = torch.randint(0, 12, (3, 2, 6)).sort(-1).values
    kv_cache.scatter(others, kv_cache.gather(blocks, places))
    for layer in range(3):
        for head in range(2):
            for place, source in enumerate(places[layer, head].tolist()):
                for old in before:
                    old[layer, others[place // 4], head, place % 4] = old[layer, blocks[source // 4], head, source % 4]
    for stack, expected in zip(stacks, before, strict=True):
        assert torch.equal(stack, expected)
