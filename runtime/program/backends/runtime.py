"""SGLang's name for a model in this process: an engine."""

from __future__ import annotations

from typing import Unpack

from ...config import EngineSettings
from ...engine.engine import Engine


class Runtime(Engine):
    """`Engine`, in SGLang's words: `Runtime(model_path=…)`, `shutdown()`."""

    def __init__(self, model_path: str = "nano", **settings: Unpack[EngineSettings]) -> None:
        super().__init__(model_path, **settings)

    def shutdown(self) -> None:
        """See `Engine.close`."""
        self.close()
