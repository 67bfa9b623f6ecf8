"""Many texts in their order, without keeping other threads waiting.

`sorted` holds the interpreter's lock until it is done, and half a million texts take half a second. So runs are sorted
one by one and combined by two-way merges, which is what `sorted` does with two sorted runs. Between two calls the time
is checked, and the interpreter lets other threads run.
"""

from __future__ import annotations

from itertools import chain, pairwise
from typing import TypeVar

from .compile_time import NO_LIMIT, CompileTime

RUN = 1 << 15  # texts that are sorted at once: some ten milliseconds


Text = TypeVar("Text", str, bytes)


def in_order(texts: list[Text], time: CompileTime = NO_LIMIT) -> list[Text]:
    """The texts sorted, each of them once.

    Raises:
        ConstraintTooLarge: the time is over.
    """
    if len(texts) <= RUN:
        return sorted(set(texts))
    runs = [texts[begin : begin + RUN] for begin in range(0, len(texts), RUN)]
    for run in runs:
        time.check_here()
        run.sort()
    while len(runs) > 1:
        merged: list[list[Text]] = []
        for index in range(0, len(runs), 2):
            time.check_here()
            merged.append(sorted(chain.from_iterable(runs[index : index + 2])))
        runs = merged
    found: list[Text] = runs[0]
    different = found[:1]
    different += [text for before, text in pairwise(found) if text != before]
    return different
