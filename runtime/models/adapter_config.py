"""An adapter's `adapter_config.json`, as PEFT writes it: which modules it adds to, and by what factor.

Exact or refused: whatever would make the adapter compute something else than `scale · B A` added to a linear map (DoRA,
trained biases, modules that were saved whole …) is an error that names the key, and so is a key that is not
known here, unless it is off. Tensors are read in `adapter.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from ...errors import ModelError
from .json_file import MOST_OF_A_NUMBER, Fields, read_json_object
from .name_pattern import REMEDY, NamePattern, Work

# how it was trained, what it is called, or how the base model stores its weights
_OF_NO_EFFECT = {
    "arrow_config", "auto_mapping", "base_model_name_or_path", "corda_config", "ensure_weight_tying", "eva_config",
    "fan_in_fan_out", "inference_mode", "loftq_config", "lora_dropout", "lora_ga_config", "megatron_core",
    "peft_version", "qalora_group_size", "revision", "runtime_config", "task_type",
}  # fmt: skip
_READ = {
    "alpha_pattern", "bias", "exclude_modules", "init_lora_weights", "layers_pattern", "layers_to_transform",
    "lora_alpha", "peft_type", "r", "rank_pattern", "target_modules", "use_rslora",
}  # fmt: skip
# other beginnings (PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA) change the base weights, which are not in the adapter's files
_PLAIN_BEGINNINGS = (None, True, False, "gaussian", "eva", "orthogonal")
_LINEAR_ALONE: Literal["all-linear"] = "all-linear"
MOST_RANK = 1 << 20
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """What an adapter says of itself; modules are named as in the checkpoint (`model.layers.0.self_attn.q_proj`).

    Attributes:
        place: the file, for messages.
        rank, alpha: of modules without a pattern of their own. is_rank_stabilised: the scale is alpha / sqrt(rank).
        rank_pattern, alpha_pattern: by the end of a module's name, or a regular expression for it.
        targets, excluded: ends of names, or one regular expression for whole names; targets may be "all-linear".
        layers: of which layers; None: of all. layers_patterns: after which part of a name the layer's number stands.
    """

    place: str
    rank: int
    alpha: float
    is_rank_stabilised: bool
    rank_pattern: Mapping[NamePattern, int]
    alpha_pattern: Mapping[NamePattern, float]
    targets: NamePattern | Literal["all-linear"] | tuple[str, ...]
    excluded: NamePattern | tuple[str, ...]
    layers: frozenset[int] | None
    layers_patterns: tuple[NamePattern, ...]

    @staticmethod
    def from_folder(folder: Path) -> AdapterConfig:
        """Raises ModelError: the file is missing or broken, or asks for what is not computed here."""
        path = folder / "adapter_config.json"
        fields = Fields(read_json_object(path), str(path))
        kind = fields.text("peft_type", "LORA")
        if kind != "LORA":
            raise ModelError(f"{path}: peft_type: {kind} is not supported; phloem serves LORA")
        if fields.values.get("bias", "none") not in (None, "none"):
            raise ModelError(f'{path}: bias: {fields.values["bias"]!r}: trained biases are not supported, only "none"')
        beginning = fields.values.get("init_lora_weights")
        if beginning not in _PLAIN_BEGINNINGS:
            raise ModelError(
                f"{path}: init_lora_weights: {beginning!r} changes the base weights; convert the adapter to plain LoRA "
                "(save_pretrained with path_initial_model_for_weight_conversion)"
            )
        for key in sorted(fields.values.keys() - _READ - _OF_NO_EFFECT):
            if fields.values[key]:
                raise ModelError(f"{path}: {key}: {str(fields.values[key])[:80]}: not supported; it must be off")
        work = Work()
        ranks = {key: _rank(fields, key.text, value) for key, value in _pattern(fields, "rank_pattern", work)}
        alphas = {key: _alpha(fields, key.text, value) for key, value in _pattern(fields, "alpha_pattern", work)}
        if "target_modules" not in fields:
            raise fields.odd("target_modules", "names of modules")
        return AdapterConfig(
            str(path),
            fields.integer("r", 8, at_most=MOST_RANK),
            fields.number("lora_alpha", 8.0, above=-MOST_OF_A_NUMBER),
            fields.boolean("use_rslora", False),
            ranks,
            alphas,
            _LINEAR_ALONE
            if fields.values["target_modules"] == _LINEAR_ALONE
            else _names(fields, "target_modules", work),
            _names(fields, "exclude_modules", work),
            _layers(fields),
            _patterns(fields, work),
        )

    def has(self, module: str, *, is_output: bool = False) -> bool:
        """Whether it adds to a linear map; is_output: to the vocabulary, which "all-linear" leaves out.

        Raises:
            ModelError: a pattern takes too long to match, or layers_pattern finds several numbers in the name.
        """
        if self.excluded and _is_named(self.excluded, module):
            return False
        if self.targets == _LINEAR_ALONE:
            is_wanted = not is_output
        else:
            is_wanted = _is_named(self.targets, module)
            if isinstance(self.targets, NamePattern) or module in self.targets:
                return is_wanted
        return is_wanted and (self.layers is None or self._layer_of(module) in self.layers)

    def _layer_of(self, module: str) -> int | None:
        """The number after the first part of the name that a pattern, or without patterns any part, is followed by."""
        parts = module.split(".")
        if not self.layers_patterns:
            return next((int(part) for part in parts[1:-1] if part.isdecimal()), None)
        for pattern in self.layers_patterns:
            for start in _beginnings(module):
                numbers = {_number_at(module, end) for end in pattern.ends(module, start)} - {None}
                if len(numbers) > 1:
                    raise ModelError(
                        f"{pattern.place}: {pattern.text[:80]!r} finds several layers in {module}; {REMEDY}"
                    )
                if numbers:
                    return numbers.pop()
        return None

    def rank_of(self, module: str) -> int:
        return _by_pattern(self.rank_pattern, module, self.rank)

    def scale_of(self, module: str) -> float:
        """Factor on B A."""
        rank = self.rank_of(module)
        return _by_pattern(self.alpha_pattern, module, self.alpha) / (
            math.sqrt(rank) if self.is_rank_stabilised else rank
        )


def _is_named(names: NamePattern | tuple[str, ...], module: str) -> bool:
    if isinstance(names, NamePattern):
        return names.fits(module)
    return any(module == name or module.endswith(f".{name}") for name in names)


def _by_pattern(pattern: Mapping[NamePattern, T], module: str, default: T) -> T:
    for key, value in pattern.items():
        if any(key.fits(module, start) for start in _beginnings(module)):
            return value
    return default


def _beginnings(module: str) -> list[int]:
    """Where the parts of a name begin."""
    return [0, *(index + 1 for index, char in enumerate(module) if char == ".")]


def _number_at(module: str, end: int) -> int | None:
    """The number that is the part after `end`, if another part follows it."""
    dot, *parts = module[end:].split(".")
    return int(parts[0]) if not dot and len(parts) > 1 and parts[0].isdecimal() else None


def _rank(fields: Fields, key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_RANK:
        found = repr(value)[:80]
        expected = f"an integer of at least 1 and at most {MOST_RANK}"
        raise ModelError(f"{fields.place}: rank_pattern: {key}: expected {expected}, found {found}")
    return value


def _alpha(fields: Fields, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MOST_OF_A_NUMBER:
        raise ModelError(f"{fields.place}: alpha_pattern: {key}: expected a number, found {repr(value)[:80]}")
    return float(value)


def _pattern(fields: Fields, key: str, work: Work) -> list[tuple[NamePattern, Any]]:
    place, pairs = f"{fields.place}: {key}", fields.section(key).values
    return [(NamePattern(text, place, work), value) for text, value in pairs.items()]


def _names(fields: Fields, key: str, work: Work) -> NamePattern | tuple[str, ...]:
    value = fields.values.get(key)
    if isinstance(value, str) and value:
        return NamePattern(value, f"{fields.place}: {key}", work)
    if not isinstance(value or [], list) or not all(isinstance(name, str) for name in value or ()):
        raise fields.odd(key, "a list of names, or a regular expression")
    return tuple(value or ())


def _layers(fields: Fields) -> frozenset[int] | None:
    layers = fields.ids("layers_to_transform")
    return frozenset(layers) if layers else None


def _patterns(fields: Fields, work: Work) -> tuple[NamePattern, ...]:
    value = fields.values.get("layers_pattern") or ()
    if not isinstance(value, str | list | tuple):
        raise fields.odd("layers_pattern", "a regular expression, or a list of them")
    patterns = (value,) if isinstance(value, str) else value
    return tuple(NamePattern(pattern, f"{fields.place}: layers_pattern", work) for pattern in patterns)
