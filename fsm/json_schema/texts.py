"""Texts of strings and keys: what can be written at all, and how it is spelt."""

from __future__ import annotations

import json


def is_writable(text: str) -> bool:
    """Whether a text can be written as UTF-8, that is: has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def string_text(text: str) -> str:
    """A string as JSON text, in the one spelling that is used everywhere."""
    return json.dumps(text, ensure_ascii=False)
