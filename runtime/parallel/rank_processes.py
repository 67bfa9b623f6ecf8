"""The processes of ranks 1 to N - 1, seen from rank 0: started, told what to do, watched, ended.

::

    rank 0                                   rank r
    RankProcesses ── channel: messages ────► execute/rank_process.py, message by message
                  ◄─ replies, faults ───────
                  ── lifeline: a byte ─────► a thread of its own, which sends it back
    Ranks ◄──────── process group ─────────► Ranks

Each is a new interpreter, which runs nothing of the caller's program. Both sides notice the other's end by the
lifeline, which the system closes however a process ends: a rank whose rank 0 is gone exits at once, and rank 0 learns
of a rank that is gone while it computes or waits. A rank that hangs is noticed when an operation, or a message, has
waited for it for `timeout` seconds, and those that do not answer on their lifelines are named; or when it has not
answered there for so long, though nothing is computed. Whatever is lost, all are ended.

A fault of rank 0's own, in the middle of a step, loses none of them with gloo: it closes its connections, by which the
others' operations fail, and all meet in another group. With NCCL it ends them, since what is queued on a device, or
captured in a CUDA graph, goes on with the group that it began with.

Knows processes and messages; what messages mean is known to `execute`.
"""

from __future__ import annotations

import logging
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch

from ... import __version__
from ...errors import ConfigError, ModelError
from .message import Array, Message
from .process_group import check_backend, join
from .ranks import RankLost, Ranks
from .started_process import CODE, RankProcess, start

logger = logging.getLogger("phloem.ranks")

START_SECONDS = 300.0  # for a new interpreter to load torch; one that ends is noticed at once
ANSWER_SECONDS = 2.0  # for a byte on the lifeline to come back
END_SECONDS = 5.0  # for a process to end by itself
LEFT = 3  # exit status of a rank that another one has left
ERRORS = {"ConfigError": ConfigError, "ModelError": ModelError}


