"""Which of a request's tools may be called, and whether one must be. Knows the wire's forms, no constraints.

::

    "none" | "auto" | "required"                                              all tools
    {"type": "function", "function": {"name": "f"}}                           a call of f; /v1/responses: {"name": "f"}
    {"type": "allowed_tools", "allowed_tools": {"mode": …, "tools": […]}}     some of them, "auto" or "required";
                                                                              /v1/responses: mode and tools next to type

Tools that are not allowed are shown to the model all the same, so that the prompt, and what is cached of it, stays as
it was: that is what `allowed_tools` is for.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, WithJsonSchema

from .fields import fault

Mode = Literal["none", "auto", "required"]
_TEXT: dict[str, Any] = {"type": "string"}


def _object(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(fields), "properties": fields}


_FUNCTION = {
    "anyOf": [
        _object(type={"const": "function"}, **named) for named in ({"function": _object(name=_TEXT)}, {"name": _TEXT})
    ]
}
_ALLOWED = {"mode": {"enum": ["auto", "required"]}, "tools": {"type": "array", "minItems": 1, "items": _FUNCTION}}
WIRE_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"enum": ["none", "auto", "required"]},
        _FUNCTION,
        _object(type={"const": "allowed_tools"}, allowed_tools=_object(**_ALLOWED)),
        _object(type={"const": "allowed_tools"}, **_ALLOWED),
    ]
}


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """What a request says about calls.

    Attributes:
        mode: "none": no calls; "auto": the model decides; "required": there is a call.
        names: the tools that may be called; None: all.
        is_named: the caller chose the one tool by its name, and then OpenAI's finish reason is "stop".
        wire: as it was sent.
    """

    mode: Mode = "auto"
    names: frozenset[str] | None = None
    is_named: bool = False
    wire: Any = "auto"

    def allows(self, name: str) -> bool:
        return self.names is None or name in self.names

    def check(self, offered: Collection[str]) -> None:
        """Raises a validation error if it asks for tools that are not there."""
        if self.mode == "required" and not offered:
            raise fault("tool_choice", "'tool_choice' is only allowed when 'tools' are given")
        missing = sorted((self.names or frozenset()) - set(offered))
        if missing:
            raise fault("tool_choice", f"There is no tool named {missing[0][:64]!r} in 'tools'")


def _read(value: object) -> object:
    if isinstance(value, str) and value in ("none", "auto", "required"):
        return ToolChoice(value, wire=value)  # type: ignore[arg-type]
    if isinstance(value, dict) and value.get("type") == "function":
        name = _name(value)
        if name is not None:
            return ToolChoice("required", frozenset({name}), is_named=True, wire=value)
        raise fault("tool_choice", 'Expected {"type": "function", "function": {"name": …}}')
    if isinstance(value, dict) and value.get("type") == "allowed_tools":
        return _allowed(value)
    known = '"none", "auto", "required", or an object of type "function" or "allowed_tools"'
    raise fault("tool_choice", f"Expected {known}")


def _allowed(value: dict[str, Any]) -> ToolChoice:
    described = value.get("allowed_tools", value)
    tools = described.get("tools") if isinstance(described, dict) else None
    mode = described.get("mode", "auto") if isinstance(described, dict) else None
    names = [_name(tool) for tool in tools] if isinstance(tools, list) else []
    found = frozenset(name for name in names if name is not None)
    if mode not in ("auto", "required") or not names or None in names:
        form = '{"mode": "auto" or "required", "tools": [{"type": "function", "function": {"name": …}}, …]}'
        raise fault("tool_choice", f"Expected 'allowed_tools' to be {form}")
    return ToolChoice(mode, found, wire=value)


def _name(tool: object) -> str | None:
    """The tool that `{"function": {"name": …}}`, or `{"name": …}`, means."""
    function = tool.get("function", tool) if isinstance(tool, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


ToolChoiceField = Annotated[ToolChoice, BeforeValidator(_read), WithJsonSchema(WIRE_SCHEMA)]
