"""Extent: how many texts a Dfa has, which they are, and how short and long.

Linear in the cells of the table, and in what is listed.
"""

from __future__ import annotations

import numpy as np

from .alphabet import MAX_CODE_POINT
from .dfa import Dfa


def is_finite(language: Dfa) -> bool:
    """Whether the language has finitely many texts."""
    return _order(language) is not None


def num_texts(language: Dfa, limit: int) -> int:
    """Number of texts, or `limit` if there are at least that many."""
    order = _order(language)
    if order is None:
        return limit
    sizes = class_sizes(language)
    totals = [0] * language.num_states
    for state in order:
        total = int(language.accepting[state])
        for class_id, target in enumerate(language.table[state].tolist()):
            if target:
                total += sizes[class_id] * totals[target]
        totals[state] = min(total, limit)
    return totals[language.start_state]


def all_texts(language: Dfa, limit: int) -> list[str] | None:
    """All texts in no special order, or None if there are more than `limit`."""
    if num_texts(language, limit + 1) > limit:
        return None
    ends = [*language.alphabet.starts[1:].tolist(), MAX_CODE_POINT + 1]
    characters: dict[int, list[str]] = {}
    for first, end, class_id in zip(
        language.alphabet.starts.tolist(), ends, language.alphabet.classes.tolist(), strict=True
    ):
        if end - first <= limit:
            characters.setdefault(class_id, []).extend(map(chr, range(first, end)))
    found: list[str] = []
    pending = [(language.start_state, "")]
    while pending:
        state, text = pending.pop()
        if language.accepting[state]:
            found.append(text)
        for class_id, target in enumerate(language.table[state].tolist()):
            if target:
                pending.extend((target, text + c) for c in characters[class_id])
    return found


def shortest_text(language: Dfa) -> bytes:
    """A text with the fewest characters; ValueError if the language is empty."""
    if language.is_empty():
        raise ValueError("the empty language has no text")
    state, text = language.start_state, ""
    names = language.alphabet.representatives
    while language.distance[state]:
        targets = language.table[state]
        steps = np.where(targets > 0, language.distance[targets], np.iinfo(np.int32).max)
        best = min(np.flatnonzero(steps == steps.min()).tolist(), key=lambda c: _plainness(names[c]))
        text += chr(names[best])
        state = int(targets[best])
    return text.encode()


def max_length(language: Dfa) -> int | None:
    """The greatest number of characters of a text; None if unbounded; -1 if the language is empty."""
    order = _order(language)
    if order is None:
        return None
    longest = [-1] * language.num_states
    for state in order:
        best = 0 if language.accepting[state] else -1
        for target in set(language.table[state].tolist()) - {0}:
            best = max(best, longest[target] + 1)
        longest[state] = best
    return longest[language.start_state] if language.start_state else -1


def class_sizes(language: Dfa) -> list[int]:
    """How many characters each class of the alphabet has."""
    ends = np.append(language.alphabet.starts[1:], MAX_CODE_POINT + 1)
    sizes = np.bincount(
        language.alphabet.classes, weights=ends - language.alphabet.starts, minlength=language.alphabet.num_classes
    )
    return [int(size) for size in sizes]


def _order(language: Dfa) -> list[int] | None:
    """The states, each after all its successors; None if there is a cycle."""
    order: list[int] = []
    mark = [0] * language.num_states
    if language.start_state == 0:
        return order
    stack = [(language.start_state, iter(set(language.table[language.start_state].tolist()) - {0}))]
    mark[language.start_state] = 1
    while stack:
        state, successors = stack[-1]
        for target in successors:
            if mark[target] == 1:
                return None
            if mark[target] == 0:
                mark[target] = 1
                stack.append((target, iter(set(language.table[target].tolist()) - {0})))
                break
        else:
            mark[state] = 2
            order.append(state)
            stack.pop()
    return order


def _plainness(code_point: int) -> int:
    return code_point if code_point >= 0x61 else code_point + 0x110000
