"""The OpenAI-compatible HTTP server over an `AsyncEngine`. Its settings can be had without the web framework."""

from typing import TYPE_CHECKING, Any

from .settings import ServerSettings

if TYPE_CHECKING:
    from .app import create_app

__all__ = ["ServerSettings", "create_app"]


def __getattr__(name: str) -> Any:
    if name != "create_app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .app import create_app

    return create_app
