"""What a terminal is asked and told: whether escape codes may be written, and how its keys behave for a while.

Knows no command. `keys` changes the terminal that is stdin, and puts it back.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

# controls that a model, a file or a server may have written: shown, not obeyed
_VISIBLE = {code: 0x2400 + code for code in range(32) if code not in (9, 10)} | {127: 0x2421}
_VISIBLE |= dict.fromkeys((*range(128, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)  # C1, bidi


def takes_escapes(stream: TextIO) -> bool:
    """Whether it is a terminal that understands escape codes."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown", "")


def takes_colours(stream: TextIO) -> bool:
    """The same, and colours are wanted (https://no-color.org)."""
    return takes_escapes(stream) and not os.environ.get("NO_COLOR")


def visible(text: str) -> str:
    """The text with pictures in place of control characters, so that printing it moves and changes nothing."""
    return text.translate(_VISIBLE)


@contextmanager
def keys(*, by_line: bool) -> Iterator[None]:
    """Until the block ends, keys are not echoed; `by_line`: they are still read a line at a time. Ctrl-C interrupts."""
    if not sys.stdin.isatty():
        yield
        return
    import termios

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    changed = termios.tcgetattr(descriptor)
    changed[3] &= ~termios.ECHO
    if not by_line:
        changed[3] &= ~termios.ICANON
    termios.tcsetattr(descriptor, termios.TCSADRAIN, changed)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
