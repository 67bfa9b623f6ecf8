"""The command: polls, draws, and waits for `q`."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ....errors import ConfigError
from ..busy import busy
from ..options import option
from ..running_server import RunningServer
from ..terminal import keys, takes_escapes, visible

if TYPE_CHECKING:
    from rich.console import Console

TIMEOUT = 10.0  # seconds for one answer


def top(
    url: Annotated[str, typer.Argument(help="URL of the server.")] = "http://127.0.0.1:8000",
    api_key: Annotated[str | None, option("--api-key", help="Key for that server.")] = None,
    interval: Annotated[float, option("--interval", help="Seconds between two polls.", min=0.1, max=3600)] = 1.0,
    once: Annotated[bool, option("--once", help="Print one frame, after two polls, and end.")] = False,
) -> None:
    """Shows a running server, live: pool, queue, tokens per second, hit rate, latencies, tree. `q` quits."""
    if not once and not (sys.stdin.isatty() and takes_escapes(sys.stdout)):
        raise ConfigError("top: this is no terminal; --once prints one frame anywhere")
    server = RunningServer(url, api_key, "URL", TIMEOUT)
    from rich.console import Console

    console = Console(highlight=False)
    if once:
        print_one(server, interval, console)
    else:
        watch(server, interval, console)


def print_one(server: RunningServer, interval: float, console: Console) -> None:
    """One frame, of two polls."""
    from rich.text import Text

    from .frame import frame
    from .history import History
    from .sample import Poller

    with busy(f"asking {visible(server.url)}"):
        poller = Poller(server)
        history = History(poller.poll())
        time.sleep(interval)
        history.add(poller.poll())
    console.print(frame(history, poller.about, server.url, console.width, 50, Text()), crop=True)


def watch(server: RunningServer, interval: float, console: Console) -> None:
    """Draws until `q`. A server that goes away is asked again.

    Raises:
        ConfigError: it does not answer at first.
    """
    from rich.live import Live
    from rich.text import Text

    from .frame import frame
    from .history import History
    from .sample import Poller

    foot = quits = Text("q quits", "dim")
    with keys(by_line=False), Live(console=console, auto_refresh=False, screen=True) as live:
        live.update(Text(f"asking {visible(server.url)} …"), refresh=True)
        poller = Poller(server)
        history = History(poller.poll())
        while True:
            live.update(frame(history, poller.about, server.url, *console.size, foot), refresh=True)
            if _quits(interval):
                return
            try:
                history.add(poller.poll())
                foot = quits
            except ConfigError as error:
                foot = Text(f"the server does not answer: {error}", "bold red")


def _quits(seconds: float) -> bool:
    """Waits so long; whether `q` is pressed, or the input ends, meanwhile."""
    import os
    import select

    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left)[0]:
            pressed = os.read(sys.stdin.fileno(), 64)
            if not pressed or b"q" in pressed.lower():
                return True
    return False
