"""Runs the expressions of one state in the order in which they were appended.

Text and roles run at once, on the thread that appends them. From the first `gen` or `select` on, expressions wait in
a queue and a worker thread runs them, so appending never blocks; the worker ends when the queue is empty. Readers
(`s["x"]`, `s.text()` …) wait for what they ask for::

    s += "Q: …"      runs here            |
    s += gen("x")    queued, worker runs  |  prompt ─► engine ─► deltas ─► chunks, variable x
    s += "\\n"        queued after it      |
    s["x"]           waits for x only     |

When an expression fails, the state has failed: what is queued is dropped, waiters wake up, and every use of the state
raises the same `ProgramError`. The engine batches the requests of all workers; a worker only waits for its own.

The thread that works changes the transcript, and no other; not under the lock, for its tokenizer may be a server's.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from ...errors import PhloemError, ProgramError, RequestError
from ..request import SamplingParams
from .calls import Info, choose, follow
from .expression import Expression, Gen, RoleBegin, RoleEnd, ScopeBegin, ScopeEnd, Select, Text, variable_of
from .increments import TextReader
from .place import SourceLine, label, located
from .run import DeltaStream, Run
from .task import Task, UnderWay, sampling_of_fork, task_of
from .transcript import Mark, Transcript
from .variable import Shown, Variable

Seen = TypeVar("Seen")


class Interpreter:
    """The machinery of one state.

    Attributes:
        run: what it shares with the other states of the run.
        sampling: what `gen` uses for arguments it was not given: the run's, but that each fork has its own seed.
        variables: by name; final for a name when no task that sets it is left (see `read`).
        ret_value: what the program's function returned, in the root state.
    """

    def __init__(self, run: Run, transcript: Transcript, sampling: SamplingParams | None = None) -> None:
        self.run = run
        self.sampling = run.sampling if sampling is None else sampling
        self.variables: dict[str, Variable] = {}
        self.ret_value: Any = None
        self._transcript = transcript
        self._num_forks = 0
        self._scopes: dict[str, list[int]] = {}  # where each of a name begins, the innermost last
        self._changed = threading.Condition(threading.RLock())
        self._queue: deque[Task] = deque()
        self._announced: Counter[str] = Counter()
        self._shown: dict[str, Shown] = {}
        self._working = False
        self._under_way: UnderWay | None = None
        self._body: threading.Thread | None = None
        self._error: ProgramError | None = None
        self._readers: set[TextReader] = set()

    # -- appending ---------------------------------------------------------------------------------------------

    def append(self, atoms: Iterable[Expression], place: SourceLine) -> None:
        """Runs or queues expressions.

        Raises:
            ProgramError: the state has failed, or one of the expressions that run at once fails.
        """
        tasks = [task_of(atom, place, self.run.name, self.sampling) for atom in atoms]
        with self._changed:
            self._raise_if_failed()
            self._queue.extend(tasks)
            self._announced.update(name for task in tasks if (name := variable_of(task.atom)) is not None)
            if self._working:
                return
            self._working = True
        try:
            while self._queue and not isinstance(self._queue[0].atom, (Gen, Select)):
                self._perform(self._queue.popleft())
        except BaseException:  # Ctrl-C
            self._working = False
            raise
        with self._changed:
            self._working = bool(self._queue)
            if not self._working:
                self._notify()
                return self._raise_if_failed()
        self._start_worker()

    def set_variable(self, name: str, variable: Variable) -> None:
        """Sets a variable after every task that was to set it."""
        with self._changed:
            self._await(lambda: not self._announced[name])
            self._set(name, variable)
            self._notify()

    def append_from(self, other: Interpreter, mark: Mark, place: SourceLine) -> None:
        """Appends what a fork has said since `mark`."""
        with self._changed:
            self._await(self._is_idle)
            try:
                self._transcript.append_from(other._transcript, mark)
            except PhloemError as error:
                raise located(error, self.run.name, place, "join") from error
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

    def read(self, name: str) -> Variable:
        """The variable, once no task is left that will set it.

        Raises:
            KeyError: nothing sets it.
        """
        with self._changed:
            self._await(
                lambda: not self._announced[name] and (name in self.variables or not self._is_awaited_outside())
            )
            if name not in self.variables:
                known = ", ".join(sorted({*self.variables, *+self._announced})) or "none"
                hint = "; a fork's variables are here after forks.join()" if self._num_forks else ""
                raise KeyError(f"program {self.run.name} has no variable {name!r} here; it has: {known}{hint}")
            return self.variables[name]

    def has_variable(self, name: str) -> bool:
        """Whether the variable is set, or will be by a task that is queued or running."""
        with self._changed:
            return name in self.variables or self._announced[name] > 0

    def look(self, look: Callable[[Transcript], Seen]) -> Seen:
        """Waits as `sync`; what `look` finds in the transcript."""
        with self._changed:
            self._await(self._is_idle)
            return look(self._transcript)

    def fork(self, size: int, inside: str | None) -> tuple[Mark, list[Interpreter]]:
        """Independent interpreters of the same run, and where they leave this one. Waits as `sync`; with `inside` only
        until the generation of that name has begun, within which they go on, unless it has ended.

        Raises:
            KeyError: nothing generates `inside`.
        """
        if inside is not None and (found := self._fork_inside(inside, size)) is not None:
            return found
        with self._changed:
            self._await(self._is_idle)
            return self._transcript.mark(), [self._twin(self._transcript.copy()) for _ in range(size)]

    def _fork_inside(self, name: str, size: int) -> tuple[Mark, list[Interpreter]] | None:
        with self._changed:
            self._await(
                lambda: (self._under_way is not None and self._under_way.name == name) or not self._announced[name]
            )
            under_way = self._under_way
            if under_way is None or under_way.name != name:
                if name not in self.variables:
                    raise KeyError(f"program {self.run.name} generates no variable {name!r} here")
                return None
            try:
                streams = self.run.fork(under_way.stream, size)
            except RequestError:  # it ends just now
                self._await(lambda: self._under_way is not under_way)
                return None
            return under_way.mark, [self._twin_inside(name, under_way, stream) for stream in streams]

    def _twin(self, transcript: Transcript) -> Interpreter:
        twin = Interpreter(self.run, transcript, sampling_of_fork(self.sampling, self._num_forks))
        self._num_forks += 1
        twin.variables = dict(self.variables)
        twin._shown = dict(self._shown)
        return twin

    def _twin_inside(self, name: str, under_way: UnderWay, stream: DeltaStream) -> Interpreter:
        twin = self._twin(self._transcript.copy(under_way.mark.num_chunks))
        sampling = under_way.task.sampling
        assert sampling is not None
        twin._queue.append(replace(under_way.task, sampling=replace(sampling, n=1), stream=stream))
        twin._announced[name] += 1
        twin._shown[name] = Shown()
        twin._working = True
        twin._start_worker()
        return twin

    # -- streaming ---------------------------------------------------------------------------------------------

    def run_on(self, body: threading.Thread | None) -> None:
        """The function runs on this thread: more may be appended although the queue is empty. None: it has ended."""
        with self._changed:
            self._body = body
            self._notify()

    def fail(self, error: BaseException, place: SourceLine | None = None) -> None:
        """The function body has failed, at that line; so has the state, if it had not before."""
        with self._changed:
            if self._error is None:
                is_located = isinstance(error, ProgramError) and error.place
                self._error = error if is_located else located(error, self.run.name, place)  # type: ignore[assignment]
                self._notify()

    def cancel(self) -> None:
        """Cancels the run; a state that is not through has failed."""
        self.run.cancel()
        with self._changed:
            if self._error is None and not self._is_idle():
                self._error = ProgramError(f"program {self.run.name}: the run was cancelled")
                self._notify()

    def take(self, reader: TextReader, *, wait: bool) -> tuple[str, bool]:
        """See `increments.Source`.

        Raises:
            KeyError: the program ended without setting the reader's variable.
        """
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._has_news(reader))
            elif not self._has_news(reader):
                return "", False
            self._raise_if_failed()
            if reader.name is None:
                return reader.take(self._transcript.chunks), self._is_idle()
            if reader.shown is None:
                raise KeyError(f"program {self.run.name} has ended without setting {reader.name!r}")
            return reader.take(reader.shown.chunks), reader.shown.complete

    def open(self, reader: TextReader) -> None:
        """See `increments.Source`."""
        with self._changed:
            self._readers.add(reader)

    def close(self, reader: TextReader, *, complete: bool) -> None:
        """See `increments.Source`. When the last reader leaves a program that runs in another thread, the run is
        cancelled; readers within the program itself may come and go."""
        with self._changed:
            self._readers.discard(reader)
            is_dropped = not complete and not self._readers and self._is_awaited_outside()
        if is_dropped:
            self.cancel()

    def _has_news(self, reader: TextReader) -> bool:
        if reader.name is not None and reader.shown is None:
            reader.shown = self._shown.get(reader.name)
        if self._error is not None or self._is_idle():
            return True
        if reader.name is None:
            return len(self._transcript.chunks) > reader.position
        shown = reader.shown
        return shown is not None and (shown.complete or len(shown.chunks) > reader.position)

    # -- the worker --------------------------------------------------------------------------------------------

    def _start_worker(self) -> None:
        self.run.enter()
        try:
            threading.Thread(target=self._work, name=f"phloem-{self.run.name}", daemon=True).start()
        except RuntimeError:  # no thread to be had
            self._work()

    def _work(self) -> None:
        try:
            while True:
                with self._changed:
                    if not self._queue:
                        self._working = False
                        return self._notify()
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
                self._error = located(error, self.run.name, task.place, label(task.atom))
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
        match task.atom:
            case Gen() as gen:
                self._generate(gen, task)
            case Select() as select:
                self._select(select)
            case Text(text):
                self._transcript.append_text(text)
            case RoleBegin(role):
                self._transcript.begin_role(role)
            case RoleEnd(role):
                self._transcript.end_role(role)
            case ScopeBegin(name):
                self._scopes.setdefault(name, []).append(len(self._transcript.chunks))
            case ScopeEnd(name):
                self._set(name, Variable.plain("".join(self._transcript.chunks[self._scopes[name].pop() :])))
            case atom:
                raise ProgramError(f"{type(atom).__name__} cannot be appended to a state")

    def _generate(self, gen: Gen, task: Task) -> None:
        sampling = task.sampling
        assert sampling is not None
        shown = self._shown[gen.name] if gen.name is not None and task.stream is not None else Shown()

        def show(text: str, info: Info) -> None:
            with self._changed:
                self._transcript.show(text)
                shown.chunks.append(text)
                shown.meta_info = info
                self._notify()

        prompt = self._transcript.prompt()
        mark = self._transcript.mark()
        with self._changed:
            if gen.name is not None:
                self._shown[gen.name] = shown
        stream = task.stream or self.run.submit(prompt, sampling, gen.constraint)
        with self._changed:
            self._under_way = UnderWay(task, stream, mark)
            self._notify()
        try:
            answer = follow(self.run, stream, gen, sampling.n, show)
        finally:
            with self._changed:
                self._under_way = None
        with self._changed:
            usage = answer.usage
            self._transcript.append_generated(answer.token_ids, usage.cached_tokens, usage.jumped_at)
            shown.complete, shown.meta_info = True, answer.variable.meta_info
            if gen.name is not None:
                self.variables[gen.name] = answer.variable

    def _select(self, select: Select) -> None:
        prompt, continuations = self._transcript.branches(select.choices)
        answer = choose(self.run, prompt, continuations, select)
        with self._changed:
            self._transcript.append_scored(prompt, answer.token_ids, answer.text)
            if select.name is not None:
                self._set(select.name, answer.variable)

    def _set(self, name: str, variable: Variable) -> None:
        self.variables[name] = variable
        self._shown[name] = variable.shown()

    # -- waiting and failing -----------------------------------------------------------------------------------

    def _notify(self) -> None:
        self._changed.notify_all()
        for reader in list(self._readers):  # one whose event loop is closed leaves
            if reader.listener is not None:
                reader.listener()

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
            raise ProgramError(str(self._error), place=self._error.place) from self._error.__cause__
