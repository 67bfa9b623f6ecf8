"""Values that are normed are normed once: seen where they are so small that the norm's epsilon counts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from phloem.runtime.models.decoder import Decoder

from .decoder_cases import CASES
from .oracle import Oracle, PagedRun, random_ids, save_random_model


@pytest.mark.parametrize("case", ["gemma4", "gemma3n"])
def test_logits_with_small_values_are_those_of_transformers(case: str, tmp_path: Path) -> None:
    model = save_random_model(tmp_path, *CASES[case])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "v_proj" in name:
                parameter.mul_(1e-3)
    model.save_pretrained(tmp_path)
    oracle, token_ids = Oracle(tmp_path, model), random_ids(20)
    expected, bound = oracle.logits_and_bound(token_ids)
    found = PagedRun(Decoder.from_folder(tmp_path)).extend({0: token_ids})
    assert bool(((found - expected).abs() <= bound).all())
