"""How a model writes tool calls into its text: as its chat template shows them.

::

    hermes         <tool_call>⏎{"name": "f", "arguments": {…}}⏎</tool_call>      Hermes, Qwen 2.5 and 3, and others
    llama3_json    {"name": "f", "parameters": {…}}                               Llama 3.1 and later
    function_tag   <function=f>{…}</function>                                     Llama 3's user-defined functions
    mistral        [TOOL_CALLS]f[ARGS]{…}                                         Mistral, eleventh tokenizer
    qwen3_coder    <tool_call>⏎<function=f>⏎<parameter=k>⏎v⏎</parameter>⏎</function>⏎</tool_call>
    glm45          <tool_call>f⏎<arg_key>k</arg_key>⏎<arg_value>v</arg_value>⏎</tool_call>
    glm47          <tool_call>f<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>

What of a format is a special token of the tokenizer is written as that token (`parts`). Knows texts only.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from .parts import Part, text, token

if TYPE_CHECKING:  # the command line has its names from here, and it begins at once
    from ....fsm.json_schema import LineBreaks, XmlMarks, XmlStyle


@dataclass(frozen=True, slots=True)
class CallFormat:
    """A call is `before_name`, the tool's name, `before_arguments`, the arguments, `end`.

    Attributes:
        signs: texts by which a chat template shows that its model writes calls so.
        trigger: once this has been written, a call has begun.
        style, line_breaks: how arguments are written, as a structural tag has them.
        special: which texts in it are special tokens of the model; if there are any, the trigger is one.
    """

    signs: tuple[str, ...]
    trigger: str
    before_name: str
    before_arguments: str
    end: str
    style: str = "json"
    line_breaks: LineBreaks = "between"
    special: frozenset[str] = frozenset()

    @property
    def marks(self) -> XmlMarks | None:
        """The marks of arguments as XML; None if they are JSON."""
        if self.style == "json":
            return None
        from ....fsm.json_schema import xml_marks

        return xml_marks(cast("XmlStyle", self.style), self.line_breaks)

    def content(self, schema: dict[str, Any]) -> Part:
        """The arguments under a schema; keys that it does not mention are excluded."""
        part = {"type": "json_schema", "json_schema": schema, "extra_keys": "never"}
        return part if self.style == "json" else {**part, "style": self.style, "line_breaks": self.line_breaks}

    def begin(self, name: str) -> str:
        """Everything before the arguments."""
        return f"{self.before_name}{name}{self.before_arguments}"

    def parts(self, written: str) -> list[Part]:
        """A text of the format as parts of a structural tag: special tokens, and what stands between them."""
        if not self.special:
            return [text(written)]
        pieces = re.split("(" + "|".join(map(re.escape, self.special)) + ")", written)
        return [token(piece) if piece in self.special else text(piece) for piece in pieces if piece]

    def with_special(self, texts: Collection[str]) -> CallFormat | None:
        """The format for a model with these special tokens; None if one of them overlaps the trigger."""
        marks = self.marks
        inside = f"{marks.before_key} {marks.after_key} {marks.end}" if marks is not None else ""
        whole = f"{self.before_name} {self.before_arguments} {inside} {self.end}"
        special = frozenset(text for text in texts if text in whole)
        if special and self.trigger not in special:
            return None
        if any(self.trigger in text for text in texts if text != self.trigger):
            return None
        return replace(self, special=special)


# The first that shows all its signs in a chat template is the model's.
CALL_FORMATS: Mapping[str, CallFormat] = {
    "glm47": CallFormat(
        ("<tool_call>", "<arg_key>", "</arg_key><arg_value>"),
        *("<tool_call>", "<tool_call>", "", "</tool_call>", "glm_xml", "never"),
    ),
    "glm45": CallFormat(
        ("<tool_call>", "<arg_key>", "<arg_value>"),
        *("<tool_call>", "<tool_call>", "", "\n</tool_call>", "glm_xml", "before"),
    ),
    "qwen3_coder": CallFormat(
        ("<tool_call>", "<parameter=", "\n</parameter>"),  # some write no line breaks, or other marks around a call
        *("<tool_call>", "<tool_call>\n<function=", ">", "\n</function>\n</tool_call>", "qwen_xml", "before"),
    ),
    "mistral": CallFormat(("[TOOL_CALLS]", "[ARGS]"), "[TOOL_CALLS]", "[TOOL_CALLS]", "[ARGS]", ""),
    "hermes": CallFormat(
        ("<tool_call>", "arguments"),
        *("<tool_call>", '<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>"),
    ),
    "function_tag": CallFormat(("<function=",), "<function=", "<function=", ">", "</function>"),
    "llama3_json": CallFormat(
        ('{"name": function name, "parameters":',), '{"name": "', '{"name": "', '", "parameters": ', "}"
    ),
}
_DIALECTS = (
    "<arg_key>",
    "<parameter=",
    "[TOOL_CALLS]",
)  # a template with one that a format has no sign of is another's


def call_format_of(template: str, special_texts: Collection[str]) -> CallFormat | None:
    """The format that a chat template shows; None if it shows none, or one that is not known here."""
    template = template.replace("\\n", "\n")
    for calls in CALL_FORMATS.values():
        foreign = [mark for mark in _DIALECTS if mark not in calls.signs]
        if all(sign in template for sign in calls.signs) and not any(mark in template for mark in foreign):
            return calls.with_special(special_texts)
    return None
