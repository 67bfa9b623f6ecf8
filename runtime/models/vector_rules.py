"""What becomes of a model's hidden states, or its logits, where a checkpoint is made for vectors or scores.

Read from the files that sentence-transformers writes next to a model: `modules.json` names the parts, each with a
folder of its own::

    0  Transformer             the model
    1  1_Pooling/config.json   whose hidden states count: of the last token, the mean, of the first
    2  2_Normalize             vectors have length 1

or, for a reranker that answers in a token, `1_LogitScore/config.json`, which names the two tokens. Whatever else stands
there is refused by name. Knows no tensors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ModelError
from ..readout import Pooling
from .gguf.file import GgufFile, is_gguf
from .json_file import Fields, read_json_object, read_text

POOLING_NAMES: Mapping[str, Pooling] = {"lasttoken": "last", "mean": "mean", "cls": "cls"}
POOLING_KEYS: Mapping[str, Pooling] = {
    "pooling_mode_lasttoken": "last",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
}

GGUF_POOLINGS: tuple[Pooling, ...] = ("last", "mean", "cls", "last")  # by llama.cpp's numbers; 0: nothing is said


@dataclass(frozen=True, slots=True)
class VectorRules:
    """How a vector is made, or a score.

    Attributes:
        pooling: what becomes of the hidden states.
        normalises: whether vectors have length 1.
        answers: of a reranker, the ids of the tokens that say that a document is relevant, and that it is not; None:
            the checkpoint does not say that it is one.
    """

    pooling: Pooling = "last"
    normalises: bool = True
    answers: tuple[int, int] | None = None

    @staticmethod
    def from_folder(folder: Path | None) -> VectorRules:
        """Reads `modules.json`, and what it names. Without one: the last token's hidden state, normalised.

        A GGUF file instead of a folder names the pooling.

        Raises:
            ModelError: a file is missing or odd, or a part is not supported.
        """
        if folder is not None and is_gguf(folder):
            return VectorRules(_gguf_pooling(GgufFile(folder).fields()))
        file = None if folder is None else folder / "modules.json"
        if file is None or not file.exists():
            return VectorRules()
        pooling: Pooling = "last"
        normalises, answers, has_pooling = False, None, False
        for number, (kind, path) in enumerate(_parts(file)):
            place = file.parent / path / "config.json"
            if kind == "Transformer" and number == 0:
                continue
            if kind == "Pooling" and number == 1:
                pooling, has_pooling = _pooling(Fields(read_json_object(place), str(place))), True
            elif kind == "Normalize" and number == 2 and has_pooling:
                normalises = True
            elif kind == "LogitScore" and number == 1:
                fields = Fields(read_json_object(place), str(place))
                answers = fields.integer("true_token_id", at_least=0), fields.integer("false_token_id", at_least=0)
            else:
                raise ModelError(
                    f"{file}: part {number} is {kind[:80]}; what is supported is Transformer, Pooling and Normalize, or"
                    " Transformer and LogitScore, in this order"
                )
        return VectorRules(pooling, normalises or not has_pooling, answers)


def _gguf_pooling(fields: Fields) -> Pooling:
    key = fields.text("general.architecture") + ".pooling_type"
    found = fields.integer(key, 3, at_least=0)
    if found >= len(GGUF_POOLINGS):
        raise fields.odd(key, f"less than {len(GGUF_POOLINGS)}")
    return GGUF_POOLINGS[found]


def _parts(file: Path) -> list[tuple[str, str]]:
    """The name and the folder of each part, in order."""
    try:
        listed = json.loads(read_text(file))
    except (ValueError, RecursionError):
        raise ModelError(f"{file}: broken JSON; download the file again") from None
    if not isinstance(listed, list) or not all(isinstance(part, dict) for part in listed):
        raise ModelError(f"{file}: expected an array of objects")
    parts = []
    for part in listed:
        fields = Fields(part, str(file))
        path = fields.text("path", "")
        if path and Path(path).name != path:
            raise fields.odd("path", "the name of a folder next to this file")
        parts.append((fields.text("type").rpartition(".")[2], path))
    return parts


def _pooling(fields: Fields) -> Pooling:
    """Of `1_Pooling/config.json`: one name, or one of several keys that is true."""
    mode: Any = fields.values.get("pooling_mode")
    if mode is not None:
        if not isinstance(mode, str) or mode not in POOLING_NAMES:
            raise fields.odd("pooling_mode", "one of " + ", ".join(POOLING_NAMES))
        return POOLING_NAMES[mode]
    chosen = [key for key in fields.values if key.startswith("pooling_mode_") and fields.boolean(key, False)]
    if not chosen:
        return "mean"  # as sentence-transformers takes it where nothing is said
    if len(chosen) > 1 or chosen[0] not in POOLING_KEYS:
        known = ", ".join(POOLING_KEYS)
        raise ModelError(f"{fields.place}: {', '.join(chosen)}: not supported; one of {known} alone is")
    return POOLING_KEYS[chosen[0]]
