"""What a program can append to a state: the intermediate representation of the DSL.

::

    s += system("Be brief.") + user(question) + assistant(gen("answer", stop="\\n"))

         Concat(RoleBegin system, Text, RoleEnd system, RoleBegin user, Text, RoleEnd user, RoleBegin …, Gen, RoleEnd)

Expressions are values: `+` joins them and text, and nothing happens until one is appended to a state. This module
knows no engine and no tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from ...errors import ProgramError
from ..constrain.spec import ConstraintSpec
from .choices import ChoicesMethod

Role = Literal["system", "user", "assistant"]


class Expression:
    """Anything that can be appended to a state. `+` concatenates expressions and text."""

    __slots__ = ()

    def __add__(self, other: Expression | str) -> Expression:
        return concat(self, other)

    def __radd__(self, other: str) -> Expression:
        return concat(other, self)

    def atoms(self) -> Iterator[Expression]:
        """The expressions to run, in order; only a `Concat` has more than one."""
        yield self


@dataclass(frozen=True, slots=True)
class Text(Expression):
    """Text as it is; it never becomes a special token."""

    text: str


@dataclass(frozen=True, slots=True)
class Gen(Expression):
    """Text that the model writes, stored in variable `name`.

    Attributes:
        sampling: fields of `SamplingParams` that differ from the run's.
        dtype: the type of the value, or None for text.
        is_typed: the variable is what the constraint describes, and not its text.
    """

    name: str | None
    sampling: Mapping[str, object]
    constraint: ConstraintSpec | None = None
    dtype: type | None = None
    is_typed: bool = False


@dataclass(frozen=True, slots=True)
class Select(Expression):
    """The likeliest of `choices`, stored in variable `name`."""

    name: str | None
    choices: tuple[str, ...]
    method: ChoicesMethod


@dataclass(frozen=True, slots=True)
class RoleBegin(Expression):
    """Opens a message."""

    role: Role


@dataclass(frozen=True, slots=True)
class RoleEnd(Expression):
    """Closes a message."""

    role: Role


@dataclass(frozen=True, slots=True)
class ScopeBegin(Expression):
    """The text from here to the `ScopeEnd` of the same name becomes the variable `name`."""

    name: str


@dataclass(frozen=True, slots=True)
class ScopeEnd(Expression):
    """Sets the variable that `ScopeBegin` announced."""

    name: str


@dataclass(frozen=True, slots=True)
class Concat(Expression):
    """Expressions one after the other; never nested."""

    parts: tuple[Expression, ...]

    def atoms(self) -> Iterator[Expression]:
        yield from self.parts


def as_expression(value: object) -> Expression:
    """An expression as it is, text as `Text`.

    Raises:
        ProgramError: the value is neither.
    """
    if isinstance(value, Expression):
        return value
    if isinstance(value, str):
        return Text(value)
    if value is None:
        raise ProgramError("None cannot be appended to a state; give text (did a helper function forget its `return`?)")
    raise ProgramError(
        f"{type(value).__name__} cannot be appended to a state; give text, or an expression such as gen(...)"
    )


def concat(*values: object) -> Expression:
    """The values one after the other."""
    return Concat(tuple(atom for value in values for atom in as_expression(value).atoms()))


def variable_of(atom: Expression) -> str | None:
    """The variable that running `atom` sets, if any."""
    return atom.name if isinstance(atom, (Gen, Select, ScopeEnd)) else None
