"""The folder of blocks against a dict: what is read is what was written, or nothing; and never an error."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.runtime.offload import BlockKey, DiskTier, open_folder
from phloem.runtime.offload.block_file import HEADER_BYTES
from phloem.runtime.offload.block_key import NO_PARENT, extend_keys, root_of
from phloem.runtime.offload.disk_tier import PAUSE, STALE
from phloem.runtime.offload.trim import StoredFile, choose_victims

BLOCK_BYTES = 96
FINGERPRINT = bytes(range(32))
CHAIN = extend_keys(root_of(FINGERPRINT, ""), True, bytes(range(240)), 16)
PLENTY = 1 << 20


def content(key: BlockKey) -> np.ndarray:
    return np.frombuffer((key.digest * 3)[:BLOCK_BYTES], np.uint8)


def open_tier(folder: Path, max_bytes: int = PLENTY, fingerprint: bytes = FINGERPRINT, **options: object) -> DiskTier:
    tier = DiskTier(open_folder(folder), max_bytes, fingerprint, BLOCK_BYTES, **options)  # type: ignore[arg-type]
    tier.begin()
    return tier


def read(tier: DiskTier, key: BlockKey) -> np.ndarray | None:
    out = np.zeros(BLOCK_BYTES, np.uint8)
    return out if tier.read_blocks([key], out[None]) else None


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("??/*.kv"))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_it_is_a_dict_whose_entries_may_vanish(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Random bytes flipped, files cut short, lengthened, removed, renamed, restarts, two tiers on the folder."""
    folder = tmp_path_factory.mktemp("tier")
    tiers = [open_tier(folder), open_tier(folder)]
    truth: dict[BlockKey, bytes] = {}
    for _ in range(data.draw(st.integers(1, 25))):
        tier = data.draw(st.sampled_from(tiers))
        key = data.draw(st.sampled_from(CHAIN))
        action = data.draw(st.sampled_from(["put", "put", "read", "flip", "cut", "pad", "remove", "swap", "restart"]))
        files = files_of(folder)
        if action == "put":
            was_there = tier.may_have(key)
            assert tier.put(key, content(key)) is not was_there
            truth[key] = content(key).tobytes()
        elif action == "read":
            found = read(tier, key)
            assert found is None or found.tobytes() == truth[key]
        elif action == "restart":
            tiers[data.draw(st.integers(0, 1))] = open_tier(folder)
        elif files:
            path = data.draw(st.sampled_from(files))
            if action == "flip":
                content_now = bytearray(path.read_bytes())
                at = data.draw(st.integers(0, max(0, len(content_now) - 1)))
                if content_now:
                    content_now[at] ^= data.draw(st.integers(1, 255))
                path.write_bytes(content_now)
            elif action == "cut":
                os.truncate(path, data.draw(st.integers(0, path.stat().st_size)))
            elif action == "pad":
                path.write_bytes(path.read_bytes() + b"x")
            elif action == "remove":
                path.unlink()
            else:
                data.draw(st.sampled_from(files)).write_bytes(path.read_bytes())
    for key in CHAIN:
        found = read(tiers[0], key)
        assert found is None or found.tobytes() == truth[key]


def test_each_flipped_byte_is_a_miss_and_the_file_is_removed(tmp_path: Path) -> None:
    tier = open_tier(tmp_path)
    for at in range(HEADER_BYTES + BLOCK_BYTES):
        assert tier.put(CHAIN[0], content(CHAIN[0]))
        (path,) = files_of(tmp_path)
        whole = bytearray(path.read_bytes())
        whole[at] ^= 1 << at % 8
        path.write_bytes(whole)
        assert read(tier, CHAIN[0]) is None, f"byte {at}"
        assert files_of(tmp_path) == []
    assert tier.num_faults == HEADER_BYTES + BLOCK_BYTES


