"""Settings of every test: one torch thread each, since the workers share the cores; what needs a GPU waits for one.

Random numbers begin at a place that the test's name gives: a test sees the same numbers alone, among others, and on
whichever worker it runs. (torch draws its first seed at random.)

The default bound on the time that a constraint takes to compile is lifted: a machine that stands still for a second
counts that as work now and then, and no test is about how fast this one is. A bound that a test sets itself holds.

For the same reason Hypothesis has no deadline for an example and no bound on the time that making examples takes. All
else is as its own profile has it: random on a developer's machine, the same at every run where `CI` is set.

What is alive once the tests are collected is left out of Python's garbage collection: a full one would take half a
second, and would come so seldom that what tests leave behind (tracebacks, with all that their frames hold) piles up by
the hundred megabytes. One comes after each file that has left the process much larger.

`--fast` keeps one test of each file, the first that makes no examples, but for those of `SLOW_FILES`, most of which
start processes: half a minute, in which every room is asked.

Files whose tests are few and long come first: a worker that met one last would work on while the others have nothing.

At the end the memory of the largest worker is printed: what tests leave behind adds up there.

`python -m pytest` puts the checkout on the path, where transformers takes our `kernels/` for Hugging Face's package of
that name and fails; so it is taken off again.
"""

from __future__ import annotations

import gc
import itertools
import random
import resource
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings

from phloem.fsm import compiler
from phloem.fsm.compile_time import MAX_SECONDS, CompileTime

torch.set_num_threads(1)
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
GROWTH = 32 << 20  # bytes that a worker may grow by without a garbage collection
SLOW_FILES = {
    *("test_compile.py", "test_wheel.py", "test_nano_training.py", "test_hostile_files.py", "test_smg.py"),
    *(
        "test_soak.py",
        "test_serving_properties.py",
        "test_faults.py",
        "test_roles.py",
        "test_front.py",
        "test_serve.py",
    ),
    *("test_remote_engine.py", "test_prefill_first.py", "test_template_limits.py", "test_template_bombs.py"),
    *("test_hub.py", "test_step_thread.py", "test_think_model.py", "test_faces.py", "test_wrong_arguments.py"),
    *("test_soundness.py", "test_fuzz.py", "test_pruning.py", "test_lookup_drafts.py", "test_bench_scripts.py"),
    *("test_random_programs.py", "test_unicode_properties.py", "test_tiered_models.py", "test_equal_to_tree.py"),
}
LONG_FILES = {"test_wheel.py", "test_compile.py", "test_serving_properties.py", "test_nano_training.py"}
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
        return _largest() + next(_CALLS) * GROWTH


def _largest() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@pytest.fixture(autouse=True, scope="module")
def _collect_garbage() -> Iterator[None]:
    before = _resident_bytes()
    yield
    if _resident_bytes() - before > GROWTH:
        gc.collect()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="the first test of each file, but of slow ones")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.name not in LONG_FILES)
    if config.getoption("--fast"):
        every = [item for item in items if item.path.name not in SLOW_FILES]
        every.sort(key=lambda item: hasattr(getattr(item, "obj", None), "hypothesis"))
        first = {item.path: item for item in reversed(every)}
        left_out = [item for item in items if first.get(item.path) is not item]
        items[:] = [item for item in items if first.get(item.path) is item]
        config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
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
    if _PEAKS in config.stash:
        terminalreporter.write_line(f"the largest worker took {max(config.stash[_PEAKS]) / 1e9:.2f} GB")
