"""The page of the HTTP interface: every route and every field of a body, from the server's own OpenAPI document."""

from __future__ import annotations

import json
import re
from typing import Any

from site_source import ROOT

from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.engine.engine import Engine
from phloem.runtime.server import ServerSettings, create_app

Schema = dict[str, Any]
_REF = "#/components/schemas/"
_HEAD = """# HTTP interface

Made from the document that a server answers at `/openapi.json`, started with `--enable-admin` and
`--enable-adapter-loading`. [The server](../server.md) says what the fields mean, which errors there are, and how keys
are sent. `null` means "not given" in every field that is not required.

"""
_BODIES = """
## Bodies

What the routes take, and what those bodies are made of. Fields that are not listed are ignored, but for
[those that would change the answer](../server.md#what-a-request-may-say).
"""


def http_page() -> str:
    """The page as MyST."""
    with Engine(device="cpu", num_blocks=16) as engine:
        app = create_app(AsyncEngine(engine), ServerSettings(admin=True, adapter_loading=True))
        document = app.openapi()
    meanings = _meanings((ROOT / "docs" / "server.md").read_text(encoding="utf-8"))
    parts = [_HEAD, "## Routes\n"]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts.append(_route(method.upper(), path, operation, meanings))
    parts.append(_BODIES)
    for name, schema in document["components"]["schemas"].items():
        parts.append(_body(name, schema))
    return "".join(parts)


def _meanings(page: str) -> dict[str, str]:
    """What docs/server.md says of each route, by its path, with links as they are from this page."""
    found: dict[str, str] = {}
    table = page.partition("\n## Routes\n")[2].partition("\n## ")[0]
    for names, text in re.findall(r"^\| (`.*?) \| (.*) \|$", table, re.MULTILINE):
        text = re.sub(r"\]\(#", "](../server.md#", re.sub(r"\]\((\w[\w-]*\.md)", r"](../\1", text))
        for path in re.findall(r"`(?:[A-Z]+ )?(/[^`]*)`", f"{names} {text}"):
            found.setdefault(re.sub(r"\{\w+\}", "{}", path), text)
    return found


def _route(method: str, path: str, operation: Schema, meanings: dict[str, str]) -> str:
    text = meanings.get(re.sub(r"\{\w+\}", "{}", path)) or operation.get("description", "")
    lines = [f"\n### {method} {path}\n"]
    if text:
        lines.append(text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".") + "\n")
    body = operation.get("requestBody")
    if body:
        lines.append(f"Takes: {_kind(body['content']['application/json']['schema'])}.\n")
    rows = [
        f"| `{each['name']}` | {each['in']} | {_kind(each['schema'])} | {each.get('description', '')} |"
        for each in operation.get("parameters", [])
    ]
    if rows:
        lines += ["| parameter | in | takes | |\n|---|---|---|---|", *rows, ""]
    answered = operation["responses"]["200"].get("content", {})
    kinds = " or ".join(f"`{kind}`" for kind in answered) or "no body that is described"
    shown = answered.get("application/json", {}).get("schema", {})
    fields = ", ".join(f"`{name}`" for name in shown.get("required", []))
    lines.append(f"Answers: {kinds}" + (f" with {fields}" if fields else "") + ".\n")
    return "\n".join(lines)


def _body(name: str, schema: Schema) -> str:
    lines = [f"\n### {name}\n"]
    if schema.get("description"):
        lines.append(schema["description"].replace("\n", " ") + "\n")
    required = schema.get("required", [])
    lines.append("| field | takes | default |\n|---|---|---|")
    for field, given in schema.get("properties", {}).items():
        default = "required" if field in required else _default(given)
        lines.append(f"| `{field}` | {_kind(given)} | {default} |")
    return "\n".join(lines) + "\n"


def _options(schema: Schema) -> list[Schema]:
    """What a field may be, without null."""
    found = schema.get("anyOf") or schema.get("oneOf") or [schema]
    if found == [schema]:
        return [] if schema.get("type") == "null" else [schema]
    return [option for each in found for option in _options(each)]


def _default(schema: Schema) -> str:
    for each in (schema, *schema.get("anyOf", [])):
        if each.get("default") is not None and not (isinstance(each["default"], dict) and each["default"]):
            return f"`{json.dumps(each['default'], ensure_ascii=False)}`"
    return ""


def _kind(schema: Schema) -> str:
    return " or ".join(dict.fromkeys(map(_option, _options(schema)))) or "anything"


def _option(schema: Schema) -> str:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REF)
        return f"[{name}](#{name.lower()})"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items")
        return "list" + (f" of {_kind(items)}" if items else "") + _bounds(schema, "Items")
    if isinstance(kind, list):
        return " or ".join(each for each in kind if each != "null")
    names = {"string": "text", None: "anything"}
    return names.get(kind, kind) + (_bounds(schema, "Length") if kind == "string" else _range(schema))


def _bounds(schema: Schema, what: str) -> str:
    least, most = schema.get(f"min{what}"), schema.get(f"max{what}")
    unit = {"Items": "", "Length": " characters"}[what]
    if least is not None and most is not None:
        return f" ({least} to {most}{unit})"
    return f" (at most {most}{unit})" if most is not None else f" (at least {least}{unit})" if least is not None else ""


def _range(schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if most is None and schema.get("exclusiveMaximum", 0) >= 2**31:
        least = None if least is not None and least <= -(2**31) else least
    parts = [f"at least {least}" if least is not None else "", f"at most {most}" if most is not None else ""]
    if "exclusiveMinimum" in schema:
        parts.append(f"above {schema['exclusiveMinimum']}")
    shown = ", ".join(part for part in parts if part)
    return f" ({shown})" if shown else ""
