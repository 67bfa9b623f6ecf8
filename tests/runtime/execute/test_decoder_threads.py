"""Steps of a decoder have the same bits, in logits and in KV, however many threads compute them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from phloem.kernels import ops, use_threads
from phloem.runtime.execute.kv_cache import KVCache
from phloem.runtime.models import Decoder

from ..models.decoder_cases import CASES
from ..models.oracle import save_random_model

WIDE = {"head_dim": 16, "num_hidden_layers": 3}
MODELS = {"norms of heads": CASES["qwen3"], "norms after, caps, windows": CASES["gemma2"]}
# by step, of each of three requests: new tokens; the first 64 of all lie in the same blocks
STEPS = [(70, 66, 1), (1, 1, 1), (4, 1, 90), (1, 2, 1), (1, 1, 1)]


def run(decoder: Decoder, kv_dtype: torch.dtype) -> list[torch.Tensor]:
    """The logits of all steps and, at the end, the KV."""
    config = decoder.config
    cache = KVCache(shapes=config.kv_shapes(), num_blocks=40, block_size=16, dtype=kv_dtype, device=torch.device("cpu"))
    tables = np.random.default_rng(0).permutation(39).reshape(3, 13).astype(np.int32)
    tables[1, :4] = tables[0, :4]
    lens, found = np.zeros(3, np.int32), []
    for step, counts in enumerate(STEPS):
        q_lens = np.array(counts, np.int32)
        lens = lens + q_lens
        starts = np.concatenate([[0], np.cumsum(q_lens)]).astype(np.int32)
        owner = np.repeat(np.arange(3), q_lens)
        positions = np.arange(len(owner)) - starts[owner] + (lens - q_lens)[owner]
        slots = tables[owner, positions // 16].astype(np.int64) * 16 + positions % 16
        plan = ops.plan_attention(
            starts, lens, tables, num_heads=config.num_heads, num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim, block_size=16,
        )  # fmt: skip
        token_ids = torch.from_numpy((positions * 7 + step) % config.vocab_size)
        rows = torch.from_numpy(starts[1:].astype(np.int64) - 1) if step % 2 else None
        found.append(
            decoder.forward(token_ids, torch.from_numpy(positions), cache, plan, torch.from_numpy(slots), rows)
        )
    scales = [tensor for tensor in (*cache.key_scales, *cache.value_scales) if tensor is not None]
    return [*found, *(tensor.view(torch.int8) for tensor in (*cache.keys, *cache.values, *scales))]


@pytest.mark.parametrize("quantise", ["none", "int8", "int4"])
@pytest.mark.parametrize("name", MODELS)
def test_a_team_of_threads_gives_the_bits_of_one(tmp_path: Path, name: str, quantise: Any) -> None:
    class_name, options = MODELS[name]
    save_random_model(tmp_path, class_name, {**options, **WIDE, "intermediate_size": 400})
    decoder = Decoder.from_folder(tmp_path, dtype=torch.float32, quantise=quantise)
    use_threads(1)
    alone = run(decoder, torch.float32)
    use_threads(3)
    try:
        together = run(decoder, torch.float32)
    finally:
        use_threads(None)
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))
