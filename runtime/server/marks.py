"""Marks in a text that arrives in pieces. Knows nothing of what they mean."""

from __future__ import annotations


def num_held(text: str, *marks: str) -> int:
    """How much of the end of a text, in which none of the marks is whole, may be the beginning of one."""
    longest = min(max(map(len, marks)) - 1, len(text))
    return next((n for n in range(longest, 0, -1) if any(mark.startswith(text[-n:]) for mark in marks)), 0)
