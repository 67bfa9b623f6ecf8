"""One poll of a server, as plain values. Knows no terminal.

`/statistics` and `/metrics` are asked for each time. `/cache` may make the server compute for a second, so the tree is
asked for every `TREE_SECONDS` only, and no more once the server has said that it does not show it. Misses are on
`/page/now`, which not every server has: where it is not answered, it is asked for again after that time. What a server
says once is asked anew after it did not answer, and when its counters have fallen: it may be another one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....errors import ConfigError
from ..running_server import RunningServer

TREE_SECONDS = 15.0
FIRST_TOKEN, BETWEEN_TOKENS = "time_to_first_token_seconds", "inter_token_latency_seconds"
_BUCKET = re.compile(rf'^phloem_({FIRST_TOKEN}|{BETWEEN_TOKENS})_bucket\{{le="([^"]+)"\}} (\S+)$', re.MULTILINE)
_BRANCH = re.compile(r"^((?:│  |   )*)(?:├─|└─) (\d{1,3}(?:,\d{3}){0,4}) blocks?(?: · (.*?))?(?:  (.*))?$")
OTHER = "this is not what a phloem server answers"
MOST = 10**15
NEEDED: tuple[str, ...] = (
    "num_running",
    "num_waiting",
    "num_blocks",
    "block_size",
    "num_free_blocks",
    "num_cached_blocks",
)
NEEDED += ("num_evictable_blocks", "num_pinned_blocks", "prompt_tokens", "cached_tokens", "completion_tokens")
BY_SOURCE = ("drafted_by", "jumped_by")


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observations so far: `counts[i]` of them were at most `bounds[i]` seconds; the last bound is infinite."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]

    def since(self, before: Histogram) -> Histogram:
        """Those that came after `before`; all, if that has other bounds."""
        if self.bounds != before.bounds:
            return self
        return Histogram(self.bounds, tuple(a - b for a, b in zip(self.counts, before.counts, strict=True)))

    @property
    def num_observed(self) -> int:
        return round(self.counts[-1]) if self.counts else 0

    def percentile(self, share: float) -> float:
        """Seconds that this share of the observations did not exceed, linear within a bucket; inf beyond the last
        finite bound. At least one observation is needed."""
        wanted = share * self.counts[-1]
        index = next(index for index, count in enumerate(self.counts) if count >= wanted and count > 0)
        low = self.bounds[index - 1] if index else 0.0
        below = self.counts[index - 1] if index else 0.0
        if self.bounds[index] == float("inf"):
            return float("inf")
        return low + (self.bounds[index] - low) * (wanted - below) / max(self.counts[index] - below, 1e-9)


@dataclass(frozen=True, slots=True)
class Branch:
    """A node of the tree with what is below it: blocks of all of it, depth under the root; note: when the node was used
    last, and what holds it; its text."""

    num_blocks: int
    depth: int
    note: str
    text: str


@dataclass(frozen=True, slots=True)
class About:
    """What a server says once.

    Attributes:
        title: its model and version.
        num_seats: requests that may run at a time.
        num_ranks: processes that compute the model.
        draft_model: its name; "": there is none.
    """

    title: str
    num_seats: int
    num_ranks: int = 1
    draft_model: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """One poll.

    Attributes:
        at: seconds on a clock of this machine.
        numbers: the fields of `/statistics`; of drafts by source under names like `drafted_by.lookup`.
        draft_model_rests: what it would draft is not worth its time.
        histograms: by name.
        branches: of the tree, as it is drawn; None: the server does not show them.
        misses: sentences, newest first; None: the server does not tell.
    """

    at: float
    numbers: Mapping[str, float]
    histograms: Mapping[str, Histogram]
    branches: Sequence[Branch] | None
    misses: Sequence[str] | None
    draft_model_rests: bool = False


class Poller:
    """Polls one server.

    Attributes:
        about: what the server says once.

    Raises:
        ConfigError: there is no server, it does not let us in, or it is no phloem server.
    """

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._num_prompt_tokens = 0.0
        self._is_known = False  # whether what it says once was asked of the server that answers now
        self._meet()

    def poll(self) -> Sample:
        """Asks now; raises as the constructor does."""
        if not self._is_known:
            self._meet()
        self._is_known = False  # unless all of this is answered
        numbers, rests = self._statistics()
        if numbers["prompt_tokens"] < self._num_prompt_tokens:
            self._meet()
        self._num_prompt_tokens = numbers["prompt_tokens"]
        try:
            histograms = read_histograms(self._server.text("/metrics"))
        except ValueError as error:
            raise ConfigError(f"{self._server.url}/metrics: {OTHER}") from error
        sample = Sample(time.monotonic(), numbers, histograms, self._tree(), self._misses(), rests)
        self._is_known = True
        return sample

    def _meet(self) -> None:
        """Asks for what a server says once, and forgets what another one may have said."""
        info = self._server.json("/server_info")
        try:
            self.about = About(
                f"{info['served_model_name']} · phloem {info['version']}",
                int(count(info["max_running_requests"])),
                int(count(info.get("tp_size", 1))),
                str(info.get("speculative_draft_model_path") or ""),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{self._server.url}/server_info: {OTHER}") from error
        self._tree_at = self._no_misses_at = float("-inf")
        self._branches: Sequence[Branch] | None = None
        self._shows_tree = self._is_known = True

    def _statistics(self) -> tuple[dict[str, float], bool]:
        """Numbers, and whether the draft model rests."""
        found = self._server.json("/statistics")
        try:
            rests = found.get("draft_model_rests") is True
            numbers = {
                name: count(value)
                for name, value in found.items()
                if isinstance(value, int | float) and not isinstance(value, bool)
            }
            for name in BY_SOURCE:  # a server of an older version has none
                numbers |= {f"{name}.{source}": count(value) for source, value in found.get(name, {}).items()}
            if not all(isinstance(numbers[name], int) for name in NEEDED):
                raise ValueError
        except (AttributeError, KeyError, ValueError) as error:
            raise ConfigError(f"{self._server.url}/statistics: {OTHER}") from error
        return numbers, rests

    def _tree(self) -> Sequence[Branch] | None:
        if self._shows_tree and time.monotonic() - self._tree_at >= TREE_SECONDS:
            report = self._server.json("/cache")
            tree = report.get("tree") if isinstance(report, dict) else None
            self._shows_tree = isinstance(tree, str)
            self._branches = read_branches(tree) if isinstance(tree, str) else None
            self._tree_at = time.monotonic()
        return self._branches

    def _misses(self) -> Sequence[str] | None:
        if time.monotonic() - self._no_misses_at < TREE_SECONDS:
            return None
        try:
            found: Any = self._server.json("/page/now")
            return [f"{count(miss['seconds_ago']):.0f} s ago: {miss['sentence']}" for miss in found["misses"]]
        except (ConfigError, KeyError, TypeError, ValueError):
            self._no_misses_at = time.monotonic()
            return None


def count(value: Any) -> float:
    """A number of a server's answer, as it is.

    Raises:
        ValueError: it is none, or negative, or more than can be shown.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST:
        raise ValueError(value)
    return value


