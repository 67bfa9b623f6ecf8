"""Processes that share a folder, one of which is killed: what is read is whole and right, or not there."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from phloem.runtime.tiers import BlockKey, DiskTier, open_folder
from phloem.runtime.tiers.block_key import extend_keys, root_of

BLOCK_BYTES = 60_000
FINGERPRINT = bytes(32)
CHAINS = [extend_keys(root_of(FINGERPRINT, str(name)), True, bytes(range(80)), 16) for name in range(6)]
KEYS = [key for chain in CHAINS for key in chain]
FILE_BYTES = 61_440
MAX_BYTES = 20 * FILE_BYTES


def content(key: BlockKey) -> np.ndarray:
    return np.frombuffer((key.digest * (1 + BLOCK_BYTES // 32))[:BLOCK_BYTES], np.uint8)


def open_tier(folder: Path) -> DiskTier:
    tier = DiskTier(open_folder(folder), MAX_BYTES, FINGERPRINT, BLOCK_BYTES)
    tier.begin()
    return tier


def hammer(folder: Path, seed: int, seconds: float) -> None:
    """Writes and reads at random; AssertionError if anything is not what it should be."""
    source = random.Random(seed)
    tier = open_tier(folder)
    out = np.empty(BLOCK_BYTES, np.uint8)
    num_read, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        key = source.choice(KEYS)
        tier.put(key, content(key))
        key = source.choice(KEYS)
        if tier.read(key, out):
            assert np.array_equal(out, content(key))
            num_read += 1
    assert tier.num_faults == 0 and num_read > 0


def test_processes_share_a_folder_and_one_is_killed(tmp_path: Path) -> None:
    code = (
        "import importlib.util, pathlib, sys; spec = importlib.util.spec_from_file_location('here', sys.argv[1]);"
        "here = importlib.util.module_from_spec(spec); spec.loader.exec_module(here);"
        "print('ready', flush=True); here.hammer(pathlib.Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))"
    )
    folder = tmp_path / "kv"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, __file__, str(folder), str(seed), seconds], stdout=subprocess.PIPE
        )
        for seed, seconds in ((1, "1.0"), (2, "1.0"), (3, "100"))
    ]
    try:
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        time.sleep(0.3)
        processes[2].kill()
        assert [process.wait(60) for process in processes[:2]] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    hammer(folder, 4, 0.2)
    assert len(list(folder.glob("??/*.kv"))) * FILE_BYTES <= MAX_BYTES * 1.3
