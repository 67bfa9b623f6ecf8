"""From what the user calls a backend to what programs need: an engine, its role markers, and the default.

The default backend is the one piece of state that outlives a call in this package; `set_default_backend` is its only
writer.
"""

from __future__ import annotations

import threading
from typing import cast
from weakref import WeakKeyDictionary

from ...errors import ProgramError
from ..engine.async_engine import AsyncEngine
from ..engine.engine import Engine
from .chat_format import ChatFormat
from .run import Backend

AnyBackend = Engine | AsyncEngine | Backend


class Backends:
    """Engines in use by programs: each gets one chat format, however often it is named."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._formats: WeakKeyDictionary[Backend, ChatFormat] = WeakKeyDictionary()
        self._default: AnyBackend | None = None

    def set_default(self, backend: AnyBackend | None) -> None:
        """What `resolve(None)` answers from now on."""
        if backend is not None:
            self.resolve(backend)
        self._default = backend

    def resolve(self, backend: AnyBackend | None) -> tuple[Backend, ChatFormat]:
        """The engine, and its role markers.

        Raises:
            ProgramError: no backend was given and none is set; or it is none.
        """
        backend = self._default if backend is None else backend
        if backend is None:
            raise ProgramError("no backend: pass backend=engine, or call phloem.set_default_backend(engine)")
        if isinstance(backend, AsyncEngine):
            backend = backend.engine
        if not hasattr(backend, "submit"):
            raise ProgramError(f"backend: expected a phloem.Engine, got {type(backend).__name__}")
        found = cast(Backend, backend)
        with self._lock:
            if found not in self._formats:
                self._formats[found] = ChatFormat(found.tokenizer)
            return found, self._formats[found]
