"""What a model's makers say about sampling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from phloem.errors import ModelError
from phloem.runtime.models import resolve_model
from phloem.runtime.models.generation_config import sampling_defaults


def folder(path: Path, **fields: Any) -> Path:
    (path / "generation_config.json").write_text(json.dumps(fields))
    return path


def test_what_the_file_names_is_found(tmp_path: Path) -> None:
    assert sampling_defaults(tmp_path) == {} and sampling_defaults(resolve_model("nano")) == {}
    said = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": None, "eos_token_id": [1, 2], "do_sample": True}
    assert sampling_defaults(folder(tmp_path, **said)) == {"temperature": 0.6, "top_p": 0.95, "top_k": 20}


@pytest.mark.parametrize("fields", [{"temperature": "hot"}, {"top_p": 2}, {"top_k": 1.5}, {"repetition_penalty": 0}])
def test_what_is_odd_is_named(tmp_path: Path, fields: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=f"generation_config.json: {next(iter(fields))}"):
        sampling_defaults(folder(tmp_path, **fields))
