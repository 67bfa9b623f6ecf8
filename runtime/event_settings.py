"""How KV events are published: vLLM's `kv_events_config`, checked before anything is loaded.

The names are vLLM's (`KVEventsConfig`). What differs: giving the setting turns it on, the default address is a loopback
one, and `bind`, `format` and `include_salted` are added.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ..errors import ConfigError

NAME = "kv_events_config"
Publisher = Literal["zmq", "null"]
Format = Literal["map", "array"]
DEFAULT_ENDPOINT = "tcp://127.0.0.1:5557"
WILDCARDS = ("*", "0.0.0.0", "[::]")
_TCP = re.compile(r"tcp://(\[[0-9a-fA-F:.%\w]+\]|[^:/\s\[\]]+):(\*|[0-9]{1,5})", re.ASCII)
_PACKAGES = {"zmq": "pyzmq", "msgpack": "msgpack"}


@dataclass(frozen=True, slots=True)
class KVEventsConfig:
    """Where and how events are published.

    Attributes:
        enable_kv_cache_events: False turns it off, as `publisher` "null" does.
        endpoint: where subscribers find them: `tcp://HOST:PORT` or `ipc://PATH`. Port `*`: any free one.
        replay_endpoint: where they ask for batches that they have missed; None: nowhere. Always bound.
        buffer_steps: batches that are kept for that.
        hwm: batches that wait for one subscriber at most; it loses those that come after (ZeroMQ's high-water mark).
        max_queue_size: batches that wait to be sent at most; later ones are dropped.
        topic: the first frame of every message; `kv@<pod>@<model>` for llm-d.
        format: of an event: "map", as vLLM since 0.24 and SGLang since 0.5.23 write it, or "array" for older consumers.
        include_salted: publish blocks of requests with a salt or a namespace, too, with their token ids.
        bind: False connects to a subscriber that is bound to the endpoint. None: connects if its host is neither a
            wildcard nor a loopback address, as vLLM does.
    """

    enable_kv_cache_events: bool = True
    publisher: Publisher = "zmq"
    endpoint: str = DEFAULT_ENDPOINT
    replay_endpoint: str | None = None
    buffer_steps: int = 10_000
    hwm: int = 100_000
    max_queue_size: int = 100_000
    topic: str = ""
    format: Format = "map"
    include_salted: bool = False
    bind: bool | None = None

    def __post_init__(self) -> None:
        for name in ("enable_kv_cache_events", "include_salted"):
            if not isinstance(getattr(self, name), bool):
                raise _fault(name, f"expected true or false, got {getattr(self, name)!r}")
        if self.bind is not None and not isinstance(self.bind, bool):
            raise _fault("bind", f"expected true, false or null, got {self.bind!r}")
        for name, kinds in (("publisher", get_args(Publisher)), ("format", get_args(Format))):
            if getattr(self, name) not in kinds:
                raise _fault(name, f"{getattr(self, name)!r} is not one of {', '.join(map(repr, kinds))}")
        for name in ("buffer_steps", "hwm", "max_queue_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 1 << 31:
                raise _fault(name, f"expected a positive integer, got {value!r}")
        if not isinstance(self.topic, str) or len(self.topic) > 1000 or not is_text(self.topic):
            raise _fault("topic", "expected a string of at most 1,000 characters")
        _check_endpoint("endpoint", self.endpoint)
        if self.replay_endpoint is not None:
            _check_endpoint("replay_endpoint", self.replay_endpoint)
            if self.replay_endpoint == self.endpoint and not self.endpoint.endswith(":*"):
                raise _fault("replay_endpoint", "is the same as endpoint; give it another port")
        if self.is_on:
            _require_packages()

    @property
    def is_on(self) -> bool:
        return self.enable_kv_cache_events and self.publisher == "zmq"

    @property
    def binds(self) -> bool:
        """Whether the endpoint is one of this process; otherwise it is a subscriber's."""
        if self.bind is not None:
            return self.bind
        host = host_of(self.endpoint)
        return host in (*WILDCARDS, "localhost", "[::1]", "") or host.startswith("127.")

    @staticmethod
    def parse(given: str | Mapping[str, Any]) -> KVEventsConfig:
        """From JSON text, or the object that it stands for.

        Raises:
            ConfigError: it is neither, has a field that there is not, a value that is out of range, or the packages
                that publishing needs are not installed.
        """
        if isinstance(given, str):
            try:
                given = json.loads(given)
            except (ValueError, RecursionError) as error:
                example = '\'{"endpoint": "tcp://127.0.0.1:5557"}\''
                raise ConfigError(f"{NAME}: no JSON ({str(error)[:200]}); write for example {example}") from error
        if not isinstance(given, Mapping):
            raise ConfigError(f"{NAME}: expected a JSON object, got {str(given)[:100]}")
        names = [field.name for field in dataclasses.fields(KVEventsConfig)]
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ConfigError(f"{NAME}: there is no field {unknown[0]!r:.100}; there are {', '.join(names)}")
        return KVEventsConfig(**{name: value for name, value in given.items() if value is not None})


def host_of(endpoint: str) -> str:
    """The host of a checked `tcp://` endpoint; "" for others."""
    match = _TCP.fullmatch(endpoint)
    return "" if match is None else match[1]


def is_text(string: str) -> bool:
    """Whether it can be written as UTF-8: half a surrogate pair, which JSON may hold, cannot."""
    return not any("\ud800" <= character <= "\udfff" for character in string)


def _check_endpoint(name: str, endpoint: object) -> None:
    if isinstance(endpoint, str):
        match = _TCP.fullmatch(endpoint)
        if match is not None and (match[2] == "*" or int(match[2]) < 1 << 16):
            return
        if re.fullmatch(r"ipc://[^\x00-\x1f]+", endpoint) and is_text(endpoint):
            return
    raise _fault(name, f"{endpoint!r:.100} is no address; write tcp://127.0.0.1:5557, tcp://*:5557 or ipc:///tmp/name")


def _fault(name: str, what: str) -> ConfigError:
    return ConfigError(f"{NAME}: {name}: {what}")


def _require_packages() -> None:
    missing = [package for module, package in _PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise ConfigError(f"{NAME}: needs {' and '.join(missing)}; run pip install 'phloem[events]'")
