"""The official client when something goes wrong: it leaves, asks for what cannot be, meets a full queue or a drain."""

from __future__ import annotations

import threading
from typing import Any

import openai
import pytest
from openai import OpenAI

from phloem.runtime.execute.loading import LoadedModel
from phloem.runtime.program import RuntimeEndpoint

from .conftest import KEY, Served, serving
from .test_openai_client import DOCUMENT, HELLO


def test_a_client_that_leaves_frees_its_blocks(served: Served, openai_client: OpenAI) -> None:
    before = served.settle().completion_tokens
    stream = openai_client.chat.completions.create(
        model="nano",
        messages=[{"role": "user", "content": DOCUMENT}],
        stream=True,
        n=8,  # long enough to notice, on a busy machine too, that the client is gone
        max_tokens=3000,
        extra_body={"ignore_eos": True},
    )
    for _ in range(5):
        next(iter(stream))
    stream.close()
    statistics = served.settle()
    assert 0 < statistics.completion_tokens - before < 23_000


def test_a_client_that_leaves_before_the_first_token_frees_its_blocks(served: Served) -> None:
    with served.client() as client, pytest.raises(openai.APITimeoutError):
        client.completions.create(
            model="nano", prompt=[5] * 900, max_tokens=3000, extra_body={"ignore_eos": True}, timeout=0.15
        )
    served.settle()


def test_errors_are_those_that_the_client_knows(served: Served, openai_client: OpenAI) -> None:
    create = openai_client.chat.completions.create
    with pytest.raises(openai.NotFoundError) as missing:
        create(model="gpt-4", messages=HELLO)
    assert missing.value.code == "model_not_found" and missing.value.param == "model"
    with pytest.raises(openai.BadRequestError) as odd:
        create(model="nano", messages=HELLO, temperature=3)
    assert odd.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as empty:
        create(model="nano", messages=[])
    assert empty.value.param == "messages"
    with pytest.raises(openai.BadRequestError) as long:
        create(model="nano", messages=[{"role": "user", "content": DOCUMENT * 500}])
    assert long.value.code == "context_length_exceeded" and "4096" in str(long.value)
    with pytest.raises(openai.NotFoundError):
        openai_client.images.generate(model="nano", prompt="Hi")
    with served.client("sk-wrong") as stranger, pytest.raises(openai.AuthenticationError) as wrong:
        stranger.models.list()
    assert wrong.value.code == "invalid_api_key"
    assert [model.id for model in openai_client.models.list()] == ["nano"]
    assert openai_client.models.retrieve("nano").id == "nano"


TAGS = {"type": "array", "uniqueItems": True, "contains": {"enum": [1, 2]}, "minContains": 2}
UNSUPPORTED = {"type": "object", "properties": {"tags": TAGS}}
UNSUPPORTED_FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": UNSUPPORTED}}
DOCUMENTS = {"http://a.test/x": {"type": "no"}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("asked", "code", "pointer"),
    [
        ({"response_format": UNSUPPORTED_FORMAT}, "unsupported_json_schema", "/properties/tags/uniqueItems"),
        (
            {"guided_json": {"$ref": "http://a.test/x"}, "resources": DOCUMENTS},
            "invalid_json_schema",
            "resources/http://a.test/x#/type",
        ),
    ],
    ids=["schema", "document"],
)
def test_a_schema_that_cannot_be_enforced_is_refused_with_its_pointer(
    openai_client: OpenAI, asked: dict[str, Any], code: str, pointer: str, stream: bool
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        openai_client.chat.completions.create(model="nano", messages=HELLO, stream=stream, extra_body=asked)
    assert (refused.value.code, refused.value.param) == (code, next(iter(asked)))
    assert refused.value.body["pointer"] == pointer
    assert refused.value.body["message"].startswith(f"{pointer}: ")


def test_a_document_that_is_missing_names_the_field_that_takes_it(openai_client: OpenAI) -> None:
    schema = {"$ref": "http://a.test/x"}
    for extra, field in (
        ({"guided_json": schema}, "resources"),
        ({"structured_outputs": {"json": schema}}, "structured_outputs.resources"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": schema}}}, "response_format.resources"),
    ):
        with pytest.raises(openai.BadRequestError, match=f"give the document 'http://a.test/x' in '{field}', or put"):
            openai_client.chat.completions.create(model="nano", messages=HELLO, extra_body=extra)


def test_what_the_pool_cannot_hold_is_refused_as_what_the_context_cannot(nano: LoadedModel) -> None:
    with serving(nano, num_blocks=64, device="cpu") as served, served.client() as client:
        for words, max_tokens in (("Hi", 3000), ("word " * 2000, None), ("word " * 2000, 9)):
            with pytest.raises(openai.BadRequestError, match=r"KV pool holds 1024 tokens .--kv-memory") as chat:
                client.chat.completions.create(
                    model="nano", messages=[{"role": "user", "content": words}], max_tokens=max_tokens
                )
            assert (chat.value.param, chat.value.code) == ("messages", "context_length_exceeded")
            with pytest.raises(openai.BadRequestError, match="KV pool holds 1024") as text:
                client.completions.create(model="nano", prompt=words, max_tokens=max_tokens)
            assert text.value.param == "prompt"
        assert RuntimeEndpoint(served.url, KEY).tokenizer.max_model_len == 1024, "so that programs' are cut to it"
        full = [5] * 1024
        with pytest.raises(openai.BadRequestError, match="KV pool holds 1024"):
            client.completions.create(model="nano", prompt=full, max_tokens=1)
        assert client.completions.create(model="nano", prompt=full, max_tokens=0, extra_body={"echo": True})


def test_a_full_queue_asks_to_come_back(nano: LoadedModel) -> None:
    with serving(nano, num_blocks=512, device="cpu", max_running_requests=1, max_waiting_requests=1) as served:
        statuses: list[int] = []
        lock = threading.Lock()

        def ask() -> None:
            with served.client() as client:
                try:
                    client.completions.create(
                        model="nano", prompt="Hi", max_tokens=200, extra_body={"ignore_eos": True}
                    )
                    status = 200
                except openai.RateLimitError as error:
                    assert int(error.response.headers["retry-after"]) >= 1
                    assert error.code == "rate_limit_exceeded"
                    status = 429
            with lock:
                statuses.append(status)

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(set(statuses)) == [200, 429] and len(statuses) == 8
        served.settle()


@pytest.mark.parametrize(("seconds", "num_signals"), [(0.2, 1), (600.0, 2)])
def test_a_stream_that_outlasts_the_drain_ends_with_an_error(
    nano: LoadedModel, seconds: float, num_signals: int
) -> None:
    with serving(nano, num_blocks=512, device="cpu", drain_timeout=seconds) as served, served.client() as client:
        stream = client.completions.create(
            model="nano", prompt="Hi", max_tokens=4000, stream=True, extra_body={"ignore_eos": True}
        )
        next(iter(stream))
        for _ in range(num_signals):
            served.terminate()
        with pytest.raises(openai.APIError, match="shutting down"):
            list(stream)
    assert not served.async_engine.is_alive
