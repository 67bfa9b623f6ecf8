"""Progress of long work, on stderr: a bar on a terminal that takes escape codes, elsewhere a line if it takes long.

Nothing of stdout passes through the bar, so results may be piped while it is shown.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .terminal import takes_escapes

PATIENCE = 2.0  # seconds that pass without a word where there is no terminal

Report = Callable[[int, int], None]
"""Called with how many parts are done, and of how many."""


@contextmanager
def busy(text: str) -> Iterator[Report]:
    """Shows `text`, and how long it takes, until the block ends; the block may report how far it is."""
    if takes_escapes(sys.stderr):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[done]}"))
        with Progress(
            *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True, redirect_stdout=False
        ) as progress:
            task = progress.add_task(text, total=None, done="")
            yield lambda done, total: progress.update(task, completed=done, total=total, done=f"{done}/{total}")
        return
    timer = threading.Timer(PATIENCE, lambda: print(f"{text} …", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield lambda done, total: None
    finally:
        timer.cancel()
