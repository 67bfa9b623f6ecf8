"""What a program has found out: the entries of `s["x"]`, `s.parsed("x")` and `s.get_meta_info("x")`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from ...errors import RequestError


@dataclass(slots=True)
class Shown:
    """The text of a variable as it becomes visible, and what is known of it so far."""

    chunks: list[str] = field(default_factory=list)
    complete: bool = False
    meta_info: Any = None


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable. With several outputs or forks, each attribute is a list.

    Attributes:
        parsed: the value as a number, object … where a dtype or constraint says what it is; else as `value`.
        meta_info: None if no generation made it.
        fault: why there is no parsed value, of the first output that has none although it ended by itself.
    """

    value: Any
    parsed: Any
    meta_info: Any = None
    fault: RequestError | None = None

    @classmethod
    def plain(cls, value: object) -> Self:
        """A value that is nothing but itself."""
        return cls(value, value)

    @classmethod
    def several(cls, variables: Sequence[Variable]) -> Self:
        """The variables of several outputs or forks as one."""
        return cls(
            [variable.value for variable in variables],
            [variable.parsed for variable in variables],
            [variable.meta_info for variable in variables],
            next((variable.fault for variable in variables if variable.fault is not None), None),
        )

    def shown(self) -> Shown:
        """The variable as text that is complete."""
        return Shown([self.value] if isinstance(self.value, str) else [], True, self.meta_info)
