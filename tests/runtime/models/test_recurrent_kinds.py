"""The table of recurrent layers' kinds: what it says of matrices agrees with itself and with the names of tensors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from phloem.errors import ModelError
from phloem.runtime.capacity.matrix_bytes import matrix_bytes
from phloem.runtime.models import ModelConfig
from phloem.runtime.models.architecture import all_layers
from phloem.runtime.models.architectures import ARCHITECTURES
from phloem.runtime.models.json_file import Fields
from phloem.runtime.models.layer_weights import READ_MIXER
from phloem.runtime.models.lightning import NORM_EPS
from phloem.runtime.models.recurrent_config import Kind
from phloem.runtime.models.recurrent_kinds import RECURRENT_KINDS, kind_of, read_shape, recurrent_matrices
from phloem.runtime.models.weight_format import WeightFormat

HIDDEN = 256
OPTIONS = {name: one.recurrent for name, one in ARCHITECTURES.items() if one.recurrent is not None}


def test_every_kind_is_in_the_tables() -> None:
    assert {*RECURRENT_KINDS} == {*READ_MIXER} == {*get_args(Kind)}


@pytest.mark.parametrize("name", OPTIONS)
def test_sections_are_the_rows_of_the_matrices(name: str) -> None:
    config = read_shape(Fields({}, "config.json"), OPTIONS[name], 4, HIDDEN)
    *first, out = recurrent_matrices(config, HIDDEN)
    assert out == (HIDDEN, config.attended_size, (OPTIONS[name].out,))
    projected = kind_of(config).projected
    if projected is not None:
        rows = {part: sum(section.size for section in sections) for part, sections in projected(config).items()}
        made = [(one.num_outputs, one.names) for one in first if one.num_inputs == HIDDEN]
        assert [names for _, parts in made for names in parts] == [*rows]
        assert [outputs for outputs, _ in made] == [sum(rows[part] for part in parts) for _, parts in made]


def test_the_planner_asks_for_the_output_projection_by_its_name(tmp_path: Path) -> None:
    """Left out of the quantised ones by the name that the architecture gives it, it is counted as plain numbers."""
    values = {"architectures": ["Mamba2ForCausalLM"], "hidden_size": HIDDEN, "num_hidden_layers": 1, "vocab_size": 9}
    (tmp_path / "config.json").write_text(json.dumps({**values, "num_heads": 8, "head_dim": 64, "expand": 2}))
    config = ModelConfig.from_folder(tmp_path)
    assert config.recurrent is not None

    def num_bytes(out: str, excluded: tuple[str, ...]) -> int:
        assert config.recurrent is not None
        stored = WeightFormat("gptq", "gptq", "int4", 128, excluded=excluded)
        recurrent = replace(config.recurrent, options=replace(config.recurrent.options, out=out))
        model = replace(config, recurrent=recurrent, weight_format=stored)
        return matrix_bytes(model, "bfloat16", "bfloat16", on_cpu=False)

    assert num_bytes("output", ("output",)) == num_bytes("out_proj", ("out_proj",)) > num_bytes("output", ("out_proj",))


def test_states_and_windows_in_one_model_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever architecture comes to have both; what is kept for a hit is one of the two (`SlotBooks`)."""
    values = {"architectures": ["FalconH1ForCausalLM"], "hidden_size": HIDDEN, "num_hidden_layers": 2, "vocab_size": 9}
    values |= {"num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": 512, "mamba_d_head": 4}
    (tmp_path / "config.json").write_text(json.dumps({**values, "sliding_window": 64}))
    assert ModelConfig.from_folder(tmp_path).layers[0].window == 0
    both = replace(ARCHITECTURES["FalconH1ForCausalLM"], sliding=all_layers)
    monkeypatch.setitem(ARCHITECTURES, "FalconH1ForCausalLM", both)
    with pytest.raises(ModelError, match=r"config.json: sliding_window: 64, beside layers that keep a state"):
        ModelConfig.from_folder(tmp_path)


def test_the_norm_of_lightning_attention_has_an_epsilon_of_its_own() -> None:
    """Values of random weights are too large to show it."""
    from transformers import MiniMaxConfig
    from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention

    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4}
    config = MiniMaxConfig(**sizes, num_hidden_layers=2, rms_norm_eps=1e-3)
    assert MiniMaxLightningAttention(config, 0).norm.variance_epsilon == NORM_EPS
