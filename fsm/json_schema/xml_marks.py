"""XML marks: what stands around the arguments of a tool call where models write them as XML.

::

    qwen_xml       <parameter=city>⏎Oslo⏎</parameter>                    Qwen3-Coder, Qwen 3.5
    glm_xml        <arg_key>city</arg_key>⏎<arg_value>Oslo</arg_value>   GLM-4.5; GLM-4.7 and later without line breaks
    minimax_xml    <parameter name="city">Oslo</parameter>               MiniMax-M2
    deepseek_xml   <｜DSML｜parameter name="city" string="true">Oslo</｜DSML｜parameter>      DeepSeek-V3.2
    kimi_k3_xml    <|open|>argument key="city" type="string"<|sep|>Oslo<|close|>argument<|sep|>      Kimi-K3
    cohere_xml     <cofl:value name="city" type="raw">Oslo</cofl:value>                      Cohere's Command

Line breaks are those of the models' chat templates; two arguments have one between them, but for the last two styles,
which have none. How a value is read back: where its key can only have strings, it is the text between the marks;
elsewhere it is JSON if it is JSON, and the text if it is not. With `string="…"` or `type="…"` it is what that says.
Knows no schemas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

XmlStyle = Literal["qwen_xml", "glm_xml", "minimax_xml", "deepseek_xml", "kimi_k3_xml", "cohere_xml"]
LineBreaks = Literal["between", "before", "never"]


@dataclass(frozen=True, slots=True)
class XmlMarks:
    """An argument is `before_key`, its key, `after_key`, its value, `end`.

    Attributes:
        closing: what no text between the marks may hold.
        joint: stands between two arguments.
        kinds: if a value begins by saying what it is: how, for which JSON types. A string is then the text itself.
        entities: what a key cannot have in it, as it would be written in another way.
    """

    before_key: str
    after_key: str
    end: str
    closing: str
    joint: str
    kinds: tuple[tuple[str, frozenset[str]], ...] = ()
    entities: str = ""

    def can_hold(self, key: str) -> bool:
        """Whether a key can be distinguished from the marks around it."""
        mark = self.after_key.strip()[:1]
        return bool(key) and key == key.strip() and not any(character in key for character in mark + self.entities)


_BROKEN: dict[XmlStyle, tuple[str, str, str]] = {
    "qwen_xml": ("<parameter=", ">\n", "\n</parameter>"),
    "glm_xml": ("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>"),
    "minimax_xml": ('<parameter name="', '">', "</parameter>"),
    "deepseek_xml": ('<｜DSML｜parameter name="', '" string="', "</｜DSML｜parameter>"),
    "kimi_k3_xml": ('<|open|>argument key="', '" type="', "<|close|>argument<|sep|>"),
    "cohere_xml": ('<cofl:value name="', '" type="', "</cofl:value>"),
}
_STRING, _OTHERS = frozenset(("string",)), frozenset(("null", "boolean", "number", "array", "object"))
_KINDS: dict[XmlStyle, tuple[tuple[str, frozenset[str]], ...]] = {
    "deepseek_xml": (('true">', _STRING), ('false">', _OTHERS)),
    "kimi_k3_xml": tuple((f'{name}"<|sep|>', frozenset((name,))) for name in ("string", *sorted(_OTHERS))),
    "cohere_xml": (('raw">', _STRING), ('json">', _OTHERS)),
}
_ENTITIES: dict[XmlStyle, str] = {"kimi_k3_xml": "&", "cohere_xml": "&<>"}


def xml_marks(style: XmlStyle, line_breaks: LineBreaks = "between") -> XmlMarks:
    """The marks of a style.

    Args:
        line_breaks: "between" two arguments, or "before" each of them; "never": also none inside of the marks.
    """
    before_key, after_key, end = _BROKEN[style]
    closing = end.strip()
    if line_breaks == "never":
        after_key, end = after_key.replace("\n", ""), closing
    elif line_breaks == "before":
        before_key = f"\n{before_key}"
    joint = "\n" if line_breaks == "between" and style not in _ENTITIES else ""
    return XmlMarks(before_key, after_key, end, closing, joint, _KINDS.get(style, ()), _ENTITIES.get(style, ""))
