"""Source: what a constraint was compiled from, as a cache key and as text for people.

Texts are their own source. JSON data are packed into bytes by `marshal`, which is five times as fast as writing JSON
text; the text is only written when it is asked for.
"""

from __future__ import annotations

import json
import marshal
from typing import Any

Source = str | bytes

NOT_PACKED = b""
_WITHOUT_REFERENCES = 2  # the version of marshal's format in which equal data are equal bytes


def packed(data: Any) -> Source:
    """The source of JSON data: equal for equal data with keys in the same order; NOT_PACKED if they are
    nested too deeply, or no JSON."""
    try:
        return marshal.dumps(data, _WITHOUT_REFERENCES)
    except ValueError:  # nested deeper than 2000, or a class of its own
        pass
    try:
        return json.dumps(data, ensure_ascii=False)
    except (RecursionError, TypeError, ValueError):  # what is not JSON is refused elsewhere
        return NOT_PACKED


def unpacked(source: Source) -> str:
    """The source as text; empty if it is nested too deeply for JSON text."""
    if isinstance(source, str):
        return source
    try:
        return json.dumps(marshal.loads(source), ensure_ascii=False, default=str) if source else ""
    except RecursionError:
        return ""
