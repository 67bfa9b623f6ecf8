"""From a model's name and settings to a core. Knows no requests."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import ConfigError
from ..config import EngineConfig, EngineSettings
from ..execute.loading import LoadedModel, load
from .engine_core import EngineCore


def make_core(config: EngineConfig, loaded: LoadedModel, *clocks: Callable[[], float] | None) -> EngineCore:
    """A core of a model in memory. If it cannot be made, no process of another rank is left."""
    if loaded.processes is not None and loaded.processes.serves_engine:
        loaded.processes.begin_engine()  # refused, and nothing of the other engine ends
    try:
        return EngineCore(config, loaded, *clocks)  # type: ignore[arg-type]  # the first is never None
    except BaseException:
        if loaded.processes is not None:
            loaded.processes.end_model()
        raise


def load_by_name(model: str, settings: EngineSettings) -> tuple[EngineConfig, LoadedModel]:
    """Loads a model. Raises ConfigError: there is no such setting."""
    unknown = sorted(set(settings) - set(EngineConfig.field_names()))
    if unknown:
        raise ConfigError(
            f"{unknown[0]}: there is no such engine setting; there are {', '.join(EngineConfig.field_names())}"
        )
    config = EngineConfig(model=model, **settings)
    return config, load(config)
