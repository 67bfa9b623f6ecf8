"""The adapters that an engine serves, by name. Safe on any thread. Knows no requests and no batches.

A request holds its adapter from the moment it is prepared, so one that is unloaded meanwhile goes on to its end, and
the weights are freed when the last such request is gone. A name stands for one content as long as it is loaded; under
another content it is another adapter to everything that is cached (`scoped`).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import torch

from ...errors import ConfigError, RequestError
from ..models import Adapter, ModelConfig, read_adapter
from ..models.cut import Cut


def load_adapter(
    name: str,
    folder: str | Path,
    model: ModelConfig,
    device: torch.device,
    dtype: torch.dtype,
    cut: Cut | None = None,
) -> Adapter:
    """Reads an adapter, or a rank's part of it, and puts its weights on the device.

    Raises:
        ModelError: the folder cannot be loaded.
        ConfigError: the name is none, or the device has no memory for it.
    """
    if not isinstance(name, str) or not name:
        raise ConfigError(f"adapters: {name!r} is no name for an adapter; give it one by which requests can choose it")
    try:
        return read_adapter(name, folder, model, device, dtype, cut)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise ConfigError(
            f"adapters: {name}: no memory is left on {device}; unload another one, or lower num_blocks or "
            "kv_memory_share"
        ) from error


class Adapters:
    """Which adapters requests may choose.

    Args:
        model: the whole of it.
        device, dtype: of the model's rows.
        cut: this rank's part of the model; None: all of it.
    """

    def __init__(
        self,
        model: ModelConfig,
        device: torch.device,
        dtype: torch.dtype,
        loaded: Mapping[str, Adapter],
        cut: Cut | None = None,
    ) -> None:
        self._model = model
        self._cut = cut
        self._device = device
        self._dtype = dtype
        self._lock = threading.Lock()
        self._by_name = dict(loaded)
        self._names = {adapter.fingerprint: name for name, adapter in loaded.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """In the order in which they were loaded."""
        with self._lock:
            return tuple(self._by_name)

    @property
    def num_bytes(self) -> int:
        """Memory of those that are loaded."""
        with self._lock:
            return sum(adapter.layers.num_bytes for adapter in self._by_name.values())

    def find(self, name: str | None) -> Adapter | None:
        """The adapter of a name; None for None. Raises RequestError: there is none of that name."""
        if name is None:
            return None
        if not isinstance(name, str):
            kind = type(name).__name__
            raise RequestError(f"adapter: expected the name of a loaded adapter, got {kind}", param="adapter")
        with self._lock:
            found = self._by_name.get(name)
            if found is None:
                known = ", ".join(self._by_name) or "none"
                raise RequestError(f"adapter: {name!r} is not loaded; there are: {known}", param="adapter")
            return found

    def name_of(self, fingerprint: str) -> str | None:
        """The name under which this content was loaded last, whether it still is or not; None: it never was."""
        with self._lock:
            return self._names.get(fingerprint)

    def load(self, name: str, folder: str | Path) -> None:
        """From now on requests may choose the LoRA adapter in a folder (as PEFT saves it) by this name.

        It is read on the caller's thread; steps go on meanwhile.

        Raises:
            ModelError: the folder cannot be loaded.
            ConfigError: the name is taken, or the device has no memory for it.
        """
        with self._lock:
            self._refuse_taken(name)
        adapter = load_adapter(name, folder, self._model, self._device, self._dtype, self._cut)
        self._share(adapter)
        with self._lock:
            self._refuse_taken(name)
            self._by_name[name] = adapter
            self._names[adapter.fingerprint] = name

    def unload(self, name: str) -> None:
        """From now on requests may not choose this adapter; those that have go on to their ends.

        What is cached under it stays until it is evicted, and counts again if the same content is loaded again.

        Raises:
            ConfigError: no adapter of that name is loaded.
        """
        with self._lock:
            if self._by_name.pop(name, None) is None:
                raise ConfigError(f"adapters: {name!r} is not loaded")

    def _share(self, adapter: Adapter) -> None:
        """Called with each that is to be added."""

    def _refuse_taken(self, name: str) -> None:
        if name in self._by_name:
            raise ConfigError(f"adapters: {name!r} is loaded already; unload it first")
