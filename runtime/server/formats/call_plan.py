"""Tools as constraints: which calls an answer may hold, and how they are read out of it.

With a model whose template shows how calls are written (`call_formats`), calls are tags in the text: "auto" leaves the
text free until a call begins, "required" and a named tool begin with a call, and inside a call the arguments obey the
tool's parameters. With other models a required call is the whole output, as JSON, and "auto" leaves the output free.
"""

from __future__ import annotations

import functools
import json
from functools import partial
from typing import Any

from ....errors import ConstraintError, ConstraintTooLarge
from ....fsm.compile_time import MAX_SECONDS, CompileTime
from ....fsm.json_schema import XmlMarks, raw_keys
from ...constrain import spec as constraint_spec
from ...constrain.spec import ConstraintSpec
from ..errors import invalid
from ..protocol import ChatRequest, Tool
from .call_formats import CallFormat
from .call_reader import CallObjectReader, CallReader, WholeCallReader
from .output_format import CallPlan
from .parts import Part, either, part_of, sequence, structural_tag, text, token

BARE = {"type", "properties", "required", "title", "description", "$schema"}
NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


def call_plan(body: ChatRequest, calls: CallFormat | None, answer: ConstraintSpec | None = None) -> CallPlan | None:
    """See `OutputFormat.plan`; calls: how the model writes them, None if it has no way of its own."""
    choice = body.tool_choice
    if not body.tools or choice.mode == "none":
        return None
    is_forced, named = choice.mode == "required", choice.is_named
    chosen = [tool for tool in body.tools if choice.allows(tool.function.name)]
    if calls is not None:
        once = named or body.parallel_tool_calls is False
        if answer is None:
            part = _in_text(chosen, calls, is_forced=is_forced, once=once)
        else:
            part = _apart(chosen, calls, None if is_forced else answer, once=once)
        names, raw = [tool.function.name for tool in chosen], _raw_keys_of(chosen, calls)
        new_reader = partial(CallReader, calls, names, raw, is_exclusive=answer is not None)
        # spaced: as templates show calls, json.dumps with its defaults
        is_free = answer is None and not is_forced
        return CallPlan(structural_tag(part, "spaced"), new_reader, is_forced, named, is_free)
    if not is_forced:
        return None
    if len(chosen) == 1:
        spec = constraint_spec.json_schema(parameters_of(chosen[0]), extra_keys="never")
        return CallPlan(spec, partial(WholeCallReader, chosen[0].function.name), True, named)
    return CallPlan(structural_tag(_one_object(chosen), None), CallObjectReader, True, named)


def _in_text(tools: list[Tool], calls: CallFormat, *, is_forced: bool, once: bool) -> Part:
    """Calls in free text."""
    part: Part
    if calls.special:
        tags = [{"begin": token(calls.trigger), "content": _after(tool, calls), "end": ""} for tool in tools]
        # the text of the trigger is kept out of free text, so that readers know a call when they see one
        excludes = [calls.trigger]
        part = {"type": "token_triggered_tags", "trigger_tokens": excludes, "tags": tags, "excludes": excludes}
    else:
        tags = [_tag(tool, calls) for tool in tools]
        part = {"type": "triggered_tags", "triggers": [calls.trigger], "tags": tags}
    return part | {"at_least_one": is_forced, "stop_after_first": once}


def _apart(tools: list[Tool], calls: CallFormat, answer: ConstraintSpec | None, *, once: bool) -> Part:
    """Calls and nothing else, or the answer, if there is one."""
    one = either(
        [
            sequence(token(calls.trigger), _after(tool, calls))
            if calls.special
            else {"type": "tag", **_tag(tool, calls)}
            for tool in tools
        ]
    )
    part = one
    if not once:
        line_break = {"type": "optional", "content": text("\n")}
        part = sequence(one, {"type": "star", "content": sequence(line_break, one)})
    return part if answer is None else either([part, part_of(answer)])


def _tag(tool: Tool, calls: CallFormat) -> Part:
    content = calls.content(parameters_of(tool))
    return {"begin": calls.begin(tool.function.name), "content": content, "end": calls.end}


def _after(tool: Tool, calls: CallFormat) -> Part:
    """A call after its trigger, with special tokens as such."""
    begin = calls.begin(tool.function.name).removeprefix(calls.trigger)
    content = calls.content(parameters_of(tool))
    return sequence(*calls.parts(begin), content, *calls.parts(calls.end))


def _raw_keys_of(tools: list[Tool], calls: CallFormat) -> dict[str, frozenset[str]]:
    """By tool, the parameters that are text, where arguments are XML. All tools of a request share one limit."""
    marks = calls.marks
    if marks is None:
        return {}
    compile_time = CompileTime(MAX_SECONDS)
    return {tool.function.name: _raw_keys(json.dumps(parameters_of(tool)), marks, compile_time) for tool in tools}


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


def _one_object(tools: list[Tool]) -> Part:
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
    return either(calls)
