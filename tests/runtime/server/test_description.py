"""/openapi.json says what the routes take and answer, as they do."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest

from .bad_constraints import ENGINE_CASES
from .bad_inputs import PROTOCOL_CASES, Case
from .wire import client

DOCUMENT = client().get("/openapi.json").json()
SCHEMAS = DOCUMENT["components"]["schemas"]


def validator(schema: Any) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({**schema, "components": {"schemas": SCHEMAS}})


def operation(method: str, path: str) -> Any:
    return DOCUMENT["paths"][path][method]


def body_of(case: Case) -> Any:
    try:
        return json.loads(case.body)
    except (ValueError, RecursionError):
        return None


TAKEN = [case for case in [*PROTOCOL_CASES, *ENGINE_CASES] if case.status == 200 and isinstance(body_of(case), dict)]


def test_every_reference_leads_somewhere() -> None:
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(DOCUMENT)))
    assert names <= set(SCHEMAS)
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    assert all("422" not in found["responses"] for path in DOCUMENT["paths"].values() for found in path.values())


@pytest.mark.parametrize("case", TAKEN, ids=lambda case: case.name[:60])
def test_whatever_is_taken_is_described(case: Case) -> None:
    taken = operation("post", case.path)["requestBody"]["content"]["application/json"]["schema"]
    validator(taken).validate(body_of(case))


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/completions", {"prompt": "Hi"}),
        ("/v1/responses", {"input": "Hi"}),
        ("/v1/responses/input_tokens", {"input": "Hi"}),
        ("/v1/embeddings", {"input": "Hi"}),
        ("/v1/score", {"text_1": "Hi", "text_2": ["you"]}),
        ("/rerank", {"query": "Hi", "documents": ["you", {"text": "they"}]}),
        ("/v1/chat/completions/render", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/v1/completions/render", {"prompt": "Hi"}),
        ("/tokenize", {"prompt": "Hi"}),
        ("/detokenize", {"tokens": [72]}),
    ],
)
def test_answers_and_errors_are_what_is_described(path: str, fields: dict[str, Any]) -> None:
    responses = operation("post", path)["responses"]
    for body, status in ((fields, "200"), ({**fields, "model": 5}, "default")):
        answer = client().post(path, body)
        assert (answer.status == 200) == (status == "200")
        validator(responses[status]["content"]["application/json"]["schema"]).validate(answer.json())


def test_small_routes_answer_what_is_described() -> None:
    for path in ("/v1/models", "/v1/models/fake", "/health", "/ready", "/version", "/statistics", "/cache", "/metrics"):
        described = operation("get", "/v1/models/{name}" if path.endswith("/fake") else path)
        answer = client().get(path)
        media_type = answer.headers["content-type"].partition(";")[0]
        schema = described["responses"]["200"]["content"][media_type]["schema"]
        validator(schema).validate(answer.json() if media_type == "application/json" else answer.body.decode())


def test_null_is_as_good_as_leaving_a_field_out() -> None:
    fields = {name: None for name in SCHEMAS["ChatRequest"]["properties"] if name != "messages"}
    body = {"messages": [{"role": "user", "content": "Hi", "name": None}], **fields}
    taken = operation("post", "/v1/chat/completions")["requestBody"]["content"]["application/json"]["schema"]
    validator(taken).validate(body)
    assert client().post("/v1/chat/completions", body).status == 200


@pytest.mark.parametrize("keys", [(), ("sk-one",)], ids=["open", "keys"])
def test_keys_are_described_as_they_are_asked_for(keys: tuple[str, ...]) -> None:
    headers = {"x-api-key": "sk-one"}
    document = client(api_keys=keys).get("/openapi.json", headers=headers).json()
    schemes = document["components"]["securitySchemes"]
    assert schemes["bearer"] == {"type": "http", "scheme": "bearer"}
    assert schemes["x-api-key"] == {"type": "apiKey", "in": "header", "name": "x-api-key"}
    for path, operations in document["paths"].items():
        for method, found in operations.items():
            security = found.get("security", document.get("security", []))
            answer = client(api_keys=keys).request(method.upper(), path)
            assert (answer.status == 401) == bool(security), path
            assert {name for each in security for name in each} <= set(schemes)
