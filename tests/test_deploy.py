"""What operators are given: every query finds its series on `/metrics`, and descriptions are of what there is."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.server import ServerSettings, create_app

from .runtime.fakes import threaded_engine
from .runtime.server.wire import exchange

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
ADDED = {"instance", "job"}  # labels that Prometheus adds
WORDS = {"sum", "by", "le", "rate", "increase", "histogram_quantile", "or", "instance", "status", "reason", "tier"}


@pytest.fixture(scope="module")
def series() -> dict[str, set[str]]:
    """By name, the labels of what a server shows after a request."""
    driver = AsyncEngine(threaded_engine(host_memory_bytes=1 << 16))
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


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = json.loads((DEPLOY / "grafana" / "phloem.json").read_text())["panels"]
    places = [panel["gridPos"] for panel in panels]
    covered = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(set(covered)) == len(covered) and max(x for x, _ in covered) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_images_run_as_somebody_else_than_root_and_are_asked_for_their_health(name: str) -> None:
    text = (DEPLOY / "docker" / name).read_text().replace("\\\n", " ")
    words = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    last = [word for word, _ in words[max(i for i, (word, _) in enumerate(words) if word == "FROM") :]]
    assert "USER" in last and "HEALTHCHECK" in last and last.index("USER") < last.index("ENTRYPOINT")
    (user,) = [rest for word, rest in words if word == "USER"]
    assert int(user) > 0 and f"--uid {user} " in text
    named = re.findall(r"\bEXTRAS=([\w,]+)", text)
    assert len(named) == 2 and set(",".join(named).split(",")) <= set(_extras())
    assert "phloem-*.whl)[$EXTRAS]" in text and last.index("ARG") < last.index("RUN")


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_images_are_built_from_what_there_is(name: str) -> None:
    """A wheel with the core in it: a compiler where it is built, and a look at it where it is installed."""
    text = (DEPLOY / "docker" / name).read_text().replace("\\\n", " ")
    build, last = re.split(r"^FROM .*$", text, flags=re.MULTILINE)[1:]
    assert "g++" in build and "pip wheel" in build and "import phloem._core" in last
    assert "g++" not in last
    health = re.findall(r"HEALTHCHECK .*?CMD (\[.*\])", text)
    (command,) = map(json.loads, health)
    assert command[0] == "wget" and re.search(r"apt-get install .*\bwget\b", last)
    assert command[-1] == "http://127.0.0.1:8000/health"
    left_out = (ROOT / ".dockerignore").read_text().split()
    needed = ["native", "setup.py", "pyproject.toml", "README.md", "LICENSE", "src", "cluster", "runtime"]
    assert ".venv" in left_out and not set(needed) & set(left_out)


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


def pods() -> Iterator[dict[str, Any]]:
    """The pods of a RayService, as objects that Kubernetes knows."""
    cluster = yaml.safe_load((DEPLOY / "ray" / "rayservice.yaml").read_text())["spec"]["rayClusterConfig"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        yield {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": group["template"]}


@pytest.mark.parametrize(
    "described",
    [*yaml.safe_load_all((DEPLOY / "kubernetes" / "phloem.yaml").read_text()), *pods()],
    ids=lambda described: str(described["kind"]),
)
def test_kubernetes_knows_every_field(described: dict[str, Any]) -> None:
    kubernetes_validate.validate(described, kubernetes_validate.latest_version(), strict=True)


# Of KubeRay's ray-operator/apis/ray/v1, rayservice_types.go and raycluster_types.go: fields by their names in JSON,
# those that must be there marked, and how values look where they are not objects.
SERVICE = {"serveConfigV2": str, "rayClusterConfig": dict, "serveService": dict}
CLUSTER = {
    "headGroupSpec!": dict,
    "workerGroupSpecs": list,
    "rayVersion": str,
    "enableInTreeAutoscaling": bool,
    "autoscalerOptions": dict,
    "headServiceAnnotations": dict,
    "suspend": bool,
}
HEAD = {
    "rayStartParams!": dict,
    "template!": dict,
    "serviceType": str,
    "headService": dict,
    "enableIngress": bool,
}
WORKERS = {
    "groupName!": str,
    "replicas": int,
    "minReplicas!": int,
    "maxReplicas!": int,
    "numOfHosts": int,
    "rayStartParams!": dict,
    "template!": dict,
    "scaleStrategy": dict,
}


def check_fields(found: dict[str, Any], known: dict[str, type]) -> None:
    kinds = {name.rstrip("!"): kind for name, kind in known.items()}
    assert set(found) <= set(kinds)
    assert {name[:-1] for name in known if name.endswith("!")} <= set(found)
    assert all(isinstance(value, kinds[name]) for name, value in found.items())


def test_kuberay_knows_every_field() -> None:
    service = yaml.safe_load((DEPLOY / "ray" / "rayservice.yaml").read_text())
    assert (service["apiVersion"], service["kind"]) == ("ray.io/v1", "RayService")
    assert set(service) == {"apiVersion", "kind", "metadata", "spec"}
    check_fields(service["spec"], SERVICE)
    cluster = service["spec"]["rayClusterConfig"]
    check_fields(cluster, CLUSTER)
    check_fields(cluster["headGroupSpec"], HEAD)
    for group in cluster["workerGroupSpecs"]:
        check_fields(group, WORKERS)
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    (application,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    (group,) = cluster["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    room = group["replicas"] * int(container["resources"]["limits"]["cpu"])
    assert application["args"]["replicas"] * application["args"]["num_cpus"] <= room


@pytest.mark.parametrize("name", ["serve.yaml", "rayservice.yaml"])
def test_ray_knows_every_field_of_an_application(name: str) -> None:
    schema = pytest.importorskip("ray.serve.schema", reason="Ray Serve (phloem[ray]) is not installed")
    described = yaml.safe_load((DEPLOY / "ray" / name).read_text())
    if name == "rayservice.yaml":
        described = yaml.safe_load(described["spec"]["serveConfigV2"])
    schema.ServeDeploySchema.model_validate(described)


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
