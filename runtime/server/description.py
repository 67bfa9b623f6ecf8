"""`/openapi.json`: what the routes take and answer. Bodies are read by hand (`body`), so FastAPI does not know them.

The schemas are those of the models that read the bodies. A field that may be left out may be null.
"""

from __future__ import annotations

from typing import Any, TypedDict

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from .gate import OPEN_PATHS

Schema = dict[str, Any]
_REFS = "#/components/schemas/{model}"
_TEXT: Schema = {"type": "string"}
_NULLABLE_TEXT: Schema = {"type": ["string", "null"]}
ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": _TEXT,
                "type": _TEXT,
                "param": _NULLABLE_TEXT,
                "code": _NULLABLE_TEXT,
                "pointer": {"type": "string", "description": "where in a schema the fault is"},
            },
        }
    },
}


KEYS: Schema = {  # either is enough
    "bearer": {"type": "http", "scheme": "bearer"},
    "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


def answer(kind: str | None = None, *required: str) -> Schema:
    """The schema of an answer with these fields; `kind`: what its `object` says."""
    named: Schema = {"object": {"const": kind}} if kind is not None else {}
    return {"type": "object", "required": [*named, *required], "properties": named}


class RouteDescription(TypedDict):
    """Arguments of FastAPI's `router.get` and `router.post`."""

    responses: dict[int | str, dict[str, Any]]
    openapi_extra: dict[str, Any] | None


def described(
    shown: Schema | None,
    body: type[BaseModel] | None = None,
    *,
    media_type: str = "application/json",
    streams: bool = False,
) -> RouteDescription:
    """A route that answers `shown`, or with an error. `streams`: or with events, if the body asks for a stream."""
    content: Schema = {media_type: {"schema": shown} if shown is not None else {}}
    if streams:
        content["text/event-stream"] = {"schema": _TEXT}
    failed = {"application/json": {"schema": {"$ref": _REFS.format(model="Error")}}}
    responses: dict[int | str, dict[str, Any]] = {
        200: {"description": "The answer.", "content": content},
        "default": {"description": "An error, in OpenAI's shape.", "content": failed},
    }
    if body is None:
        return {"responses": responses, "openapi_extra": None}
    taken = {"application/json": {"schema": {"$ref": _REFS.format(model=body.__name__)}}}
    return {"responses": responses, "openapi_extra": {"requestBody": {"required": True, "content": taken}}}


def document(app: FastAPI, bodies: list[type[BaseModel]], *, asks_for_key: bool) -> Schema:
    """The whole document; `bodies`: the models that the routes name; `asks_for_key`: on all paths but the open ones."""
    made = get_openapi(title=app.title, version=app.version, routes=app.routes)
    _, definitions = models_json_schema([(body, "validation") for body in bodies], ref_template=_REFS)
    schemas = {name: _with_nulls(schema) for name, schema in definitions["$defs"].items()}
    made["components"] = {"schemas": {**schemas, "Error": ERROR}, "securitySchemes": KEYS}
    if asks_for_key:
        made["security"] = [{name: []} for name in KEYS]
        for path in OPEN_PATHS & made["paths"].keys():
            for operation in made["paths"][path].values():
                operation["security"] = []
    return made


def _with_nulls(schema: Schema) -> Schema:
    """The schema of a model whose optional fields may be null."""
    fields, required = schema.get("properties", {}), schema.get("required", ())
    shown = {
        name: field if name in required else {"anyOf": [field, {"type": "null"}]} for name, field in fields.items()
    }
    return {**schema, "properties": shown} if fields else schema
