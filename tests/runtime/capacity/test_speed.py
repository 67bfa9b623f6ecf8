"""What is estimated is the arithmetic of a roofline, counted here once more by other means."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from phloem.errors import ConfigError
from phloem.runtime.capacity.planner import plan
from phloem.runtime.capacity.speed import BANDWIDTH_SHARE, DEVICES, estimate, table, two_figures, weight_bytes_read
from phloem.runtime.models import Decoder, ModelConfig

from ..models.decoder_cases import CASES
from ..models.oracle import save_random_model
from .test_planner import LLAMA_8B, config_only

H100 = DEVICES["h100"]


def test_llama_8b_on_an_h100_by_hand(tmp_path: Path) -> None:
    config = config_only(tmp_path, **LLAMA_8B)
    capacity = plan(config, device_memory_bytes=H100.memory_bytes)
    speed = estimate(config, capacity, H100, context_len=4096, num_requests=[1, 64, 4096])
    few, some, many = speed.steps
    read = 2 * (8.03e9 - 128256 * 4096)  # all matrices but the embedding, in bf16
    assert few.seconds == pytest.approx((read + 4096 * 131072) / (0.8 * 3350e9), rel=1e-3)
    assert some.seconds == pytest.approx((read + 64 * 4096 * 131072) / (0.8 * 3350e9), rel=1e-3)
    assert few.limited_by == some.limited_by == many.limited_by == "memory"
    layers = 6.98e9  # numbers of all layers, each of which a token meets once
    assert speed.prompt_tokens_per_second == pytest.approx(
        0.5 * 989e12 / (2 * (layers + 2048 * 2 * 32 * 4096)), rel=1e-2
    )
    short = estimate(config, capacity, H100, context_len=16, num_requests=[4096]).steps[0]
    assert short.limited_by == "operations"
    assert "NVIDIA H100 SXM" in table(speed)


@pytest.mark.parametrize("case", ["llama-gqa", "llama-mha-tied", "gemma3", "youtu", "qwen3-next", "lfm2"])
def test_a_step_reads_all_weights_but_an_embedding_that_is_not_tied(tmp_path: Path, case: str) -> None:
    save_random_model(tmp_path, *CASES[case])
    config = ModelConfig.from_folder(tmp_path)
    capacity = plan(config, pool_bytes=1 << 20, on_cpu=True, weight_dtype="float32")
    if config.experts is None:
        weights = Decoder.from_folder(tmp_path).num_weight_bytes
        embedding = 0 if config.tie_word_embeddings else 4 * config.vocab_size * config.hidden_size
        assert weight_bytes_read(config, capacity, 1) == pytest.approx(weights - embedding, rel=0.05)
    assert weight_bytes_read(config, capacity, 10**6) <= capacity.weight_bytes


def test_of_a_mixture_the_experts_that_tokens_choose_are_read(tmp_path: Path) -> None:
    save_random_model(tmp_path, *CASES["mixtral"])
    config = ModelConfig.from_folder(tmp_path)
    capacity = plan(config, pool_bytes=1 << 20)
    assert config.experts is not None
    chosen, count, random = config.experts.num_chosen, config.experts.num_experts, Random(1)
    none, every = weight_bytes_read(config, capacity, 0), weight_bytes_read(config, capacity, 10**6)
    for num_tokens in (1, 2, 5):
        met = [
            len({expert for _ in range(num_tokens) for expert in random.sample(range(count), chosen)})
            for _ in range(4000)
        ]
        expected = none + (every - none) * sum(met) / len(met) / count
        assert weight_bytes_read(config, capacity, num_tokens) == pytest.approx(expected, rel=0.02)


def test_layers_with_a_window_read_no_more_keys_than_that(tmp_path: Path) -> None:
    save_random_model(tmp_path, *CASES["gemma3"])
    config = ModelConfig.from_folder(tmp_path)
    widest = max(layer.window for layer in config.layers)
    assert widest
    open_layers = replace(config, layers=tuple(replace(layer, window=0) for layer in config.layers))
    capacity = plan(config, pool_bytes=1 << 20)
    for context_len, is_less in ((1, False), (config.max_position_embeddings, True)):
        seconds = [
            estimate(each, capacity, H100, context_len=context_len, num_requests=[9]).steps[0].seconds
            for each in (config, open_layers)
        ]
        assert (seconds[0] < seconds[1]) == is_less


def test_each_request_reads_its_keys_and_reads_and_writes_its_state(tmp_path: Path) -> None:
    save_random_model(tmp_path, *CASES["lfm2"])
    config = ModelConfig.from_folder(tmp_path)
    capacity = plan(config, pool_bytes=1 << 20)
    device = replace(H100, operations=1e30)
    one, two = estimate(config, capacity, device, context_len=50, num_requests=[1, 2]).steps
    read = (two.seconds - one.seconds) * device.bandwidth * BANDWIDTH_SHARE
    assert capacity.state_bytes and read == pytest.approx(50 * capacity.kv_bytes_per_token + 2 * capacity.state_bytes)


def test_devices_have_numbers_of_devices() -> None:
    for device in DEVICES.values():
        assert 100 < device.operations / device.bandwidth < 450, "operations for each byte that is read"
        assert 20 < device.memory_bytes / 2**30 < 200 and 0.01 < device.memory_bytes / device.bandwidth < 0.1


@pytest.mark.parametrize(("context_len", "num_requests", "bandwidth"), [(0, [1], 1.0), (1, [0], 1.0), (1, [1], 0.0)])
def test_what_is_not_positive_is_refused(
    tmp_path: Path, context_len: int, num_requests: list[int], bandwidth: float
) -> None:
    config = config_only(tmp_path, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                         vocab_size=100)  # fmt: skip
    device = replace(H100, bandwidth=bandwidth)
    with pytest.raises(ConfigError, match="must be positive"):
        capacity = plan(config, pool_bytes=1 << 20)
        estimate(config, capacity, device, context_len=context_len, num_requests=num_requests)


@pytest.mark.parametrize(
    ("number", "text"),
    [(841_336.5, "840,000"), (99.6, "100"), (172.4, "170"), (9.96, "10"), (5.8, "5.8"), (0.00123, "0.0012")],
)
def test_no_more_than_two_figures_are_shown(number: float, text: str) -> None:
    assert two_figures(number) == text
