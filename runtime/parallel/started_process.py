"""One process of a rank, as rank 0 has started it. What it does is in `execute/rank_process.py`."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import dataclass

import torch

from ...errors import ConfigError
from .message import Channel

CODE = """import json, sys
told = json.loads(sys.argv[1])
sys.path[:] = told["path"]
from phloem.runtime.execute.rank_process import main
main(told)"""


@dataclass(eq=False, slots=True)
class RankProcess:
    """A process that has been started.

    Attributes:
        channel: for messages.
        lifeline: what is sent there comes back, as long as the process runs.
        has_answered, answered_at: whether, and when (`time.monotonic`), anything has come back.
    """

    rank: int
    process: subprocess.Popen[bytes]
    channel: Channel
    lifeline: socket.socket
    has_answered: bool = False
    answered_at: float = 0.0

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.process.pid})"


def start(rank: int, size: int, device: torch.device, in_order: bool, code: str) -> RankProcess:
    """Starts one; `CODE` is what runs there. in_order: as `Ranks` takes it.

    Raises:
        ConfigError: the system starts no process.
    """
    mine, its = socket.socketpair()
    my_line, its_line = socket.socketpair()
    own = torch.device(device.type, device.index + rank) if device.type == "cuda" else device
    told = {
        "path": sys.path,
        "rank": rank,
        "size": size,
        "device": str(own),
        "in_order": in_order,
        "channel": its.fileno(),
        "lifeline": its_line.fileno(),
    }
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", code, json.dumps(told)],
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=(its.fileno(), its_line.fileno()),
        )
    except OSError as error:
        raise ConfigError(f"tensor_parallel_size: rank {rank} could not be started: {error}") from error
    finally:
        its.close()
        its_line.close()
    return RankProcess(rank, process, Channel(mine), my_line)
