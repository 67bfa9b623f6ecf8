"""Which of several ranks is named when one has left: those that are well are not, whichever thread finds it out."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from typing import Any

import pytest
import torch

from phloem.runtime.parallel.rank_processes import LEFT, RankProcesses
from phloem.runtime.parallel.ranks import Ranks
from phloem.runtime.parallel.started_process import RankProcess


class Started:
    """A process that has ended with a code, or runs."""

    def __init__(self, pid: int) -> None:
        self.pid, self.code = pid, None

    def poll(self) -> Any:
        return self.code

    def wait(self, timeout: float | None = None) -> Any:
        if self.code is None:
            raise subprocess.TimeoutExpired("rank", timeout or 0.0)
        return self.code

    def kill(self) -> None:
        self.code = self.code or -9  # type: ignore[assignment]


class Quiet:
    def has_message(self, seconds: float) -> bool:
        return False

    def close(self) -> None:
        pass


def answer(line: socket.socket) -> None:
    """A lifeline of a rank that is well, until it or its other end is closed."""
    with contextlib.suppress(OSError):
        while given := line.recv(16):
            line.send(given)


@pytest.mark.parametrize("code", [LEFT, 1, -11])
def test_ranks_that_are_well_are_not_named(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = object.__new__(RankProcesses)
    ranks._timeout, ranks._is_closing, ranks._lost = 60.0, False, None
    ranks._device, ranks.ranks, ranks.serves_engine = torch.device("cpu"), Ranks(), True
    ranks._blaming, ranks._answers = threading.RLock(), threading.Condition()
    lost = threading.Event()
    ranks.on_lost = lost.set
    lines = [socket.socketpair() for _ in range(3)]
    ranks._processes = [
        RankProcess(number, Started(100 + number), Quiet(), mine)  # type: ignore[arg-type]
        for number, (mine, _) in enumerate(lines, 1)
    ]
    for number in (0, 2):
        threading.Thread(target=answer, args=(lines[number][1],), daemon=True).start()
    ranks._watcher = threading.Thread(target=ranks._watch, daemon=True)
    ranks._processes[1].process.code = code  # type: ignore[attr-defined]
    ranks._watcher.start()
    lines[1][1].close()
    assert lost.wait(60)
    said = str(ranks._lost)
    assert "rank 1 " not in said and "rank 3 " not in said
    assert ("rank 2 " in said) == (code != LEFT)
    for mine, its in lines:
        for line in (mine, its):
            line.close()