class RankProcesses:
    """All other ranks of one engine. `tell` and `ask` are for any thread; the rest belongs to one.

    Args:
        size: ranks, this process's among them.
        device: of rank 0; the others have the next ones, where there are several.
        timeout: seconds after which a rank that keeps others waiting counts as lost.
        deterministic: sums in one order on GPUs too (`Ranks`).

    Attributes:
        ranks: rank 0's view of the group.
        serves_engine: whether an engine has begun with the model that is loaded; there can be one at a time.
        outlives_engine: whether `end_model` leaves the processes, for another model.
        on_lost: called on another thread when a rank has ended; set by the caller that wants to know.
    """

    def __init__(
        self,
        size: int,
        device: torch.device,
        timeout: float,
        *,
        deterministic: bool = False,
        outlives_engine: bool = False,
        code: str = CODE,
    ) -> None:
        """Raises ConfigError: a process could not be started, or is of another version; the message names the rank."""
        check_backend(device)
        if not sys.executable:
            raise ConfigError("tensor_parallel_size: sys.executable names no Python interpreter to start ranks by")
        self.outlives_engine = outlives_engine
        self.on_lost: Callable[[], None] = lambda: None
        self._timeout = timeout
        self._device = device
        self.serves_engine = False
        self._lost: RankLost | None = None
        self._is_closing = False
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._blaming = threading.RLock()
        self._watcher: threading.Thread | None = None
        self._answers = threading.Condition()
        self._processes: list[RankProcess] = []
        in_order = device.type == "cpu" or deterministic
        self.ranks = Ranks(0, size, in_order=in_order, explain=self.lose)
        try:
            for rank in range(1, size):
                self._processes.append(start(rank, size, device, in_order, code))
            for process in self._processes:
                self._check_version(process)
            self._watcher = threading.Thread(target=self._watch, name="phloem-ranks", daemon=True)
            self._watcher.start()
            self._meet()
        except RankLost as error:
            self.close()
            raise ConfigError(f"tensor_parallel_size: the ranks could not begin: {error}") from error
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        return len(self._processes) + 1

    @property
    def process_ids(self) -> list[int]:
        """Of ranks 1, 2 …"""
        return [process.process.pid for process in self._processes]

    @property
    def num_message_bytes(self) -> int:
        """Sent so far, to all ranks."""
        return sum(process.channel.num_bytes for process in self._processes)

    @property
    def num_messages(self) -> int:
        """Sent so far, to each rank."""
        return self._processes[0].channel.num_messages

    def check(self) -> None:
        """Raises RankLost: a rank is lost."""
        if self._lost is not None:
            raise self._lost

    def tell(self, message: Message) -> None:
        """Sends all ranks a message. Raises RankLost."""
        packed = message.packed()
        with self._lock:
            self.check()
            for process in self._processes:
                try:
                    process.channel.send(packed, self._timeout)
                except OSError as error:
                    raise self.lose(error) from error

    def tell_each(self, kind: str, values: Mapping[str, Any], arrays: Callable[[int], Mapping[str, Array]]) -> None:
        """Sends each rank a message with arrays of its own. Raises RankLost."""
        with self._lock:
            self.check()
            for process in self._processes:
                try:
                    process.channel.send(Message(kind, values, arrays(process.rank)).packed(), self._timeout)
                except OSError as error:
                    raise self.lose(error) from error

    @contextmanager
    def together(self, message: Message) -> Iterator[None]:
        """Sends a message, and does this rank's part of it in the block.

        Whatever is raised there leaves the ranks out of step, since the others may wait for this one. They leave it as
        well, and what is raised goes on when all are ready for another message.

        Raises:
            RankLost: a rank is lost, or the ranks cannot leave what they have begun (NCCL).
        """
        self.tell(message)
        try:
            yield
        except RankLost:
            raise
        except BaseException as error:
            if self._device.type == "cuda":
                raise self.lose(error, "rank 0 has had a fault") from error
            self.ranks.group = None  # which closes its connections
            self._meet()
            raise

    def replies(self) -> list[Mapping[str, Any]]:
        """What each rank says when it is done with the last message.

        Raises:
            ConfigError, ModelError: a rank has refused it so.
            RankLost: a rank is lost.
        """
        found = [self._receive(process) for process in self._processes]
        for process, reply in zip(self._processes, found, strict=True):
            if reply.kind == "fault":
                raise self._lose(f"{process}: {reply.values['text']}")
            if reply.kind == "refused":
                raise ERRORS[reply.values["error"]](f"rank {process.rank}: {reply.values['text']}")
        return [reply.values for reply in found]

    def ask(self, message: Message) -> list[Mapping[str, Any]]:
        """Sends all ranks a message, and returns what they say to it; on any thread. Raises as `replies` does."""
        with self._asking:
            self.tell(message)
            return self.replies()

    def lose(self, error: BaseException, what: str = "") -> RankLost:
        """All is lost: finds out which rank is to blame, and ends all of them. The error to be raised."""
        with self._blaming:
            if self._lost is not None:
                return self._lost
            blamed = [text for text in map(self._end_of, self._processes) if text] or self._silent()
            text = what or "the ranks are out of step"
            return self._lose("; ".join(blamed) or f"{text}: {type(error).__name__}: {error}")

    def begin_engine(self) -> None:
        """From now on the model that is loaded serves an engine. Raises ConfigError: it does already."""
        if self.serves_engine:
            raise ConfigError(
                "tensor_parallel_size: the ranks of this model serve an engine already; load it once more"
            )
        self.serves_engine = True

    def end_model(self) -> None:
        """The engine is closed: what the ranks hold for it is free, and they end, or wait for another model."""
        self.serves_engine = False
        if not self.outlives_engine:
            self.close()
            return
        with suppress(RankLost):
            self.tell(Message("forget"))

    def close(self) -> None:
        """Ends all processes, and returns when they have ended."""
        self._is_closing = True
        for process in self._processes:
            with suppress(OSError):
                process.channel.send(Message("end").packed(), 1.0)
            process.channel.close()
            with suppress(OSError):
                process.lifeline.shutdown(socket.SHUT_RDWR)
        for process in self._processes:
            try:
                process.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                process.process.kill()
                process.process.wait()
        if self._watcher is not None and threading.current_thread() is not self._watcher:
            self._watcher.join()
        for process in self._processes:
            process.lifeline.close()

    # -- which rank is to blame --------------------------------------------------------------------------------

    def _meet(self) -> None:
        """Makes a group of all ranks. Raises RankLost."""
        try:
            with self._asking, tempfile.TemporaryDirectory(prefix="phloem-ranks-") as folder:
                path = os.path.join(folder, "meeting")
                self.tell(Message("join", {"path": path, "timeout": self._timeout}))
                self.replies()  # all are there: none will be waited for in vain
                self.ranks.group = join(path, 0, self.size, self._device, self._timeout)
                self.replies()
        except (RuntimeError, KeyboardInterrupt) as error:
            raise self.lose(error) from error

    def _lose(self, text: str) -> RankLost:
        self._lost = RankLost(text)
        logger.error("a rank is lost, and the engine ends: %s", text)
        if self._device.type == "cuda" and self.ranks.group is not None:
            with suppress(Exception):  # so that what waits for the device goes on
                self.ranks.group.abort()
        for process in self._processes:
            if process.process.poll() is None:
                process.process.kill()
        return self._lost

    def _end_of(self, process: RankProcess) -> str:
        """How a rank has ended, or what it says of its fault; "": it runs."""
        try:
            while process.channel.has_message(0.2):
                message = process.channel.receive(1.0)
                if message.kind == "fault":
                    return f"{process}: {message.values['text']}"
        except EOFError:  # it is ending
            with suppress(subprocess.TimeoutExpired):
                process.process.wait(ANSWER_SECONDS)
        except (OSError, ValueError):
            pass
        code = process.process.poll()
        if code is None or code == LEFT:
            return ""
        if code < 0:
            return f"{process} was ended by {signal.Signals(-code).name}"
        return f"{process} has ended with exit status {code}"

    def _silent(self) -> list[str]:
        """Ranks that run and do not answer on their lifelines."""
        running = [process for process in self._processes if process.process.poll() is None]
        with self._answers:
            for process in running:
                process.has_answered = False
                with suppress(OSError):
                    process.lifeline.send(b"?")
            if threading.current_thread() is self._watcher:  # which takes answers, so none would come while it waits
                _take_answers(running)
            else:
                self._answers.wait_for(lambda: all(one.has_answered for one in running), ANSWER_SECONDS)
            return [self._silence_of(process) for process in running if not process.has_answered]

    def _watch(self) -> None:
        """On a thread of its own: takes answers, and notices ends."""
        with selectors.DefaultSelector() as selector:
            for process in self._processes:
                process.answered_at = time.monotonic()
                selector.register(process.lifeline, selectors.EVENT_READ, process)
            pause, asked_at = self._timeout / 4, time.monotonic()
            while selector.get_map():
                ready = selector.select(pause)
                if time.monotonic() >= asked_at + pause:
                    asked_at = self._ask(asked_at, pause)
                for key, _ in ready:
                    process = key.data
                    try:
                        answer = process.lifeline.recv(16)
                    except OSError:
                        answer = b""
                    if answer:
                        with self._answers:
                            process.has_answered, process.answered_at = True, time.monotonic()
                            self._answers.notify_all()
                        continue
                    selector.unregister(process.lifeline)
                    if not self._is_closing:
                        with suppress(subprocess.TimeoutExpired):
                            process.process.wait(1.0)
                        self.lose(EOFError("a rank has ended"))
                        self.on_lost()

    def _ask(self, asked_at: float, pause: float) -> float:
        """Asks ranks that serve an engine for a sign of life, whether they compute or not; one that has given none for
        `timeout` seconds is lost. Returns when that was."""
        now = time.monotonic()
        stood_still = now > asked_at + 2 * pause or not self.serves_engine  # this process, so that it has heard none
        for process in self._processes:
            if stood_still:
                process.answered_at = now
            with suppress(OSError):
                process.lifeline.send(b"?")
        silent = [process for process in self._processes if now > process.answered_at + self._timeout]
        if silent and not self._is_closing:
            with self._blaming:
                if self._lost is None:
                    self._lose("; ".join(map(self._silence_of, silent)))
            self.on_lost()
        return now

    def _silence_of(self, process: RankProcess) -> str:
        return f"{process} does not answer (it has kept the others waiting for {self._timeout:g} seconds)"

    def _check_version(self, process: RankProcess) -> None:
        hello = self._receive(process)
        ours, theirs = [__version__, torch.__version__], hello.values.get("versions")
        if hello.kind == "fault":
            raise self._lose(f"{process}: {hello.values['text']}")
        if theirs != ours:
            raise self._lose(
                f"{process} runs other versions of phloem and torch, {theirs}; here {ours}; start again when nothing "
                "is being installed"
            )

    def _receive(self, process: RankProcess) -> Message:
        """The next message of a rank, however long it takes, unless it ends."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            self.check()
            try:
                if process.channel.has_message(1.0):
                    return process.channel.receive(self._timeout)
            except (EOFError, OSError) as error:
                with suppress(subprocess.TimeoutExpired):
                    process.process.wait(1.0)
                raise self.lose(error) from error
            if time.monotonic() > deadline:
                raise self.lose(TimeoutError(f"{process} says nothing"))


def _take_answers(processes: Sequence[RankProcess]) -> None:
    """Waits until each has answered or has closed its lifeline, for `ANSWER_SECONDS` at most."""
    until = time.monotonic() + ANSWER_SECONDS
    waited_for = {process.lifeline: process for process in processes}
    while waited_for and (left := until - time.monotonic()) > 0:
        for lifeline in select.select(list(waited_for), [], [], left)[0]:
            process = waited_for.pop(lifeline)
            with suppress(OSError):
                process.has_answered = bool(lifeline.recv(16))
