"""Keys, unknown places, cache isolation, and the lifecycle."""

from __future__ import annotations

import asyncio

import pytest

from phloem.errors import ConfigError
from phloem.runtime.server import ServerSettings

from .fakes import FakeAsyncEngine
from .wire import Client, client, exchange

KEYS = {"api_keys": ("sk-one", "sk-two")}


def bearer(key: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"authorization": f"{scheme} {key}"}


def routes(asked: Client) -> list[tuple[str, str]]:
    paths = asked.get("/openapi.json", headers=bearer("sk-one")).json()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


def test_every_route_but_those_of_health_asks_for_the_key() -> None:
    asked = client(**KEYS)
    found = routes(asked)
    assert len(found) >= 10
    for method, path in [*found, ("GET", "/openapi.json"), ("GET", "/nowhere"), ("DELETE", "/v1/models")]:
        answer = asked.request(method, path)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert (answer.status == 200) == (path in ("/health", "/health_generate", "/ready")), path
        if answer.status != 200:
            kind = "authentication_error" if path.startswith("/v1/messages") else "invalid_request_error"
            assert answer.status == 401 and answer.error["type"] == kind, path
            assert answer.headers["www-authenticate"] == "Bearer"


def test_what_others_sent_is_shown_to_operators_only() -> None:
    for admin in (False, True):
        asked = client(admin=admin)
        assert asked.get("/cache").json()["num_free_blocks"] == 40
        assert ("what others sent" in str(asked.get("/cache").json())) == admin
        assert (asked.request("POST", "/flush_cache").status == 404) == (not admin)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (bearer("sk-one"), 200),
        (bearer("sk-two"), 200),
        (bearer("sk-one", "bearer"), 200),
        (bearer("sk-on"), 401),
        (bearer("sk-one1"), 401),
        (bearer("schlüssel"), 401),
        (bearer("sk-one", "Basic"), 401),
        (bearer(""), 401),
        ({"authorization": "sk-one"}, 401),
        ({}, 401),
        (bearer("x" * 65536), 401),
    ],
)
def test_only_a_whole_known_key_opens(headers: dict[str, str], status: int) -> None:
    answer = client(**KEYS).get("/v1/models", headers=headers)
    assert answer.status == status
    if status == 401:
        assert answer.error["code"] == "invalid_api_key"


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "remedy"),
    [
        ("GET", "/v1/nothing", 404, "unknown_url", ""),
        ("POST", "/", 404, "unknown_url", ""),
        ("POST", "/v1/v1/messages", 404, "unknown_url", "Leave /v1 out of the client's base URL."),
        ("POST", "/chat/completions", 404, "unknown_url", "The client's base URL lacks /v1 at its end."),
        ("POST", "/flush_cache", 404, "unknown_url", "The server has it when it is started with --enable-admin."),
        ("POST", "/v1/load_lora_adapter", 404, "unknown_url", "started with --enable-adapter-loading."),
        ("GET", "/v1/chat/completions", 405, "method_not_supported", ""),
        ("DELETE", "/v1/models", 405, "method_not_supported", ""),
        ("GET", "/v1/models/../../etc/passwd", 404, "model_not_found", ""),
    ],
)
def test_unknown_places_get_openai_shaped_errors(method: str, path: str, status: int, code: str, remedy: str) -> None:
    answer = client().request(method, path)
    assert (answer.status, answer.error["code"]) == (status, code) and remedy in answer.error["message"]


def test_the_callers_request_id_is_sent_back_if_it_is_sane() -> None:
    asked = client()
    assert asked.get("/health", headers={"x-request-id": "abc-1"}).headers["x-request-id"] == "abc-1"
    for insane in ("x" * 129, "a\tb", "ümlaut"):
        assert asked.get("/health", headers={"x-request-id": insane}).headers["x-request-id"].startswith("req_")


