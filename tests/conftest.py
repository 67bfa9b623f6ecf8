"""Settings of every test: one torch thread each, since the workers share the cores; what needs a GPU waits for one.

Random numbers begin at a place that the test's name gives: a test sees the same numbers alone, among others, and on
whichever worker it runs. (torch draws its first seed at random.)

The default bound on the time that a constraint takes to compile is lifted: a machine that stands still for a second
counts that as work now and then, and no test is about how fast this one is. A bound that a test sets itself holds.

For the same reason Hypothesis has no deadline for an example and no bound on the time that making examples takes. All
else is as its own profile has it: random on a developer's machine, the same at every run where `CI` is set.

Python collects no garbage while the tests are collected: that would take up to a third of the time. What is alive then
is left out of its garbage collection: a full one would take half a second, and would come so seldom that what tests
leave behind (tracebacks, with all that their frames hold) piles up by the hundred megabytes. One comes after each file
that has left the process much larger. What a file's compilers and caches keep is let go at its end.

Of Hypothesis's examples three tenths are tried; `--examples 100` tries all, as should be done after a change of what
they try.

`--fast` takes a part of the suite that ends in half a minute: of each file the first few functions that are not in
`slow_tests.txt`, with the first of their parameters and a tenth of Hypothesis's examples. `--record-slow` writes that
file after a run of the whole suite.

Files whose tests are few and long come first: a worker that met one last would work on while the others have nothing.

At the end the memory of the largest worker is printed: what tests leave behind adds up there.

Variables of the environment that set phloem's options are taken away: no test is about this machine's.

`python -m pytest` puts the checkout on the path, where transformers takes our `kernels/` for Hugging Face's package of
that name and fails; so it is taken off again.
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import resource
import sys
import zlib
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies

from phloem.fsm import Compiler, compiler
from phloem.fsm.compile_time import MAX_SECONDS, CompileTime

torch.set_num_threads(1)
for variable in [name for name in os.environ if name.startswith("PHLOEM_")]:
    del os.environ[variable]
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
LONG_FILES = {"test_wheel.py", "test_compile.py", "test_serving_properties.py", "test_nano_training.py"}
GROWTH = 8 << 20  # bytes that a worker may grow by without a garbage collection
SLOW_TESTS = Path(__file__).with_name("slow_tests.txt")
SLOW_SECONDS = 0.3
QUICK_PER_FILE = 2
_CALLS = itertools.count()
_PEAKS = pytest.StashKey[list[int]]()  # the most memory of each worker that has ended, bytes
_ROOT = Path(__file__).resolve().parent.parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _ROOT]


@pytest.fixture(autouse=True)
def _no_default_compile_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "CompileTime", lambda bound: CompileTime(None if bound == MAX_SECONDS else bound))


def _resident_bytes() -> int:
    """Of this process; where the system does not say, more at each call."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return _largest() + next(_CALLS) * 2 * GROWTH


def _largest() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@pytest.fixture(autouse=True, scope="module")
def _collect_garbage(request: pytest.FixtureRequest) -> Iterator[None]:
    before = _resident_bytes()
    yield
    for value in vars(request.module).values():
        if isinstance(value, Compiler):
            value.clear()
        elif getattr(value, "__module__", None) == request.module.__name__ and hasattr(value, "cache_clear"):
            value.cache_clear()
    if _resident_bytes() - before > GROWTH:
        gc.collect()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="a few quick tests of every file")
    parser.addoption("--examples", type=int, default=30, help="percent of Hypothesis's examples; 30 unless it is given")
    parser.addoption("--record-slow", action="store_true", help=f"write {SLOW_TESTS.name}, which --fast leaves out")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONG_FILES)
    if config.getoption("--fast"):
        kept = list(_quick(items))
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept
    _scale_examples(items, 10 if config.getoption("--fast") else config.getoption("--examples"))


def _quick(items: list[pytest.Item]) -> Iterator[pytest.Item]:
    """The first few functions of each file that are not slow, with the first of their parameters."""
    slow, taken = set(SLOW_TESTS.read_text().splitlines()), defaultdict[Path, set[str]](set)
    for item in items:
        name, functions = item.nodeid.partition("[")[0], taken[item.path]
        if name in slow or name in functions or len(functions) == QUICK_PER_FILE:
            continue
        functions.add(name)
        yield item


def _scale_examples(items: list[pytest.Item], percent: int) -> None:
    """So much of the examples that Hypothesis would try."""
    functions = {id(found): found for item in items if (found := getattr(item, "obj", None)) is not None}
    for function in functions.values():
        if found := getattr(function, "_hypothesis_internal_use_settings", None):
            function._hypothesis_internal_use_settings = settings(
                found, max_examples=-(-found.max_examples * percent // 100)
            )


@given(strategies.none())
@settings(max_examples=1, database=None)
def _begin_hypothesis(_: None) -> None:
    """Hypothesis makes its own generator of random numbers, and looks for what refers to it: not among the frozen."""


def pytest_collection_finish() -> None:
    _begin_hypothesis()
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    seed = zlib.crc32(item.nodeid.encode())
    for begin in (random.seed, np.random.seed, torch.manual_seed):
        begin(seed)
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("no CUDA device")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["peak"] = _largest()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    peak = getattr(node, "workeroutput", {}).get("peak", 0)  # none of a worker that has crashed
    node.config.stash.setdefault(_PEAKS, []).append(peak)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("--record-slow"):
        reports = [report for kind in ("", "passed") for report in terminalreporter.stats.get(kind, [])]
        slow = {report.nodeid.partition("[")[0] for report in reports if report.duration >= SLOW_SECONDS}
        SLOW_TESTS.write_text("".join(f"{name}\n" for name in sorted(slow)))
    if _PEAKS in config.stash:
        terminalreporter.write_line(f"the largest worker took {max(config.stash[_PEAKS]) / 1e9:.2f} GB")
