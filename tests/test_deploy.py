"""What operators are given: every query finds its series on `/metrics`, and descriptions are of what there is."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from phloem.runtime.async_engine import AsyncEngine
from phloem.runtime.server import ServerSettings, create_app

from .runtime.fakes import fake_engine
from .runtime.server.wire import exchange

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
ADDED = {"instance", "job"}  # labels that Prometheus adds
WORDS = {"sum", "by", "le", "rate", "increase", "histogram_quantile", "or", "instance", "status", "reason"}


@pytest.fixture(scope="module")
def series() -> dict[str, set[str]]:
    """By name, the labels of what a server shows after a request."""
    driver = AsyncEngine(fake_engine())
    app = create_app(driver, ServerSettings(tool_call_format="none", reasoning_format="none"))

    async def scrape() -> str:
        async with app.router.lifespan_context(app):
            body = json.dumps({"prompt": "Hi", "max_tokens": 3}).encode()
            await exchange(app, "POST", "/v1/completions", body, headers={"content-type": "application/json"})
            return (await exchange(app, "GET", "/metrics", b"")).body.decode()

    try:
        families = list(text_string_to_metric_families(asyncio.run(scrape())))
    finally:
        driver.stop()
    found: dict[str, set[str]] = {"up": set()}
    for family in families:
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def queries() -> Iterator[tuple[str, str]]:
    dashboard = json.loads((DEPLOY / "grafana" / "phloem.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    rules = yaml.safe_load((DEPLOY / "prometheus" / "rules.yaml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]


@pytest.mark.parametrize(("place", "query"), list(queries()))
def test_every_query_finds_its_series(place: str, query: str, series: dict[str, set[str]]) -> None:
    bare = re.sub(r'"[^"]*"|\[[^\]]*\]', "", query)
    names = set(re.findall(r"[a-z_]\w*", re.sub(r"\{[^}]*\}", "", bare))) - WORDS
    assert names and names <= set(series), names - set(series)
    labels = set(re.findall(r"(\w+)=", bare)) | {
        label.strip() for group in re.findall(r"by \(([^)]*)\)", bare) for label in group.split(",")
    }
    assert labels <= set().union(ADDED, *(series[name] for name in names))


def test_the_dashboard_shows_every_gauge_of_the_pool_and_its_panels_do_not_overlap() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "phloem.json").read_text())
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(places)) == len(set(ids)) == len(dashboard["panels"])


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_images_run_as_somebody_else_than_root_and_are_asked_for_their_health(name: str) -> None:
    text = (DEPLOY / "docker" / name).read_text().replace("\\\n", " ")
    words = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    last = [word for word, _ in words[max(i for i, (word, _) in enumerate(words) if word == "FROM") :]]
    assert "USER" in last and "HEALTHCHECK" in last and last.index("USER") < last.index("ENTRYPOINT")
    (user,) = [rest for word, rest in words if word == "USER"]
    assert int(user) > 0 and f"--uid {user} " in text
    extras = re.findall(r"whl\)\[([\w,]+)\]", text)[0].split(",")
    assert set(extras) <= set(_extras())


def _extras() -> list[str]:
    text = (ROOT / "pyproject.toml").read_text()
    table = text[text.index("[project.optional-dependencies]") : text.index("[project.urls]")]
    return re.findall(r"^(\w+) = \[", table, re.MULTILINE)


def test_the_pod_asks_routes_that_there_are_and_ends_after_the_drain() -> None:
    deployment, service, budget = yaml.safe_load_all((DEPLOY / "kubernetes" / "phloem.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    routes = {container[probe]["httpGet"]["path"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")}
    assert routes == {"/ready", "/health"}
    arguments = container["args"]
    assert int(arguments[arguments.index("--drain-timeout") + 1]) + 10 <= pod["terminationGracePeriodSeconds"]
    assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    for selector in (deployment["spec"]["selector"]["matchLabels"], budget["spec"]["selector"]["matchLabels"]):
        assert selector == labels == service["spec"]["selector"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def applications() -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load((DEPLOY / "ray" / "serve.yaml").read_text())["applications"]
    service = yaml.safe_load((DEPLOY / "ray" / "rayservice.yaml").read_text())
    yield from yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]


@pytest.mark.parametrize("application", list(applications()))
def test_applications_name_what_there_is(application: dict[str, Any]) -> None:
    from phloem.cluster.application import OWN
    from phloem.runtime.config import EngineConfig

    assert application["import_path"] == "phloem.cluster:build"
    known = {*OWN, *(field.name for field in fields(EngineConfig)), *(field.name for field in fields(ServerSettings))}
    assert set(application["args"]) <= known
    scaling = application["args"].get("autoscaling", {})
    if scaling:
        from phloem.cluster import autoscaling

        module, _, name = scaling["policy"]["policy_function"].partition(":")
        assert module == autoscaling.__name__
        getattr(autoscaling, name)(**scaling["policy"]["policy_kwargs"])
