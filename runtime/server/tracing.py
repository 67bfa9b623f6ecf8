"""Traces in OpenTelemetry's form (`pip install phloem[otel]`): what a request spent its time on.

    chat nano       the request as a whole; its parent is the caller's `traceparent`
      ├─ compile    a constraint was compiled, or found compiled
      ├─ queue      until an output was admitted
      ├─ prefill    until its first token
      └─ decode     until its last

The spans are made when a request has ended, from times that were noted on its way, and are sent by a thread of their
own. Why no more of a prompt was cached is asked for only where the trace is kept. Attributes have the names of
OpenTelemetry's conventions for generative AI where these have one, and `phloem.…` otherwise. No text of a prompt or an
answer is in them, no key and no salt.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.datastructures import Headers

from ...errors import ConfigError
from ..constrain.spec import ConstraintSpec
from ..request import Usage
from .prepare import EngineCall
from .request_record import RequestRecord
from .settings import ServerSettings

OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/v1/completions": "text_completion",
}
"""What OpenTelemetry calls what a route does."""
PROTOCOL = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
Values = dict[str, Any]


class Tracing:
    """Where the spans of one application go.

    Args:
        processor: is given each span when it has ended.
    """

    def __init__(self, processor: SpanProcessor, settings: ServerSettings, version: str) -> None:
        self._provider = TracerProvider(resource=_resource(version), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self.tracer = self._provider.get_tracer("phloem", version)
        self.model_name = settings.model_name
        self._propagator = TraceContextTextMapPropagator()

    def record(self, headers: Headers) -> TracedRecord:
        """Of a request that has just come."""
        return TracedRecord(self, self._propagator.extract(headers))

    def close(self) -> None:
        """Sends what waits; may take seconds."""
        self._provider.shutdown()


def tracing_to(endpoint: str, settings: ServerSettings, version: str) -> Tracing:
    """Sends spans to an OpenTelemetry collector, over gRPC unless the environment says "http/protobuf" (`PROTOCOL`)."""
    return Tracing(BatchSpanProcessor(_exporter(endpoint)), settings, version)


def _exporter(endpoint: str) -> SpanExporter:
    protocol = next((os.environ[name] for name in PROTOCOL if os.environ.get(name)), "grpc")
    if protocol == "grpc":
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(endpoint=endpoint)
    if protocol == "http/protobuf":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter

        return HttpSpanExporter(endpoint=endpoint)
    raise ConfigError(f'{PROTOCOL[0]}: {protocol!r} is not one of "grpc", "http/protobuf"')


def _resource(version: str) -> Resource:
    """What the environment says (OTEL_SERVICE_NAME …), or our own name."""
    found = Resource.create()
    if str(found.attributes["service.name"]).startswith("unknown_service"):
        found = found.merge(Resource({"service.name": "phloem", "service.version": version}))
    return found


class TracedRecord(RequestRecord):
    """Makes spans of what it has gathered, at the end."""

    def __init__(self, tracing: Tracing, parent: Context) -> None:
        super().__init__()
        self._tracing = tracing
        self._parent = parent
        self._epoch = time.time_ns() - int(time.monotonic() * 1e9)  # of the monotonic clock
        self._root: Span | None = None  # begun when the engine is asked: from then on it is known whether it is kept

    def begin(self, calls: Sequence[EngineCall]) -> None:
        self._root = self._span("request", self.began_at, {}, self._parent, SpanKind.SERVER)
        self.asks_why |= self._root.is_recording()
        super().begin(calls)

    def close(self, method: str, route: str | None, status: int, request_id: str) -> None:
        super().close(method, route, status, request_id)
        if route is None:  # a path that there is not, or a caller that was sent away
            return
        root = self._root or self._span("request", self.began_at, {}, self._parent, SpanKind.SERVER)
        if not root.is_recording():
            return
        self.end()
        assert self.ended_at is not None
        operation = OPERATIONS.get(route) if self.calls else None
        name = f"{method} {route}" if operation is None else f"{operation} {self._model}"
        values: Values = {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": status,
            "phloem.request.id": request_id,
        }
        if self.calls:
            values |= self._asked(operation) | self._answered()
        code = self.error.get("code")
        if code or status >= 400:
            values["error.type"] = code or str(status)
        root.update_name(name)
        root.set_attributes(values)
        if status >= 500 or (code and status < 400):  # a stream that has begun and failed
            root.set_status(StatusCode.ERROR)
        self._add_parts(set_span_in_context(root), self.ended_at)
        root.end(self._epoch + int(self.ended_at * 1e9))

    @property
    def _model(self) -> str:
        return self.calls[0].options.get("adapter") or self._tracing.model_name

    def _asked(self, operation: str | None) -> Values:
        sampling, spec = self.calls[0].sampling, self.calls[0].spec
        values: Values = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "phloem",
            "gen_ai.request.model": self._model,
            "gen_ai.response.model": self._model,
            "gen_ai.request.max_tokens": sampling.max_tokens,
            "gen_ai.request.temperature": sampling.temperature,
            "gen_ai.request.top_p": sampling.top_p,
            "gen_ai.request.top_k": sampling.top_k if sampling.top_k > 0 else None,
            "gen_ai.request.seed": sampling.seed,
            "gen_ai.request.frequency_penalty": sampling.frequency_penalty or None,
            "gen_ai.request.presence_penalty": sampling.presence_penalty or None,
            "gen_ai.request.choice.count": sampling.n if sampling.n > 1 else None,
            "gen_ai.output.type": "json" if _is_json(spec) else "text",
            "phloem.constraint": spec.kind if spec is not None else None,
        }
        return {name: value for name, value in values.items() if value is not None}

    def _answered(self) -> Values:
        prompts, counts = self.usages()[0], self.counts()
        outputs = [self.outputs[place].delta for place in sorted(self.outputs)]
        values: Values = {
            "gen_ai.response.finish_reasons": [each.finish_reason.value for each in outputs if each.finish_reason],
            "gen_ai.usage.input_tokens": counts["prompt_tokens"],
            "gen_ai.usage.cache_read.input_tokens": counts["cached_tokens"],
            "gen_ai.usage.output_tokens": counts["completion_tokens"],
        }
        if self.first_at is not None:
            values["gen_ai.response.time_to_first_chunk"] = self.first_at - self.began_at
        return values | (_missed(prompts[0]) if len(prompts) == 1 else {})

    def _add_parts(self, parent: Context, ended_at: float) -> None:
        """The spans below the request's own."""
        for part in self.parts(ended_at):
            values: Values = {}
            if part.place is not None:
                values = {"phloem.prompt": part.place[0], "phloem.output": part.place[1]}
            if part.usage is not None:
                values |= _prefilled(part.usage) if part.name == "prefill" else _decoded(part.usage)
            span = self._span(part.name, part.began_at, values, parent, SpanKind.INTERNAL)
            span.end(self._epoch + int(max(part.began_at, part.ended_at) * 1e9))

    def _span(self, name: str, began_at: float, values: Values, parent: Context, kind: SpanKind) -> Span:
        began = self._epoch + int(began_at * 1e9)
        return self._tracing.tracer.start_span(name, parent, kind, values, start_time=began)


def _is_json(spec: ConstraintSpec | None) -> bool:
    return spec is not None and spec.kind in ("json_schema", "json_object")


def _prefilled(usage: Usage) -> Values:
    return {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "phloem.usage.loaded_tokens": usage.loaded_tokens,
    } | _missed(usage)


def _missed(usage: Usage) -> Values:
    """Why no more of a prompt was cached; nothing if all was."""
    found = usage.cache_explanation
    if found is None or found.reason == "complete":
        return {}
    values: Values = {"phloem.cache.miss_reason": found.reason}
    if found.seconds_since_eviction is not None:
        values["phloem.cache.seconds_since_eviction"] = found.seconds_since_eviction
    return values


def _decoded(usage: Usage) -> Values:
    return {
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "phloem.usage.jumped_tokens": usage.jumped_tokens,
        "phloem.preemptions": usage.num_preemptions,
    }
