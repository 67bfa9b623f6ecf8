"""The formats of JSON Schema as regular expressions over the whole string, each an automaton on first use.

Sources: RFC 3339 (date and time), ISO 8601 as in RFC 3339 appendix A (duration), RFC 5321 (email), RFC 1123
(hostname), RFC 5891 (idn-hostname), RFC 6531 (idn-email), RFC 2673 (ipv4), RFC 4291 (ipv6), RFC 3986 (URI), RFC 3987
(IRI), RFC 4122 (UUID), RFC 6570 (URI template), RFC 6901 (JSON pointer), RFC 4648 (base64), CSS 2.1 (colors of draft 3,
but for `rgb(…)`). What is written is valid under both the RFC and the checkers in wide use. So some texts that the RFC
has are not written:

    date, time             the year 0000, leap seconds
    hostname, email        labels with hyphens third and fourth (`xn--…`): these are reserved (RFC 5891, 4.2.3.1), and
                           whether one is the Punycode of something is beyond an automaton
    hostname               a dot at the end
    idn-hostname           capitals; scripts from right to left; characters beyond the basic plane; more than 4 labels,
                           or 14 characters in a label that is not ASCII (`idn.py`)
    uri-template           percent-encoded names of variables, lengths of four digits
    relative-json-pointer  numbers with a digit after a zero
    regex                  groups within groups within groups, named groups, look-around

A negation forbids these texts, too (`format_language` with `for_all=False`).

A name that is not in `FORMATS` is an annotation. So are those of OpenAPI (`OPENAPI`): JSON Schema does not have them,
its validators do not look at them, and under `byte` people send other things than base64.
"""

from __future__ import annotations

import functools

from ..regex.regex import regex_to_dfa
from ..text.dfa import Dfa, of_length
from .idn import idn_hostname

_DAY = (
    r"(?:\d{3}[1-9]|\d{2}[1-9]\d|\d[1-9]\d{2}|[1-9]\d{3})-"
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
)
_LEAP_DAY = r"(?:\d{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29"
_DATE = rf"(?:{_DAY}|{_LEAP_DAY})"
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?"
_OFFSET = r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_TIME_PART = r"T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)"
_DURATION = rf"P(?:(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)(?:{_TIME_PART})?|{_TIME_PART}|\d+W)"

_BYTE = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_H16 = r"[0-9A-Fa-f]{1,4}"
_LS32 = rf"(?:{_H16}:{_H16}|{_IPV4})"
_IPV6 = "(?:" + "|".join(
    (
        rf"(?:{_H16}:){{6}}{_LS32}",
        rf"::(?:{_H16}:){{5}}{_LS32}",
        rf"(?:{_H16})?::(?:{_H16}:){{4}}{_LS32}",
        rf"(?:(?:{_H16}:){{0,1}}{_H16})?::(?:{_H16}:){{3}}{_LS32}",
        rf"(?:(?:{_H16}:){{0,2}}{_H16})?::(?:{_H16}:){{2}}{_LS32}",
        rf"(?:(?:{_H16}:){{0,3}}{_H16})?::{_H16}:{_LS32}",
        rf"(?:(?:{_H16}:){{0,4}}{_H16})?::{_LS32}",
        rf"(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}",
        rf"(?:(?:{_H16}:){{0,6}}{_H16})?::",
    )
) + ")"  # fmt: skip


def _labels(extra: str = "", most: str = "") -> str:
    """Labels with dots between them: letters and digits, hyphens between these, but not third and fourth.

    Args:
        extra: further letters.
        most: the greatest number of characters after the fourth, but for the last.
    """
    letter, either = f"[A-Za-z0-9{extra}]", f"[A-Za-z0-9{extra}-]"
    long = f"{either}(?:{letter}{either}|-{letter}){either}{{0,{most}}}{letter}"
    label = f"{letter}(?:{letter}|{either}{letter}|{either}{either}{letter}|{long})?"
    return rf"{label}(?:\.{label})*"


