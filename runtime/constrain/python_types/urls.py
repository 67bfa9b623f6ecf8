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
from .forms import refused, text, within_bytes
from .ranges import whole

_WORD = r"[A-Za-z0-9]([A-Za-z0-9_]|-[A-Za-z0-9_])*"  # no two hyphens in a row, as in xn--
_LAST_WORD = r"[A-Za-z]([A-Za-z0-9_]|-[A-Za-z0-9_])*"  # a last word of digits would be part of an IPv4 address
_LETTERS = "à-öø-ÿα-ωа-я一-龥ぁ-んァ-ヶ가-힣"
_WIDE = f"[a-z0-9]*[{_LETTERS}][a-z0-9{_LETTERS}]*"
_HOST = rf"(({_WORD}\.)*{_LAST_WORD}|{IPV4}|\[{IPV6}\]|(({_WORD}|{_WIDE})\.)*{_WIDE}(\.[a-z]+)?)"
_PLAIN_HOST = rf"(({_WORD}\.)*{_LAST_WORD}|{IPV4}|\[{IPV6}\])"
_PORT = f"(:{whole(0, 65535)})?"
_USER = r"[A-Za-z0-9._~!$&'()*+,;=%-]"
_SIGN = r"[!-~\u00a1-\ud7ff\uf900-\ufdcf\ufdf0-\uffef\U00010000-\U0001fffd]"
_REST = f"([/?#]{_SIGN}*)?"
_SHORT_HOST = rf"(((?=[^.]{{1,30}}\.){_WORD}\.){{0,6}}[A-Za-z][A-Za-z0-9_]{{0,29}}|{IPV4}|\[{IPV6}\])"
_SHORT = f"{_SHORT_HOST}{_PORT}([/?#][!-~]{{0,1500}})?"
_FILE = rf"file://(({_WORD}\.)*{_LAST_WORD})?/{_SIGN}*"
_SPECIAL = ("http", "https", "ws", "wss", "ftp")
_SCHEME = "(?!(https?|wss?|ftp|file):)[a-z][a-z0-9+.-]*"


def url(schema: Mapping[str, Any], *, has_many_hosts: bool, is_key: bool) -> JsonSchemaValue:
    """The URLs of a core schema: of its schemes, within its length in bytes, and with a host where one is needed.

    Args:
        is_key: whether it is the key of an object: where its bytes count, it is short, of ASCII, and without a user.
        has_many_hosts: whether several hosts may stand side by side (`mongodb://one:27017,two:27017/shop`).
    """
    schemes, may_lack_host = schema.get("allowed_schemes"), _may_lack_host(schema)
    if schemes is None:
        forms = [_web(_SPECIAL), f"{_SCHEME}://{_server(_PLAIN_HOST)}{_REST}"]
        forms += [_FILE, rf"{_SCHEME}:(?!//){_SIGN}*"] if may_lack_host else []
    else:
        web = [scheme for scheme in schemes if scheme in _SPECIAL]
        others = "|".join(re.escape(scheme) for scheme in schemes if scheme not in _SPECIAL and scheme != "file")
        if is_key and schema.get("max_length") is not None:
            return text(f"({'|'.join(web)})://{_SHORT}") if web else refused("its bytes cannot be counted as a key")
        forms = [_web(web)] if web else []
        forms += [_FILE] if "file" in schemes else []
        if others:
            server = _server(_PLAIN_HOST, "[A-Za-z0-9._~!$&'()*+;=%-]" if has_many_hosts else _USER)
            servers = f"{server}(,{server})*" if has_many_hosts else f"({server})?" if may_lack_host else server
            forms.append(f"({others})://{servers}{_REST}")
    form = text("|".join(forms))
    return form if schema.get("max_length") is None else within_bytes(form, schema["max_length"])


def _web(schemes: Sequence[str]) -> str:
    return f"({'|'.join(schemes)})://{_server(_HOST)}{_REST}"


def _server(host: str, user: str = _USER) -> str:
    """A host, perhaps with a user, a password and a port."""
    return f"({user}+(:{user}*)?@|:{user}+@)?{host}{_PORT}"


def _may_lack_host(schema: Mapping[str, Any]) -> bool:
    """A port that is filled in needs a host."""
    is_free = not schema.get("host_required") and schema.get("default_port") is None
    return is_free or schema.get("default_host") is not None
