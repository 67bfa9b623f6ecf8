"""Two tools, and the constraints of requests that offer some."""

from __future__ import annotations

from typing import Any

from phloem.fsm import Compiler, Vocabulary
from phloem.runtime.constrain.spec import ConstraintSpec
from phloem.runtime.server.protocol import ChatRequest
from phloem.runtime.server.tool_format import FORMATS
from phloem.runtime.server.tools import tool_plan

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
COMPILER = Compiler(Vocabulary([bytes([byte]) for byte in range(256)] + [b""], [256]))


def hermes(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def spec_of(tool_format: str = "hermes", **fields: Any) -> ConstraintSpec | None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": [WEATHER, CLOCK], **fields}
    plan = tool_plan(ChatRequest.model_validate(body), FORMATS[tool_format])
    return plan.spec if plan is not None else None


def accepts(spec: ConstraintSpec | None, text: str) -> bool:
    assert spec is not None and isinstance(spec.source, str)
    cursor = COMPILER.structural_tag(spec.source, whitespace=spec.whitespace or "compact").cursor()
    return all(cursor.advance(byte) for byte in text.encode()) and cursor.is_accepting
