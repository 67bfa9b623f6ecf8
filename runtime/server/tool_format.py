"""How a model writes tool calls into its text: as its chat template shows them.

::

    hermes         <tool_call>⏎{"name": "f", "arguments": {…}}⏎</tool_call>      Hermes, Qwen 2.5 and 3, and others
    llama3_json    {"name": "f", "parameters": {…}}                               Llama 3.1 and later
    function_tag   <function=f>{…}</function>                                     Llama 3's user-defined functions

A format whose markers are special tokens of the tokenizer cannot be a part of constrained text and is not used.
Knows texts only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """A call is `before_name`, the tool's name, `before_arguments`, the arguments as JSON, `end`.

    Attributes:
        trigger: once this has been written, a call has begun.
    """

    trigger: str
    before_name: str
    before_arguments: str
    end: str

    def begin(self, name: str) -> str:
        """Everything in front of the arguments."""
        return f"{self.before_name}{name}{self.before_arguments}"


FORMATS: Mapping[str, ToolFormat] = {
    "hermes": ToolFormat("<tool_call>", '<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>"),
    "llama3_json": ToolFormat('{"name": "', '{"name": "', '", "parameters": ', "}"),
    "function_tag": ToolFormat("<function=", "<function=", ">", "</function>"),
}


def tool_format_of(template: str, special_texts: Collection[str]) -> ToolFormat | None:
    """The format that a chat template shows; None if it shows none, or one that is not known here."""
    name = _shown(template)
    if name is None:
        return None
    wanted = FORMATS[name]
    return None if any(text in wanted.trigger or wanted.trigger in text for text in special_texts) else wanted


def _shown(template: str) -> str | None:
    if "<parameter=" in template or "<arg_key>" in template:  # arguments as XML
        return None
    if "<tool_call>" in template and "arguments" in template:
        return "hermes"
    if "<function=" in template:
        return "function_tag"
    return "llama3_json" if '{"name": function name, "parameters":' in template else None