_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_QUOTED = r'"(?:[ !#-\[\]-~]|\\[ -~])*"'
_ADDRESS = rf"\[(?:{_IPV4}|IPv6:{_IPV6})\]"
_LOCAL = rf"(?:{_ATOM}(?:\.{_ATOM})*|{_QUOTED})"
_WIDE = "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef\U00010000-\U0001fffd"
_IDN_ATOM = rf"[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~{_WIDE}-]+"
_IDN_LOCAL = rf"(?:{_IDN_ATOM}(?:\.{_IDN_ATOM})*|{_QUOTED})"


def _uri(extra: str, *, absolute: bool) -> str:
    """RFC 3986, with `extra` characters allowed where RFC 3987 allows them."""
    escaped = r"%[0-9A-Fa-f]{2}"
    free = rf"A-Za-z0-9._~!$&'()*+,;=\-{extra}"
    segment = rf"(?:[{free}:@]|{escaped})"
    user = rf"(?:(?:[{free}:]|{escaped})*@)?"
    literal = rf"\[(?:{_IPV6}|[Vv][0-9A-Fa-f]+\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\]"
    host = rf"(?:{literal}|(?:[{free}]|{escaped})*)"
    authority = rf"//{user}{host}(?::\d*)?(?:/{segment}*)*"
    rooted = rf"/(?:{segment}+(?:/{segment}*)*)?"
    rootless = rf"{segment}+(?:/{segment}*)*"
    tail = rf"(?:\?(?:{segment}|[/?])*)?(?:#(?:{segment}|[/?])*)?"
    scheme = r"[A-Za-z][A-Za-z0-9+.-]*:"
    full = rf"{scheme}(?:{authority}|{rooted}|{rootless})?{tail}"
    if absolute:
        return full
    first = rf"(?:[{free}@]|{escaped})+(?:/{segment}*)*"
    return rf"(?:{full}|(?:{authority}|{rooted}|{first})?{tail})"


_TEMPLATE_NAME = r"[A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*(?::[1-9]\d{0,2}|\*)?"
_TEMPLATE = (
    r"(?:[!#$&(-;=?-\[\]_a-z~]|%[0-9A-Fa-f]{2}|"
    rf"\{{[+#./;?&]?{_TEMPLATE_NAME}(?:,{_TEMPLATE_NAME})*\}})*"
)
_POINTER = r"(?:/(?:[^~/]|~[01])*)*"
BASE64_CONTENT = "base64, as contentEncoding"
_COLORS = "aqua|black|blue|fuchsia|gray|green|lime|maroon|navy|olive|orange|purple|red|silver|teal|white|yellow"
_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"

_PATTERNS: dict[str, str] = {
    "date": _DATE,
    "time": _CLOCK + _OFFSET,
    "date-time": rf"{_DATE}[Tt]{_CLOCK}{_OFFSET}",
    "duration": _DURATION,
    "email": rf"{_LOCAL}@(?:{_labels()}|{_ADDRESS})",
    "idn-email": rf"{_IDN_LOCAL}@(?:{_labels(_WIDE)}|{_ADDRESS})",
    "hostname": _labels(most="58"),
    "ipv4": _IPV4,
    "ip-address": _IPV4,
    "ipv6": _IPV6,
    "uri": _uri("", absolute=True),
    "uri-reference": _uri("", absolute=False),
    "iri": _uri(_WIDE, absolute=True),
    "iri-reference": _uri(_WIDE, absolute=False),
    "uri-template": _TEMPLATE,
    "uuid": r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}",
    "json-pointer": _POINTER,
    "relative-json-pointer": rf"(?:[1-9]+0?|0)(?:#|{_POINTER})",
    "base64": _BASE64,
    BASE64_CONTENT: _BASE64,
    "color of draft 3": rf"#[0-9A-Fa-f]{{3}}|#[0-9A-Fa-f]{{6}}|{_COLORS}",
    "time of draft 3": r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d",
}
FORMATS = (*_PATTERNS, "idn-hostname", "regex")
"""The formats that are enforced."""

OF_DRAFT_3 = {"host-name": "hostname", "time": "time of draft 3", "color": "color of draft 3"}
"""What formats of draft 3 are called here."""

OPENAPI = frozenset(("byte", "binary", "password", "int32", "int64", "float", "double"))
"""The formats of OpenAPI, which are not."""

