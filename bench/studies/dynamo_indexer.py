"""Does NVIDIA Dynamo's KV indexer know, after every step, what the prefix tree has?

    python -m venv /tmp/dynamo && /tmp/dynamo/bin/pip install . pyzmq msgpack ai-dynamo-runtime
    /tmp/dynamo/bin/python bench/studies/dynamo_indexer.py [--steps 1000] [--seeds 3]

An engine over a fake model publishes KV events; the indexer (`SelectionService` of ai-dynamo-runtime, in this process,
over sockets of 127.0.0.1) subscribes late and asks for a replay. Traffic is that of `tests/runtime/events/`: requests
with and without adapters and salts, forks, aborts, pins, flushes, faults, a small pool. After every step the
indexer is asked how many blocks of each of the last twelve prompts the engine has, until it says what the tree does;
one that does not within 20 s ends the script. In the rows with salts these are published as `cache_salt`; in the others
blocks with a salt are withheld, and the indexer must know of none.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests")]
os.environ.setdefault("DYN_LOG", "error")

import dynamo._core  # noqa: E402, F401  (missing: an error here, where a test would be skipped)
from cpu_decode import commit  # noqa: E402
from runtime.events.test_dynamo import LOCAL, indexer_of, wait_until_equal  # noqa: E402
from runtime.events.traffic import Traffic, make_engine  # noqa: E402


def run(form: str, salted: bool, seed: int, num_steps: int) -> str:
    """One engine's life; a row of what happened."""
    config = {"endpoint": LOCAL, "replay_endpoint": LOCAL, "format": form, "include_salted": salted}
    engine = make_engine(config, num_blocks=60)
    traffic, kinds = Traffic(engine, seed), Counter[str]()
    for _ in range(20):  # before it subscribes
        traffic.step()
    num_asked = 0
    with indexer_of(engine) as indexer:
        for _ in range(num_steps):
            kinds[traffic.step()] += 1
            num_asked += wait_until_equal(indexer, traffic, with_salted=salted)
        traffic.finish()
        num_asked += wait_until_equal(indexer, traffic, with_salted=salted)
    statistics = engine.statistics()
    engine.close()
    scopes = Counter(bool(namespace) + 2 * (adapter is not None) for _, namespace, adapter in traffic.prompts)
    row = [num_steps, statistics.num_event_batches, statistics.num_evicted_blocks, kinds["flush"], kinds["fault"]]
    row += [traffic.num_new_trees, scopes[1] + scopes[3], scopes[2] + scopes[3], num_asked]
    return f"{form:6} {'yes' if salted else 'no':>5} {seed:5} " + " ".join(f"{count:9}" for count in row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # faults are made on purpose
    print(f"python bench/studies/dynamo_indexer.py {' '.join(sys.argv[1:])}; commit {commit()}")
    print(f"ai-dynamo-runtime {version('ai-dynamo-runtime')}\n")
    columns = ["steps", "batches", "evicted", "flushes", "faults", "new trees", "salted", "adapters", "agreed"]
    print("form   salts  seed " + " ".join(f"{column:>9}" for column in columns))
    for form, salted in (("map", False), ("map", True), ("array", False)):
        for seed in range(options.seeds):
            print(run(form, salted, seed, options.steps), flush=True)


if __name__ == "__main__":
    main()
