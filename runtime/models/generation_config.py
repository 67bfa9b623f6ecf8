"""How a model's makers want it sampled: `generation_config.json`, as vLLM and SGLang read it too."""

from __future__ import annotations

import math
from pathlib import Path

from ...errors import ModelError, RequestError
from ..request import SamplingParams
from .gguf.file import GgufFile, is_gguf
from .json_file import Fields, read_json_object

NAMES = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
GGUF_NAMES = dict(zip(NAMES, ("temp", "top_p", "top_k", "min_p", "penalty_repeat"), strict=True))


def sampling_defaults(folder: Path) -> dict[str, float]:
    """The sampling parameters that the file names, by the names of `SamplingParams`; none without a file.

    A GGUF file names them among its keys.

    Raises:
        ModelError: a value is no number or out of range.
    """
    file = folder / "generation_config.json"
    if is_gguf(folder):
        file, keys = folder, GgufFile(folder).fields()
        named = {name: f"general.sampling.{key}" for name, key in GGUF_NAMES.items()}
        for key in (key for key in named.values() if key in keys):
            keys.number(key, above=-math.inf)
        fields = Fields({name: keys.values.get(key) for name, key in named.items()}, str(file))
    else:
        fields = Fields(read_json_object(file) if file.exists() else {}, str(file))
    found = {name: fields.values[name] for name in NAMES if name in fields}
    try:
        SamplingParams(**found)
    except RequestError as error:
        raise ModelError(f"{file}: {error}") from None
    return found
