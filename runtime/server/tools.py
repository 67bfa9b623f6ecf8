"""Tools as constraints: which calls an answer may hold, and how they are read out of it.

With a model whose template shows how calls are written (`tool_format`), calls are tags in the text: "auto" leaves the
text free until a call begins, "required" and a named tool begin with a call, and inside a call the arguments obey the
tool's parameters. With other models a required call is the whole output, as JSON, and "auto" leaves the output free.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...errors import ConstraintError, ConstraintTooLarge
from ...fsm.compile_time import MAX_SECONDS, CompileTime
from ...fsm.json_schema import XmlMarks, raw_keys
from .. import constraint_spec
from ..constraint_spec import ConstraintSpec
from .errors import invalid
from .forms import either, sequence, text, token
from .protocol import ChatRequest, Tool
from .tool_calls import ArgumentsReader, ObjectReader, Reader, TagReader
from .tool_format import ToolFormat
from .xml_arguments import XmlArguments

NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """How an output with calls is constrained and read.

    Attributes:
        reader: makes a reader for one output.
        is_forced: whether there is certainly a call.
        is_named: the caller chose the tool, and then OpenAI's finish reason is "stop".
    """

    spec: ConstraintSpec
    reader: Callable[[], Reader]
    is_forced: bool
    is_named: bool


def tool_plan(body: ChatRequest, tool_format: ToolFormat | None) -> ToolPlan | None:
    """The plan of a request; None if its output is free and holds no calls."""
    choice = body.tool_choice
    if not body.tools or choice.mode == "none":
        return None
    is_forced, named = choice.mode == "required", choice.is_named
    chosen = [tool for tool in body.tools if choice.allows(tool.function.name)]
    if tool_format is not None:
        once = named or body.parallel_tool_calls is False
        return _tagged(chosen, tool_format, is_forced=is_forced, once=once, is_named=named)
    if not is_forced:
        return None
    if len(chosen) == 1:
        name = chosen[0].function.name
        spec = constraint_spec.json_schema(parameters_of(chosen[0]))
        return ToolPlan(spec, lambda: ArgumentsReader(name), True, named)
    return ToolPlan(constraint_spec.structural_tag(_one_object(chosen)), ObjectReader, True, named)


def _tagged(tools: list[Tool], tool_format: ToolFormat, *, is_forced: bool, once: bool, is_named: bool) -> ToolPlan:
    names = {tool_format.begin(tool.function.name): tool.function.name for tool in tools}
    schemas = [parameters_of(tool) for tool in tools]
    contents = [tool_format.content(schema) for schema in schemas]
    flags = {"at_least_one": is_forced, "stop_after_first": once}
    form: dict[str, Any]
    if tool_format.special:
        trigger = token(tool_format.trigger)
        tags = []
        for begin, content in zip(names, contents, strict=True):
            behind = tool_format.parts(begin.removeprefix(tool_format.trigger))
            elements = [*behind, content, *tool_format.parts(tool_format.end)]
            tags.append({"begin": trigger, "content": sequence(*elements), "end": ""})
        # the text of the trigger is kept out of free text, so that readers know a call when they see one
        excludes = [tool_format.trigger]
        form = {"type": "token_triggered_tags", "trigger_tokens": excludes, "tags": tags, "excludes": excludes}
    else:
        tags = [
            {"begin": begin, "content": content, "end": tool_format.end}
            for begin, content in zip(names, contents, strict=True)
        ]
        form = {"type": "triggered_tags", "triggers": [tool_format.trigger], "tags": tags}
    # spaced: as templates show calls, json.dumps with its defaults
    spec = constraint_spec.structural_tag({"format": {**form, **flags}}, whitespace="spaced")
    parameters = {tool.function.name: schema for tool, schema in zip(tools, schemas, strict=True)}
    return ToolPlan(spec, _reader_maker(tool_format, names, parameters), is_forced, is_named)


def _reader_maker(
    tool_format: ToolFormat, names: dict[str, str], parameters: dict[str, dict[str, Any]]
) -> Callable[[], Reader]:
    marks = tool_format.marks
    if marks is None:
        return lambda: TagReader(tool_format.trigger, names, tool_format.end)
    raw = {name: _raw_keys(json.dumps(schema), marks) for name, schema in parameters.items()}
    openings = (marks.before_key, tool_format.end)
    return lambda: TagReader(
        tool_format.trigger, names, tool_format.end, lambda name: XmlArguments(marks, raw[name]), openings
    )


@functools.lru_cache(maxsize=64)
def _raw_keys(schema: str, marks: XmlMarks) -> frozenset[str]:
    """The parameters that are text; of a schema that cannot be enforced none: compiling the constraint says why.

    Raises:
        ConstraintTooLarge: it takes too long to find out.
    """
    try:
        return raw_keys(json.loads(schema), marks, CompileTime(MAX_SECONDS))
    except ConstraintTooLarge:
        raise
    except ConstraintError:
        return frozenset()


def parameters_of(tool: Tool) -> dict[str, Any]:
    """What the arguments obey. They are an object, whether the schema says so or not.

    Raises:
        ApiError: the schema says that they are something else.
    """
    schema = tool.function.parameters or NO_PARAMETERS
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        text = f"Invalid parameters of the tool '{tool.function.name}': arguments are an object, so \"type\" must be"
        raise invalid(f'{text} "object", not {json.dumps(kind)[:100]}.', "tools", "invalid_json_schema")
    return {**schema, "type": "object"}


def _one_object(tools: list[Tool]) -> dict[str, Any]:
    """A call as one JSON object: that of one of the tools. Each schema stays a document of its own, so that references
    in it lead where they did."""
    calls = [
        sequence(
            text(f'{{"name":{json.dumps(tool.function.name)},"arguments":'),
            {"type": "json_schema", "json_schema": parameters_of(tool)},
            text("}"),
        )
        for tool in tools
    ]
    return {"format": either(calls)}
