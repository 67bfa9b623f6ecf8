"""The training script, run for a few steps: the loss falls, and the folder that it writes is a checkpoint."""

from __future__ import annotations

import json
import sys
from itertools import count, pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
import torch

import phloem as ph

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import train_nano
from nano_chat import conversation
from nano_model import orthogonalised
from nano_tokenizer import train_tokenizer
from train_nano import Encoder, Recipe, rate, row_len_of


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """A tiny training of a few dozen steps, by a clock that only reading moves: its folder and its losses."""
    folder, ticks = tmp_path_factory.mktemp("nano"), count()
    recipe = Recipe(minutes=0.1, vocab_size=640, hidden_size=64, intermediate_size=64, num_layers=2, num_heads=2,
                    num_rows=2, num_scored=8)  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_nano, "time", SimpleNamespace(monotonic=lambda: next(ticks) / 12))
        return folder, train_nano.train(recipe, folder)


def test_the_loss_falls(trained: tuple[Path, list[float]]) -> None:
    _, losses = trained
    assert len(losses) >= 20
    assert sum(losses[-5:]) / 5 < losses[0] - 1


def test_the_folder_loads_and_generates(trained: tuple[Path, list[float]]) -> None:
    folder, _ = trained
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    with ph.Engine(str(folder), num_blocks=32) as engine:
        answer = engine.chat([{"role": "user", "content": "Hello"}], ph.SamplingParams(max_tokens=8, temperature=0.0))
    assert answer.usage.completion_tokens > 0


def test_a_row_holds_whole_turns_and_weighs_what_is_said() -> None:
    encoder = Encoder(train_tokenizer(640, seed=1, num_conversations=300), prompt_weight=0.25)
    for seed in range(20):
        token_ids, weights = encoder.row(conversation(Random(seed)), row_len=200)
        assert len(token_ids) == len(weights) <= 200
        if token_ids:
            assert token_ids[0] == encoder.bos_id and token_ids[-1] == encoder.end_id
            assert weights[-1] == 1.0 and set(weights) == {0.0, 0.25, 1.0}


def test_the_rate_rises_stays_and_falls_to_zero() -> None:
    rates = [rate(step / 1000, decay_from=0.2) for step in range(1001)]
    assert rates[0] == 0 and max(rates) == 1 and rates[-1] == 0
    assert rates[20:200] == [1.0] * 180
    assert all(later < earlier for earlier, later in pairwise(rates[200:]))


def test_rows_are_short_first_and_long_now_and_then() -> None:
    recipe = Recipe(minutes=1)
    lengths = [row_len_of(step, step / 100, recipe) for step in range(100)]
    assert set(lengths[:10]) == {recipe.row_len // 2}
    assert lengths[10:].count(recipe.row_len * 4) == len([step for step in range(10, 100) if step % 8 == 0])


@pytest.mark.parametrize("shape", [(3, 16, 48), (2, 48, 16), (1, 32, 32)])
def test_orthogonalised_matrices_have_singular_values_near_one(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    values = torch.linalg.svdvals(orthogonalised(torch.randn(shape), num_iterations=8))
    assert values.min() > 0.5 and values.max() < 1.3
