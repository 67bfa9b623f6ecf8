"""The formats of JSON Schema as regular expressions over the whole string, each an automaton on first use.

Sources: RFC 3339 (date and time), ISO 8601 as in RFC 3339 appendix A (duration), RFC 5321 (email), RFC 1123
(hostname), RFC 2673 (ipv4), RFC 4291 (ipv6), RFC 3986 (URI), RFC 3987 (IRI), RFC 4122 (UUID), RFC 6570 (URI template),
RFC 6901 (JSON pointer), RFC 4648 (base64). Where a checker in wide use is stricter than the RFC (no leap second,
no year 0000, no unbalanced days), so are we: what is written here is valid under both.

A name that is not in `_PATTERNS` or `_NO_DEMAND` is nobody's format and hence an annotation.
"""

from __future__ import annotations

import functools

from ..dfa import Dfa
from ..regex import regex_to_dfa

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

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL})*"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_QUOTED = r'"(?:[ !#-\[\]-~]|\\[ -~])*"'
_DOMAIN = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_EMAIL = (
    rf"(?:{_ATOM}(?:\.{_ATOM})*|{_QUOTED})@"
    rf"(?:{_DOMAIN}(?:\.{_DOMAIN})*|\[(?:{_IPV4}|IPv6:{_IPV6})\])"
)
_WIDE = "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef\U00010000-\U0001fffd"
_IDN_DOMAIN = rf"[A-Za-z0-9{_WIDE}](?:[A-Za-z0-9{_WIDE}-]*[A-Za-z0-9{_WIDE}])?"


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


_TEMPLATE_NAME = r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+(?:\.(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})+)*(?::[1-9]\d{0,3}|\*)?"
_TEMPLATE = (
    r"(?:[!#$&(-;=?-\[\]_a-z~]|%[0-9A-Fa-f]{2}|"
    rf"\{{[+#./;?&]?{_TEMPLATE_NAME}(?:,{_TEMPLATE_NAME})*\}})*"
)
_POINTER = r"(?:/(?:[^~/]|~[01])*)*"
_BASE64 = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"

_PATTERNS: dict[str, str] = {
    "date": _DATE,
    "time": _CLOCK + _OFFSET,
    "date-time": rf"{_DATE}[Tt]{_CLOCK}{_OFFSET}",
    "duration": _DURATION,
    "email": _EMAIL,
    "idn-email": rf"[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~.{_WIDE}-]+@{_IDN_DOMAIN}(?:\.{_IDN_DOMAIN})*",
    "hostname": _HOSTNAME,
    "idn-hostname": _HOSTNAME,
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
    "relative-json-pointer": rf"(?:0|[1-9]\d*)(?:#|{_POINTER})",
    "byte": _BASE64,
    "base64": _BASE64,
}
FORMATS = (*_PATTERNS, "regex")
"""The formats that are enforced."""

_MAX_LENGTHS = {"hostname": 253, "idn-hostname": 253}


def is_format(name: str) -> bool:
    """Whether the format is enforced."""
    return name in _PATTERNS or name == "regex"


@functools.cache
def format_language(name: str) -> Dfa:
    """The strings of a format; `name` must be one that `is_format` knows."""
    if name == "regex":
        return _plain_regexes()
    language = regex_to_dfa(_PATTERNS[name], search=False, dialect="json-schema").minimised()
    longest = _MAX_LENGTHS.get(name)
    if longest is not None:
        language = language.intersect(Dfa.length(1, longest))
    return language


def _plain_regexes() -> Dfa:
    """Regular expressions without groups: a regular subset of a language that is not regular."""
    escaped = r"\\[dDwWsStnrfv.^$*+?()\[\]{}|/\\-]"
    inside = rf"(?:[A-Za-z0-9_ ]|{escaped})"
    single = rf"(?:[^\\^$*+?.()\[\]{{}}|\u0000-\u001f]|{escaped}|\.|\[\^?(?:{inside}|a-[fz]|A-[FZ]|[01]-[1-9])+\])"
    quantified = rf"{single}(?:[*+?]|\{{\d{{1,3}}\}}|\{{\d{{1,3}},\}})?\??"
    return regex_to_dfa(rf"\^?(?:{single}|{quantified})*(?:\|(?:{quantified})*)*\$?", search=False)
