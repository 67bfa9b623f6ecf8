"""The OpenAI-compatible HTTP server over an `AsyncEngine`."""

from .app import create_app
from .settings import ServerSettings

__all__ = ["ServerSettings", "create_app"]
