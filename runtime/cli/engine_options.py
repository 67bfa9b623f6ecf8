"""The options of an engine, for all commands that make one, and the engine that they ask for."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import typer

from ..config import EngineConfig
from ..engine import gc_tuning
from .busy import busy
from .setting_options import with_options

if TYPE_CHECKING:
    from ..engine.engine import Engine

Settings = dict[str, Any]
with_engine_options = with_options(settings=EngineConfig)


def load_engine(model: str, settings: Settings) -> Engine:
    """The engine; what takes long is shown. A model that a hub id names is fetched first."""
    source = fetched(model)
    with busy(f"loading {model}") as report:
        from ..engine.engine import Engine
        from ..execute.loading import load

        config = EngineConfig(model=source, **settings)
        engine = Engine.from_loaded(config, load(config, report))
    gc_tuning.release()
    return engine


def fetched(model: str, *, weights: bool = True) -> str:
    """The folder or file of a model that a hub id names, fetched now (see `resolve_model`); any other model as it is
    named."""
    from ..models.resolve import is_hub_id, resolve_model

    if not is_hub_id(model):
        return model
    typer.echo(f"{model}: from the Hugging Face hub, or its cache on this disk", err=True)
    if not sys.stderr.isatty():  # that line says it; huggingface_hub, which is not imported yet, would draw bars
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    return str(resolve_model(model, weights=weights))
