"""The `s` of a program: what a program's author appends to and reads from. All work is the interpreter's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager
from types import TracebackType
from typing import Any, Literal, NoReturn, Self, overload

from ...errors import ProgramError
from .expression import Expression, Role, RoleBegin, RoleEnd, ScopeBegin, ScopeEnd, Text, as_expression, concat
from .fork import ForkGroup
from .increments import async_increments, increments
from .interpreter import Interpreter
from .place import place_of_caller
from .transcript_html import as_html
from .variable import Variable

BLOCK = Text("")  # no argument was given: the message is what a `with` block appends


class ProgramState:
    """A growing text with variables.

    Appending (`s += …`) never blocks; reading waits for what is read, and raises `ProgramError` if the state has
    failed.

    The state that `run(stream=True)` returns is what its program runs for: when nothing refers to it, its forks or
    its text iterators any more, the run is cancelled.
    """

    def __init__(self, interpreter: Interpreter, origin: ProgramState | None = None) -> None:
        """origin: the state of which this one is a fork; it is kept alive."""
        self._interpreter = interpreter
        self._origin = origin
        self._copied_from: ForkGroup[ProgramState] | None = None

    @property
    def ret_value(self) -> Any:
        """What the program's function returned; None before it has."""
        return self._interpreter.ret_value

    # -- appending ---------------------------------------------------------------------------------------------

    def __iadd__(self, value: Expression | str) -> Self:  # type: ignore[misc]  # `+` is refused
        self._append(as_expression(value))
        return self

    def __add__(self, value: object) -> NoReturn:
        raise ProgramError("`s + …` makes no new state; write `s += …`, which appends to this one")

    __radd__ = __add__

    def system(self, expression: Expression | str = BLOCK) -> AbstractContextManager[None]:
        """`s.system("…")` appends a system message; `with s.system():` makes one of what the block appends."""
        return self._role("system", expression)

    def user(self, expression: Expression | str = BLOCK) -> AbstractContextManager[None]:
        """As `system`, for the user."""
        return self._role("user", expression)

    def assistant(self, expression: Expression | str = BLOCK) -> AbstractContextManager[None]:
        """As `system`, for the assistant."""
        return self._role("assistant", expression)

    def system_begin(self) -> None:
        """Opens a system message."""
        self._append(RoleBegin("system"))

    def system_end(self) -> None:
        """Closes the system message."""
        self._append(RoleEnd("system"))

    def user_begin(self) -> None:
        """Opens a user message."""
        self._append(RoleBegin("user"))

    def user_end(self) -> None:
        """Closes the user message."""
        self._append(RoleEnd("user"))

    def assistant_begin(self) -> None:
        """Opens an assistant message."""
        self._append(RoleBegin("assistant"))

    def assistant_end(self) -> None:
        """Closes the assistant message."""
        self._append(RoleEnd("assistant"))

    def var_scope(self, name: str) -> AbstractContextManager[None]:
        """`with s.var_scope("x"):` stores all text appended in the block as `s["x"]`; the outer one of two, last."""
        return self._between(ScopeBegin(name), ScopeEnd(name))

    # -- variables ---------------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        """The variable; waits for the expression that sets it. KeyError if none does."""
        return self._interpreter.read(name).value

    def __setitem__(self, name: str, value: object) -> None:
        self._interpreter.set_variable(name, Variable.plain(value))

    def __contains__(self, name: object) -> bool:
        """Whether `s[name]` has or will have a value; does not wait."""
        return isinstance(name, str) and self._interpreter.has_variable(name)

    get_var, set_var = __getitem__, __setitem__  # SGLang's names

    def parsed(self, name: str) -> Any:
        """The variable as a value: a pydantic object or parsed JSON under `json_schema`, a number under `dtype=int`
        … None if the output was cut short. Waits as `s[name]`.

        Raises:
            RequestError: the text is no such value (a stop string has cut it, or the pydantic class asks for more than
                its schema says); `s[name]` is the text.
        """
        variable = self._interpreter.read(name)
        if variable.fault is not None:
            raise variable.fault
        return variable.parsed

    def get_meta_info(self, name: str) -> Any:
        """Token counts, end reason and log-probabilities of the `gen` or `select`; a list when n > 1.

        Waits as `s[name]`. None for a variable that was set in another way.
        """
        return self._interpreter.read(name).meta_info

    # -- reading -----------------------------------------------------------------------------------------------

    def text(self) -> str:
        """All text so far, role markers included."""
        return self._interpreter.look(lambda transcript: transcript.text)

    def messages(self) -> list[dict[str, str]]:
        """The closed messages as `{"role": …, "content": …}`."""
        return self._interpreter.look(lambda transcript: transcript.messages)

    def token_ids(self) -> list[int]:
        """The ids of the text, exactly as the next `gen` will send them."""
        return self._interpreter.look(lambda transcript: transcript.token_ids().tolist())

    def _repr_html_(self) -> str:
        """For notebooks: the text, with colours for what was cached, computed, jumped, sampled and chosen. Waits as
        `sync`."""
        seen = self._interpreter.look(lambda transcript: transcript.copy())
        return as_html(seen, self._interpreter.run.tokenizer)

    def text_iter(self, var_name: str | None = None) -> Iterator[str]:
        """The text, or a variable's, in the pieces in which it comes. Their concatenation is the whole.

        After `run(stream=True)` it follows the program; of a finished state it yields everything at once. Leaving it
        before its end cancels the run, unless another iterator follows it or this is the program itself.
        """
        yield from increments(self._interpreter, var_name)  # this frame holds the state meanwhile

    @overload
    def text_async_iter(
        self, var_name: str | None = None, return_meta_data: Literal[False] = False
    ) -> AsyncIterator[str]: ...

    @overload
    def text_async_iter(self, var_name: str, return_meta_data: Literal[True]) -> AsyncIterator[tuple[str, Any]]: ...

    async def text_async_iter(
        self, var_name: str | None = None, return_meta_data: bool = False
    ) -> AsyncIterator[str | tuple[str, Any]]:
        """`text_iter` for `async for`. return_meta_data: with each piece of the variable what is known of it so far,
        see `get_meta_info`; all of it comes with the last one, which may be empty.

        Raises:
            ProgramError: `return_meta_data` without a variable.
        """
        if return_meta_data and var_name is None:
            raise ProgramError("text_async_iter: return_meta_data is a variable's; give its name")
        async with aclosing(async_increments(self._interpreter, var_name)) as pieces:
            async for piece, info in pieces:
                if return_meta_data:
                    yield piece, info
                elif piece:
                    yield piece

    def cancel(self) -> None:
        """Ends the run that this state belongs to, from any thread: requests under way are aborted, in its forks and
        in runs that its function has begun too. States that are not through fail with `ProgramError`."""
        self._interpreter.cancel()

    def sync(self) -> None:
        """Waits until everything appended so far has run."""
        self._interpreter.sync()

    def error(self) -> ProgramError | None:
        """Waits as `sync`; why the state has failed, or None."""
        return self._interpreter.error()

    # -- branches ----------------------------------------------------------------------------------------------

    def fork(self, size: int = 1, *, inside: str | None = None) -> ForkGroup[ProgramState]:
        """`size` states that go on from here, side by side; waits as `sync`.

        They copy token ids, text and variables; the engine shares the blocks of the common prefix. With `inside`, the
        name of a `gen`, they do not wait for its end: each goes on writing it in its own way from what is there now,
        under another seed, and has its own value of it. What was appended after that `gen` is not theirs. Nothing is
        computed again. If it has ended, all have what was written.

        Raises:
            ProgramError: the size is none, or the state has failed.
            KeyError: there is no `gen` named `inside`.
        """
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ProgramError(f"fork: size: expected a positive integer, got {size!r}")
        mark, twins = self._interpreter.fork(size, inside)
        return ForkGroup(self, [ProgramState(twin, self) for twin in twins], mark)

    def copy(self) -> ProgramState:
        """A single fork. As `with s.copy() as t:` it is joined (`gather_variable`) at the end of the block."""
        group = self.fork(1)
        group[0]._copied_from = group
        return group[0]

    def __enter__(self) -> Self:
        if self._copied_from is None:
            raise ProgramError("only a copy can be used in `with`: with s.copy() as t")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._copied_from is not None:
            self._copied_from.join()

    def __repr__(self) -> str:
        return f"<ProgramState of {self._interpreter.run.name}>"

    # -- helpers -----------------------------------------------------------------------------------------------

    def _append(self, expression: Expression) -> None:
        self._interpreter.append(expression.atoms(), place_of_caller())

    def _role(self, role: Role, expression: Expression | str) -> AbstractContextManager[None]:
        if expression is BLOCK:
            return self._between(RoleBegin(role), RoleEnd(role))
        self._append(concat(RoleBegin(role), expression, RoleEnd(role)))
        return _refuse_block(role)

    @contextmanager
    def _between(self, opening: Expression, closing: Expression) -> Iterator[None]:
        self._append(opening)
        yield
        self._append(closing)


@contextmanager
def _refuse_block(role: Role) -> Iterator[None]:
    raise ProgramError(f"`with s.{role}(…)`: leave the argument away; the block is the message")
    yield
