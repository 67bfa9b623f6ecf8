"""What one operation of the radix tree costs, as the tree grows: CPU microseconds, medians.

    python bench/studies/radix_tree.py [--block-size 16] [--sizes 1000,4000,16000,64000]

Each row is a tree with N leaves of 10 blocks each under one system prompt of 125 blocks. If match, insert, lease or
evict grew with the number of leaves, the columns would show it.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time
from collections.abc import Callable
from random import Random
from typing import TypeVar

from phloem.radix import RadixTree, pack

T = TypeVar("T")
PROMPT_BLOCKS = 125
LEAF_BLOCKS = 10
NUM_SAMPLES = 2000


class Stopwatch:
    """Collects CPU times by name, less the cost of reading the clock."""

    def __init__(self) -> None:
        self.samples: dict[str, list[int]] = {}
        for _ in range(NUM_SAMPLES):
            self.time("overhead", lambda: None)

    def time(self, name: str, action: Callable[[], T]) -> T:
        start = time.thread_time_ns()
        result = action()
        self.samples.setdefault(name, []).append(time.thread_time_ns() - start)
        return result

    def median_us(self, name: str) -> float:
        return (statistics.median(self.samples[name]) - statistics.median(self.samples["overhead"])) / 1000


def measure(num_leaves: int, block_size: int) -> Stopwatch:
    """Fill a tree, then replace leaves one by one as a full pool would."""
    random = Random(0)
    watch = Stopwatch()
    tree = RadixTree(block_size)
    prompt = pack(random.choices(range(100_000), k=PROMPT_BLOCKS * block_size))
    row = list(range(PROMPT_BLOCKS))
    next_block = PROMPT_BLOCKS

    def make_request() -> tuple[bytes, list[int]]:
        nonlocal next_block
        own = list(range(next_block, next_block + LEAF_BLOCKS))
        next_block += LEAF_BLOCKS
        return prompt + pack(random.choices(range(100_000), k=LEAF_BLOCKS * block_size)), row + own

    for _ in range(num_leaves):
        tokens, blocks = make_request()
        tree.insert(tokens, blocks, "")
    for _ in range(NUM_SAMPLES):
        tokens, blocks = make_request()
        match = watch.time("match", lambda: tree.match(tokens, ""))  # noqa: B023 (called at once)
        watch.time("blocks", lambda: match.blocks)  # noqa: B023
        watch.time("lease", lambda: tree.lease(match.node))  # noqa: B023
        watch.time("evict", lambda: tree.evict(LEAF_BLOCKS))
        watch.time("insert", lambda: tree.insert(tokens, blocks, ""))  # noqa: B023
        watch.time("release", lambda: tree.release(match.node))  # noqa: B023
    tree.audit()
    return watch


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--sizes", default="1000,4000,16000,64000", help="numbers of leaves")
    options = parser.parse_args()
    columns = ["match", "blocks", "lease", "evict", "insert", "release"]
    print(f"{platform.machine()}, Python {platform.python_version()}, block size {options.block_size}; CPU us, medians")
    print("leaves   " + "".join(f"{name:>9}" for name in columns))
    for size in options.sizes.split(","):
        watch = measure(int(size), options.block_size)
        print(f"{int(size):<9}" + "".join(f"{watch.median_us(name):9.1f}" for name in columns))


if __name__ == "__main__":
    main()
