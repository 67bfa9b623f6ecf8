"""`phloem top`: what is read from a server's answers, what is counted between two polls, and how it fits a terminal."""

from __future__ import annotations

import bisect
import dataclasses
import io
import os
import pty
import sys
import termios
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client import Histogram as Recorded
from rich.console import Console
from rich.text import Text

from phloem.errors import ConfigError
from phloem.radix import RadixTree, pack
from phloem.runtime.cli.running_server import RunningServer
from phloem.runtime.cli.top import sample
from phloem.runtime.cli.top.command import watch
from phloem.runtime.cli.top.frame import frame, largest, pool_parts
from phloem.runtime.cli.top.history import WINDOW_SECONDS, History
from phloem.runtime.cli.top.sample import (
    BETWEEN_TOKENS,
    FIRST_TOKEN,
    NEEDED,
    About,
    Branch,
    Histogram,
    Poller,
    Sample,
    read_branches,
    read_histograms,
)
from phloem.runtime.program.backends import http_call

from ..program.scripted_server import Reply, scripted

BOUNDS = (0.01, 0.1, 1.0)
SECONDS = st.lists(st.floats(0.0, 0.99), min_size=1, max_size=30)
INFO = {"served_model_name": "nano", "version": "1", "max_running_requests": 256}
NANO = About("nano · phloem 1", 256)
NUMBERS = dict.fromkeys(NEEDED, 0) | {"num_blocks": 100, "num_free_blocks": 100, "block_size": 16}


def _metrics(seconds: list[float]) -> str:
    registry = CollectorRegistry()
    for name in (FIRST_TOKEN, BETWEEN_TOKENS):
        recorded = Recorded(f"phloem_{name}", "Seconds.", buckets=BOUNDS, registry=registry)
        for value in seconds:
            recorded.observe(value)
    return generate_latest(registry).decode()


def _sample(at: float, seconds: list[float] = [], **numbers: int) -> Sample:  # noqa: B006
    return Sample(at, NUMBERS | numbers, read_histograms(_metrics(seconds)), None, None)


def test_drafts_are_shown_by_what_drafted_them() -> None:
    before = {"drafted_by.mtp": 100, "jumped_by.mtp": 0, "drafted_by.lookup": 7, "jumped_by.lookup": 7}
    history = History(_sample(0.0, **before))
    history.add(_sample(9.0, **{**before, "drafted_by.mtp": 300, "jumped_by.mtp": 150}))
    shown = frame(history, NANO, "http://127.0.0.1:8000", 80, 24, Text()).plain
    assert "drafts right    mtp 75% of 200\n" in shown


