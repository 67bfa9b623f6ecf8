"""Programs: a function of a state, and the ways to run it.

`run` (`run_async` for an event loop) calls the function once; `run_batch` runs it for many arguments at the same time
over one engine, which batches the requests of all of them and computes a common prefix once.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, Unpack, overload

from ...errors import ConstraintError, ProgramError
from .backend import AnyBackend, Backends
from .interpreter import Interpreter
from .options import RUN_OPTIONS, RunOptions, check_names, num_threads_of, sampling_of
from .place import located, place_of_error
from .run import Run
from .state import ProgramState
from .transcript import Transcript

P = ParamSpec("P")
R = TypeVar("R")
Arguments = Mapping[str, Any] | Sequence[Any]


class Program(Generic[P, R]):
    """A function whose first parameter is the state `s`. Made by `@phloem.function`.

    Called, it takes what the function takes, as type checkers see it; `run` and the others take options besides.
    """

    def __init__(
        self, function: Callable[Concatenate[ProgramState, P], R], bound: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self.function = function
        self._function: Callable[..., Any] = function  # as `inspect` binds its arguments
        self.name = getattr(function, "__name__", "program")
        self._code = getattr(inspect.unwrap(function), "__code__", None)
        self._signature = inspect.signature(function)
        self._bound = MappingProxyType(dict(bound))
        functools.update_wrapper(self, function)
        if next(iter(self._signature.parameters), "") != "s":
            raise ProgramError(
                f"function {self.name}: the first parameter is the state and must be named s, as in"
                f" def {self.name}(s, …)"
            )
        self._own = self._signature.replace(parameters=list(self._signature.parameters.values())[1:])

    def bind(self, **arguments: Any) -> Program[..., R]:
        """The same program with some arguments given."""
        return Program(self.function, {**self._bound, **arguments})

    def run(self, *args: Any, stream: bool = False, **kwargs: Any) -> ProgramState:
        """Calls the function with a fresh state; returns the state when everything in it and its forks has run.

        Args:
            args, kwargs: the function's arguments after `s`, and any of `RunOptions` by name (`max_tokens`,
                `temperature`, `stop`, `backend` …).
            stream: return at once; the function runs on another thread. Follow it with `text_iter`. When the state
                that is returned is dropped, or `text_iter` is left before its end, the run is cancelled.

        Raises:
            ProgramError: an expression has failed, here or in a fork; the message has its line. With `stream` it is
                raised by whatever reads the state.
            Exception: what the function itself has raised, with its line as a note; with `stream` a ProgramError.
        """
        options, arguments = self._split(args, kwargs)
        new_state = self._setup(options, streams=stream)
        bound = self._bind(args, arguments)
        outer = _running.get()
        return self._start(new_state(), bound, outer) if stream else self._run(new_state(), bound, outer)

    async def run_async(self, *args: Any, **kwargs: Any) -> ProgramState:
        """`run` for an event loop: the function runs on a thread of its own, and the loop goes on. The run is cancelled
        with the task that awaits it, and when the loop is closed and nothing refers to the task any more.

        Raises:
            ProgramError, Exception: as `run`.
        """
        options, arguments = self._split(args, kwargs)
        state = self._setup(options)()
        bound, outer, loop = self._bind(args, arguments), _running.get(), asyncio.get_running_loop()
        ended: asyncio.Future[BaseException | None] = loop.create_future()
        awaited = weakref.ref(ended)  # the thread must not keep alive what waits for it

        def body() -> None:
            failure: BaseException | None = None
            try:
                self._run(state, bound, outer)
            except BaseException as error:
                failure = error
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_settle, awaited, failure)

        threading.Thread(target=body, name=f"phloem-{self.name}", daemon=True).start()
        try:
            failure = await ended
        finally:
            if not ended.done() or ended.cancelled():
                state._interpreter.run.cancel()
        if failure is not None:
            raise failure
        return state

    @overload
    def __call__(self, state: ProgramState, /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> ProgramState: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]
        """`run`; but with a state as the first argument, as in `tip(s, topic)` within another program, the function on
        that state, as any helper function: what it says and finds out is that state's. Returns what it returned."""
        if not (args and isinstance(args[0], ProgramState)):
            return self.run(*args, **kwargs)
        bound = self._bind(args[1:], kwargs)
        return self._function(args[0], *bound.args, **bound.kwargs)

    @overload
    def run_batch(
        self,
        batch: Iterable[Arguments],
        *,
        num_threads: int | Literal["auto"] = "auto",
        progress_bar: bool = False,
        generator_style: Literal[False] = False,
        return_errors: bool = False,
        **options: Unpack[RunOptions],
    ) -> list[ProgramState]: ...

    @overload
    def run_batch(
        self,
        batch: Iterable[Arguments],
        *,
        num_threads: int | Literal["auto"] = "auto",
        progress_bar: bool = False,
        generator_style: Literal[True],
        return_errors: bool = False,
        **options: Unpack[RunOptions],
    ) -> Iterator[ProgramState]: ...

    def run_batch(
        self,
        batch: Iterable[Arguments],
        *,
        num_threads: int | Literal["auto"] = "auto",
        progress_bar: bool = False,
        generator_style: bool = False,
        return_errors: bool = False,
        **options: Unpack[RunOptions],
    ) -> list[ProgramState] | Iterator[ProgramState]:
        """Runs the function for every item of `batch`; the states come in the order of the items.

        Args:
            batch: for each item a dict of arguments, or a tuple of positional ones. Any iterable: it is read as far as
                `num_threads` items ahead.
            num_threads: how many programs run at the same time; "auto": 16 per core, at least 96.
            progress_bar: shown on stderr; without an end where `batch` has no length.
            generator_style: return an iterator that yields a state as soon as it and those before it are done. Leaving
                it early cancels what runs.
            return_errors: a program that fails, or an item that is none, does not raise: a state comes in its place,
                with `error()` set.

        Raises:
            ProgramError: of the first item, in order, that failed, with its number as a note; what still runs is
                cancelled.
            Exception: what the function itself, or `batch`, has raised, after all items before it.
        """
        check_names("run_batch", options)
        num_threads = num_threads_of("run_batch", num_threads)
        try:
            items = iter(batch)
        except TypeError:
            raise ProgramError(f"run_batch: expected items of arguments, got {type(batch).__name__}") from None
        total = len(batch) if isinstance(batch, Sized) else None
        states = self._run_items(self._setup(options), items, total, num_threads, return_errors)
        if progress_bar:
            states = _with_progress(states, self.name, total)
        return states if generator_style else list(states)

    # -- one run -----------------------------------------------------------------------------------------------

    def _setup(self, options: RunOptions, *, streams: bool = False) -> Callable[[], ProgramState]:
        """Checks the options once; the result makes a fresh state for each run.

        Raises:
            RequestError: a sampling field is out of range.
        """
        backend, chat_format = _backends.resolve(options.get("backend"))
        namespace, adapter = options.get("namespace", ""), options.get("adapter")
        params = sampling_of(options)

        def new_state() -> ProgramState:
            run = Run(self.name, backend, chat_format, params, namespace=namespace, adapter=adapter, streams=streams)
            return ProgramState(Interpreter(run, Transcript(run.tokenizer, chat_format)))

        return new_state

    def _run(self, state: ProgramState, arguments: inspect.BoundArguments, outer: Run | None) -> ProgramState:
        """The function, then what is left to do in its forks. Whatever stops it cancels what is under way.

        outer: the run whose function asked for this one; if that is cancelled, so is this.
        """
        run = state._interpreter.run
        if outer is not None:
            outer.begin_inner(run)
        token = _running.set(run)
        try:
            state._interpreter.ret_value = self._function(state, *arguments.args, **arguments.kwargs)
            run.wait()
            state.sync()
        except BaseException as error:
            run.cancel(error)
            place = place_of_error(error, self._code)
            if isinstance(error, ConstraintError):  # of a `gen`: an expression that is refused, as others are
                raise located(error, self.name, place) from error
            if not (isinstance(error, ProgramError) and error.place):
                error.add_note(f"in program {self.name}, {place}")
            raise
        finally:
            _running.reset(token)
            if outer is not None:
                outer.end_inner(run)
        failure = run.first_unseen()
        if failure is not None:
            raise failure
        return state

    def _start(self, state: ProgramState, arguments: inspect.BoundArguments, outer: Run | None) -> ProgramState:
        """The function on a thread of its own, which refers to another state than the caller does: when the caller's is
        dropped, the run is cancelled."""
        interpreter = state._interpreter
        handle = ProgramState(interpreter)
        dropped = weakref.finalize(handle, interpreter.run.cancel)
        dropped.atexit = False

        def body() -> None:
            try:
                self._run(state, arguments, outer)
            except BaseException as error:
                interpreter.fail(error, place_of_error(error, self._code))
            finally:
                dropped.detach()
                interpreter.run_on(None)

        thread = threading.Thread(target=body, name=f"phloem-{self.name}", daemon=True)
        interpreter.run_on(thread)
        thread.start()
        return handle

    # -- a batch -----------------------------------------------------------------------------------------------

    def _run_items(
        self,
        new_state: Callable[[], ProgramState],
        items: Iterator[Arguments],
        total: int | None,
        num_threads: int,
        return_errors: bool,
    ) -> Iterator[ProgramState]:
        """States in order; at most `num_threads` programs are ahead of the one that is yielded next."""
        whole = "a batch" if total is None else f"a batch of {total}"
        outer = _running.get()
        pending: deque[tuple[ProgramState, Future[ProgramState]]] = deque()
        broken: Exception | None = None
        with ThreadPoolExecutor(num_threads, "phloem-batch") as pool:

            def start(numbered: tuple[int, Arguments]) -> tuple[ProgramState, Future[ProgramState]]:
                state = new_state()
                try:
                    return state, pool.submit(self._run, state, self._bind_item(*numbered), outer)
                except ProgramError as error:
                    future: Future[ProgramState] = Future()
                    future.set_exception(error)
                    return state, future

            started = map(start, enumerate(items))
            try:
                for index in itertools.count():
                    try:
                        pending.extend(itertools.islice(started, num_threads - len(pending)))
                    except Exception as raised:
                        broken, started = raised, map(start, ())
                    if not pending:
                        break
                    state, future = pending[0]
                    error = future.exception()
                    pending.popleft()
                    if isinstance(error, Exception) and return_errors:
                        state._interpreter.fail(error, place_of_error(error, self._code))
                    elif error is not None:
                        error.add_note(f"in item {index} of {whole}")
                        raise error
                    yield state
                if broken is not None:
                    raise broken
            finally:
                for state, future in pending:
                    if not future.cancel():
                        state._interpreter.run.cancel()

    # -- arguments ---------------------------------------------------------------------------------------------

    def _split(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[RunOptions, dict[str, Any]]:
        """Keyword arguments that are options of the run, and those of the function. What the function has by position
        or by `bind` already can only be an option."""
        given = {*itertools.islice(self._own.parameters, len(args)), *self._bound}
        both = (kwargs.keys() & RUN_OPTIONS & self._own.parameters.keys()) - given
        if both:
            name = sorted(both)[0]
            raise ProgramError(
                f"program {self.name}: {name}= could be the function's argument or the run's option;"
                f" give the function's by position or with bind({name}=…)"
            )
        options = RunOptions(**{name: value for name, value in kwargs.items() if name in RUN_OPTIONS})  # type: ignore[typeddict-item]
        return options, {name: value for name, value in kwargs.items() if name not in RUN_OPTIONS}

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any], place: str = "") -> inspect.BoundArguments:
        """The function's arguments without the state; place: for errors."""
        try:
            return self._own.bind(*args, **{**self._bound, **kwargs})
        except TypeError as error:
            raise ProgramError(f"{place or f'program {self.name}'}: {error}") from None

    def _bind_item(self, index: int, item: Arguments) -> inspect.BoundArguments:
        place = f"run_batch: item {index}"
        if isinstance(item, Mapping):
            return self._bind((), item, place)
        if isinstance(item, (list, tuple)):
            return self._bind(item, {}, place)
        raise ProgramError(f"{place}: expected a dict of arguments or a tuple, got {type(item).__name__}")


