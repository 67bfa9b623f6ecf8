"""Tools as constraints: a required call is JSON that fits the tool's parameters.

`tool_choice` naming a tool: the output is that tool's arguments. "required": the output is
`{"name": …, "arguments": …}` of one of the tools. "auto" and "none" leave the output free (the chat template still gets
to see the tools under "auto"), and free text is returned as text. One call per answer.

A parameters schema may refer to its own root (`#/$defs/…`), so each is put under `#/$defs/<tool>` of the joint schema
and its references are moved there with it.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

from .. import constraint_spec
from ..constraint_spec import ConstraintSpec
from .protocol import ChatRequest, NamedTool, Tool

NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
VALUES = frozenset({"const", "enum", "default", "examples"})  # keywords whose contents are data, not schemas


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """How the output of a forced call is constrained and read.

    Attributes:
        name: the only tool it can be; None: the output says which.
    """

    spec: ConstraintSpec
    name: str | None


def tool_plan(body: ChatRequest) -> ToolPlan | None:
    """The plan for a forced call, or None if the output is free."""
    if isinstance(body.tool_choice, NamedTool):
        name = body.tool_choice.function.name
        chosen = [tool for tool in body.tools if tool.function.name == name]
    elif body.tool_choice == "required":
        chosen = body.tools
    else:
        return None
    if len(chosen) == 1:
        function = chosen[0].function
        return ToolPlan(constraint_spec.json_schema(_parameters(chosen[0])), function.name)
    return ToolPlan(constraint_spec.json_schema(_joint_schema(chosen)), None)


def tool_call(plan: ToolPlan, text: str) -> dict[str, Any]:
    """The finished output as an entry of `tool_calls`. An output cut short keeps its text as the arguments."""
    name, arguments = plan.name, text
    if name is None:
        try:
            value = json.loads(text)
            name = value["name"]
            arguments = json.dumps(value["arguments"], ensure_ascii=False, separators=(",", ":"))
        except ValueError:
            name = ""
    return {"id": new_call_id(), "type": "function", "function": {"name": name, "arguments": arguments}}


def new_call_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"


def _parameters(tool: Tool) -> dict[str, Any]:
    return tool.function.parameters or NO_PARAMETERS


def _joint_schema(tools: list[Tool]) -> dict[str, Any]:
    definitions = {tool.function.name: _moved(_parameters(tool), f"#/$defs/{tool.function.name}") for tool in tools}
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": name}, "arguments": {"$ref": f"#/$defs/{name}"}},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for name in definitions
    ]
    return {"anyOf": calls, "$defs": definitions}


def _moved(schema: dict[str, Any], root: str) -> dict[str, Any]:
    """A copy whose references into itself start at `root`. Iterative: schemas come from outside."""
    copy: dict[str, Any] = {}
    pending: list[tuple[Any, Any]] = [(schema, copy)]
    while pending:
        source, target = pending.pop()
        for key, value in source.items() if isinstance(source, dict) else enumerate(source):
            moved: Any = value
            if key == "$ref" and isinstance(value, str) and value.startswith("#"):
                moved = root + value[1:]
            elif isinstance(value, (dict, list)) and key not in VALUES:
                moved = {} if isinstance(value, dict) else [None] * len(value)
                pending.append((value, moved))
            target[key] = moved
    return copy