@given(SECONDS, SECONDS, st.sampled_from([0.5, 0.95, 0.99]))
def test_percentiles_are_in_the_bucket_of_the_true_one(before: list[float], later: list[float], share: float) -> None:
    history = History(_sample(0.0, before))
    history.add(_sample(1.0, before + later))
    found, is_recent = history.latency(FIRST_TOKEN)
    assert is_recent and found.num_observed == len(later)
    true = sorted(later)[max(0, -int(-share * len(later) // 1) - 1)]
    bucket = bisect.bisect_left(BOUNDS, true)
    low = BOUNDS[bucket - 1] if bucket else 0.0
    assert low <= found.percentile(share) <= BOUNDS[bucket] + 1e-9


def test_percentiles_beyond_the_last_bound_are_infinite_and_of_nothing_those_since_the_start() -> None:
    assert Histogram((1.0, float("inf")), (0.0, 2.0)).percentile(0.5) == float("inf")
    history = History(_sample(0.0, [0.5]))
    history.add(_sample(1.0, [0.5]))
    found, is_recent = history.latency(BETWEEN_TOKENS)
    assert not is_recent and found.num_observed == 1
    assert read_histograms("") == {FIRST_TOKEN: Histogram((), ()), BETWEEN_TOKENS: Histogram((), ())}


def test_rates_and_growth_are_those_of_the_window() -> None:
    history = History(_sample(0.0))
    assert history.rate("completion_tokens") is None
    for second in range(1, 200):
        history.add(_sample(float(second), completion_tokens=10 * second, prompt_tokens=2 * second))
    assert history.rate("completion_tokens") == 10.0 and history.seconds == WINDOW_SECONDS
    assert history.grown("prompt_tokens") == 2 * WINDOW_SECONDS
    history.add(_sample(200.0, prompt_tokens=1))  # the server was started again
    assert history.rate("prompt_tokens") is None and history.seconds == 0.0
    history.add(_sample(900.0, prompt_tokens=701))  # it did not answer for long
    assert history.rate("prompt_tokens") == 1.0


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=8), st.integers(0, 9))
def test_branches_have_the_blocks_of_all_that_is_below(prompts: list[list[int]], most: int) -> None:
    tree = RadixTree(block_size=1)
    num_blocks = 0
    for prompt in prompts:
        tree.insert(pack(prompt), list(range(num_blocks, num_blocks + len(prompt))), namespace="")
        num_blocks += len(prompt)
    branches = read_branches(tree.draw())
    assert sum(branch.num_blocks for branch in branches if branch.depth == 0) == tree.num_cached_blocks
    for index, branch in enumerate(branches):
        below = []
        for other in branches[index + 1 :]:
            if other.depth <= branch.depth:
                break
            below += [other.num_blocks] if other.depth == branch.depth + 1 else []
        assert branch.num_blocks > sum(below)
    shown = largest(branches, most)
    sizes = sorted((branch.num_blocks for branch in branches), reverse=True)
    assert sorted((branch.num_blocks for branch in shown), reverse=True) == sizes[:most]
    depths = [branch.depth for branch in shown]
    assert all(depth <= above + 1 for above, depth in zip([-1, *depths], depths, strict=False)), "none without parent"


@given(
    st.integers(40, 200),
    st.integers(8, 60),
    st.fixed_dictionaries({name: st.integers(0, 10**6) for name in (*NEEDED, "num_waiting_tokens", "num_failed")}),
    st.integers(0, 40),
    st.sampled_from(["", "it has gone"]),
)
def test_a_frame_fits(columns: int, lines: int, numbers: dict[str, int], num_branches: int, fault: str) -> None:
    branches = [Branch(9, depth % 3, "3 s · 1 lease", "'a\x1b[2J'") for depth in range(num_branches)]
    last = Sample(1.0, numbers, read_histograms(_metrics([0.5])), branches or None, ["3 s ago: it was evicted"])
    history = History(_sample(0.0))
    history.add(last)
    shown = frame(history, NANO, "http://127.0.0.1:8000", columns, lines, Text(fault)).plain
    assert len(shown.split("\n")) <= lines and all(len(line) <= columns for line in shown.split("\n"))
    assert "\x1b" not in shown and shown.endswith(fault) and "lease ago" not in shown


@given(st.lists(st.integers(0, 50), min_size=5, max_size=5))
def test_the_parts_of_the_pool_add_up(blocks: list[int]) -> None:
    free, evictable, protected, written, pinned = blocks
    cached, num_blocks = evictable + protected, free + evictable + protected + written
    numbers = {"num_blocks": num_blocks, "num_free_blocks": free, "num_cached_blocks": cached}
    found = pool_parts(_sample(0.0, **numbers, num_evictable_blocks=evictable, num_pinned_blocks=pinned))
    assert sum(found.values()) == num_blocks and found["written"] == written and found["cached"] == evictable
    assert found["pinned"] == min(pinned, protected) and found["leased"] >= 0


class ScriptedServer:
    """Answers as a phloem server does, unless it is told otherwise."""

    url = "http://127.0.0.1:8000"

    def __init__(self, **answers: Any) -> None:
        self.asked: list[str] = []
        self.metrics = _metrics([0.5])
        self.answers: dict[str, Any] = {
            "/server_info": INFO,
            "/statistics": NUMBERS,
            "/cache": {"tree": "default namespace\n└─ 1,002 blocks · 3 s  'Hello'"},
        } | {f"/{name}": value for name, value in answers.items()}

    def json(self, path: str) -> Any:
        self.asked.append(path)
        if self.answers.get(path) is None:
            raise ConfigError(f"{path}: answered 404")
        return self.answers[path]

    def text(self, path: str) -> str:
        return self.metrics


def test_a_poll_asks_for_no_more_than_it_needs() -> None:
    server = ScriptedServer()
    poller = Poller(server)  # type: ignore[arg-type]
    samples = [poller.poll() for _ in range(3)]
    assert samples[-1].branches == [Branch(1002, 0, "3 s", "'Hello'")] and samples[-1].misses is None
    assert server.asked.count("/cache") == server.asked.count("/page/now") == 1  # it is dear; it is not there
    server = ScriptedServer(
        cache={"tree": None}, **{"page/now": {"misses": [{"seconds_ago": 3.2, "sentence": "Gone."}]}}
    )
    poller = Poller(server)  # type: ignore[arg-type]
    samples = [poller.poll() for _ in range(3)]
    assert samples[-1].branches is None and samples[-1].misses == ["3 s ago: Gone."]
    assert server.asked.count("/cache") == 1 and server.asked.count("/page/now") == 3


def test_what_a_server_refused_once_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    server = ScriptedServer(cache={"tree": None}, **{"page/now": None})
    poller = Poller(server)  # type: ignore[arg-type]
    assert poller.poll().misses is None
    monkeypatch.setattr(sample, "TREE_SECONDS", 0.0)
    server.answers["/page/now"] = {"misses": []}
    assert poller.poll().misses == [] and server.asked.count("/cache") == 1, "it does not show its tree"
    server.answers |= {"/cache": {"tree": "└─ 1 block · 3 s"}, "/server_info": INFO | {"max_running_requests": 8}}
    server.answers["/statistics"] = NUMBERS | {"prompt_tokens": 9}
    assert poller.poll().branches is None and poller.about.num_seats == 256
    server.answers["/statistics"] = NUMBERS | {"prompt_tokens": 5}  # another server: it has counted less
    assert poller.poll().branches == [Branch(1, 0, "3 s", "")] and poller.about.num_seats == 8
    server.answers["/statistics"] = None
    with pytest.raises(ConfigError, match="404"):
        poller.poll()
    server.answers |= {"/statistics": NUMBERS | {"prompt_tokens": 99}, "/server_info": INFO}
    assert poller.poll().branches and poller.about.num_seats == 256, "it did not answer, and may be another one"


@pytest.mark.parametrize(
    "answers", [{"server_info": []}, {"server_info": {}}, {"statistics": {}}, {"statistics": [1]}], ids=str
)
def test_another_server_is_refused(answers: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="this is not what a phloem server answers"):
        Poller(ScriptedServer(**answers)).poll()  # type: ignore[arg-type]


WEIRD = st.sampled_from(
    [float("nan"), float("inf"), -1, -(10**400), 10**400, True, None, "\x1b]52;c;x\x07", [], {}, 0, 7]
)


@given(
    st.dictionaries(st.sampled_from([*NEEDED, "num_failed", "num_waiting_tokens", "num_evicted_blocks"]), WEIRD),
    st.sampled_from([None, [], {"tree": 7}, {"tree": "├─ , blocks · \x1b[2J\n├─ 1 block · \x1b]52;c;x\x07  hi"}]),
    st.one_of(
        WEIRD,
        st.fixed_dictionaries({"misses": st.lists(st.fixed_dictionaries({"seconds_ago": WEIRD, "sentence": WEIRD}))}),
    ),
    st.sampled_from(["1.0", "x", "NaN", "-1"]),
    st.sampled_from(["2.0", "NaN", "-5", "1e999"]),
)
def test_whatever_a_server_answers_is_shown_or_refused(
    numbers: dict[str, Any], cache: Any, now: Any, bound: str, num: str
) -> None:
    server = ScriptedServer(statistics=NUMBERS | numbers, cache=cache, **{"page/now": now})
    server.metrics = f'phloem_{FIRST_TOKEN}_bucket{{le="{bound}"}} {num}\n'
    try:
        poller = Poller(server)  # type: ignore[arg-type]
        history = History(poller.poll())
        history.add(poller.poll())
    except ConfigError:
        return
    assert "\x1b" not in frame(history, poller.about, "http://127.0.0.1:8000", 80, 24, Text()).plain


def test_a_key_does_not_follow_a_redirect_and_an_answer_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_call, "MAX_ANSWER", 100_000)
    with scripted() as script:
        script.replies = [Reply(b"\x1b]52;c;x\x07", 302, {"Location": "/elsewhere"}), Reply(b"x" * 1_000_000)]
        server = RunningServer(script.url, "secret", "URL")
        with pytest.raises(ConfigError, match="answered 302") as caught:
            server.text("/away")
        assert "\x1b" not in str(caught.value)
        with pytest.raises(ConfigError, match="more than 100,000 bytes"):
            server.text("/endless")
    assert [path for path, *_ in script.asked] == ["/away", "/endless"]


