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
from ..constrain import spec as constraint_spec
from ..constrain.spec import ConstraintSpec
from .errors import invalid
from .forms import Form, either, form_of, sequence, text, token
from .protocol import ChatRequest, Tool
from .tool_calls import ArgumentsReader, FirstReader, ObjectReader, Reader, TagReader
from .tool_format import ToolFormat
from .xml_arguments import XmlArguments

BARE = {"type", "properties", "required", "title", "description", "$schema"}
NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class ToolPlan:
    """How an output with calls is constrained and read.

    Attributes:
        reader: makes a reader for one output.
        is_forced: whether there is certainly a call.
        is_named: the caller chose the tool, and then OpenAI's finish reason is "stop".
        is_free: the output is any text with calls in it.
    """

    spec: ConstraintSpec
    reader: Callable[[], Reader]
    is_forced: bool
    is_named: bool
    is_free: bool = False


def tool_plan(
    body: ChatRequest, tool_format: ToolFormat | None, answer: ConstraintSpec | None = None
) -> ToolPlan | None:
    """The plan of a request; None if its output holds no calls. `answer`: what the content obeys where it is not
    calls (`response_format`); then there are calls or content, never both."""
    choice = body.tool_choice
    if not body.tools or choice.mode == "none":
        return None
    is_forced, named = choice.mode == "required", choice.is_named
    chosen = [tool for tool in body.tools if choice.allows(tool.function.name)]
    if tool_format is not None:
        once = named or body.parallel_tool_calls is False
        if answer is None:
            return _tagged(chosen, tool_format, is_forced=is_forced, once=once, is_named=named)
        return _apart(chosen, tool_format, None if is_forced else answer, once=once, is_named=named)
    if not is_forced:
        return None
    if len(chosen) == 1:
        name = chosen[0].function.name
        spec = constraint_spec.json_schema(parameters_of(chosen[0]), extra_keys="never")
        return ToolPlan(spec, lambda: ArgumentsReader(name), True, named)
    return ToolPlan(constraint_spec.structural_tag(_one_object(chosen)), ObjectReader, True, named)


def _tagged(tools: list[Tool], tool_format: ToolFormat, *, is_forced: bool, once: bool, is_named: bool) -> ToolPlan:
    """Calls in free text."""
    form: Form
    if tool_format.special:
        tags = [
            {"begin": token(tool_format.trigger), "content": _after(tool, tool_format), "end": ""} for tool in tools
        ]
        # the text of the trigger is kept out of free text, so that readers know a call when they see one
        excludes = [tool_format.trigger]
        form = {"type": "token_triggered_tags", "trigger_tokens": excludes, "tags": tags, "excludes": excludes}
    else:
        tags = [_tag(tool, tool_format) for tool in tools]
        form = {"type": "triggered_tags", "triggers": [tool_format.trigger], "tags": tags}
    form |= {"at_least_one": is_forced, "stop_after_first": once}
    return ToolPlan(_spec(form), _reader_maker(tools, tool_format), is_forced, is_named, is_free=not is_forced)


def _apart(
    tools: list[Tool], tool_format: ToolFormat, answer: ConstraintSpec | None, *, once: bool, is_named: bool
) -> ToolPlan:
    """Calls and nothing else, or the answer, if there is one."""
    calls = [
        sequence(token(tool_format.trigger), _after(tool, tool_format))
        if tool_format.special
        else {"type": "tag", **_tag(tool, tool_format)}
        for tool in tools
    ]
    form = either(calls)
    if not once:
        line_break = {"type": "optional", "content": text("\n")}
        form = sequence(form, {"type": "star", "content": sequence(line_break, either(calls))})
    if answer is not None:
        form = either([form, form_of(answer)])
    new_reader = _reader_maker(tools, tool_format)
    return ToolPlan(_spec(form), lambda: FirstReader(tool_format.trigger, new_reader()), answer is None, is_named)


def _spec(form: Form) -> ConstraintSpec:
    # spaced: as templates show calls, json.dumps with its defaults
    return constraint_spec.structural_tag({"format": form}, whitespace="spaced")


def _tag(tool: Tool, tool_format: ToolFormat) -> Form:
    content = tool_format.content(parameters_of(tool))
    return {"begin": tool_format.begin(tool.function.name), "content": content, "end": tool_format.end}


def _after(tool: Tool, tool_format: ToolFormat) -> Form:
    """A call after its trigger, with special tokens as such."""
    begin = tool_format.begin(tool.function.name).removeprefix(tool_format.trigger)
    content = tool_format.content(parameters_of(tool))
    return sequence(*tool_format.parts(begin), content, *tool_format.parts(tool_format.end))


def _reader_maker(tools: list[Tool], tool_format: ToolFormat) -> Callable[[], Reader]:
    names = {tool_format.begin(tool.function.name): tool.function.name for tool in tools}
    marks = tool_format.marks
    if marks is None:
        return lambda: TagReader(tool_format.trigger, names, tool_format.end)
    compile_time = CompileTime(MAX_SECONDS)
    raw = {tool.function.name: _raw_keys(json.dumps(parameters_of(tool)), marks, compile_time) for tool in tools}
    openings = (marks.before_key, tool_format.end)
    return lambda: TagReader(
        tool_format.trigger, names, tool_format.end, lambda name: XmlArguments(marks, raw[name]), openings
    )


@functools.lru_cache(maxsize=64)
def _raw_keys(schema: str, marks: XmlMarks, compile_time: CompileTime) -> frozenset[str]:
    """The parameters that are text; of a schema that cannot be enforced none: compiling the constraint says why.

    compile_time: of all tools of a request.

    Raises:
        ConstraintTooLarge: it takes too long to find out.
    """
    try:
        return raw_keys(json.loads(schema), marks, compile_time)
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
    if schema.get("properties") == {} and schema.keys() <= BARE:  # how most clients write that there are none
        return NO_PARAMETERS
    return {**schema, "type": "object"}


def _one_object(tools: list[Tool]) -> dict[str, Any]:
    """A call as one JSON object: that of one of the tools. Each schema stays a document of its own, so that references
    in it lead where they did."""
    calls = [
        sequence(
            text(f'{{"name":{json.dumps(tool.function.name)},"arguments":'),
            {"type": "json_schema", "json_schema": parameters_of(tool), "extra_keys": "never"},
            text("}"),
        )
        for tool in tools
    ]
    return {"format": either(calls)}
