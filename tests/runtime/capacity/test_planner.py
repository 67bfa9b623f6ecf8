"""The plan made from config.json alone is what loading and allocating really takes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

from phloem.errors import ConfigError
from phloem.kernels import KV_FORMATS
from phloem.runtime.capacity.plan_table import table
from phloem.runtime.capacity.planner import plan
from phloem.runtime.config import EngineConfig, KVType
from phloem.runtime.execute.kv_cache import KVCache
from phloem.runtime.execute.loading import load
from phloem.runtime.execute.pool import allocate_pool
from phloem.runtime.execute.window_kv import WindowKV
from phloem.runtime.models import Decoder, ModelConfig, count_parameters, read_adapter
from phloem.runtime.models.mtp import MtpDecoder
from phloem.runtime.models.weights import TORCH_TYPES
from phloem.runtime.number_types import KV_BITS, ROUNDED_BITS, KVNumberType, RoundedKV

from ..models.decoder_cases import CASES
from ..models.decoder_shapes import DEEPSEEK
from ..models.mtp_checkpoint import save_mtp_model
from ..models.oracle import save_random_model
from ..models.saved_adapters import ALL, save_adapter

GIB = 1 << 30
LLAMA_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
# of each kind of weights; others are in `test_ranks`
PLAIN = ("llama-gqa", "llama-mha-tied", "llama-biases", "qwen2", "qwen3", "phi3", "gemma3", "gemma4-k-eq-v", "gpt2")
PLAIN += ("gemma4-moe", "gemma4-small", "opt-no-biases-untied", "youtu", "youtu-whole-queries", "minicpm3")
EXPERTS = ("mixtral", "qwen3-moe", "qwen3-moe-dense-layer", "deepseek-v2", "deepseek-v3", "ernie4.5-moe", "hunyuan-moe")
EXPERTS += ("glm4.5", "minimax-m2", "granite-moe-shared", "qwen2-moe", "qwen2-moe-dense-layers-window", "gpt-oss")
EXPERTS += ("olmoe-normalised-biases",)
RECURRENT = ("lfm2", "lfm2-biases-attention-last", "lfm2-moe", "qwen3-next", "qwen3-next-attention-last-dense-layer")
RECURRENT += ("qwen3.5", "qwen3.5-moe", "granite-hybrid", "granite-hybrid-experts", "granite-hybrid-groups-rope-biases")
RECURRENT += ("falcon-h1-no-norm-biases", "nemotron-h", "mamba2-tied-biases", "jamba", "kimi-linear", "minimax")


def config_only(folder: Path, **values: Any) -> ModelConfig:
    """A folder with a config.json and nothing else."""
    defaults = {"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "max_position_embeddings": 131072}
    (folder / "config.json").write_text(json.dumps({**defaults, **values}))
    return ModelConfig.from_folder(folder)


@pytest.fixture
def llama_8b(tmp_path: Path) -> ModelConfig:
    return config_only(tmp_path, **LLAMA_8B)


@pytest.mark.parametrize("case", [*PLAIN, *EXPERTS, *RECURRENT])
def test_weight_bytes_are_what_loading_takes(tmp_path: Path, case: str) -> None:
    save_random_model(tmp_path, *CASES[case])
    for name in ("float32", "bfloat16"):
        decoder = Decoder.from_folder(tmp_path, dtype=TORCH_TYPES[name])
        capacity = plan(decoder.config, pool_bytes=1 << 20, weight_dtype=name, on_cpu=True)
        assert capacity.weight_bytes == decoder.num_weight_bytes
    decoder = Decoder.from_folder(tmp_path, dtype=torch.float32)
    assert plan(decoder.config, pool_bytes=1 << 20, on_cpu=True).weight_bytes == decoder.num_weight_bytes
    for quantise in ("int8", "int4"):
        decoder = Decoder.from_folder(tmp_path, dtype=torch.float32, quantise=quantise)
        assert plan(decoder.config, pool_bytes=1 << 20, quantise=quantise).weight_bytes == decoder.num_weight_bytes


def test_on_a_cpu_a_model_is_counted_as_the_engine_keeps_it() -> None:
    """The bundled model, published in bf16: computed in fp32, its matrices kept in two bytes a number."""
    config = EngineConfig(model="nano", device="cpu", num_blocks=8)
    loaded = load(config)
    decoder, cache = loaded.decoder, allocate_pool(config, loaded)
    capacity = plan(decoder.config, pool_bytes=1 << 20, on_cpu=True)
    assert capacity.weight_bytes == decoder.num_weight_bytes
    assert capacity.kv_bytes_per_token == 2 * len(cache.keys) * cache.keys[0][0].nbytes // cache.block_size
    assert capacity.weight_bytes < 0.51 * plan(decoder.config, pool_bytes=1, weight_dtype="float32").weight_bytes


def test_formats_of_keys_and_values_have_the_same_names_everywhere() -> None:
    assert {*KV_FORMATS} == {*ROUNDED_BITS} == {*get_args(RoundedKV)} == {*get_args(KVType)} - {"auto"}
    assert {*KV_BITS} == {*get_args(KVNumberType)}
    found = {name: 8 * one.dtype.itemsize // one.num_per_element for name, one in KV_FORMATS.items()}
    assert found == ROUNDED_BITS


@pytest.mark.parametrize("kv_type", KV_BITS)
def test_pool_bytes_are_what_the_cache_takes(llama_8b: ModelConfig, kv_type: KVNumberType) -> None:
    capacity = plan(llama_8b, pool_bytes=10**8, block_size=16, kv_dtype=kv_type)
    cache = KVCache(
        shapes=llama_8b.kv_shapes(),
        num_blocks=capacity.num_blocks,
        block_size=16,
        dtype={**TORCH_TYPES, **{name: one.dtype for name, one in KV_FORMATS.items()}}[kv_type],
        device=torch.device("cpu"),
    )
    scales = [tensor for tensor in (*cache.key_scales, *cache.value_scales) if tensor is not None]
    taken = sum(tensor.nbytes for tensor in (*cache.keys, *cache.values, *scales))
    assert taken == capacity.num_tokens * capacity.kv_bytes_per_token
    assert 0 <= 10**8 - taken < 16 * capacity.kv_bytes_per_token


def test_an_8b_model_from_its_config_alone(llama_8b: ModelConfig) -> None:
    capacity = plan(llama_8b, device_memory_bytes=80 * GIB, context_lens=[4096, 131072])
    assert capacity.num_parameters == 8_030_261_248  # the model card's 8.03B
    assert capacity.kv_bytes_per_token == 128 * 1024
    assert capacity.num_blocks == int((80 * GIB - capacity.weight_bytes) * 0.8) // (16 * 128 * 1024)
    assert [row.num_requests for row in capacity.lengths] == [capacity.num_blocks // 256, capacity.num_blocks // 8192]
    assert capacity.lengths[1].num_requests == 3


def test_a_70b_model_does_not_fit_80_gib_and_the_table_says_so(tmp_path: Path) -> None:
    sizes = {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64}
    config = config_only(tmp_path, **{**LLAMA_8B, **sizes})
    capacity = plan(config, device_memory_bytes=80 * GIB)
    assert capacity.num_parameters == 70_553_706_496
    assert capacity.num_blocks == 0
    assert "The weights alone do not fit: 51.42 GiB are missing" in table(capacity)
    assert plan(config, device_memory_bytes=160 * GIB).kv_bytes_per_token == 320 * 1024


def test_a_shared_prefix_is_counted_once(llama_8b: ModelConfig) -> None:
    block_bytes = 16 * 128 * 1024
    capacity = plan(llama_8b, pool_bytes=1000 * block_bytes, context_lens=[2048, 2000, 100], prefix_len=2000)
    long, equal, short = capacity.lengths
    assert (long.num_blocks, long.num_requests, long.num_sharing_requests) == (128, 7, (1000 - 125) // 3)
    assert equal.num_sharing_requests is short.num_sharing_requests is None, "no request holds the prefix"
    without = plan(llama_8b, pool_bytes=1000 * block_bytes, context_lens=[2048], prefix_len=0)
    assert (without.lengths[0].num_requests, without.lengths[0].num_sharing_requests) == (7, None)


def test_the_table_has_a_line_per_length(llama_8b: ModelConfig) -> None:
    text = table(plan(llama_8b, device_memory_bytes=24 * GIB))
    assert "8.03B parameters" in text
    assert "128 KiB" in text
    rows = [line.split() for line in text.splitlines()[-8:]]
    assert [row[0] for row in rows] == ["1,024", "2,048", "4,096", "8,192", "16,384", "32,768", "65,536", "131,072"]


@pytest.mark.parametrize(
    "sizes", [{}, {"pool_bytes": 1, "device_memory_bytes": 1}, {"pool_bytes": 0}, {"pool_bytes": 9, "block_size": 0}]
)
def test_sizes_that_make_no_sense_are_refused(llama_8b: ModelConfig, sizes: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="plan: "):
        plan(llama_8b, **sizes)  # type: ignore[arg-type]  # one dictionary for several parameters


def test_adapters_are_counted_before_the_pool(tmp_path: Path) -> None:
    wide = {"hidden_size": 384, "intermediate_size": 768, "head_dim": 64}
    model = save_random_model(tmp_path / "base", "LlamaForCausalLM", wide)
    folder = save_adapter(tmp_path / "adapter", model, ".*_proj", {}, r=32, target_modules=ALL)
    config = ModelConfig.from_folder(tmp_path / "base")
    number = count_parameters(folder, config)
    plain = plan(config, device_memory_bytes=GIB, on_cpu=True)
    found = plan(config, device_memory_bytes=GIB, on_cpu=True, num_adapter_parameters=2 * number)
    assert (plain.adapter_bytes, found.adapter_bytes) == (0, 8 * number)
    assert plain.pool_bytes - found.pool_bytes == pytest.approx(0.8 * 8 * number, abs=2)
    assert "adapters" in table(found) and "adapters" not in table(plain)
    layers = read_adapter("it", folder, config, torch.device("cpu"), torch.float32).layers
    assert layers.num_bytes == pytest.approx(4 * number, rel=0.02), "but for scales and the table of addresses"


@pytest.mark.parametrize("name", ["gemma3", "gpt-oss", "mistral-window"])
def test_windows_are_planned_for_as_the_engine_makes_room_for_them(name: str, tmp_path: Path) -> None:
    save_random_model(tmp_path, *CASES[name])
    config = EngineConfig(tmp_path, device="cpu", kv_memory_bytes=1 << 20, block_size=4)
    cache = allocate_pool(config, load(config))
    model = ModelConfig.from_folder(tmp_path)
    capacity = plan(model, pool_bytes=1 << 20, block_size=4, on_cpu=True)
    assert isinstance(cache, WindowKV)
    assert (capacity.num_blocks, capacity.num_slots) == (cache.num_blocks, cache.num_slots)
    taken = sum(tensor.nbytes for tensor in (*cache.keys, *cache.values))
    assert 0 <= (1 << 20) - taken < max(capacity.slot_bytes, capacity.block_size * capacity.kv_bytes_per_token)
    assert f"{capacity.num_slots:,} slots of" in table(capacity)
    layers = tuple(replace(layer, window=0) for layer in model.layers)
    without = plan(replace(model, layers=layers), pool_bytes=1 << 20, block_size=4, on_cpu=True)
    assert without.num_slots == 0 < without.num_blocks < capacity.num_blocks


def test_a_draft_model_takes_of_the_pool_what_it_does_in_an_engine(tmp_path: Path) -> None:
    save_mtp_model(tmp_path, "DeepseekV3ForCausalLM", {**DEEPSEEK, "n_group": 4, "topk_group": 2})
    model = ModelConfig.from_folder(tmp_path)
    for name, draft in (("mtp", "mtp"), (str(tmp_path), model)):
        memory: dict[str, Any] = {"kv_memory_bytes": 1 << 20, "block_size": 4}
        config = EngineConfig(str(tmp_path), device="cpu", speculative_model=name, **memory)
        loaded = load(config)
        found, decoder = plan(model, pool_bytes=1 << 20, block_size=4, on_cpu=True, draft=draft), loaded.draft_decoder
        assert isinstance(decoder, Decoder)
        own = decoder.num_weight_bytes
        if isinstance(decoder, MtpDecoder):
            shared = [decoder._embedding, decoder._lm_head]
            own += decoder._joint.num_bytes + 8 * model.hidden_size - sum(one.num_bytes for one in shared if one)
        assert (found.draft_bytes, found.num_blocks) == (own, allocate_pool(config, loaded).num_blocks)
        assert "draft model" in table(found)
    without = plan(model, device_memory_bytes=1 << 30, on_cpu=True)
    with_it = plan(model, device_memory_bytes=1 << 30, on_cpu=True, draft=model)
    assert without.pool_bytes - with_it.pool_bytes == pytest.approx(0.8 * with_it.draft_bytes, abs=2)


def test_the_table_says_what_is_counted_and_of_which_rank(tmp_path: Path) -> None:
    values = {
        "architectures": ["Gemma4ForCausalLM"],
        "vocab_size": 1000,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 6,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "head_dim": 16,
        "global_head_dim": 32,
        "sliding_window": 64,
        "max_position_embeddings": 1024,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
        "num_kv_shared_layers": 3,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 1000,
    }
    (tmp_path / "config.json").write_text(json.dumps(values))
    model = ModelConfig.from_folder(tmp_path)
    sizes: dict[str, Any] = {"pool_bytes": 1 << 22, "weight_dtype": "bfloat16", "num_ranks": 2}
    found = plan(model, **sizes)
    assert found.kv_bytes_per_token == 2 * (2 * 2 * 16 + 1 * 32) * 2  # one KV head of one is on both
    assert (
        "KV per token  384 B on each of 2 ranks (2 × (2 layers × 2 KV heads × 16 + 1 layer × 1 KV head × 32) × 2 bytes)"
        in table(found)
    )
    assert "3 layers of 6 keep no keys of their own" in table(found)
    assert "128 B in blocks, of every token; 256 B in slots" in table(found)
    assert "4,194,304 tokens in each GiB of host memory" in table(found)  # whose rows are blocks, of both ranks
    used = found.num_blocks * found.block_size * 128 + found.num_slots * found.slot_bytes
    assert 0 <= found.pool_bytes - used < found.block_size * 128
    assert "KV head × (32 × 8 bits + 4 bytes)))" in table(plan(model, kv_dtype="int8", **sizes))
    with pytest.raises(ConfigError, match="max_model_len: 1025 is more than the 1024 tokens"):
        plan(model, max_model_len=1025, **sizes)


def test_states_and_tiers_are_planned_for_as_they_are_set(tmp_path: Path) -> None:
    save_random_model(tmp_path / "hybrid", *CASES["lfm2"])
    hybrid = ModelConfig.from_folder(tmp_path / "hybrid")
    each = plan(hybrid, pool_bytes=1 << 20).state_bytes
    found = plan(hybrid, pool_bytes=1 << 20, state_memory_bytes=7 * each, max_running_requests=2)
    tiered = plan(hybrid, pool_bytes=1 << 20, state_memory_bytes=7 * each, host_memory_bytes=GIB)
    assert found.num_states == tiered.num_states == 7
    assert [max(row.num_requests for row in each.lengths) for each in (found, tiered)] == [3, 2]
    assert {row.limited_by for row in found.lengths} == {"states"}
    assert "states bound the requests, not keys: --state-memory raises it" in table(found)
    assert "three for each running request: room for 2" in table(
        tiered
    ) and "tokens in 1.00 GiB of host memory" in table(tiered)
    with pytest.raises(ConfigError, match="does not hold the three states of one request"):
        plan(hybrid, pool_bytes=1 << 20, state_memory_bytes=2 * each, host_memory_bytes=1)
    assert "tokens in 1.00 GiB of host memory" in table(
        plan(hybrid, pool_bytes=1 << 20, host_memory_bytes=GIB, num_ranks=2)
    )
    save_random_model(tmp_path / "windows", *CASES["mistral-window"])
    windows = ModelConfig.from_folder(tmp_path / "windows")
    sizes = {"pool_bytes": 1 << 20, "block_size": 4}
    assert plan(windows, **sizes).num_slots
    assert not plan(windows, **sizes, host_memory_bytes=GIB).num_slots, "tiers have rows of other layers' blocks"
    assert not plan(windows, **sizes, max_model_len=13).num_slots, "no request is longer than the window"
