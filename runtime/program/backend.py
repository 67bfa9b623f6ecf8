"""From what the user calls a backend to what programs need: who answers, its role markers, and the default.

The default backend is the one piece of state that outlives a call in this package; `set_default_backend` is its only
writer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast
from weakref import WeakKeyDictionary

from ...errors import ProgramError
from ..engine.async_engine import AsyncEngine
from ..engine.engine import Engine
from .backends.anthropic_api import Anthropic
from .backends.openai_api import OpenAI
from .backends.runtime_endpoint import RuntimeEndpoint
from .chat_format import ChatFormat
from .run import Backend

AnyBackend = Engine | AsyncEngine | Backend | str
NAMED: dict[str, Callable[[str], Backend]] = {
    "http://": lambda rest: RuntimeEndpoint(f"http://{rest}"),
    "https://": lambda rest: RuntimeEndpoint(f"https://{rest}"),
    "openai:": OpenAI,
    "anthropic:": Anthropic,
}
"""Backends that can be named in a text, by its beginning; the rest of it is the address or the model."""


class Backends:
    """Backends in use by programs: each gets one chat format, however often it is named."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._formats: WeakKeyDictionary[Backend, ChatFormat] = WeakKeyDictionary()
        self._named: dict[str, Backend] = {}
        self._default: AnyBackend | None = None

    def set_default(self, backend: AnyBackend | None) -> None:
        """What `resolve(None)` answers from now on."""
        if backend is not None:
            self.resolve(backend)
        self._default = backend

    def resolve(self, backend: AnyBackend | None) -> tuple[Backend, ChatFormat]:
        """Who answers, and its role markers. No server is asked anything yet.

        Raises:
            ProgramError: no backend was given and none is set; or it is none.
        """
        backend = self._default if backend is None else backend
        if backend is None:
            raise ProgramError(
                'no backend: pass backend=engine or backend="http://host:8000", or call phloem.set_default_backend(…)'
            )
        if isinstance(backend, str):
            backend = self._by_name(backend)
        if isinstance(backend, AsyncEngine):
            backend = backend.engine
        if not hasattr(backend, "submit"):
            raise ProgramError(
                f"backend: expected a phloem.Engine or the URL of a server, got {type(backend).__name__}"
            )
        found = cast(Backend, backend)
        with self._lock:
            if found not in self._formats:
                self._formats[found] = ChatFormat(found.tokenizer)
            return found, self._formats[found]

    def _by_name(self, name: str) -> Backend:
        with self._lock:
            if name not in self._named:
                start = next((start for start in NAMED if name.startswith(start)), None)
                if start is None:
                    raise ProgramError(
                        f"backend: {name!r} names no backend; give a server's URL (http://…, https://…), openai:MODEL,"
                        " anthropic:MODEL, or phloem.Engine(…) for a model in this process"
                    )
                self._named[name] = NAMED[start](name.removeprefix(start))
            return self._named[name]
