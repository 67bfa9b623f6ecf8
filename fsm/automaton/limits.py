"""Limits: how much memory and how much work one automaton may take. The compiled core keeps to them.

States and stacks are lasting: they are never freed. Rows, which cache steps, have what these leave of the bound on
memory, and at least a sixteenth of it; they are forgotten when it is used up. Work is bounded by an allowance of each
thread (`Automaton.allow`), after which calls raise OutOfWork.
"""

from __future__ import annotations

from ..._core.fsm import UNUSED_AUTOMATON_BYTES, OutOfWork

__all__ = ["DEFAULT_MAX_BYTES", "ENDLESS", "LAST_WORK", "TOO_MUCH_WORK", "UNUSED_AUTOMATON_BYTES", "OutOfWork"]

ENDLESS = 1 << 60  # as an allowance: none
LAST_WORK = 1 << 20  # allowed at once for what cannot be made in parts: a tenth of a second
TOO_MUCH_WORK = "which tokens may come next takes too much work to find out; nest fewer repetitions"
DEFAULT_MAX_BYTES = 256 << 20
