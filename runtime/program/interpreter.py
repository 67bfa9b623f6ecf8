"""Runs the expressions of one state in the order in which they were appended.

Text and roles run at once, on the thread that appends them. From the first `gen` or `select` on, expressions wait in
a queue and a worker thread runs them, so appending never blocks; the worker ends when the queue is empty. Readers
(`s["x"]`, `s.text()` …) wait for what they ask for::

    s += "Q: …"      runs here            |
    s += gen("x")    queued, worker runs  |  prompt ─► engine ─► deltas ─► chunks, variable x
    s += "\\n"        queued behind it     |
    s["x"]           waits for x only     |

When an expression fails, the state has failed: what is queued is dropped, waiters wake up, and every use of the state
raises the same `ProgramError`. The engine batches the requests of all workers; a worker only waits for its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import PhloemError, ProgramError, RequestError
from ..request import FinishReason, SamplingParams
from .choices import mean_logprob, pick
from .expression import Expression, Gen, RoleBegin, RoleEnd, ScopeBegin, ScopeEnd, Select, Text, variable_of
from .meta_info import generation_info, parsed_value, selection_info
from .run import Place, Run
from .transcript import Transcript


@dataclass(frozen=True, slots=True)
class Task:
    """An expression to run, and the line that asked for it.

    Attributes:
        sampling: for a `Gen`, the run's parameters with its own.
    """

    atom: Expression
    place: Place
    sampling: SamplingParams | None = None


@dataclass(slots=True)
class Shown:
    """The text of one variable as it becomes visible."""

    chunks: list[str] = field(default_factory=list)
    complete: bool = False


@dataclass(slots=True)
class _Reader:
    """How far somebody has read, and of what; `source` stays the same if the variable is set anew."""

    source: Shown | None = None
    position: int = 0

    def take(self, chunks: list[str]) -> str:
        fresh = chunks[self.position :]
        self.position = len(chunks)
        return "".join(fresh)


class Interpreter:
    """The machine behind one state.

    Attributes:
        run: what it shares with the other states of the run.
        variables, meta_info: by name; complete for a name when no task that sets it is left.
    """

    def __init__(self, run: Run, transcript: Transcript) -> None:
        self.run = run
        self.variables: dict[str, Any] = {}
        self.meta_info: dict[str, Any] = {}
        self.parsed: dict[str, Any] = {}
        self._transcript = transcript
        self._scopes: dict[str, int] = {}
        self._changed = threading.Condition(threading.RLock())
        self._queue: deque[Task] = deque()
        self._announced: Counter[str] = Counter()
        self._shown: dict[str, Shown] = {}
        self._working = False
        self._body: threading.Thread | None = None
        self._error: ProgramError | None = None
        self._listeners: set[Callable[[], None]] = set()

    # -- appending ---------------------------------------------------------------------------------------------

    def append(self, atoms: Iterable[Expression], place: Place) -> None:
        """Runs or queues expressions.

        Raises:
            ProgramError: the state has failed, or one of the expressions that run at once fails.
        """
        tasks = [Task(atom, place, self._sampling(atom, place)) for atom in atoms]
        with self._changed:
            self._raise_if_failed()
            self._queue.extend(tasks)
            self._announced.update(name for task in tasks if (name := variable_of(task.atom)) is not None)
            if self._working:
                return
            while self._queue and not isinstance(self._queue[0].atom, (Gen, Select)):
                self._perform(self._queue.popleft())
            self._notify()
            self._raise_if_failed()
            if not self._queue:
                return
            self._working = True
        self.run.enter()
        threading.Thread(target=self._work, name=f"phloem-{self.run.name}", daemon=True).start()

    def set_variable(self, name: str, value: object) -> None:
        """Sets a variable after every task that was to set it."""
        with self._changed:
            self._await(lambda: not self._announced[name])
            self._set(name, value)
            self._notify()

    def gather(self, name: str, values: list[Any], infos: list[Any], parsed: list[Any]) -> None:
        """Sets a variable to what the forks have found."""
        with self._changed:
            self._set(name, values)
            self.meta_info[name] = infos
            self.parsed[name] = parsed
            self._notify()

    def append_from(self, other: Interpreter, mark: Any, place: Place) -> None:
        """Appends what a fork has said since `mark`."""
        with self._changed:
            self._await(self._is_idle)
            try:
                self._transcript.append_from(other._transcript, mark)
            except PhloemError as error:
                raise self._located(error, "join", place) from error
            self._notify()

    # -- reading -----------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Waits until everything appended has run; raises the failure if there was one."""
        with self._changed:
            self._await(self._is_idle)

    def error(self) -> ProgramError | None:
        """Waits as `sync`; returns the failure instead of raising it."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_idle() or self._error is not None)
            if self._error is not None:
                self.run.seen(self._error)
            return self._error

    def read(self, table: dict[str, Any], name: str) -> Any:
        """`table[name]` once no task is left that will set it.

        Raises:
            KeyError: nothing sets it.
        """
        with self._changed:
            self._await(lambda: not self._announced[name] and (name in table or not self._is_awaited_outside()))
            if name not in table:
                known = ", ".join(sorted(table)) or "none"
                raise KeyError(f"program {self.run.name} has no variable {name!r} here; it has: {known}")
            return table[name]

    def has_variable(self, name: str) -> bool:
        """Whether the variable is set, or will be by a task that is queued or running."""
        with self._changed:
            return name in self.variables or self._announced[name] > 0

    def text(self) -> str:
        with self._changed:
            self._await(self._is_idle)
            return self._transcript.text

    def messages(self) -> list[dict[str, str]]:
        with self._changed:
            self._await(self._is_idle)
            return self._transcript.messages

    def token_ids(self) -> list[int]:
        with self._changed:
            self._await(self._is_idle)
            return self._transcript.token_ids().tolist()

    def mark(self) -> Any:
        """The position reached, for `append_from`."""
        with self._changed:
            return self._transcript.mark()

    def copy(self) -> Interpreter:
        """Waits as `sync`; an independent interpreter of the same run that goes on from here."""
        with self._changed:
            self._await(self._is_idle)
            twin = Interpreter(self.run, self._transcript.copy())
            twin.variables = dict(self.variables)
            twin.meta_info = dict(self.meta_info)
            twin.parsed = dict(self.parsed)
            twin._shown = dict(self._shown)
            return twin

    # -- streaming ---------------------------------------------------------------------------------------------

    def hold(self, body: threading.Thread) -> None:
        """The function runs on thread `body`: more may be appended although the queue is empty."""
        with self._changed:
            self._body = body

    def let_go(self) -> None:
        """The function has ended."""
        with self._changed:
            self._body = None
            self._notify()

    def fail(self, error: Exception) -> None:
        """The function body has failed; so has the state, if it had not before."""
        with self._changed:
            if self._error is None:
                self._error = error if isinstance(error, ProgramError) else self._wrapped(error)
                self._notify()

    def increments(self, name: str | None) -> Iterator[str]:
        """New text of the state, or of one variable, until it is complete; blocks in between.

        Raises:
            KeyError: the program ended without setting the variable.
        """
        reader = _Reader()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._has_news(name, reader))
                text, done = self._take(name, reader)
            if text:
                yield text
            if done:
                return

    async def async_increments(self, name: str | None) -> AsyncIterator[str]:
        """`increments` for an event loop; no thread waits."""
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def listener() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(woken.set)

        with self._changed:
            self._listeners.add(listener)
        try:
            reader = _Reader()
            done = False
            while not done:
                woken.clear()
                with self._changed:
                    text, done = self._take(name, reader) if self._has_news(name, reader) else ("", False)
                if text:
                    yield text
                elif not done:
                    await woken.wait()
        finally:
            with self._changed:
                self._listeners.discard(listener)

    def _has_news(self, name: str | None, reader: _Reader) -> bool:
        if reader.source is None and name is not None:
            reader.source = self._shown.get(name)
        if self._error is not None or self._is_idle():
            return True
        if name is None:
            return len(self._transcript.chunks) > reader.position
        source = reader.source
        return source is not None and (source.complete or len(source.chunks) > reader.position)

    def _take(self, name: str | None, reader: _Reader) -> tuple[str, bool]:
        """The text that `reader` has not had, and whether that was the last of it."""
        self._raise_if_failed()
        if name is None:
            return reader.take(self._transcript.chunks), self._is_idle()
        if reader.source is None:
            raise KeyError(f"program {self.run.name} has ended without setting {name!r}")
        return reader.take(reader.source.chunks), reader.source.complete

    # -- the worker --------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    if not self._queue:
                        self._working = False
                        self._notify()
                        return
                    task = self._queue.popleft()
                self._perform(task)
        finally:
            self.run.leave()

    def _perform(self, task: Task) -> None:
        """Runs one task; a failure becomes the state's."""
        try:
            self.run.check()
            self._execute(task)
        except Exception as error:
            with self._changed:
                self._error = self._located(error, _label(task.atom), task.place)
                self._error.__cause__ = error
                self._queue.clear()
                self._announced.clear()
                self.run.failed(self._error)
                self._notify()
            return
        name = variable_of(task.atom)
        with self._changed:
            if name is not None:
                self._announced[name] -= 1
            self._notify()

    def _execute(self, task: Task) -> None:
        atom = task.atom
        if isinstance(atom, Gen):
            assert task.sampling is not None
            self._generate(atom, task.sampling)
            return
        if isinstance(atom, Select):
            self._select(atom)
            return
        with self._changed:
            match atom:
                case Text(text):
                    self._transcript.append_text(text)
                case RoleBegin(role):
                    self._transcript.begin_role(role)
                case RoleEnd(role):
                    self._transcript.end_role(role)
                case ScopeBegin(name):
                    self._scopes[name] = len(self._transcript.chunks)
                case ScopeEnd(name):
                    self._set(name, "".join(self._transcript.chunks[self._scopes.pop(name) :]))
                case _:
                    raise ProgramError(f"{type(atom).__name__} cannot be appended to a state")

    def _generate(self, gen: Gen, sampling: SamplingParams) -> None:
        with self._changed:
            prompt = self._transcript.prompt()
            shown = Shown()
            if gen.name is not None:
                self._shown[gen.name] = shown
        stream = self.run.submit(prompt, sampling, gen.constraint)
        try:
            if self.run.streams:
                for delta in stream:
                    if delta.index == 0:
                        self._show(delta.text, shown)
            completions = stream.completions()
        except RequestError:
            self.run.check()  # if the run was cancelled, that is the reason
            raise
        finally:
            self.run.release(stream)
        first = completions[0]
        infos = [generation_info(self.run.tokenizer, completion) for completion in completions]
        values = [completion.text for completion in completions]
        parsed = [parsed_value(completion, gen.dtype) for completion in completions]
        with self._changed:
            if not self.run.streams:
                self._show(first.text, shown)
            self._transcript.append_generated(
                first.token_ids, first.text, ended=first.finish_reason is FinishReason.STOP
            )
            shown.complete = True
            if gen.name is not None:
                several = sampling.n > 1
                self.variables[gen.name] = values if several else values[0]
                self.meta_info[gen.name] = infos if several else infos[0]
                self.parsed[gen.name] = parsed if several else parsed[0]

    def _show(self, text: str, shown: Shown) -> None:
        if text:
            with self._changed:
                self._transcript.show(text)
                shown.chunks.append(text)
                self._notify()

    def _select(self, select: Select) -> None:
        with self._changed:
            prompt = self._transcript.prompt()
            continuations = [self.run.tokenizer.encode(choice) for choice in select.choices]
        conditional = self.run.score(prompt, continuations)
        unconditional: list[list[Any]] = []
        if select.method.needs_unconditional:
            bos_id = self.run.tokenizer.bos_id
            if bos_id < 0:
                raise ProgramError(f"{select.method} needs a model with a BOS token to score choices by themselves")
            unconditional = self.run.score([bos_id], continuations)
        winner = pick(select.method, conditional, unconditional)
        choice = select.choices[winner]
        with self._changed:
            self._transcript.append_scored(continuations[winner], choice)
            if select.name is not None:
                self._set(select.name, choice)
                self.meta_info[select.name] = selection_info(
                    self.run.tokenizer, len(prompt), [mean_logprob(tokens) for tokens in conditional], conditional
                )

    def _set(self, name: str, value: object) -> None:
        self.variables[name] = self.parsed[name] = value
        self._shown[name] = Shown([value] if isinstance(value, str) else [], complete=True)

    def _sampling(self, atom: Expression, place: Place) -> SamplingParams | None:
        """The run's parameters with the expression's own.

        Raises:
            ProgramError: a value is out of range.
        """
        if not isinstance(atom, Gen):
            return None
        if not atom.sampling:
            return self.run.sampling
        try:
            return replace(self.run.sampling, **atom.sampling)  # type: ignore[arg-type]  # names and types from `gen`
        except PhloemError as error:
            raise self._located(error, _label(atom), place) from error

    # -- waiting and failing -----------------------------------------------------------------------------------

    def _notify(self) -> None:
        self._changed.notify_all()
        for listener in self._listeners:
            listener()

    def _is_idle(self) -> bool:
        """Nothing is left to run, and nothing will come: for the function itself that is an empty queue."""
        return not self._working and not self._is_awaited_outside()

    def _is_awaited_outside(self) -> bool:
        """Whether the function still runs, and the caller is not the function."""
        return self._body is not None and self._body is not threading.current_thread()

    def _await(self, condition: Callable[[], bool]) -> None:
        """Waits until `condition` holds; raises if the state has failed."""
        self._changed.wait_for(lambda: self._error is not None or condition())
        self._raise_if_failed()

    def _raise_if_failed(self) -> None:
        if self._error is not None:
            self.run.seen(self._error)
            # A copy: the same failure may be raised on several threads, each with its own traceback.
            raise type(self._error)(str(self._error)) from self._error.__cause__

    def _wrapped(self, error: Exception) -> ProgramError:
        wrapped = ProgramError(f"program {self.run.name}: {_cause(error)}")
        wrapped.__cause__ = error
        return wrapped

    def _located(self, error: Exception, label: str, place: Place) -> ProgramError:
        return ProgramError(f"program {self.run.name}, {place}, {label}: {_cause(error)}")


def _cause(error: Exception) -> str:
    return str(error) if isinstance(error, PhloemError) else f"{type(error).__name__}: {error}"


def _label(atom: Expression) -> str:
    """The expression as its author wrote it, in short."""
    match atom:
        case Gen(name) | Select(name):
            return f"{type(atom).__name__.lower()}({name!r})" if name else f"{type(atom).__name__.lower()}()"
        case RoleBegin(role):
            return f"{role}_begin()"
        case RoleEnd(role):
            return f"{role}_end()"
        case ScopeBegin(name) | ScopeEnd(name):
            return f"var_scope({name!r})"
        case Text(text):
            return f"text {text[:20]!r}"
    return type(atom).__name__
