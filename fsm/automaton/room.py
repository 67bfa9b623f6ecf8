"""Room: how much may be kept and done in one automaton.

Lasting are states and stacks, which are never given up; rows, which remember steps, have what these leave of the bound,
and at least a sixteenth of it. Beside memory, work is bounded: for how long one thread may go on is an allowance.
"""

from __future__ import annotations

from ..._core.fsm import UNUSED_AUTOMATON_BYTES, OutOfWork

__all__ = ["DEFAULT_MAX_BYTES", "ENDLESS", "LAST_WORK", "TOO_MUCH_WORK", "UNUSED_AUTOMATON_BYTES", "OutOfWork"]

ENDLESS = 1 << 60  # as an allowance: none
LAST_WORK = 1 << 20  # what is allowed at one go for what cannot be made in parts: a tenth of a second
TOO_MUCH_WORK = "which tokens may come next takes too much work to find out; nest fewer repetitions"
DEFAULT_MAX_BYTES = 256 << 20
