"""Quantised weights and KV in a whole engine: nearly the text of fp32, the same text in every batch, clear refusals."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

import phloem as ph
from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.loading import load
from phloem.runtime.execute.pool import allocate_pool
from phloem.runtime.models import resolve_model

from .decoder_cases import CASES
from .oracle import save_random_model

PROMPTS = ["The invoice of", "Ada Lovelace was born in", "A table for two at", "{"]
GREEDY = ph.SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True)


def texts(prompts: list[str], **settings: object) -> list[tuple[int, ...]]:
    with ph.Engine(device="cpu", check_invariants=True, **settings) as engine:  # type: ignore[arg-type]  # as a test gives them
        return [tuple(completion.token_ids) for completion in engine.generate(prompts, GREEDY)]


def agreement(found: list[tuple[int, ...]], expected: list[tuple[int, ...]]) -> float:
    """Share of tokens before the first difference of each text."""
    pairs = [zip(f, e, strict=True) for f, e in zip(found, expected, strict=True)]
    same = [sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], both)) for both in pairs]
    return sum(same) / sum(map(len, expected))


@pytest.fixture(scope="module")
def plain() -> list[tuple[int, ...]]:
    return texts(PROMPTS)


def test_int8_weights_write_nearly_the_text_of_fp32(plain: list[tuple[int, ...]]) -> None:
    found = texts(PROMPTS, quantise="int8")
    assert agreement(found, plain) >= 0.5


@pytest.mark.parametrize("quantise", ["int8", "int4"])
def test_text_does_not_depend_on_batch_or_chunks(quantise: str) -> None:
    together = texts(PROMPTS, quantise=quantise)
    assert texts(PROMPTS, quantise=quantise, max_batch_tokens=5) == together
    assert texts(PROMPTS, quantise=quantise, max_running_requests=1) == together


@pytest.mark.parametrize("kv_dtype", ["int8", "fp8", "int4"])
def test_quantised_kv_writes_nearly_the_text_of_fp32(kv_dtype: str, plain: list[tuple[int, ...]]) -> None:
    found = texts(PROMPTS, kv_dtype=kv_dtype)
    assert agreement(found, plain) >= 0.5
    # the same bytes are read back whichever step wrote them
    assert texts(PROMPTS, kv_dtype=kv_dtype, max_batch_tokens=5) == found
    assert texts(PROMPTS, kv_dtype=kv_dtype, block_size=1, max_running_requests=1) == found


@pytest.mark.parametrize("kv_dtype", ["int8", "int4"])
def test_a_copied_block_keeps_its_scales(kv_dtype: str) -> None:
    """A prefix that ends within a block is copied; read with the scales of another block it would be noise."""
    prompt = "The invoice of Grimund Group says that the order was"
    with ph.Engine(device="cpu", kv_dtype=kv_dtype, check_invariants=True) as engine:
        cold = [c.token_ids for c in engine.generate([prompt + " late", prompt + " early"], GREEDY)]
        warm = engine.generate([prompt + " early", prompt + " late"], GREEDY)
        assert [c.token_ids for c in warm] == cold[::-1]
        assert min(c.usage.cached_tokens for c in warm) > 0


def test_a_pool_of_rounded_numbers_holds_as_many_more_tokens() -> None:
    sizes = {}
    for kv_dtype in ("auto", "int8", "fp8", "int4"):
        config = EngineConfig(device="cpu", kv_dtype=kv_dtype, kv_memory_bytes=4 << 20)  # type: ignore[arg-type]  # literals
        pool = allocate_pool(config, load(config))
        scales = [tensor for tensor in (*pool.key_scales, *pool.value_scales) if tensor is not None]
        assert sum(tensor.nbytes for tensor in (*pool.keys, *pool.values, *scales)) <= 4 << 20
        sizes[kv_dtype] = pool.num_blocks
    head_dim = load(EngineConfig(device="cpu")).decoder.config.head_dim
    assert sizes["int8"] == sizes["fp8"] >= int(sizes["auto"] * 4 * head_dim / (head_dim + 4))
    assert sizes["int4"] >= int(sizes["auto"] * 4 * head_dim / (head_dim / 2 + 4))


def test_latents_are_not_rounded(tmp_path: Path) -> None:
    save_random_model(tmp_path, *CASES["youtu"])
    for name in ("tokenizer.model", "tokenizer_config.json"):
        shutil.copy(resolve_model("nano") / name, tmp_path)
    with pytest.raises(ph.ConfigError, match=r'YoutuForCausalLM keeps latents.*"auto"'):
        load(EngineConfig(str(tmp_path), device="cpu", kv_dtype="int8"))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"quantise": "int3"}, '"none", "int8"'),
        ({"kv_dtype": "int3"}, '"auto", "fp8", "int8"'),
        ({"quantise": "int8", "dtype": "bfloat16"}, 'dtype="float32"'),
    ],
    ids=["unknown", "unknown for KV", "not in bfloat16"],
)
def test_what_cannot_be_quantised_is_refused_with_the_remedy(settings: dict[str, str], told: str) -> None:
    with pytest.raises(ph.ConfigError, match=told):
        texts(["x"], **settings)
