"""What an answer in harmony may look like, as a structural tag: its messages, and in one of them what was asked for.

::

    ( analysis )*  final: the constraint's text                          with a constraint
    ( analysis | commentary )*  ( final: any text | one call )           with tools under "auto"
    ( analysis | commentary )*  one call                                 with a call that is required
    ( analysis )*  ( final: the constraint's text | one call )           with both under "auto"

Reasoning stays free, and what was asked for is valid after it: near the end of the budget the reasoning is closed
while there is still room for the rest. A call's arguments obey the tool's parameters; its end ends the answer, so there
is one call at most. Its header may be written in either of the two orders that harmony has for it.
"""

from __future__ import annotations

from collections.abc import Collection

from ..constrain import spec as constraint_spec
from ..constrain.spec import ConstraintSpec
from .forms import Form, either, form_of, sequence, text, token
from .harmony import HarmonyReader
from .protocol import ChatRequest, Tool
from .tools import ToolPlan, parameters_of

_ANY_TEXT: Form = {"type": "any_text"}


def harmony_plan(
    body: ChatRequest, special_texts: Collection[str], answer: ConstraintSpec | None = None
) -> ToolPlan | None:
    """As `tools.tool_plan`: the plan of a request with tools; None if its answer holds no calls."""
    choice = body.tool_choice
    if not body.tools or choice.mode == "none" or body.continue_final_message:
        return None
    chosen = [tool for tool in body.tools if choice.allows(tool.function.name)]
    endings = [_call(tool, special_texts) for tool in chosen]
    if choice.mode == "auto":
        endings.append(_message("final", form_of(answer) if answer is not None else _ANY_TEXT))
    # flexible: this model writes JSON now with spaces and now without
    channels = ["analysis", "commentary"] if answer is None else ["analysis"]  # what is announced is content
    form = _after(either([_thought(channel) for channel in channels]), either(endings))
    spec = constraint_spec.structural_tag({"format": form}, whitespace="flexible")
    names = frozenset(tool.function.name for tool in chosen)
    return ToolPlan(spec, lambda: HarmonyReader(names), choice.mode == "required", choice.is_named)


def after_reasoning(spec: ConstraintSpec) -> ConstraintSpec:
    """The constraint on the final message, with reasoning before it; not for structural tags."""
    form = _after(_thought("analysis"), _message("final", form_of(spec)))
    return constraint_spec.structural_tag({"format": form}, whitespace=spec.whitespace)


def _after(thoughts: Form, ending: Form) -> Form:
    return sequence({"type": "star", "content": thoughts}, ending)


def _thought(channel: str) -> Form:
    """A message before the last one, and the beginning of the next."""
    return sequence(_message(channel, _ANY_TEXT), token("<|end|>"), token("<|start|>"), text("assistant"))


def _message(channel: str, content: Form) -> Form:
    return sequence(token("<|channel|>"), text(channel), token("<|message|>"), content)


def _call(tool: Tool, special_texts: Collection[str]) -> Form:
    name, json_mark = f"to=functions.{tool.function.name}", [text("json")]
    if "<|constrain|>" in special_texts:
        json_mark.insert(0, token("<|constrain|>"))
    after = sequence(token("<|channel|>"), text(f"commentary {name} "), *json_mark)
    before = sequence(text(f" {name}"), token("<|channel|>"), text("commentary json"))
    arguments = {"type": "json_schema", "json_schema": parameters_of(tool), "extra_keys": "never"}
    return sequence(either([after, before]), token("<|message|>"), arguments)