def test_all_damaged_files_of_a_prefix_are_written_again_at_once(tmp_path: Path) -> None:
    tier, rows = open_tier(tmp_path), np.stack([content(key) for key in CHAIN])
    assert tier.put_blocks(CHAIN, rows) == len(CHAIN)
    (tmp_path / "key").write_bytes(bytes(32))
    tier, out = open_tier(tmp_path), np.empty_like(rows)
    assert tier.read_blocks(CHAIN, out) == 0 and tier.num_faults == len(CHAIN)
    assert all(map(tier.wants, CHAIN)) and tier.count(CHAIN) == 0
    assert tier.put_blocks(CHAIN, rows) == len(CHAIN)
    assert tier.read_blocks(CHAIN, out) == len(CHAIN) and (out == rows).all()


def test_what_one_process_wrote_another_reads(tmp_path: Path) -> None:
    first, second = open_tier(tmp_path), open_tier(tmp_path)
    assert not second.may_have(CHAIN[0])
    first.put(CHAIN[0], content(CHAIN[0]))
    assert second.may_have(CHAIN[0]) and not second.put(CHAIN[0], content(CHAIN[0]))
    found = read(second, CHAIN[0])
    assert found is not None and found.tobytes() == content(CHAIN[0]).tobytes()


def test_another_model_never_reads_it_even_under_the_same_key(tmp_path: Path) -> None:
    open_tier(tmp_path).put(CHAIN[0], content(CHAIN[0]))
    assert read(open_tier(tmp_path, fingerprint=bytes(32)), CHAIN[0]) is None


def test_the_folder_keeps_its_budget_and_the_beginnings_of_prefixes(tmp_path: Path) -> None:
    tier = open_tier(tmp_path, max_bytes=8 * 4096)
    for key in CHAIN:
        tier.put(key, content(key))
        assert len(files_of(tmp_path)) <= 8
    assert tier.num_removed > 0 and not tier.put(CHAIN[-1], content(CHAIN[-1])), "what is before it is gone"
    there = [read(tier, key) is not None for key in CHAIN]
    assert there[0] and there == sorted(there, reverse=True), "a block is of no use without those before it"


def test_a_folder_above_its_budget_is_trimmed_at_the_start(tmp_path: Path) -> None:
    tier = open_tier(tmp_path)
    for key in CHAIN:
        tier.put(key, content(key))
    assert open_tier(tmp_path, max_bytes=5 * 4096).num_bytes <= 5 * 4096
    assert len(files_of(tmp_path)) == 4, "nine tenths"


def test_a_prefix_that_has_made_room_is_no_end_of_writing_behind_it(tmp_path: Path) -> None:
    """The pool may hold it on and on, and never bring it again: what is noted of it does not grow, and what follows it
    is written some day."""
    tier = open_tier(tmp_path, max_bytes=20 * 4096)
    tier.put(CHAIN[0], content(CHAIN[0]))
    os.utime(files_of(tmp_path)[0], (0, 0))  # the oldest by more than a tick of the file system's clock
    for other in range(20):
        (key,) = extend_keys(root_of(FINGERPRINT, f"other {other}"), True, bytes(16), 16)
        tier.put(key, content(key))
    assert not tier.may_have(CHAIN[0])
    num_written = 0
    for number in range(200):
        for key in extend_keys(CHAIN[0].digest, False, number.to_bytes(16, "little") * 4, 16):
            num_written += tier.put(key, content(key))
            assert len(tier._gone) <= 21
    assert num_written > 0


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    tier = open_tier(tmp_path)
    for key, make in zip(CHAIN, (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)), strict=False):
        tier.put(key, content(key))
        path = next(file for file in files_of(tmp_path) if file.name.startswith(key.digest.hex()))
        path.unlink()
        make(path)
        assert read(tier, key) is None
    assert tier.num_faults >= 3


def test_foreign_files_stay_and_left_over_ones_go(tmp_path: Path) -> None:
    open_tier(tmp_path).put(CHAIN[0], content(CHAIN[0]))
    foreign = [tmp_path / "ab" / "notes.kv", tmp_path / "readme.txt", tmp_path / "ab" / ("0" * 64 + ".kv")]
    (tmp_path / "ab").mkdir(exist_ok=True)
    for path in foreign:
        path.write_text("mine")
    old, young = tmp_path / "writing" / "old", tmp_path / "writing" / "young"
    for path in (old, young):
        path.write_text("half")
    os.utime(old, (0, os.path.getmtime(young) - STALE - 1))
    open_tier(tmp_path, max_bytes=1)
    assert all(path.exists() for path in foreign) and young.exists() and not old.exists()
    assert not set(files_of(tmp_path)) - set(foreign)


