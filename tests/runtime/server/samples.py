"""Two tools, calls of them in every format, and what a reader makes of a text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from phloem.fsm import Compiler, Constraint, Vocabulary
from phloem.runtime.constrain.spec import ConstraintSpec
from phloem.runtime.server.formats.call_formats import CALL_FORMATS
from phloem.runtime.server.formats.call_plan import call_plan
from phloem.runtime.server.formats.events import (
    Arguments,
    CallBegun,
    CallEnded,
    Content,
    Event,
    OutputReader,
    Reasoning,
)
from phloem.runtime.server.formats.output_format import CallPlan
from phloem.runtime.server.protocol import ChatRequest

from .fakes import FakeAsyncEngine
from .wire import Client, client

CITY: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
CLOCK = {"type": "function", "function": {"name": "clock"}}
OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
JSON_FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": OBJECT}}
COMPILER = Compiler(Vocabulary([bytes([byte]) for byte in range(256)] + [b""], [256]))
_TAG = "<tool_call>{}</tool_call>"
WRITTEN = {  # a call of the weather in a city, and one of the clock
    "hermes": tuple(
        _TAG.format(f'\n{{"name": "{name}", "arguments": {arguments}}}\n')
        for name, arguments in (("weather", '{"city": "Oslo"}'), ("clock", "{}"))
    ),
    "llama3_json": ('{"name": "weather", "parameters": {"city": "Oslo"}}', '{"name": "clock", "parameters": {}}'),
    "function_tag": ('<function=weather>{"city": "Oslo"}</function>', "<function=clock>{}</function>"),
    "mistral": ('[TOOL_CALLS]weather[ARGS]{"city": "Oslo"}', "[TOOL_CALLS]clock[ARGS]{}"),
    "qwen3_coder": (
        _TAG.format("\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n"),
        _TAG.format("\n<function=clock>\n</function>\n"),
    ),
    "glm45": (
        _TAG.format("weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n"),
        _TAG.format("clock\n"),
    ),
    "glm47": (_TAG.format("weather<arg_key>city</arg_key><arg_value>Oslo</arg_value>"), _TAG.format("clock")),
}


def hermes(name: str, arguments: str) -> str:
    return _TAG.format(f'\n{{"name": "{name}", "arguments": {arguments}}}\n')


def request_of(*tools: Any, **fields: Any) -> ChatRequest:
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": list(tools) or [WEATHER, CLOCK], **fields}
    return ChatRequest.model_validate(body)


def plan_of(name: str | None, *tools: Any, **fields: Any) -> CallPlan:
    """The plan of a request with these tools (or the two), by a model with this format of calls."""
    plan = call_plan(request_of(*tools, **fields), CALL_FORMATS[name] if name is not None else None)
    assert plan is not None
    return plan


def constraint_of(spec: ConstraintSpec) -> Constraint:
    """Of one token for each byte."""
    assert isinstance(spec.source, str)
    if spec.kind == "json_schema":
        return COMPILER.json_schema(spec.source, extra_keys=spec.extra_keys)
    return COMPILER.structural_tag(spec.source, whitespace=spec.whitespace or "compact")


def accepts(spec: ConstraintSpec, text: str) -> bool:
    return constraint_of(spec).accepts(text.encode())


def tools_client(reply: str, name: str = "hermes") -> Client:
    return client(FakeAsyncEngine(reply=reply), tool_call_format=name)


@dataclass
class Read:
    """What was read; `is_whole`: for each call whether its arguments ended."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    is_whole: list[bool] = field(default_factory=list)


def folded(events: Sequence[Event]) -> Read:
    """The events put together; they must come in order."""
    found, ids = Read(), set()
    for event in events:
        if isinstance(event, Content):
            found.content += event.text
        elif isinstance(event, Reasoning):
            found.reasoning += event.text
        elif isinstance(event, CallBegun):
            assert event.index == len(found.calls) and event.id.startswith("call_") and event.id not in ids
            ids.add(event.id)
            found.calls.append((event.name, ""))
            found.is_whole.append(False)
        else:
            assert isinstance(event, (Arguments, CallEnded)) and event.index == len(found.calls) - 1
            if isinstance(event, CallEnded):
                assert not found.is_whole[-1], "a call ends once"
                found.is_whole[-1] = True
            else:
                name, arguments = found.calls[-1]
                found.calls[-1] = name, arguments + event.text
    return found


def pieces(text: str, cuts: Sequence[int]) -> list[str]:
    """The text cut at these places, each taken modulo its length."""
    ends = [*sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    return [text[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def read(reader: OutputReader, text: str, cuts: Sequence[int] = ()) -> Read:
    events = [event for piece in pieces(text, cuts) for event in reader.push(piece)]
    return folded([*events, *reader.push("", is_last=True)])