def _settle(awaited: weakref.ref[asyncio.Future[BaseException | None]], failure: BaseException | None) -> None:
    future = awaited()
    if future is not None and not future.done():
        future.set_result(failure)


def _with_progress(states: Iterator[ProgramState], name: str, total: int | None) -> Iterator[ProgramState]:
    from rich.console import Console
    from rich.progress import track

    yield from track(states, description=name, total=total, console=Console(stderr=True))


_backends = Backends()
_running: ContextVar[Run | None] = ContextVar("phloem_run", default=None)  # whose function runs on this thread


def function(definition: Callable[Concatenate[ProgramState, P], R]) -> Program[P, R]:
    """Decorator: makes a program of `def name(s, …)`, to be run with `name.run(…)`."""
    return Program(definition)


def set_default_backend(backend: AnyBackend | None) -> None:
    """The engine or server of every run that names none; None: there is none.

    Raises:
        ProgramError: it is none.
    """
    _backends.set_default(backend)


def flush_cache(backend: AnyBackend | None = None) -> int:
    """Drops what no request uses of a backend's cache; without one the default's. The number of blocks that were freed.

    Raises:
        ProgramError, RequestError: it has none that could be emptied, the server refuses, or there is no backend.
    """
    found = _backends.resolve(backend)[0]
    flush = getattr(found, "flush_cache", None)
    if flush is None:
        raise ProgramError(f"flush_cache: {type(found).__name__} has no cache that could be emptied from here")
    return int(flush())
