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
from typing import Any, cast

from ...fsm.json_schema import LineBreaks, XmlMarks, XmlStyle, xml_marks
from . import forms


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """A call is `before_name`, the tool's name, `before_arguments`, the arguments, `end`.

    Attributes:
        trigger: once this has been written, a call has begun.
        style, line_breaks: how arguments are written, as a structural tag has them.
        special: which texts in it are special tokens of the model; if there are any, the trigger is one.
    """

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
        return None if self.style == "json" else xml_marks(cast(XmlStyle, self.style), self.line_breaks)

    def content(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The arguments under a schema, as a format of a structural tag; keys that it does not mention are excluded."""
        form = {"type": "json_schema", "json_schema": schema, "extra_keys": "never"}
        return form if self.style == "json" else {**form, "style": self.style, "line_breaks": self.line_breaks}

    def begin(self, name: str) -> str:
        """Everything before the arguments."""
        return f"{self.before_name}{name}{self.before_arguments}"

    def parts(self, text: str) -> list[dict[str, str]]:
        """A text of the format as formats of a structural tag: special tokens, and what stands between them."""
        if not self.special:
            return [forms.text(text)]
        pieces = re.split("(" + "|".join(map(re.escape, self.special)) + ")", text)
        return [forms.token(piece) if piece in self.special else forms.text(piece) for piece in pieces if piece]

    def with_special(self, texts: Collection[str]) -> ToolFormat | None:
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


FORMATS: Mapping[str, ToolFormat] = {
    "hermes": ToolFormat("<tool_call>", '<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>"),
    "llama3_json": ToolFormat('{"name": "', '{"name": "', '", "parameters": ', "}"),
    "function_tag": ToolFormat("<function=", "<function=", ">", "</function>"),
    "mistral": ToolFormat("[TOOL_CALLS]", "[TOOL_CALLS]", "[ARGS]", ""),
    "qwen3_coder": ToolFormat(
        "<tool_call>", "<tool_call>\n<function=", ">", "\n</function>\n</tool_call>", "qwen_xml", "before"
    ),
    "glm45": ToolFormat("<tool_call>", "<tool_call>", "", "\n</tool_call>", "glm_xml", "before"),
    "glm47": ToolFormat("<tool_call>", "<tool_call>", "", "</tool_call>", "glm_xml", "never"),
}


def tool_format_of(template: str, special_texts: Collection[str]) -> ToolFormat | None:
    """The format that a chat template shows; None if it shows none, or one that is not known here."""
    name = _shown(template)
    return FORMATS[name].with_special(special_texts) if name is not None else None


def _shown(template: str) -> str | None:
    if "<arg_key>" in template:
        if "<tool_call>" not in template or "<arg_value>" not in template:
            return None
        return "glm47" if "</arg_key><arg_value>" in template else "glm45"
    if "<parameter=" in template:  # some write no line breaks, or other marks around a call
        is_known = "<tool_call>" in template and re.search(r"(\n|\\n)</parameter>", template) is not None
        return "qwen3_coder" if is_known else None
    if "[TOOL_CALLS]" in template:
        return "mistral" if "[ARGS]" in template else None
    if "<tool_call>" in template and "arguments" in template:
        return "hermes"
    if "<function=" in template:
        return "function_tag"
    return "llama3_json" if '{"name": function name, "parameters":' in template else None
