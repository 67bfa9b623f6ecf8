"""The server's own tests, over the front: its routes, while two engines in this process compute.

What goes between them is pickled as Ray pickles it. A prompt's beginning and its namespace say which engine it goes to,
so what the tests say of the cache holds. What is about one engine's cache or queue is left out.
"""

from __future__ import annotations

import pickle
import zlib
from array import array
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import cloudpickle
import httpx
import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from phloem.cluster.front import app_over, engine_without_weights
from phloem.cluster.remote_engine import RemoteEngine
from phloem.errors import PhloemError
from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.engine.engine import Engine
from phloem.runtime.engine.statistics import EngineStatistics
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.request import Delta
from phloem.runtime.server import ServerSettings
from phloem.runtime.server.prepare import EngineCall
from phloem.runtime.server.tracing import Tracing

from ..runtime.server.conftest import KEY, Served, nano, openai_client  # noqa: F401
from ..runtime.server.loopback import PATIENCE, running
from ..runtime.server.test_adapters import (  # noqa: F401
    folders,
    test_an_adapter_is_a_model_on_every_route,
    test_models_are_listed_with_their_parent,
)
from ..runtime.server.test_bad_inputs import test_a_constraint_is_enforced_or_refused  # noqa: F401
from ..runtime.server.test_openai_client import (  # noqa: F401
    test_a_chat_answers_as_the_engine_does,
    test_a_completions_token_is_among_its_likeliest,
    test_a_predicted_answer_is_the_same_in_fewer_steps,
    test_a_prompt_formatted_by_hand_is_read_with_its_special_tokens,
    test_a_required_tool_is_called_with_valid_arguments,
    test_a_stop_string_may_stay_in_the_text,
    test_an_agents_loop_goes_on_after_its_call,
    test_an_answer_parses_into_a_pydantic_class,
    test_echo_scores_a_prompt_as_the_engine_does,
    test_forced_text_is_jumped_over,
    test_logprobs_are_those_of_the_answer,
    test_regex_choice_and_json_object_hold_at_any_temperature,
    test_seeds_reproduce_samples_and_n_outputs_differ,
    test_special_token_text_stays_text,
    test_the_cache_explains_itself_on_request,
    test_the_end_token_is_among_the_log_probabilities,
    test_thirty_two_clients_at_once_share_the_system_prompt,
    test_two_salts_share_nothing,
)
from ..runtime.server.test_openai_errors import (  # noqa: F401
    test_a_client_that_leaves_before_the_first_token_frees_its_blocks,
    test_a_client_that_leaves_frees_its_blocks,
    test_a_schema_that_cannot_be_enforced_is_refused_with_its_pointer,
    test_errors_are_those_that_the_client_knows,
)
from ..runtime.server.test_responses import (  # noqa: F401
    test_the_official_client_calls_tools_and_answers_calls,
    test_the_official_client_reads_responses,
)
from ..runtime.server.test_vectors import (  # noqa: F401
    test_the_official_client_gets_the_engines_vectors,
    test_without_a_reranker_a_score_is_a_cosine,
)

NUM_ROUTED_BYTES = 256  # of a prompt's packed tokens


class Fronted(Served):
    """A front; the first engine is that of `async_engine`."""

    def __init__(self, url: str, remote: RemoteEngine, replicas: list[AsyncEngine], server: Any) -> None:
        super().__init__(url, replicas[0], server)
        self._remote = remote
        self._each = [Served(url, replica, server) for replica in replicas]

    def settle(self) -> EngineStatistics:
        for each in self._each:
            each.settle()
        return self._remote.statistics()


@contextmanager
def fronting(loaded: LoadedModel, tracing: Tracing | None = None, **settings: Any) -> Iterator[Fronted]:
    """A front over two engines until the block ends."""
    config = EngineConfig(device="cpu", **settings)
    replicas = [AsyncEngine(Engine.from_loaded(config, loaded, stopwatch=lambda: 0.0)) for _ in range(2)]

    async def send(tokens: bytes, namespace: str, call: EngineCall) -> AsyncGenerator[Delta | PhloemError]:
        call = pickle.loads(cloudpickle.dumps(call))
        replica = replicas[zlib.crc32(namespace.encode() + tokens[:NUM_ROUTED_BYTES]) % 2]
        options = call.options.copy()
        options.pop("request_id", None)
        stream = replica.generate(array("i", tokens), call.sampling, call.spec, **options)
        try:
            async with aclosing(cast("AsyncGenerator[Delta]", stream)) as deltas:
                async for delta in deltas:
                    yield pickle.loads(pickle.dumps(delta))
        except PhloemError as error:
            yield pickle.loads(pickle.dumps(error))

    def reports() -> list[Mapping[str, Any]]:
        return [asdict(replica.statistics()) for replica in replicas]

    settings_of_server = ServerSettings(api_keys=(KEY,), prepare_timeout=PATIENCE)
    remote = RemoteEngine(engine_without_weights(config), send, reports)
    try:
        with running(app_over(remote, settings_of_server, tracing)) as (url, server):
            yield Fronted(url, remote, replicas, server)
    finally:
        for replica in replicas:
            replica.stop()


@pytest.fixture(scope="module")
def served(nano: LoadedModel) -> Iterator[Served]:  # noqa: F811
    with fronting(nano, num_blocks=2048) as found:
        yield found


@pytest.fixture(scope="module")
def adapted(folders: dict[str, Path]) -> Iterator[Served]:  # noqa: F811
    adapters = {"sql": str(folders["sql"])}
    with fronting(load(EngineConfig(device="cpu", adapters=adapters)), num_blocks=2048, adapters=adapters) as found:
        yield found


def test_traces_are_sent_by_the_front(nano: LoadedModel) -> None:  # noqa: F811
    exporter = InMemorySpanExporter()
    tracing = Tracing(SimpleSpanProcessor(exporter), ServerSettings(), "1")
    traces = ["0af7651916cd43dd8448eb211c80319c", "1af7651916cd43dd8448eb211c80319c"]
    body = {"prompt": "Once upon a time", "max_tokens": 5, "temperature": 0, "ignore_eos": True}
    with fronting(nano, tracing, num_blocks=256) as found:
        for trace in traces:
            headers = {"Authorization": f"Bearer {KEY}", "traceparent": f"00-{trace}-b7ad6b7169203331-01"}
            answer = httpx.post(f"{found.url}/v1/completions", json=body, headers=headers, timeout=PATIENCE)
            assert answer.status_code == 200
    spans = [span for span in exporter.get_finished_spans() if f"{span.context.trace_id:032x}" == traces[1]]
    assert [span.name for span in spans] == ["queue", "prefill", "decode", "text_completion nano"]
    details = answer.json()["usage"]["prompt_tokens_details"]
    assert "cache_explanation" not in details
    cached = (spans[-1].attributes or {})["gen_ai.usage.cache_read.input_tokens"]
    assert cached == details["cached_tokens"] > 0
