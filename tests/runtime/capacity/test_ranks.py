"""What a plan for several ranks says each of them holds is what their parts of the model take, within 3 %."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from phloem.errors import ConfigError
from phloem.kernels.linear_weight import Quantise
from phloem.runtime.capacity.plan_table import table
from phloem.runtime.capacity.planner import plan
from phloem.runtime.capacity.speed import DEVICES, estimate
from phloem.runtime.models import Decoder, ModelConfig
from phloem.runtime.parallel.ranks import Ranks

from ..models.decoder_cases import CASES
from ..models.gguf_cases import write_case
from ..models.oracle import save_random_model
from ..models.published import FORMATS, publish
from ..models.test_int8_inputs import ONE_STEP, OWN_STEPS, add_steps, int8_format

NUM_RANKS = 2
SMALL = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1}
SMALL |= {"num_attention_heads": 4, "num_key_value_heads": 4}
ROUNDING = {"own steps": int8_format(OWN_STEPS), "one step": int8_format(ONE_STEP)}  # of inputs


def most_bytes(folder: Path, dtype: torch.dtype, num_ranks: int = NUM_RANKS, **options: Any) -> int:
    """Of the ranks' weights, each loaded by itself."""
    ranks = [Ranks(rank, num_ranks, group=object()) for rank in range(num_ranks)]
    return max(Decoder.from_folder(folder, dtype=dtype, ranks=each, **options).num_weight_bytes for each in ranks)


@pytest.mark.parametrize(
    "case",
    [
        "llama-gqa",
        "llama-mha-tied",
        "gemma3",
        "olmo2",
        "deepseek-v3",
        "gpt-oss",
        "qwen3-next",
        "granite-hybrid",
        "gpt2",
        "gemma3n",
        "gemma4-small",
    ],
)
def test_plain_weights(tmp_path: Path, case: str) -> None:
    save_random_model(tmp_path, *CASES[case])
    config = ModelConfig.from_folder(tmp_path)
    found = plan(config, pool_bytes=1 << 20, weight_dtype="bfloat16", on_cpu=True, num_ranks=NUM_RANKS)
    assert found.weight_bytes == pytest.approx(most_bytes(tmp_path, torch.bfloat16), rel=0.03)
    alone = plan(config, pool_bytes=1 << 20, weight_dtype="bfloat16", on_cpu=True)
    assert found.num_parameters == alone.num_parameters
    assert found.weight_bytes < 0.75 * alone.weight_bytes
    assert "on each of 2 ranks" in table(found)


@pytest.mark.parametrize("form", [*FORMATS, *ROUNDING])
def test_weights_in_few_bits(tmp_path: Path, form: str) -> None:
    """Of every format, whole and in parts, which may lie across groups, or have columns of zeros beside them."""
    publish(tmp_path, {**FORMATS, **ROUNDING}[form], "LlamaForCausalLM", SMALL)
    if form == "one step":
        add_steps(tmp_path)
    config = ModelConfig.from_folder(tmp_path)
    for num_ranks in (1, 2, 4):
        found = plan(config, pool_bytes=1 << 20, weight_dtype="float32", on_cpu=True, num_ranks=num_ranks)
        assert found.weight_bytes == most_bytes(tmp_path, torch.float32, num_ranks)


@pytest.mark.parametrize("name", ["llama", "llama, Q4_K_M", "mistral", "mixtral", "qwen2", "qwen2, Q5_K_M", "qwen3"])
def test_gguf_files(tmp_path: Path, name: str) -> None:
    path, _ = write_case(tmp_path, name)
    config = ModelConfig.from_folder(path)
    for num_ranks in (1, 2, 4):
        found = plan(config, pool_bytes=1 << 20, weight_dtype="float32", on_cpu=True, num_ranks=num_ranks)
        assert found.weight_bytes == pytest.approx(most_bytes(path, torch.float32, num_ranks), rel=0.003)


@pytest.mark.parametrize(("case", "form"), [("qwen3-next", "fp8, blocks"), ("jamba", "own steps")])
def test_recurrent_layers_in_few_bits(tmp_path: Path, case: str, form: str) -> None:
    """Rows that stand key head by key head lose their few bits; what a scan chooses is a sum of all ranks."""
    kind, options = CASES[case]
    publish(tmp_path, {**FORMATS, **ROUNDING}[form], kind, options, plain=("A_log",))
    config = ModelConfig.from_folder(tmp_path)
    for num_ranks in (1, 2):
        found = plan(config, pool_bytes=1 << 20, weight_dtype="float32", on_cpu=True, num_ranks=num_ranks)
        assert found.weight_bytes == pytest.approx(most_bytes(tmp_path, torch.float32, num_ranks), rel=0.003)


@pytest.mark.parametrize("quantise", ["int8", "int4"])
def test_weights_that_are_rounded_while_loading(tmp_path: Path, quantise: Quantise) -> None:
    save_random_model(tmp_path, "LlamaForCausalLM", SMALL)
    config = ModelConfig.from_folder(tmp_path)
    for num_ranks in (2, 4):
        found = plan(config, pool_bytes=1 << 20, quantise=quantise, num_ranks=num_ranks)
        assert found.weight_bytes == most_bytes(tmp_path, torch.float32, num_ranks, quantise=quantise)


def test_ranks_share_keys_and_work(tmp_path: Path) -> None:
    save_random_model(tmp_path, *CASES["llama-gqa"])
    config = ModelConfig.from_folder(tmp_path)
    one, two = (plan(config, pool_bytes=1 << 20, num_ranks=number) for number in (1, NUM_RANKS))
    assert two.kv_bytes_per_token * NUM_RANKS == one.kv_bytes_per_token
    assert two.num_blocks == one.num_blocks * NUM_RANKS
    slow, fast = (estimate(config, each, DEVICES["h100"], context_len=64, num_requests=[1]) for each in (one, two))
    assert fast.prompt_tokens_per_second == pytest.approx(NUM_RANKS * slow.prompt_tokens_per_second)
    assert slow.steps[0].seconds / NUM_RANKS <= fast.steps[0].seconds < slow.steps[0].seconds


@pytest.mark.parametrize("num_ranks", [0, -1, 3, 5000])
def test_numbers_that_cannot_share_it_are_refused(tmp_path: Path, num_ranks: int) -> None:
    save_random_model(tmp_path, *CASES["llama-gqa"])
    with pytest.raises(ConfigError, match="tensor_parallel_size"):
        plan(ModelConfig.from_folder(tmp_path), pool_bytes=1 << 20, num_ranks=num_ranks)
