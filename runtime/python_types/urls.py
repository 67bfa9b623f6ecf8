"""URLs and the addresses of databases, as pydantic's parser (the WHATWG URL Standard) takes them.

What is left out of everyday's URLs: `xn--` names, whose Punycode no pattern can check, host names in scripts other than
Latin, Greek, Cyrillic, Chinese, Japanese and Korean, and spaces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic.json_schema import JsonSchemaValue

from .addresses import IPV4, IPV6
from .forms import text, within_bytes
from .ranges import whole

_WORD = r"[A-Za-z0-9]([A-Za-z0-9_]|-[A-Za-z0-9_])*"  # no two hyphens in a row, as in xn--
_LAST_WORD = r"[A-Za-z]([A-Za-z0-9_]|-[A-Za-z0-9_])*"  # a last word of digits would be part of an IPv4 address
_WIDE = "[a-z0-9à-öø-ÿα-ωа-я一-龥ぁ-んァ-ヶ가-힣]+"
_HOST = rf"(({_WORD}\.)*{_LAST_WORD}|{IPV4}|\[{IPV6}\]|(({_WORD}|{_WIDE})\.)*{_WIDE}(\.[a-z]+)?)"
_PLAIN_HOST = rf"(({_WORD}\.)*{_LAST_WORD}|{IPV4}|\[{IPV6}\])"
_PORT = f"(:{whole(0, 65535)})?"
_USER = r"[A-Za-z0-9._~!$&'()*+,;=%-]"
_LOGIN = f"({_USER}+(:{_USER}*)?@|:{_USER}+@)?"
_SIGN = r"[!-~\u00a1-\ud7ff\uf900-\ufdcf\ufdf0-\uffef\U00010000-\U0001fffd]"
_REST = f"([/?#]{_SIGN}*)?"
_SERVER = f"{_LOGIN}{_PLAIN_HOST}{_PORT}"
_FILE = rf"file://(({_WORD}\.)*{_LAST_WORD})?/{_SIGN}*"
_SPECIAL = ("http", "https", "ws", "wss", "ftp")
_SCHEME = "(?!(https?|wss?|ftp|file):)[a-z][a-z0-9+.-]*"


def url(schema: Mapping[str, Any], *, has_many_hosts: bool) -> JsonSchemaValue:
    """The URLs of a core schema: of its schemes, of so many bytes, and with a host where one is needed.

    Args:
        has_many_hosts: whether several hosts may stand side by side (`mongodb://one:27017,two:27017/shop`).
    """
    schemes, may_lack_host = schema.get("allowed_schemes"), _may_lack_host(schema)
    if schemes is None:
        forms = [_web(_SPECIAL), f"{_SCHEME}://{_SERVER}{_REST}"]
        forms += [_FILE, rf"{_SCHEME}:(?!//){_SIGN}*"] if may_lack_host else []
    else:
        web = [scheme for scheme in schemes if scheme in _SPECIAL]
        others = "|".join(re.escape(scheme) for scheme in schemes if scheme not in _SPECIAL and scheme != "file")
        forms = [_web(web)] if web else []
        forms += [_FILE] if "file" in schemes else []
        if others:
            more = f"(,{_SERVER})*" if has_many_hosts else ""
            is_optional = "?" if may_lack_host and not has_many_hosts else ""
            forms.append(f"({others})://({_SERVER}{more}){is_optional}{_REST}")
    form = text("|".join(forms))
    return form if schema.get("max_length") is None else within_bytes(form, schema["max_length"])


def _web(schemes: Sequence[str]) -> str:
    return f"({'|'.join(schemes)})://{_LOGIN}{_HOST}{_PORT}{_REST}"


def _may_lack_host(schema: Mapping[str, Any]) -> bool:
    return not schema.get("host_required") or schema.get("default_host") is not None
