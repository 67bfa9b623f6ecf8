"""Texts: what can be written at all and how it is spelt; pointers, values and errors as a reader sees them."""

from __future__ import annotations

import re
from json.encoder import encode_basestring

from ...errors import ConstraintError

_INDEX = re.compile("0|[1-9][0-9]{0,17}")


def is_writable(text: str) -> bool:
    """Whether a text can be written as UTF-8, that is: has no lone surrogate."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def string_text(text: str) -> str:
    """A string as JSON text, in the one spelling that is used everywhere."""
    return encode_basestring(text)  # as json.dumps(ensure_ascii=False) does, and nothing else


def index_of(token: str) -> int | None:
    """The index that a part of a JSON pointer is (RFC 6901: no leading zeros, ASCII digits alone); None: it is none."""
    return int(token) if _INDEX.fullmatch(token) else None


def escape(token: str) -> str:
    """A key as a token of a JSON pointer."""
    if "~" in token or "/" in token:
        return token.replace("~", "~0").replace("/", "~1")
    return token


def shown_pointer(pointer: str) -> str:
    """A pointer for an error message, not too long; the root is `/`."""
    return pointer if 0 < len(pointer) <= 200 else f"{pointer[:80]} … {pointer[-100:]}" if pointer else "/"


def shown(value: object) -> str:
    """A value of a schema for an error message, not too long."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def error_at(kind: type[ConstraintError], pointer: str, message: str) -> ConstraintError:
    """An error that names its place."""
    return kind(f"{shown_pointer(pointer)}: {message}", pointer=pointer)
