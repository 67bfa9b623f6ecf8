"""Gemma 3n in the engine, next to transformers: a random checkpoint of the published proportions.

    OMP_NUM_THREADS=1 python bench/studies/gemma3n.py

Ten layers, windows in four of five, the last five read the keys and values of earlier ones. 64 greedy tokens each of
five prompts, cold and from the cache, with every type of keys and values, rounded weights, tiers, and itself as the
draft model. "agree" counts tokens that are the likeliest in transformers, in fp32, after the same ones; "hit = miss"
whether both say the same, log-probabilities included; in bf16 on a CPU the bits of attention depend on the step, in all
models. Random weights spread what is rounded: the last line says how
much of it transformers' own bf16 keeps. Needs transformers.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

import phloem as ph

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "runtime"))

from models.oracle import Oracle
from models.test_parity import save_confident_model

SHAPE: dict[str, Any] = {
    "num_hidden_layers": 10,
    "num_key_value_heads": 2,
    "sliding_window": 48,
    "num_kv_shared_layers": 5,
    "hidden_size_per_layer_input": 32,
    "vocab_size_per_layer_input": 1200,
    "laurel_rank": 16,
    "activation_sparsity_pattern": [0.95] * 4 + [0.0] * 6,
}
WAYS: dict[str, dict[str, Any]] = {
    "fp32": {},
    "chunks of 13, few blocks": {"max_batch_tokens": 13, "num_blocks": 96},
    "one request at a time": {"max_running_requests": 1},
    "int8 keys and values": {"kv_dtype": "int8"},
    "fp8 keys and values": {"kv_dtype": "fp8"},
    "int4 keys and values": {"kv_dtype": "int4"},
    "int8 weights": {"quantise": "int8"},
    "int4 weights": {"quantise": "int4"},
    "bf16": {"dtype": "bfloat16"},
    "host memory below few blocks": {"host_memory_bytes": 64 << 20, "num_blocks": 96},
}
PARAMS = ph.SamplingParams(max_tokens=64, temperature=0.0, ignore_eos=True, logprobs=0)


def prompts() -> list[list[int]]:
    source = random.Random(3)
    shared = [source.randrange(20, 1200) for _ in range(150)]
    return [shared[:cut] + [source.randrange(20, 1200) for _ in range(12)] for cut in (0, 20, 60, 110, 150)]


def agreeing(oracle: Oracle, prompt: list[int], answer: list[int]) -> int:
    logits = oracle.logits([*prompt, *answer[:-1]])[len(prompt) - 1 :]
    return int((logits.argmax(-1).numpy() == answer).sum())


def half_agreeing(oracle: Oracle) -> int:
    """The same of transformers in bf16, along what it says in fp32."""
    answers = []
    for prompt in prompts():
        token_ids = oracle.model.generate(torch.tensor([prompt]), max_new_tokens=64, do_sample=False)[0].tolist()
        answers.append((prompt, token_ids[len(prompt) :]))
    oracle.model.to(torch.bfloat16)
    return sum(agreeing(oracle, prompt, answer) for prompt, answer in answers)


def row(oracle: Oracle, way: str, options: dict[str, Any]) -> str:
    folder = str(oracle.folder)
    with ph.Engine(
        folder, device="cpu", check_invariants=True, **{"block_size": 4, "num_blocks": 600, **options}
    ) as engine:
        cold, warm = (engine.generate(prompts(), PARAMS) for _ in range(2))
        said = [[(one.token_ids, one.logprobs) for one in answers] for answers in (cold, warm)]
        cached = sum(one.usage.cached_tokens for one in warm)
        has_windows = engine.prefix_cache.slots.windows is not None
    found = sum(agreeing(oracle, prompt, list(one.token_ids)) for prompt, one in zip(prompts(), cold, strict=True))
    same = "yes" if said[0] == said[1] else "no"
    return f"{way:<32}{found:>5} of {64 * len(cold)}{same:>12}{cached:>9}{'yes' if has_windows else 'no':>9}"


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(f"{'':<32}{'agree':>12}{'hit = miss':>12}{'cached':>9}{'windows':>9}")
    with tempfile.TemporaryDirectory() as folder:
        oracle = Oracle(Path(folder), save_confident_model(Path(folder), "Gemma3nForCausalLM", SHAPE))
        for way, options in {**WAYS, "itself as draft model": {"speculative_model": folder}}.items():
            print(row(oracle, way, options), flush=True)
        print(f"{'transformers in bf16':<32}{half_agreeing(oracle):>5} of {64 * len(prompts())}")


if __name__ == "__main__":
    main()