def read_histograms(metrics: str) -> dict[str, Histogram]:
    """Those of the two latencies, out of Prometheus' text; an empty one for what is not there.

    Raises:
        ValueError: bounds or counts that are none, or do not grow.
    """
    found: dict[str, list[tuple[float, float]]] = {FIRST_TOKEN: [], BETWEEN_TOKENS: []}
    for name, bound, num in _BUCKET.findall(metrics):
        before = found[name][-1] if found[name] else (-1.0, 0.0)
        row = float(bound), float(count(float(num)))
        if not (before[0] < row[0] and before[1] <= row[1]):
            raise ValueError(name)
        found[name].append(row)
    return {
        name: Histogram(tuple(bound for bound, _ in rows), tuple(num for _, num in rows))
        for name, rows in found.items()
    }


def read_branches(tree: str) -> list[Branch]:
    """The nodes of a drawn tree, in its order."""
    lines = [found for line in tree.splitlines() if (found := _BRANCH.match(line)) is not None]
    branches: list[Branch] = []
    below: dict[int, int] = {}  # blocks by depth, of subtrees whose parent comes next, from the end on
    for found in reversed(lines):
        depth = len(found[1]) // 3
        num_blocks = int(found[2].replace(",", "")) + below.pop(depth + 1, 0)
        below[depth] = below.get(depth, 0) + num_blocks
        branches.append(Branch(num_blocks, depth, found[3] or "", found[4] or ""))
    return branches[::-1]