_ANY_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_ANY_DAY = r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_ANY_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_POSSIBLE: dict[str, str] = {
    "date": _ANY_DAY,
    "time": _ANY_CLOCK,
    "date-time": f"{_ANY_DAY}[Tt]{_ANY_CLOCK}",
    "hostname": rf"{_ANY_LABEL}(?:\.{_ANY_LABEL})*\.?",
    "email": rf"{_LOCAL}@(?:{_ANY_LABEL}(?:\.{_ANY_LABEL})*|{_ADDRESS})",
    "idn-email": rf"{_IDN_LOCAL}@(?:[A-Za-z0-9.{_WIDE}-]*|{_ADDRESS})",
    "idn-hostname": r"[A-Za-z0-9.\-\u0080-\U0010ffff]*",
    "uri-template": r"[^\u0000-\u0020\"<>\\^`]*",
    "relative-json-pointer": rf"(?:0|[1-9]\d*)(?:[+-](?:0|[1-9]\d*))?(?:#|{_POINTER})",
    "regex": "[^]*",
    BASE64_CONTENT: "[^]*",
    "color of draft 3": "[^]*",
    "time of draft 3": r"\d\d:\d\d:\d\d",
}
"""Of the formats of which not all is written, texts among which all of it is."""

_MAX_HOSTNAME_LEN = 253
_MAX_GROUPS = 2  # within each other, in what is written as a regular expression


def is_format(name: str) -> bool:
    """Whether the format is enforced."""
    return name in FORMATS


@functools.cache
def format_language(name: str, *, for_all: bool = True) -> Dfa:
    """The strings of a format for all validators (or, if not `for_all`, those that it may have for some).

    `name` must be one that `is_format` knows.
    """
    if not for_all and name in _POSSIBLE:
        return regex_to_dfa(_POSSIBLE[name], search=False, dialect="json-schema").minimised()
    if name == "regex":
        return _plain_regexes()
    if name == "idn-hostname":
        return idn_hostname()
    language = regex_to_dfa(_PATTERNS[name], search=False, dialect="json-schema").minimised()
    return language.intersect(of_length(1, _MAX_HOSTNAME_LEN)) if name == "hostname" else language


def _plain_regexes() -> Dfa:
    """Regular expressions with groups in groups: a regular subset of a language that is not regular."""
    escaped = r"\\[dDwWsStnrfv.^$*+?()\[\]{}|/\\-]"
    inside = rf"(?:[A-Za-z0-9_ !\"#$%'()*+,./:;<=>?@{{}}`\u00a0-\U0010ffff]|{escaped})"
    ranges = "|".join(rf"{first}-[{first}-{last[1]}]" for last in ("az", "AZ", "09") for first in _span(*last))
    single = rf"(?:[^\\^$*+?.()\[\]{{}}|\u0000-\u001f]|{escaped}|\.|\[\^?-?(?:{inside}|{ranges})+-?\])"
    anchor = r"(?:\^|\$|\\[bB])"
    times = rf"(?:[*+?]|\{{(?:\d{{1,3}},?|{_ordered_bounds()})\}})\??"
    body = rf"(?:{single}(?:{times})?|{anchor})*"
    for _ in range(_MAX_GROUPS):
        options = rf"{body}(?:\|{body})*"
        body = rf"(?:(?:{single}|\((?:\?:)?{options}\))(?:{times})?|{anchor})*"
    return regex_to_dfa(rf"{body}(?:\|{body})*", search=False).minimised()


def _span(first: str, last: str) -> list[str]:
    return [chr(point) for point in range(ord(first), ord(last) + 1)]


def _ordered_bounds() -> str:
    """`m,n` with m <= n, of at most two digits each, or of fewer digits before the comma than after it."""
    options = [r"\d,[1-9]\d{1,2}", r"[1-9]\d,[1-9]\d\d", *(rf"{digit},[{digit}-9]" for digit in range(10))]
    for tens in range(1, 10):
        options += [rf"{tens}{digit},{tens}[{digit}-9]" for digit in range(10)]
        options += [rf"{tens}\d,[{tens + 1}-9]\d"] if tens < 9 else []
    return "|".join(options)
