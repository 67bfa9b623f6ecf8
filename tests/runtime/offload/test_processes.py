"""Processes that share a folder, one of which is killed: what is read is whole and right, or not there."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from phloem.runtime.offload import BlockKey, DiskTier, open_folder
from phloem.runtime.offload.block_key import extend_keys, root_of

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


def hammer(folder: Path, seed: int, count: int) -> None:
    """Writes and reads at random until a number of reads were hits; AssertionError if anything is not what it should
    be.
    """
    source = random.Random(seed)
    tier = open_tier(folder)
    out = np.empty(BLOCK_BYTES, np.uint8)
    num_read = 0
    while num_read < count:
        key = source.choice(KEYS)
        tier.put(key, content(key))
        key = source.choice(KEYS)
        if tier.read_blocks([key], out[None]):
            assert np.array_equal(out, content(key))
            num_read += 1
    assert tier.num_faults == 0


def test_processes_share_a_folder_and_one_is_killed(tmp_path: Path) -> None:
    code = (
        "import importlib.util, pathlib, sys; spec = importlib.util.spec_from_file_location('here', sys.argv[1]);"
        "here = importlib.util.module_from_spec(spec); spec.loader.exec_module(here);"
        "print('ready', flush=True); here.hammer(pathlib.Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))"
    )
    folder = tmp_path / "kv"
    processes = [
        subprocess.Popen([sys.executable, "-c", code, __file__, str(folder), str(seed), count], stdout=subprocess.PIPE)
        for seed, count in ((1, "200"), (2, "200"), (3, "1000000000"))
    ]
    try:
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        time.sleep(0.3)
        processes[2].kill()
        assert [process.wait(240) for process in processes[:2]] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    hammer(folder, 4, 100)
    assert len(list(folder.glob("??/*.kv"))) * FILE_BYTES <= MAX_BYTES * 1.3


def test_processes_that_begin_at_once_without_hard_links_have_one_key(tmp_path: Path) -> None:
    """Each of two makes the keys of the same folders, one folder at a time, when it is told to."""
    code = (
        "import errno, os, pathlib, sys\n"
        "from phloem.runtime.offload import open_folder\n"
        "def refused(*_): raise OSError(errno.EPERM, 'Operation not permitted')\n"
        "os.link = refused\n"
        "print('ready', flush=True)\n"
        "for line in sys.stdin: print(open_folder(pathlib.Path(line.strip())).key.hex(), flush=True)\n"
    )
    command = [sys.executable, "-c", code]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        assert [process.stdout and process.stdout.readline() for process in processes] == ["ready\n"] * 2
        for number in range(100):
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(f"{tmp_path / str(number)}\n")
                process.stdin.flush()
            first, second = (process.stdout and process.stdout.readline() for process in processes)
            assert first == second and len(first or "") == 65
    finally:
        for process in processes:
            process.kill()
            process.communicate()
