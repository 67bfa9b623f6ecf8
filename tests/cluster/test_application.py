"""Errors in an application's arguments give the name and the remedy, before anything is loaded."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from phloem.cluster.application import _parted, build
from phloem.errors import ConfigError


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"modle": "nano"}, "modle: no argument of phloem.cluster:build; there are: .*model, .*replicas"),
        ({"kv_events_config": "{}"}, "kv_events_config: no argument"),
        ({"replicas": "0"}, "replicas: expected a whole number of at least 1, got 0"),
        ({"replicas": "two"}, "replicas: expected a whole number"),
        ({"fronts": True}, "fronts: expected a whole number"),
        ({"metric_names": "other"}, "metric_names"),
        ({"num_blocks": "-1"}, "num_blocks"),
        ({"tensor_parallel_size": 2, "num_gpus": 1}, "num_gpus: 2 ranks of a replica need a GPU each"),
        ({"otlp_traces_endpoint": "here"}, "otlp_traces_endpoint: 'here' is no address"),
    ],
)
def test_arguments_are_checked(args: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build({"model": "nano", **args})


def test_text_is_what_it_means_where_no_text_is_expected() -> None:
    given = {"model": "7", "num_blocks": "64", "model_name": "8", "adapters": '{"a": "/a"}', "num_gpus": "0.5"}
    engine, server, own = _parted(given)
    assert engine == {"model": "7", "num_blocks": 64, "adapters": {"a": "/a"}}
    assert server.model_name == "8" and own == {"num_gpus": 0.5}


def test_a_missing_ray_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"need Ray Serve .*pip install 'phloem\[ray\]'"):
        build({"model": "nano"})


@pytest.mark.parametrize("version", ["1.13.0", "2.9.3", "2.50.1"])
def test_a_ray_that_is_too_old_is_named_with_its_version(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old: Any = ModuleType("ray")
    old.__version__, old.serve = version, ModuleType("ray.serve")
    monkeypatch.setitem(sys.modules, "ray", old)
    monkeypatch.setitem(sys.modules, "ray.serve", old.serve)
    with pytest.raises(ConfigError, match=rf"ray {version} is too old; .*'ray\[serve\]>=2\.51'"):
        build({"model": "nano"})
