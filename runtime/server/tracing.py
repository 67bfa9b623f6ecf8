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
from dataclasses import dataclass, replace
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
from ..request import Delta, Usage
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


@dataclass(slots=True)
class _Output:
    """What is known of one output: moments on `time.monotonic`, and its usage and end as last reported."""

    first_at: float
    last_at: float
    delta: Delta


class TracedRecord(RequestRecord):
    """Keeps what the spans need, and makes them at the end."""

    def __init__(self, tracing: Tracing, parent: Context) -> None:
        super().__init__(time.monotonic)
        self._tracing = tracing
        self._parent = parent
        self._epoch = time.time_ns() - int(time.monotonic() * 1e9)  # of the monotonic clock
        self._calls: Sequence[EngineCall] = ()
        self._explained: list[bool] = []  # whether the caller asked why no more was cached
        self._asked_at = 0.0
        self._root: Span | None = None  # begun when the engine is asked: from then on it is known whether it is kept
        self._outputs: dict[tuple[int, int], _Output] = {}

    def begin(self, calls: Sequence[EngineCall]) -> None:
        super().begin(calls)
        self._calls = calls
        self._asked_at = self._clock()
        self._root = self._span("request", self._began_at, {}, self._parent, SpanKind.SERVER)
        self._explained = [bool(call.options.get("explain_cache")) for call in calls]
        for call in calls if self._root.is_recording() else ():
            call.options["explain_cache"] = True

    def push(self, prompt: int, delta: Delta) -> Delta:
        super().push(prompt, delta)
        now = self._clock()
        output = self._outputs.get((prompt, delta.index))
        if output is None:
            self._outputs[prompt, delta.index] = _Output(now, now, delta)
        else:
            output.last_at, output.delta = now, delta
        if self._explained[prompt]:
            return delta
        return replace(delta, usage=replace(delta.usage, cache_explanation=None))

    def close(self, method: str, route: str | None, status: int, request_id: str) -> None:
        super().close(method, route, status, request_id)
        if route is None:  # a path that there is not, or a caller that was sent away
            return
        root = self._root or self._span("request", self._began_at, {}, self._parent, SpanKind.SERVER)
        if not root.is_recording():
            return
        self.end()
        assert self._ended_at is not None
        operation = OPERATIONS.get(route) if self._calls else None
        name = f"{method} {route}" if operation is None else f"{operation} {self._model}"
        values: Values = {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": status,
            "phloem.request.id": request_id,
        }
        if self._calls:
            values |= self._asked(operation) | self._answered()
        code = self._error.get("code")
        if code or status >= 400:
            values["error.type"] = code or str(status)
        root.update_name(name)
        root.set_attributes(values)
        if status >= 500 or (code and status < 400):  # a stream that has begun and failed
            root.set_status(StatusCode.ERROR)
        self._add_parts(set_span_in_context(root), self._ended_at)
        root.end(self._epoch + int(self._ended_at * 1e9))

    @property
    def _model(self) -> str:
        return self._calls[0].options.get("adapter") or self._tracing.model_name

    def _asked(self, operation: str | None) -> Values:
        sampling, spec = self._calls[0].sampling, self._calls[0].spec
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
        last = {key: output.delta for key, output in self._outputs.items()}
        outputs = [last[key] for key in sorted(last)]
        prompts = [delta.usage for (_, index), delta in last.items() if index == 0]
        values: Values = {
            "gen_ai.response.finish_reasons": [each.finish_reason.value for each in outputs if each.finish_reason],
            "gen_ai.usage.input_tokens": sum(usage.prompt_tokens for usage in prompts),
            "gen_ai.usage.cache_read.input_tokens": sum(usage.cached_tokens for usage in prompts),
            "gen_ai.usage.output_tokens": sum(each.usage.completion_tokens for each in outputs),
        }
        if self._first_at is not None:
            values["gen_ai.response.time_to_first_chunk"] = self._first_at - self._began_at
        return values | (_missed(prompts[0]) if len(prompts) == 1 else {})

    def _add_parts(self, parent: Context, ended_at: float) -> None:
        """The spans below the request's own. Of an output that never came, only that it waited is known."""
        for compiled in sorted({span for call in self._calls for span in call.compiled}):
            self._part("compile", *compiled, parent, {})
        for prompt, call in enumerate(self._calls):
            for index in range(call.sampling.n):
                place = {"phloem.prompt": prompt, "phloem.output": index}
                output = self._outputs.get((prompt, index))
                usage = output.delta.usage if output is not None else None
                if output is None or usage is None or usage.admitted_at is None:
                    self._part("queue", self._asked_at, output.last_at if output else ended_at, parent, place)
                    continue
                self._part("queue", usage.admitted_at - usage.queue_seconds, usage.admitted_at, parent, place)
                self._part("prefill", usage.admitted_at, output.first_at, parent, place | _prefilled(usage))
                if output.last_at > output.first_at:
                    self._part("decode", output.first_at, output.last_at, parent, place | _decoded(usage))

    def _part(self, name: str, began_at: float, ended_at: float, parent: Context, values: Values) -> None:
        span = self._span(name, began_at, values, parent, SpanKind.INTERNAL)
        span.end(self._epoch + int(max(began_at, ended_at) * 1e9))

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
