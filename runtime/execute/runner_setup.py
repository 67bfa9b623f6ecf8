"""From settings to a runner and to adapters: alone, of one rank, or of rank 0, which leads the others."""

from __future__ import annotations

from ..config import EngineConfig
from ..models import ModelConfig
from .adapters import Adapters
from .cuda_graphs import make_recorder
from .kv_cache import KVCache
from .leading_adapters import LeadingAdapters
from .leading_runner import LeadingRunner
from .loading import LoadedModel, LoadedPart
from .model_runner import ModelRunner
from .recurrent_states import RecurrentStates
from .window_kv import WindowKV


def make_runner(
    config: EngineConfig, loaded: LoadedModel | LoadedPart, kv_cache: KVCache | WindowKV, states: RecurrentStates | None
) -> ModelRunner:
    """A runner of the decoder over these tensors; with a recorder on a GPU, if the settings ask for graphs."""
    recorder = make_recorder(config, loaded.device, has_states=states is not None)
    parts = (loaded.decoder, kv_cache, loaded.device, recorder)
    deterministic = config.deterministic
    if isinstance(loaded, LoadedModel) and loaded.processes is not None and loaded.cut is not None:
        leads = (loaded.processes, loaded.cut.whole.num_kv_heads)
        return LeadingRunner(*leads, *parts, deterministic=deterministic, states=states)
    return ModelRunner(*parts, deterministic=deterministic, states=states)


def make_adapters(loaded: LoadedModel, model: ModelConfig) -> Adapters:
    """The adapters of a loaded model. model: the whole of it."""
    given = (model, loaded.device, loaded.dtype, loaded.adapters, loaded.cut)
    return Adapters(*given) if loaded.processes is None else LeadingAdapters(loaded.processes, *given)