def test_a_full_disk_stops_writing_for_a_while_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    tier = open_tier(tmp_path, clock=lambda: now[0])
    tier.put(CHAIN[0], content(CHAIN[0]))
    num_tries = 0

    def full(*_: object) -> int:
        nonlocal num_tries
        num_tries += 1
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", full)
        assert not any(tier.put(key, content(key)) for key in CHAIN[1:])
        now[0] += PAUSE + 1
        assert not tier.put(CHAIN[1], content(CHAIN[1]))
    assert num_tries == 2 and len(caplog.records) == 1
    assert not list((tmp_path / "writing").iterdir()), "nothing half is left"
    assert read(tier, CHAIN[0]) is not None
    now[0] += PAUSE + 1
    assert tier.put(CHAIN[1], content(CHAIN[1])) and read(tier, CHAIN[1]) is not None


def test_a_disk_that_cannot_be_read_is_a_miss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tier = open_tier(tmp_path)
    for key in CHAIN[:2]:
        tier.put(key, content(key))

    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "readv", broken)
        assert read(tier, CHAIN[0]) is None and read(tier, CHAIN[1]) is None
    assert tier.num_faults == 2 and len(caplog.records) == 1


def test_what_is_read_again_stays_longer(tmp_path: Path) -> None:
    tier = open_tier(tmp_path)
    roots = [BlockKey(bytes([index + 1]) * 32, NO_PARENT) for index in range(3)]
    for age, key in enumerate(roots):
        tier.put(key, content(key))
        os.utime(files_of(tmp_path)[-1], (1000 + age, 1000 + age))
    tier.touch([roots[0]])
    small = open_tier(tmp_path, max_bytes=3 * 4096 - 1)
    assert [small.may_have(key) for key in roots] == [True, False, True]


def test_names_that_form_a_cycle_do_not_loop_for_ever() -> None:
    zeros, first, second = bytes(32), b"a" * 32, b"b" * 32
    files = [
        StoredFile(zeros, NO_PARENT[:8], 1, 0.0),
        StoredFile(first, NO_PARENT[:8], 1, 1.0),
        StoredFile(second, first[:8], 1, 2.0),
        StoredFile(first[:8] + second[8:], second[:8], 1, 3.0),
    ]
    assert set(choose_victims(files, 4)) <= set(files)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_victims_are_leaves_used_longest_ago(data: st.DataObject) -> None:
    """Against the plain rule: while too much is there, remove the leaf under which nothing was used later."""
    source = random.Random(data.draw(st.integers(0, 1 << 30)))
    files: list[StoredFile] = []
    for index in range(data.draw(st.integers(0, 25))):
        digest = source.randbytes(32)
        kind = source.random()
        parent = NO_PARENT[:8] if not files or kind < 0.2 else source.choice(files).digest[:8]
        parent = source.randbytes(8) if kind > 0.9 else parent
        files.append(StoredFile(digest, parent, 1 + source.randrange(3), source.randrange(6) + index / 1000))
    wanted = data.draw(st.integers(0, 60))
    victims = choose_victims(files, wanted)
    names = {file.digest[:8]: file for file in files}

    def path_of(file: StoredFile) -> list[StoredFile]:
        """From the file up, as far as there are files."""
        path = [file]
        while path[-1].parent in names:
            path.append(names[path[-1].parent])
        return path

    left = [file for file in files if path_of(file)[-1].parent == NO_PARENT[:8]]
    used = {file: max(other.used_at for other in left if file in path_of(other)) for file in left}
    num_freed = sum(file.num_bytes for file in files) - sum(file.num_bytes for file in left)
    while left and num_freed < wanted:
        ends = [file for file in left if not any(other.parent == file.digest[:8] for other in left)]
        first = min(ends, key=lambda file: (used[file], file.digest))
        num_freed += first.num_bytes
        left.remove(first)
    assert set(files) - set(victims) == set(left)
