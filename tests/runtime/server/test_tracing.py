"""Traces: each request's spans, in time and under the caller's; nothing of what it says, nothing unasked."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from phloem.errors import ConfigError, EngineStopped
from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.engine.engine import Engine
from phloem.runtime.execute.loading import LoadedModel
from phloem.runtime.server import ServerSettings, create_app
from phloem.runtime.server.tracing import Tracing

from .fakes import FakeAsyncEngine
from .wire import Answer, Client, exchange

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "Rumpelstiltskin"
PATHS = {
    "/v1/chat/completions": ("chat", {"messages": [{"role": "user", "content": SECRET}]}),
    "/v1/responses": ("chat", {"input": SECRET}),
    "/v1/messages": ("chat", {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 5}),
    "/v1/completions": ("text_completion", {"prompt": SECRET}),
}


class Traced:
    """An application whose spans are kept, and a loop on which it runs until `close`."""

    def __init__(self, engine: Any, **settings: Any) -> None:
        chosen = ServerSettings(
            model_name="fake", tool_call_format="none", reasoning_format="none", cache_isolation="none", **settings
        )
        self.exporter = InMemorySpanExporter()
        self.app = create_app(engine, chosen, Tracing(SimpleSpanProcessor(self.exporter), chosen, "1"))
        self._runner = asyncio.Runner()
        self._lifespan = self.app.router.lifespan_context(self.app)
        self._runner.run(self._lifespan.__aenter__())

    def close(self) -> None:
        self._runner.run(self._lifespan.__aexit__(None, None, None))
        self._runner.close()

    def post(self, path: str, body: object, **headers: str) -> Answer:
        sent = {"content-type": "application/json", **headers}
        return self.exchange("POST", path, json.dumps(body).encode(), sent)

    def exchange(self, method: str, path: str, body: bytes, headers: dict[str, str], **options: Any) -> Answer:
        """Its spans are in `spans` until the next."""
        self.exporter.clear()
        return self._runner.run(exchange(self.app, method, path, body, headers, **options))

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    @property
    def root(self) -> ReadableSpan:
        (root,) = [span for span in self.spans if span.kind.name == "SERVER"]
        return root

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]


@pytest.fixture
def traced(nano: LoadedModel) -> Iterator[Traced]:
    driver = AsyncEngine(Engine.from_loaded(EngineConfig(device="cpu", num_blocks=256), nano))
    found = Traced(driver)
    yield found
    found.close()
    driver.stop()


@pytest.fixture
def faked() -> Iterator[Callable[..., Traced]]:
    """Makes one over an engine that answers from a script."""
    made: list[Traced] = []

    def make(engine: FakeAsyncEngine, **settings: Any) -> Traced:
        made.append(Traced(engine, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


def nanoseconds(span: ReadableSpan) -> tuple[int, int]:
    assert span.start_time is not None and span.end_time is not None
    return span.start_time, span.end_time


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("path", PATHS)
def test_spans_are_in_time_and_under_the_callers_and_hold_nothing_that_is_said(
    path: str, stream: bool, traced: Traced
) -> None:
    operation, body = PATHS[path]
    asked = {**body, "stream": stream, "temperature": 0, "cache_salt": "salt" + SECRET}
    answer = traced.post(path, asked, **{"traceparent": f"00-{TRACE}-{CALLER}-01", "x-api-key": SECRET})
    assert answer.status == 200
    shown = "".join(span.to_json() for span in traced.spans)
    assert "gen_ai.request.model" in shown and SECRET not in shown
    root = traced.root
    assert root.name == f"{operation} fake" and root.parent is not None
    assert f"{root.parent.span_id:016x}" == CALLER
    assert {f"{span.context.trace_id:032x}" for span in traced.spans} == {TRACE}
    parts = [span for span in traced.spans if span is not root]
    assert [span.name for span in parts] == ["queue", "prefill", "decode"]
    assert all(span.parent is not None and span.parent.span_id == root.context.span_id for span in parts)
    moments = [moment for span in parts for moment in nanoseconds(span)]
    began, ended = nanoseconds(root)
    assert began <= moments[0] and moments == sorted(moments) and moments[-1] <= ended
    assert moments[1] == moments[2] and moments[3] == moments[4]  # one follows the other
    assert answer.headers["x-request-id"] == root.attributes["phloem.request.id"]  # type: ignore[index]


def test_cached_tokens_and_why_no_more_of_them_go_to_the_trace_alone(traced: Traced) -> None:
    body = {"prompt": "a prompt of some length", "max_tokens": 4, "temperature": 0}
    traced.post("/v1/completions", body)
    values = dict(traced.root.attributes or {})
    assert values["gen_ai.usage.cache_read.input_tokens"] == 0
    assert values["phloem.cache.miss_reason"] == "never_seen"
    whole = traced.post("/v1/completions", body)
    asked = traced.post("/v1/completions", body | {"explain_cache": True})
    other = traced.post("/v1/completions", body | {"prompt": "a prompt of another length"})
    details = [answer.json()["usage"]["prompt_tokens_details"] for answer in (whole, asked, other)]
    assert ["cache_explanation" in each for each in details] == [False, True, False]
    assert details[1]["cache_explanation"]["reason"] == "complete"
    values = dict(traced.root.attributes or {})
    usage = other.json()["usage"]
    assert values["gen_ai.usage.cache_read.input_tokens"] == details[2]["cached_tokens"] > 0
    assert values["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert values["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    assert values["phloem.cache.miss_reason"] in ("never_seen", "block_rounding")
    (prefill,) = traced.named("prefill")
    assert (
        dict(prefill.attributes or {}).items()
        >= {
            "gen_ai.usage.cache_read.input_tokens": details[2]["cached_tokens"],
            "phloem.cache.miss_reason": values["phloem.cache.miss_reason"],
        }.items()
    )


def test_a_hit_has_no_miss_reason(traced: Traced) -> None:
    body = {"prompt": "the same once more", "max_tokens": 4, "temperature": 0}
    for _ in range(2):
        traced.post("/v1/completions", body)
    values = dict(traced.root.attributes or {})
    assert values["gen_ai.usage.cache_read.input_tokens"] and "phloem.cache.miss_reason" not in values


def test_a_compiled_constraint_is_a_span_and_settings_are_attributes(traced: Traced) -> None:
    body = {"prompt": "x", "regex": "[ab]{3}", "max_tokens": 9, "seed": 7, "top_k": 5, "n": 2}
    assert traced.post("/v1/completions", body).status == 200
    (compiled,) = traced.named("compile")
    assert nanoseconds(traced.root)[0] <= nanoseconds(compiled)[0] <= nanoseconds(compiled)[1]
    assert nanoseconds(compiled)[1] <= min(nanoseconds(span)[0] for span in traced.named("queue"))
    assert (
        dict(traced.root.attributes or {}).items()
        >= {
            "gen_ai.operation.name": "text_completion",
            "gen_ai.provider.name": "phloem",
            "gen_ai.request.model": "fake",
            "gen_ai.request.max_tokens": 9,
            "gen_ai.request.seed": 7,
            "gen_ai.request.top_k": 5,
            "gen_ai.request.choice.count": 2,
            "gen_ai.response.finish_reasons": ("stop", "stop"),
            "phloem.constraint": "regex",
            "http.route": "/v1/completions",
            "http.response.status_code": 200,
        }.items()
    )


def test_each_output_of_each_prompt_has_its_spans(traced: Traced) -> None:
    answer = traced.post(
        "/v1/completions", {"prompt": ["one", "two, longer"], "n": 2, "max_tokens": 4, "ignore_eos": True}
    )
    for name in ("queue", "prefill", "decode"):
        places = [(span.attributes or {}) for span in traced.named(name)]
        found = [(place["phloem.prompt"], place["phloem.output"]) for place in places]
        assert found == [(0, 0), (0, 1), (1, 0), (1, 1)]
    values = dict(traced.root.attributes or {})
    assert values["gen_ai.usage.input_tokens"] == answer.json()["usage"]["prompt_tokens"]
    assert "phloem.cache.miss_reason" not in values


def test_a_request_that_is_not_sampled_leaves_nothing_and_asks_for_no_explanation(
    faked: Callable[..., Traced],
) -> None:
    engine = FakeAsyncEngine()
    found = faked(engine)
    for flag, is_kept in (("00", False), ("01", True)):
        answer = found.post("/v1/completions", {"prompt": "x"}, traceparent=f"00-{TRACE}-{CALLER}-{flag}")
        assert answer.status == 200 and bool(found.spans) == engine.calls[-1]["explain_cache"] == is_kept


@pytest.mark.parametrize("header", ["", "00-zz-11-01", f"00-{'0' * 32}-{CALLER}-01", "x" * 5000])
def test_a_traceparent_that_is_none_begins_a_trace(header: str, traced: Traced) -> None:
    traced.post("/v1/completions", {"prompt": "x"}, traceparent=header)
    assert traced.root.parent is None


def test_errors_appear_by_their_codes(traced: Traced) -> None:
    assert traced.post("/v1/completions", {"prompt": 5}).status == 400
    assert traced.root.name == "POST /v1/completions" and traced.root.status.status_code is StatusCode.UNSET
    assert (traced.root.attributes or {})["http.response.status_code"] == 400
    answer = traced.post("/v1/completions", {"prompt": "x", "regex": "(", "max_tokens": 3})
    assert answer.status == 400 and (traced.root.attributes or {})["error.type"] == answer.error["code"]


def test_a_stream_that_fails_after_it_has_begun_is_an_error(faked: Callable[..., Traced]) -> None:
    traced = faked(FakeAsyncEngine(failure=EngineStopped("stopped"), fails_after=2))
    assert traced.post("/v1/completions", {"prompt": "x", "stream": True}).status == 200
    assert traced.root.status.status_code is StatusCode.ERROR and "error.type" in (traced.root.attributes or {})


def test_a_request_that_never_ran_has_waited(faked: Callable[..., Traced]) -> None:
    traced = faked(FakeAsyncEngine(refusal=EngineStopped("stopped")))
    assert traced.post("/v1/completions", {"prompt": "x", "stream": True}).status == 503
    assert traced.root.status.status_code is StatusCode.ERROR
    assert [span.name for span in traced.spans] == ["queue", "text_completion fake"]


def test_a_client_that_leaves_ends_its_spans(faked: Callable[..., Traced]) -> None:
    traced = faked(FakeAsyncEngine(reply="x" * 200, token_seconds=0.01))
    body = json.dumps({"prompt": "x", "stream": True, "max_tokens": None}).encode()
    sent = {"content-type": "application/json"}
    traced.exchange("POST", "/v1/completions", body, sent, leave_after=lambda answer: len(answer.chunks) > 2)
    assert (traced.root.attributes or {})["http.response.status_code"] in (200, 499)
    assert traced.root.end_time is not None


@pytest.mark.parametrize("path", ["/health", "/metrics", "/v1/loads", "/nothing-here", "/%00"])
def test_probes_and_paths_that_there_are_not_leave_nothing(path: str, traced: Traced) -> None:
    traced.exchange("GET", path, b"", {})
    assert not traced.spans


def test_callers_without_the_key_leave_nothing(faked: Callable[..., Traced]) -> None:
    traced = faked(FakeAsyncEngine(), api_keys=("sesame",))
    assert traced.post("/v1/completions", {"prompt": "x"}).status == 401
    assert not traced.spans
    assert traced.post("/v1/completions", {"prompt": "x"}, authorization="Bearer sesame").status == 200
    assert traced.spans and "sesame" not in "".join(span.to_json() for span in traced.spans)


def test_spans_are_sent_to_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "the chat")
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        settings = ServerSettings(otlp_traces_endpoint=f"http://127.0.0.1:{server.server_port}/v1/traces")
        app = create_app(FakeAsyncEngine(), settings)  # type: ignore[arg-type]

        async def run() -> None:
            async with app.router.lifespan_context(app):
                body = json.dumps({"prompt": "x"}).encode()
                await exchange(app, "POST", "/v1/completions", body, {"content-type": "application/json"})

        asyncio.run(run())  # at its end what waits is sent
        server.shutdown()
        thread.join()
    sent = [ExportTraceServiceRequest.FromString(body) for body in received]
    names = [
        span.name for each in sent for part in each.resource_spans for scope in part.scope_spans for span in scope.spans
    ]
    assert "text_completion nano" in names
    (resource,) = [part.resource for each in sent for part in each.resource_spans]
    assert {value.key: value.value.string_value for value in resource.attributes}["service.name"] == "the chat"


def test_a_collector_that_is_gone_costs_no_request_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "0.01")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        settings = ServerSettings(otlp_traces_endpoint=f"http://127.0.0.1:{closed.getsockname()[1]}/v1/traces")
        app = create_app(FakeAsyncEngine(), settings)  # type: ignore[arg-type]
        asked = Client(app, FakeAsyncEngine())
        assert asked.complete("x").status == 200


@pytest.mark.parametrize("url", ["", "localhost:4317", "grpc://host:4317", "http://", "http://host:99999", "http://[1"])
def test_a_wrong_address_is_refused_by_name(url: str) -> None:
    with pytest.raises(ConfigError, match=r"otlp_traces_endpoint: .* http://127\.0\.0\.1:4317"):
        ServerSettings(otlp_traces_endpoint=url)


@pytest.mark.parametrize("missing", ["opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.grpc"])
def test_a_missing_extra_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else find(name))
    with pytest.raises(ConfigError, match=r"otlp_traces_endpoint: .*pip install 'phloem\[otel\]'"):
        ServerSettings(otlp_traces_endpoint="http://127.0.0.1:4317")


def test_an_unknown_protocol_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "carrier pigeon")
    with pytest.raises(ConfigError, match=r'OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: .*"http/protobuf"'):
        create_app(FakeAsyncEngine(), ServerSettings(otlp_traces_endpoint="http://127.0.0.1:4317"))  # type: ignore[arg-type]


def test_without_the_option_nothing_of_it_is_imported() -> None:
    script = (
        "import sys; from phloem.runtime.server import create_app, ServerSettings; import phloem.runtime.server.app; "
        "ServerSettings(); assert 'opentelemetry.sdk' not in sys.modules; "
        "assert 'opentelemetry.exporter' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)