def namespaces(settings: dict[str, object], *requests: tuple[str | None, str | None]) -> list[str]:
    asked = client(**settings)
    for key, salt in requests:
        answer = asked.post(
            "/v1/completions", {"prompt": "Hi", "cache_salt": salt}, headers=bearer(key) if key else None
        )
        assert answer.status == 200
    return [call["namespace"] for call in asked.engine.calls]


def test_salts_and_keys_part_the_cache() -> None:
    one, same, two, salted, other = namespaces(
        KEYS, ("sk-one", None), ("sk-one", None), ("sk-two", None), ("sk-one", "s"), ("sk-two", "s")
    )
    assert one == same and len({one, two, salted, other}) == 4
    assert all("sk" not in name and len(name) == 32 for name in (one, two, salted, other))


def test_one_key_or_none_shares_the_cache() -> None:
    assert namespaces({}, (None, None), (None, None)) == ["", ""]
    assert namespaces({"api_keys": ("sk-one",)}, ("sk-one", None)) == [""]
    assert namespaces({**KEYS, "cache_isolation": "none"}, ("sk-one", None), ("sk-two", None)) == ["", ""]
    [alone] = namespaces({"api_keys": ("sk-one",), "cache_isolation": "key"}, ("sk-one", None))
    assert len(alone) == 32


@pytest.mark.parametrize(
    "settings",
    [
        {"api_keys": ("",)},
        {"api_keys": ("a b",)},
        {"api_keys": ("ü",)},
        {"cache_isolation": "key"},
        {"cache_isolation": "some"},
        {"max_body_bytes": 0},
        {"model_name": ""},
        {"ping_interval": 0.0},
        {"metric_names": "other"},
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        ServerSettings(**settings)  # type: ignore[arg-type]


def test_a_draining_server_finishes_what_runs_and_takes_nothing_new() -> None:
    asked = client(FakeAsyncEngine(token_seconds=0.01))
    lifecycle = asked.app.state.service.lifecycle

    async def run() -> None:
        body = b'{"prompt": "Hi"}'
        json_type = {"content-type": "application/json"}
        async with asked.app.router.lifespan_context(asked.app):
            running = asyncio.create_task(exchange(asked.app, "POST", "/v1/completions", body, json_type))
            while not asked.engine.num_open:
                await asyncio.sleep(0)
            lifecycle.drain()
            refused = await exchange(asked.app, "POST", "/v1/completions", body, json_type)
            assert (refused.status, refused.error["type"]) == (503, "server_error")
            assert int(refused.headers["retry-after"]) >= 1
            assert (await exchange(asked.app, "GET", "/ready")).status == 503
            assert (await exchange(asked.app, "GET", "/health")).status == 200
            assert lifecycle.num_active == 1
            assert (await running).status == 200 and lifecycle.num_active == 0

    asyncio.run(run())


def test_a_dead_engine_is_neither_healthy_nor_ready() -> None:
    asked = client(FakeAsyncEngine(is_alive=False))
    assert [asked.get(path).status for path in ("/health", "/ready")] == [503, 503]
    assert asked.chat().status == 503


def test_browsers_of_allowed_origins_may_ask() -> None:
    headers = {"origin": "https://a.example", "access-control-request-method": "POST"}
    asked = client(cors_origins=("https://a.example",), **KEYS)
    answer = asked.request("OPTIONS", "/v1/completions", headers=headers)
    assert answer.headers["access-control-allow-origin"] == "https://a.example"
    assert "access-control-allow-origin" not in client().request("OPTIONS", "/v1/completions", headers=headers).headers


@pytest.mark.parametrize(
    "path", ["/health", "/ready", "/version", "/metrics", "/v1/models", "/v1/models/fake", "/nowhere"]
)
def test_head_is_get_without_a_body(path: str) -> None:
    asked = client()
    whole, head = asked.get(path), asked.request("HEAD", path)
    assert head.status == whole.status and not head.body and whole.body
    assert head.headers["content-type"] == whole.headers["content-type"]
