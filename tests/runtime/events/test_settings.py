"""Errors in settings give the setting's name and what would be right, before a model is loaded."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

from phloem.errors import ConfigError
from phloem.runtime import event_settings as settings
from phloem.runtime.config import EngineConfig
from phloem.runtime.event_settings import KVEventsConfig

WRONG: list[tuple[Any, str]] = [
    ("", "no JSON"),
    ("{", "no JSON"),
    ("[" * 100_000, "no JSON"),
    ("[]", "expected a JSON object"),
    ("null", "expected a JSON object"),
    ("5557", "expected a JSON object"),
    ({"port": 5557}, "no field 'port'; there are enable_kv_cache_events, publisher, endpoint"),
    ({"enable_kv_cache_events": "yes"}, "enable_kv_cache_events: expected true or false, got 'yes'"),
    ({"publisher": "kafka"}, "publisher: 'kafka' is not one of 'zmq', 'null'"),
    ({"publisher": []}, r"publisher: \[\] is not one of"),
    ({"format": "json"}, "format: 'json' is not one of 'map', 'array'"),
    ({"endpoint": "127.0.0.1:5557"}, "endpoint: '127.0.0.1:5557' is no address; write tcp://127.0.0.1:5557"),
    ({"endpoint": "tcp://127.0.0.1"}, "endpoint: .* is no address"),
    ({"endpoint": "tcp://127.0.0.1:65536"}, "endpoint: .* is no address"),
    ({"endpoint": "udp://127.0.0.1:1"}, "endpoint: .* is no address"),
    ({"endpoint": 5557}, "endpoint: 5557 is no address"),
    ({"endpoint": "ipc:///tmp/a\0b"}, "endpoint: .* is no address"),
    ({"replay_endpoint": "tcp://x"}, "replay_endpoint: .* is no address"),
    ({"endpoint": "tcp://*:1", "replay_endpoint": "tcp://*:1"}, "replay_endpoint: is the same as endpoint"),
    ({"buffer_steps": 0}, "buffer_steps: expected a positive integer, got 0"),
    ({"buffer_steps": True}, "buffer_steps: expected a positive integer"),
    ({"hwm": 1.5}, "hwm: expected a positive integer"),
    ({"hwm": 1 << 31}, "hwm: expected a positive integer"),
    ({"max_queue_size": "9"}, "max_queue_size: expected a positive integer"),
    ({"topic": 7}, "topic: expected a string"),
    ({"topic": "x" * 1001}, "topic: expected a string of at most 1,000"),
    ({"topic": "\ud800"}, "topic: expected a string"),
    ({"endpoint": "ipc:///tmp/\ud800"}, "endpoint: .* is no address"),
    ({"include_salted": 1}, "include_salted: expected true or false"),
    ({"bind": "no"}, "bind: expected true, false or null"),
]


@pytest.mark.parametrize(("given", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_errors_name_the_setting(given: Any, message: str) -> None:
    for form in (given, given if isinstance(given, str) else json.dumps(given)):
        with pytest.raises(ConfigError, match=f"^kv_events_config: .*{message}"):
            EngineConfig(model="nano", kv_events_config=form)


def test_null_values_are_defaults_and_vllms_names_are_ours() -> None:
    pytest.importorskip("zmq", reason="pyzmq (phloem[events]) is not installed")
    vllm = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": "tcp://*:5557",
        "replay_endpoint": None,
        "buffer_steps": 10_000,
        "hwm": 100_000,
        "max_queue_size": 100_000,
        "topic": "kv@10.0.0.7@nano",
    }
    assert KVEventsConfig.parse(vllm) == KVEventsConfig(endpoint="tcp://*:5557", topic="kv@10.0.0.7@nano")
    assert KVEventsConfig.parse(json.dumps(vllm)).is_on


def test_the_default_is_a_loopback_address() -> None:
    config = KVEventsConfig(publisher="null")
    assert config.endpoint.startswith("tcp://127.0.0.1:") and config.binds and config.replay_endpoint is None


@pytest.mark.parametrize(
    ("endpoint", "binds"),
    [
        ("tcp://127.0.0.1:5557", True),
        ("tcp://localhost:5557", True),
        ("tcp://*:5557", True),
        ("tcp://0.0.0.0:5557", True),
        ("tcp://[::]:5557", True),
        ("tcp://[::1]:5557", True),
        ("ipc:///tmp/events", True),
        ("tcp://router:5557", False),
        ("tcp://10.0.0.7:5557", False),
    ],
)
def test_whose_the_endpoint_is(endpoint: str, binds: bool) -> None:
    assert KVEventsConfig(publisher="null", endpoint=endpoint).binds is binds


def test_off_needs_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        settings.importlib.util, "find_spec", lambda name: None if name in ("zmq", "msgpack") else found(name)
    )
    for off in ({"publisher": "null"}, {"enable_kv_cache_events": False}):
        EngineConfig(model="nano", kv_events_config=off)
    with pytest.raises(ConfigError, match=r"needs pyzmq and msgpack; run pip install 'phloem\[events\]'"):
        EngineConfig(model="nano", kv_events_config={})


def test_without_a_prefix_cache_there_is_nothing_to_tell() -> None:
    pytest.importorskip("zmq", reason="pyzmq (phloem[events]) is not installed")
    with pytest.raises(ConfigError, match=r"kv_events_config: .*prefix_cache is off"):
        EngineConfig(model="nano", kv_events_config={}, prefix_cache=False)
    EngineConfig(model="nano", kv_events_config={"publisher": "null"}, prefix_cache=False)