def test_q_ends_it_and_a_server_that_is_away_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    keyboard, terminal = pty.openpty()
    num_polls = 0

    def poll(self: Poller) -> Sample:
        nonlocal num_polls
        num_polls += 1
        if num_polls == 2:
            raise ConfigError("it has gone")
        if num_polls == 3:
            os.write(keyboard, b"xq")
        return _sample(float(num_polls), completion_tokens=7)

    monkeypatch.setattr(Poller, "poll", poll)
    with open(terminal) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        before = termios.tcgetattr(terminal)
        console = Console(file=io.StringIO(), force_terminal=True, width=80, height=24)
        watch(ScriptedServer(), 0.1, console)  # type: ignore[arg-type]
        assert termios.tcgetattr(terminal) == before
    os.close(keyboard)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    places = [shown.index("asking http://127.0.0.1:8000"), shown.index("it has gone"), shown.rindex("q quits")]
    assert num_polls == 3 and places == sorted(places)


def test_what_computes_and_how_old_percentiles_are_fits_60_columns() -> None:
    about = About("nano · phloem 1", 7, num_ranks=2, draft_model="nano-small")
    history = History(_sample(0.0, [0.5]))
    last = _sample(60.0, [0.5, 0.5], prompt_tokens=1000, cached_tokens=1000)
    history.add(dataclasses.replace(last, draft_model_rests=True))
    shown = frame(history, about, "http://127.0.0.1:8000", 60, 40, Text()).plain
    assert "2 ranks\n                draft model nano-small rests: no gain\n" in shown and "0 of 7" in shown
    assert "100.0% since the start" in shown and "60 s ago" in shown
