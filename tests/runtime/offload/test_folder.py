"""Which folders are trusted, who can write what is taken for a block, and folders that are only read."""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import stat
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from phloem.errors import ConfigError
from phloem.runtime.offload import BlockKey, DiskTier, Folder, open_folder
from phloem.runtime.offload.block_file import HEADER_BYTES
from phloem.runtime.offload.block_key import extend_keys, root_of
from phloem.runtime.offload.folder import KEY, KEY_BYTES

BLOCK_BYTES = 96
FINGERPRINT = bytes(range(32))
CHAIN = extend_keys(root_of(FINGERPRINT, ""), True, bytes(range(240)), 16)
BLOCK = np.arange(BLOCK_BYTES, dtype=np.uint8)


def tier_of(folder: Folder, max_bytes: int = 1 << 20) -> DiskTier:
    tier = DiskTier(folder, max_bytes, FINGERPRINT, BLOCK_BYTES)
    tier.begin()
    return tier


def reads(tier: DiskTier, key: BlockKey = CHAIN[0]) -> bool:
    out = np.zeros(BLOCK_BYTES, np.uint8)
    found = tier.read_blocks([key], out[None]) == 1
    assert not found or np.array_equal(out, BLOCK)
    return found


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """All that is in the folder: modes, times and contents."""
    found = {}
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        found[str(path.relative_to(folder))] = (
            state.st_mode,
            state.st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
    return found


@pytest.mark.parametrize("mode", range(0o700, 0o1000))
def test_a_folder_that_others_can_write_to_is_refused_unless_it_is_shared(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    if mode & 0o022:
        with pytest.raises(ConfigError, match=rf"disk_cache: other users can write.*{mode:04o}.*disk_cache_shared"):
            open_folder(tmp_path)
        assert not list(tmp_path.iterdir()), "nothing is left in it"
    else:
        open_folder(tmp_path)
    assert open_folder(tmp_path, shared=True).is_writable


@pytest.mark.parametrize(("owner", "is_ours"), [(0, True), (1234, True), (4321, False), (65534, False)])
def test_a_folder_of_another_user_is_refused_unless_it_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, is_ours: bool
) -> None:
    """As user 1234: ours and root's are taken."""
    whole = os.stat

    def of_owner(path: object, *args: object, **options: object) -> os.stat_result:
        state = whole(path, *args, **options)  # type: ignore[arg-type]
        return os.stat_result([owner if index == 4 else value for index, value in enumerate(state)])

    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(os, "stat", of_owner)
    monkeypatch.setattr(Path, "stat", lambda path, **options: of_owner(path, **options))
    folder = tmp_path / "kv"
    if is_ours:
        open_folder(folder)
    else:
        with pytest.raises(ConfigError, match=rf"disk_cache: .* another user \(uid {owner}\).*disk_cache_shared"):
            open_folder(folder)
    assert open_folder(folder, shared=True).is_writable


def test_a_key_that_another_user_has_put_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_folder(tmp_path)
    whole = Path.stat

    def of_another(path: Path, **options: bool) -> os.stat_result:
        state = whole(path, **options)
        return os.stat_result([4321 if index == 4 and path.name == KEY else value for index, value in enumerate(state)])

    monkeypatch.setattr(Path, "stat", of_another)
    with pytest.raises(ConfigError, match=r"key, the key of the checksums, was made by another user \(uid 4321\)"):
        open_folder(tmp_path)


@pytest.mark.parametrize("folder_mode", [0o700, 0o750, 0o770, 0o777])
@pytest.mark.parametrize("key_mode", [0o600, 0o644, 0o620, 0o660, 0o602, 0o666])
def test_a_key_that_more_users_can_write_to_than_the_folder_is_refused(
    tmp_path: Path, folder_mode: int, key_mode: int
) -> None:
    open_folder(tmp_path)
    tmp_path.chmod(folder_mode)
    (tmp_path / KEY).chmod(key_mode)
    if key_mode & 0o022 & ~folder_mode:
        with pytest.raises(ConfigError, match=rf"key.*written to by other users.*{key_mode:04o}.*chmod go-w"):
            open_folder(tmp_path, shared=True)
        (tmp_path / KEY).chmod(key_mode & ~0o022)
    open_folder(tmp_path, shared=True)


def test_folder_and_key_are_their_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        folder = open_folder(tmp_path / "a" / "kv")
        tier_of(folder).put(CHAIN[0], BLOCK)
    finally:
        os.umask(before)
    assert len(folder.key) == KEY_BYTES and open_folder(folder.path).key == folder.key
    for path in [folder.path, *folder.path.rglob("*")]:
        assert not path.stat().st_mode & 0o077, path
    assert stat.S_IMODE((folder.path / KEY).stat().st_mode) == 0o600
    assert open_folder(tmp_path / "other").key != folder.key


def without_hard_links(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refused)


NO_LINKS = [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK]


@pytest.mark.parametrize("number", [0, *NO_LINKS], ids=lambda number: errno.errorcode.get(number, "links"))
def test_all_who_begin_at_once_have_one_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    if number:
        without_hard_links(monkeypatch, number)
    for number in range(20):
        found: list[bytes] = []
        ready = threading.Barrier(6)

        def begin(folder: Path = tmp_path / str(number), found: list[bytes] = found, ready=ready) -> None:  # type: ignore[no-untyped-def]
            ready.wait()
            found.append(open_folder(folder).key)

        threads = [threading.Thread(target=begin) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 6 and len(set(found)) == 1
        assert [path.name for path in (tmp_path / str(number)).iterdir()] == [KEY], "nothing else is left"


@pytest.mark.parametrize("has_links", [True, False])
def test_a_key_that_cannot_be_written_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    if not has_links:
        without_hard_links(monkeypatch, errno.EPERM)
    whole, num_whole = os.write, 0 if has_links else 1

    def write(descriptor: int, content: bytes) -> int:
        nonlocal num_whole
        num_whole -= 1
        return whole(descriptor, content if num_whole >= 0 else content[:7])

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(ConfigError, match=r"key of the checksums, cannot be used \(No space left"):
        open_folder(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("begun", [0, 1, KEY_BYTES - 1])
def test_a_key_that_another_process_is_writing_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: int
) -> None:
    secret, pauses = bytes(range(KEY_BYTES)), 0
    (tmp_path / KEY).write_bytes(secret[:begun])

    def pause(_: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 3:
            (tmp_path / KEY).write_bytes(secret)

    monkeypatch.setattr(time, "sleep", pause)
    assert open_folder(tmp_path).key == secret and pauses == 3


def forged(path: Path, secret: bytes | None) -> None:
    """Changes the KV in a file, and makes its checksum good again, as a process that knows `secret` would."""
    whole = bytearray(path.read_bytes())
    whole[HEADER_BYTES] ^= 1
    signed = bytes(whole[: HEADER_BYTES - 32]) + bytes(whole[HEADER_BYTES:])
    digest = hashlib.sha256(signed).digest() if secret is None else hmac.digest(secret, signed, "sha256")
    whole[HEADER_BYTES - 32 : HEADER_BYTES] = digest
    path.write_bytes(whole)


@pytest.mark.parametrize("secret", [None, b"", bytes(32), b"guess"])
def test_a_forged_file_is_a_miss(tmp_path: Path, secret: bytes | None) -> None:
    tier = tier_of(open_folder(tmp_path))
    tier.put(CHAIN[0], BLOCK)
    (path,) = tmp_path.glob("??/*.kv")
    forged(path, secret)
    assert not reads(tier) and not path.exists() and tier.num_faults == 1
    assert tier.put(CHAIN[0], BLOCK) and reads(tier)


def test_only_the_secret_makes_a_file_good(tmp_path: Path) -> None:
    """Otherwise the test above would show nothing."""
    folder = open_folder(tmp_path)
    tier = tier_of(folder)
    tier.put(CHAIN[0], BLOCK)
    (path,) = tmp_path.glob("??/*.kv")
    forged(path, folder.key)
    out = np.zeros(BLOCK_BYTES, np.uint8)
    assert tier.read_blocks([CHAIN[0]], out[None]) == 1 and out[0] == 1


def test_files_under_another_secret_or_of_an_older_version_are_misses(tmp_path: Path) -> None:
    tier_of(open_folder(tmp_path)).put(CHAIN[0], BLOCK)
    (path,) = tmp_path.glob("??/*.kv")
    whole = path.read_bytes()
    (tmp_path / KEY).unlink()
    assert not reads(tier_of(open_folder(tmp_path))) and not path.exists()
    old = bytearray(whole)
    old[8:12] = (1).to_bytes(4, "little")
    old[HEADER_BYTES - 32 : HEADER_BYTES] = hashlib.sha256(old[: HEADER_BYTES - 32] + old[HEADER_BYTES:]).digest()
    path.write_bytes(old)
    tier = tier_of(open_folder(tmp_path))
    assert tier.may_have(CHAIN[0]) and not reads(tier) and tier.put(CHAIN[0], BLOCK) and reads(tier)


@pytest.mark.parametrize("content", [b"", b"short", bytes(KEY_BYTES + 1)])
def test_a_key_that_is_none_is_refused_with_the_remedy(tmp_path: Path, content: bytes) -> None:
    (tmp_path / KEY).write_bytes(content)
    with pytest.raises(
        ConfigError, match=r"key of the checksums, cannot be used \(it is not a file of 32 bytes\).*rem"
    ):
        open_folder(tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_a_key_that_is_no_file_is_not_waited_for(tmp_path: Path, make) -> None:  # type: ignore[no-untyped-def]
    make(tmp_path / KEY)
    with pytest.raises(ConfigError, match="key of the checksums, cannot be used"):
        open_folder(tmp_path)


def test_a_folder_that_vanishes_keeps_its_secret_for_those_who_have_it(tmp_path: Path) -> None:
    first, second = (tier_of(open_folder(tmp_path / "kv")) for _ in range(2))
    (tmp_path / "kv").rename(tmp_path / "gone")
    assert first.put(CHAIN[0], BLOCK) and reads(second) and reads(tier_of(open_folder(tmp_path / "kv")))


def test_a_folder_that_cannot_be_written_to_is_read_and_left_alone(tmp_path: Path) -> None:
    writer = tier_of(open_folder(tmp_path))
    for key in CHAIN[:3]:
        writer.put(key, BLOCK)
    bad = writer._path(CHAIN[2])
    bad.write_bytes(bad.read_bytes()[:-1] + b"x")
    for path in tmp_path.glob("??/*.kv"):
        os.utime(path, (1000, 1000))
    tmp_path.chmod(0o555)
    try:
        before = snapshot(tmp_path)
        folder = open_folder(tmp_path)
        assert not folder.is_writable
        tier = tier_of(folder, max_bytes=1)
        assert tier.num_bytes == 3 * 4096, "and its budget removes nothing"
        assert reads(tier) and reads(tier, CHAIN[1]) and not reads(tier, CHAIN[2])
        tier.touch([CHAIN[0]])
        assert not any(tier.put(key, BLOCK) for key in CHAIN)
        assert tier.num_faults == 1 and snapshot(tmp_path) == before
    finally:
        tmp_path.chmod(0o700)


def test_a_folder_that_can_be_neither_written_to_nor_read_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(ConfigError, match=r"cannot be written to, and holds no blocks .* give a folder that"):
            open_folder(tmp_path)
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("bits", [0o770, 0o775, 0o777, 0o700])
@pytest.mark.parametrize("umask", [0o077, 0o000])
@pytest.mark.parametrize("shared", [True, False])
def test_what_is_made_in_a_shared_folder_is_for_all_who_share_it(
    tmp_path: Path, bits: int, umask: int, shared: bool
) -> None:
    path = tmp_path / "kv"
    path.mkdir()
    path.chmod(bits if shared else 0o700)
    others = bits & 0o077 if shared else 0
    before = os.umask(umask)
    try:
        tier = tier_of(open_folder(path, shared=shared))
        assert tier.put(CHAIN[0], BLOCK)
    finally:
        os.umask(before)
    made = list(path.rglob("*"))
    assert {one.name for one in made} >= {KEY, "writing"} and len(made) == 4
    for one in made:
        expected = 0o700 | others if one.is_dir() else 0o600 | others & 0o044
        assert stat.S_IMODE(one.stat().st_mode) == expected, one
        assert one.stat().st_gid == path.stat().st_gid


def test_a_shared_folder_whose_parts_cannot_be_used_is_refused_with_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tier_of(open_folder(tmp_path)).put(CHAIN[0], BLOCK)
    tmp_path.chmod(0o770)
    subfolder = next(tmp_path.glob("??")).name
    allowed = os.access

    def is_allowed(path: str | Path, mode: int) -> bool:
        """As to a member of the folder's group, which root is not."""
        bits = os.stat(path).st_mode >> 3 & 0o7
        return (
            Path(path) == tmp_path or (tmp_path not in Path(path).parents and allowed(path, mode)) or not mode & ~bits
        )

    monkeypatch.setattr(os, "access", is_allowed)
    with pytest.raises(ConfigError) as caught:
        open_folder(tmp_path, shared=True)
    for part in (f"{KEY} (mode 0600)", "writing (mode 0700)", f"{subfolder} (mode 0700)", f"chmod -R g+rwX {tmp_path}"):
        assert part in str(caught.value)
    for one in tmp_path.rglob("*"):
        one.chmod(0o770 if one.is_dir() else 0o640)
    assert reads(tier_of(open_folder(tmp_path, shared=True)))


@pytest.mark.parametrize("mode", [0o755, 0o555])
def test_no_folder_that_cannot_be_looked_through_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    """What cannot be read counts as a fault, and the first one is told with its remedy."""
    writer = tier_of(open_folder(tmp_path))
    for key in CHAIN[:3]:
        assert writer.put(key, BLOCK)
    tmp_path.chmod(mode)
    folder = open_folder(tmp_path)
    scan, bad = os.scandir, {path.name for path in tmp_path.iterdir() if len(path.name) == 2} | {"writing"}

    def refusing(path: str | Path) -> object:
        if Path(path).name in bad:
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refusing)
    try:
        tier = tier_of(folder)
    finally:
        tmp_path.chmod(0o700)
    assert tier.num_faults == len(bad) - (not folder.is_writable)
    told = [record.getMessage() for record in caplog.records if "chmod" in record.getMessage()]
    assert len(told) == 1 and f"chmod -R g+rX {tmp_path}" in told[0] and any(name in told[0] for name in bad)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("")
    with pytest.raises(ConfigError, match=r"kv is a file and no folder; give a folder"):
        open_folder(tmp_path / "kv")
