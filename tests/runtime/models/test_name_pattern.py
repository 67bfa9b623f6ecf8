"""Regular expressions for names of modules against `re`, and those that `re` would take for ever over."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from random import Random
from typing import Any

import pytest

from phloem.errors import ModelError
from phloem.runtime.models import name_pattern
from phloem.runtime.models.adapter_config import AdapterConfig
from phloem.runtime.models.json_file import Fields
from phloem.runtime.models.name_pattern import NamePattern, Work
from phloem.runtime.models.weight_format import read_weight_format

NAMES = ["model.layers.0.self_attn.q_proj", "model.layers.11.mlp.down_proj", "lm_head", "model.vision.1.mlp.gate", ""]
PUBLISHED = [
    r".*\.(q_proj|v_proj)",
    r"^(?!.*vision).*(?:q_proj|k_proj|down_proj).*",
    r".*lm_head",
    r"model\.layers\.[0-9]+\.mlp\.gate$",
    r"^(?:.*?(?:language|text).*?(?:self_attn|mlp).*?(?:q_proj|o_proj).*?$|model\.layers\.\d{1,}\.mlp\..*)",
    r"(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|mlp)\.(?:(?:q_proj|down_proj)))",
    r"(?:.*\.)?model\.layers\.(?:[0-9]|1[0-5])\.\w+\.(?P<end>[a-z]+_proj)\Z",
    r"(\w+\.)*[qv]_proj",
]
SLOW = r"(.|[a-z]|\w)*!"

PARTS = ["a", "b", ".", r"\.", r"\w", "[ab]", "[^a]", "^", "$", r"\b", "(", "(?:", ")", "|"]
PARTS += ["*", "+", "?", "*?", "{2}", "{,2}", "{1,}", "(?=", "(?!", ")"]


def test_it_finds_what_re_finds() -> None:
    random, num_compared = Random(1), 0
    while num_compared < 3000:
        text = "".join(random.choices(PARTS, k=random.randint(1, 9)))
        try:
            compiled = re.compile(text)
        except re.error:
            continue
        try:
            pattern = NamePattern(text, "here", Work())
        except ModelError as error:
            assert "possessive" in str(error) and re.search(r"[*+?}]\+", text)
            continue
        name = "".join(random.choices("ab.", k=random.randint(0, 6)))
        assert pattern.fits(name) == (compiled.fullmatch(name) is not None), (text, name)
        assert bool(pattern.ends(name)) == (compiled.match(name) is not None), (text, name)
        num_compared += 1


@pytest.mark.parametrize("text", PUBLISHED)
def test_published_expressions_are_read(text: str) -> None:
    work = Work()
    pattern = NamePattern(text, "here", work)
    assert [pattern.fits(name) for name in NAMES] == [bool(re.fullmatch(text, name)) for name in NAMES]
    assert work.done < 1000 * len(NAMES)


@pytest.mark.parametrize(
    "text",
    [SLOW, r"(.|[a-z]|\w)*\.!", "(a*)*b", r"(?:(?:(?:\w*\.*)*\w*)*_*)*!", "(.?){9999999}!", "(.*.*)*!", "(?=(.|.)*!)x"],
)
def test_hostile_expressions_take_bounded_work(text: str) -> None:
    work = Work()
    pattern = NamePattern(text, "here", work)
    assert not any(pattern.fits(name) for name in NAMES)
    assert work.done < 100_000 * len(NAMES)


def test_the_work_of_a_file_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_pattern, "MOST_WORK", 1000)
    work = Work()
    patterns = [NamePattern(f"{index}{SLOW}|{SLOW}", "here", work) for index in range(20)]
    with pytest.raises(ModelError, match=r"^here: .* takes too long to match; list the names of the modules"):
        [pattern.fits(NAMES[0]) for pattern in patterns]


NOT_READ: dict[str, tuple[Any, str]] = {
    "overflow": ("a{99999999999999999}", "is not a regular expression"),
    "deep": ("(" * 2000 + ")" * 2000, "is not a regular expression|groups more than"),
    "rather deep": ("(" * 40 + ")" * 40, "groups more than 32 deep are not supported.*list the names"),
    "long": ("a" * 5000, "at most 4096 characters"),
    "thousands of digits": ("a{" + "9" * 4000 + "}", "is not a regular expression"),
    "unbalanced": ("a)|(b", "is not a regular expression"),
    "back reference": (r"(a)\1", r"\\1 is not supported"),
    "look-behind": ("(?<=a)b", "not supported"),
    "flags": ("(?i)q", r"\(\?i is not supported"),
    "atomic": ("(?>a)", "not supported"),
    "condition": ("(a)?(?(1)b)", "not supported"),
    "comment": ("(?#a)", "not supported"),
}


def _adapter(folder: Path, **settings: Any) -> AdapterConfig:
    content = {"peft_type": "LORA", "target_modules": ["q_proj"], **settings}
    (folder / "adapter_config.json").write_text(json.dumps(content))
    return AdapterConfig.from_folder(folder)


def _weights(expression: str, method: str) -> None:
    settings: dict[str, Any] = {"quant_method": method}
    if method == "fp8":
        settings |= {"modules_to_not_convert": [f"re:{expression}"]}
    else:
        weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}
        groups = {"g": {"targets": ["Linear"], "weights": weights}}
        settings |= {"format": "pack-quantized", "config_groups": groups, "ignore": [f"re:{expression}"]}
    found = read_weight_format(Fields({"quantization_config": settings}, "config.json"))
    assert found is not None and not found.excludes(NAMES[0])


@pytest.mark.parametrize("case", NOT_READ)
def test_what_is_not_read_is_refused_with_its_place(case: str, tmp_path: Path) -> None:
    expression, message = NOT_READ[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for key in ("target_modules", "exclude_modules", "layers_pattern"):
            with pytest.raises(ModelError, match=f"adapter_config.json: {key}: .*({message})"):
                _adapter(tmp_path, **{key: expression})
        for key in ("rank_pattern", "alpha_pattern"):
            with pytest.raises(ModelError, match=f"adapter_config.json: {key}: .*({message})"):
                _adapter(tmp_path, **{key: {expression: 4}})
        with pytest.raises(
            ModelError, match=f"config.json: quantization_config: modules_to_not_convert: .*({message})"
        ):
            _weights(expression, "fp8")
        with pytest.raises(ModelError, match=f"config.json: quantization_config: ignore: .*({message})"):
            _weights(expression, "compressed-tensors")


def test_hostile_expressions_in_files_end(tmp_path: Path) -> None:
    """`re` would take longer than anyone waits over each of these."""
    assert not _adapter(tmp_path, target_modules=SLOW).has(NAMES[0])
    assert _adapter(tmp_path, exclude_modules=SLOW).has(NAMES[0])
    assert not _adapter(tmp_path, layers_to_transform=[0], layers_pattern=SLOW).has(NAMES[0])
    assert _adapter(tmp_path, rank_pattern={SLOW: 4}).rank_of(NAMES[0]) == 8
    assert _adapter(tmp_path, alpha_pattern={SLOW: 4}).scale_of(NAMES[0]) == 1.0
    _weights(SLOW, "fp8")
    _weights(SLOW, "compressed-tensors")


@pytest.mark.parametrize("pattern", ["(x|layers)", "layers", r"lay\w*", "x|layers", ["x", "layers"], None])
def test_the_number_of_a_layer(pattern: Any, tmp_path: Path) -> None:
    config = _adapter(tmp_path, layers_to_transform=[0], **({} if pattern is None else {"layers_pattern": pattern}))
    assert config.has(NAMES[0]) and not config.has(NAMES[0].replace("0", "1"))


def test_a_layer_that_is_not_certain_is_refused(tmp_path: Path) -> None:
    config = _adapter(tmp_path, layers_to_transform=[0], layers_pattern=".*")
    with pytest.raises(ModelError, match=r"layers_pattern: '\.\*' finds several layers in"):
        config.has("model.layers.0.block.1.q_proj")
