"""States that go on from one state, side by side, and how they come together again. Knows interpreters only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Generic, Literal, NoReturn, Protocol, Self, TypeVar

from ...errors import ProgramError
from .expression import Expression, as_expression
from .interpreter import Interpreter
from .place import place_of_caller
from .transcript import Mark
from .variable import Variable


class Branch(Protocol):
    """What a group needs of its states; `ProgramState` is one."""

    _interpreter: Interpreter

    def _append(self, expression: Expression) -> None: ...

    def sync(self) -> None: ...


State = TypeVar("State", bound=Branch)
JoinMode = Literal["gather_variable", "concate_and_append"]
Appended = Expression | str


class ForkGroup(Generic[State]):
    """The forks of one state, in order. Leaving a `with s.fork(n) as forks:` block joins them.

    Args:
        mark: where they left the parent.
    """

    def __init__(self, parent: State, forks: Sequence[State], mark: Mark) -> None:
        self._parent = parent
        self._forks = tuple(forks)
        self._mark = mark

    def __len__(self) -> int:
        return len(self._forks)

    def __getitem__(self, index: int) -> State:
        return self._forks[index]

    def __setitem__(self, index: int, state: State) -> None:
        """So that `forks[0] += …` works; a fork cannot be replaced."""
        if state is not self._forks[index]:
            raise ProgramError("a fork cannot be replaced by another state; append to it: forks[i] += …")

    def __iter__(self) -> Iterator[State]:
        return iter(self._forks)

    def __iadd__(  # type: ignore[misc]  # `+` is refused
        self, value: Appended | Sequence[Appended] | Callable[[int], Appended]
    ) -> Self:
        """Appends to every fork: the same expression, the i-th of a list, or what a function of i returns."""
        for fork, expression in zip(self._forks, self._expressions(value), strict=True):
            fork._append(expression)
        return self

    def __add__(self, value: object) -> NoReturn:
        raise ProgramError("`forks + …` makes no new forks; write `forks += …`, which appends to each")

    def join(self, mode: JoinMode = "gather_variable") -> None:
        """Waits for all forks and brings their results into the parent.

        Args:
            mode: "gather_variable": every variable that the parent does not have becomes a list, in the order of the
                forks (those that did not set it are left out); their text is not appended. "concate_and_append": the
                text that each fork has gained is appended, as the token ids that it had there.

        Raises:
            ProgramError: a fork has failed, or the mode is unknown.
        """
        if mode == "gather_variable":
            self._gather()
        elif mode == "concate_and_append":
            place = place_of_caller()
            for fork in self._forks:
                fork.sync()
            for fork in self._forks:
                self._parent._interpreter.append_from(fork._interpreter, self._mark, place)
        else:
            raise ProgramError(f'join: mode: {mode!r} is not "gather_variable" or "concate_and_append"')

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.join()

    def _gather(self) -> None:
        self._parent.sync()
        parent = self._parent._interpreter
        gathered: dict[str, list[Variable]] = {}
        for fork in self._forks:
            fork.sync()
            for name, variable in fork._interpreter.variables.items():
                if name not in parent.variables:
                    gathered.setdefault(name, []).append(variable)
        for name, variables in gathered.items():
            parent.set_variable(name, Variable.several(variables))

    def _expressions(self, value: object) -> list[Expression]:
        if callable(value):
            return [as_expression(value(index)) for index in range(len(self._forks))]
        if isinstance(value, (list, tuple)):
            if len(value) != len(self._forks):
                raise ProgramError(f"{len(value)} expressions for {len(self._forks)} forks; give one for each")
            return [as_expression(item) for item in value]
        return [as_expression(value)] * len(self._forks)
