"""Blocks in a folder: a file each, found by their keys again after a restart, by any process that has the folder.

::

    folder/3f/3f9c…e1-77ab….kv        digest of the key, and the first bytes of the digest of the block before it
    folder/writing/…                  files on their way: renamed when they are whole, so half of one is never read
    folder/key                        secret of the checksums (`folder`)

There is no index that could be wrong: a file is there or it is not. What this process has seen is remembered, so that
it is not written again and mostly not asked for in vain; if another process has removed it, it is a miss.

Whatever goes wrong is a miss and costs no request anything: an error of the disk or a full one stops writing for
`PAUSE` seconds, files that are not what their names say are removed, all of a prefix at once, a folder that has
vanished is made anew. The log says so once for each kind. There is no fsync: what a crash of the machine leaves half
written does not agree with its checksum.

The budget is for the whole folder, with the files of all processes and models. A process that finds it exceeded, by
what it has written itself and what was there when it last looked, removes what was used longest ago (`trim`) down to
nine tenths of it. So n processes hold it up to n - 1 tenths.

A folder that cannot be written to is read, and left as it is: nothing is written, removed or marked as used.

Any thread may call; one thread at a time writes. Knows keys and bytes; it knows no tokens and no pool.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from .block_file import HEADER_BYTES, CorruptBlock, read_block, write_block
from .block_key import DIGEST_BYTES, BlockKey
from .folder import Folder, keep_key
from .tier import Changed, KnownDigests, Row, Tier, ignore_changes
from .trim import PARENT_BYTES, StoredFile, choose_victims

PAUSE = 30.0  # seconds without writing, after it has failed
ROOM = 0.1  # of the budget that is free after trimming
STALE = 3600.0  # seconds after which a file that is still on its way was left by a process that has died
TOUCH_AFTER = 60.0  # seconds: how exactly it is put down when a file was last read
SECTOR = 4096  # bytes: files take whole ones
SUFFIX = ".kv"

logger = logging.getLogger("phloem.tiers")


class DiskTier(Tier):
    """The files of one model in a folder that others may share.

    Args:
        folder: as `open_folder` found it.
        max_bytes: budget of the folder.
        fingerprint: 32 bytes, of the model.
        block_bytes: bytes of a block's KV.
        changed: called with the files that this process has seen, and with those that have gone.
        clock: seconds, for pauses.

    Attributes:
        is_writable: whether blocks are written; otherwise `put` does nothing.
        num_faults: how often reading or writing has failed, or a file was not what its name says.
        num_removed: files that have made room for others.
    """

    name = "disk"
    writes_through = True

    def __init__(
        self,
        folder: Folder,
        max_bytes: int,
        fingerprint: bytes,
        block_bytes: int,
        changed: Changed = ignore_changes,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_writable = folder.is_writable
        self._folder = folder.path
        self._secret = folder.key
        self._sharing = folder.sharing
        self._writing = folder.path / "writing"
        self._max_bytes = max_bytes
        self._fingerprint = fingerprint
        self._file_bytes = -(-(HEADER_BYTES + block_bytes) // SECTOR) * SECTOR
        self._clock = clock
        self._known = KnownDigests(changed)
        self._gone: set[bytes] = set()  # what has made room, since that was last needed
        self._num_bytes = 0
        self._num_written = 0
        self._silent_until = 0.0
        self._logged: set[str] = set()
        self.num_removed = 0

    @property
    def num_bytes(self) -> int:
        """What the folder held when it was last looked through, and what was written since; 0 before `begin`."""
        return self._num_bytes

    def wants(self, key: BlockKey) -> bool:
        return self.is_writable and key.digest not in self._known

    def may_have(self, key: BlockKey) -> bool:
        """Whether there is a file; for one that was not seen before that is one call of the system."""
        if key.digest in self._known:
            return True
        try:
            os.stat(self._path(key))
        except OSError:
            return False
        self._known.learn([key.digest])
        return True

    def read_blocks(self, keys: Sequence[BlockKey], rows: Row) -> int:
        num_good = len(keys)
        for number, key in enumerate(keys):
            path = self._path(key)
            try:
                read_block(path, self._secret, self._fingerprint, key, rows[number])
                continue
            except CorruptBlock as error:  # reads on: there may be more, and each would cost another request a miss
                goes_on = True
                self._fault("corrupt", f"{path}: {error}; the file is not used any more, and its KV computed again")
                self._remove(path)
            except OSError as error:
                goes_on = False
                if not isinstance(error, FileNotFoundError):
                    self._fault("read", f"{path}: cannot be read ({error}); its KV is computed again")
            self._known.unlearn([key.digest])
            num_good = min(num_good, number)
            if not goes_on:
                break
        return num_good

    def put_blocks(self, keys: Sequence[BlockKey], rows: Row) -> int:
        return sum(self.put(key, row) for key, row in zip(keys, rows, strict=True))

    def put(self, key: BlockKey, block: Row) -> bool:
        """Writes a block; False if it is there already, would be of no use, or cannot be written now."""
        if not self.is_writable or self.may_have(key):
            return False
        if self._clock() < self._silent_until:
            return False
        try:
            if self._num_bytes + self._file_bytes > self._max_bytes and not self._trim():
                return False
            if key.parent in self._gone:  # its prefix is longer than there is room for
                if len(self._gone) * self._file_bytes > self._max_bytes:
                    self._gone.clear()  # it was needed once more: what is missing of it may be written yet
                self._gone.add(key.digest)
                return False
            self._write(key, block)
        except OSError as error:
            self._fault("written", f"{self._folder}: cannot be written to ({error}); no KV is kept there for now")
            self._silent_until = self._clock() + PAUSE
            return False
        self._known.learn([key.digest])
        self._gone.discard(key.digest)
        self._num_bytes += self._file_bytes
        return True

    def touch(self, keys: Sequence[BlockKey]) -> None:
        if not self.is_writable or not keys:
            return
        path = self._path(keys[-1])  # `choose_victims` takes what is before it as used, too
        try:
            if time.time() - os.stat(path).st_mtime > TOUCH_AFTER:
                os.utime(path)
        except OSError:
            pass  # it goes a little earlier than it should

    def _write(self, key: BlockKey, block: Row) -> None:
        new, path = self._writing / self._new_name(), self._path(key)
        try:
            try:
                write_block(new, self._secret, self._fingerprint, key, block, sharing=self._sharing)
            except FileNotFoundError:  # the folder has been removed
                self._make_folders()
                write_block(new, self._secret, self._fingerprint, key, block, sharing=self._sharing)
            try:
                new.replace(path)
            except FileNotFoundError:
                self._sharing.make_folder(path.parent)
                new.replace(path)
        except OSError:
            self._remove(new)
            raise

    def _new_name(self) -> str:
        self._num_written += 1
        return f"{os.getpid()}-{id(self):x}-{time.time_ns():x}-{self._num_written}"

    def _path(self, key: BlockKey) -> Path:
        name = key.digest.hex()
        return self._folder / name[:2] / f"{name}-{key.parent[:PARENT_BYTES].hex()}{SUFFIX}"

    def begin(self) -> None:
        """Looks what the folder holds, and makes it fit the budget. To be called by the writing thread, before anything
        else.

        O(files): about a second for a hundred thousand.
        """
        try:
            if self.is_writable:
                self._trim()
            else:
                self._look_through()
        except OSError as error:
            self._fault("begin", f"{self._folder}: cannot be looked through ({error}); what it holds may be a miss")
            self._silent_until = self._clock() + PAUSE

    def _look_through(self) -> list[StoredFile]:
        """What is in the folder now."""
        if self.is_writable:
            self._make_folders()
        files = list(self._files())
        self._num_bytes = sum(file.num_bytes for file in files)
        self._known.replace({file.digest for file in files})
        return files

    def _make_folders(self) -> None:
        self._sharing.make_folder(self._folder, parents=True)
        self._sharing.make_folder(self._writing)
        self._secret = keep_key(
            self._folder, self._secret, sharing=self._sharing
        )  # of a new folder, that of the others

    def _trim(self) -> bool:
        """Makes room; False if nothing of what takes it is ours to remove."""
        files = self._look_through()
        excess = self._num_bytes - int(self._max_bytes * (1.0 - ROOM))
        if self._num_bytes + self._file_bytes > self._max_bytes:
            self._gone.clear()
            for file in choose_victims(files, max(excess, self._file_bytes)):
                self._remove(self._path(BlockKey(file.digest, file.parent)))
                self._known.unlearn([file.digest])
                self._gone.add(file.digest)
                self._num_bytes -= file.num_bytes
                self.num_removed += 1
        return self._num_bytes + self._file_bytes <= self._max_bytes

    def _files(self) -> Iterator[StoredFile]:
        """All blocks in the folder, of whatever model; what was left on its way long ago is removed."""
        with os.scandir(self._folder) as folders:
            names = [entry.name for entry in folders if len(entry.name) == 2]
        for name in names:
            try:
                with os.scandir(self._folder / name) as entries:
                    for entry in entries:
                        file = _stored_file(entry)
                        if file is not None:
                            yield file
            except (FileNotFoundError, NotADirectoryError):
                continue  # it went meanwhile, or is none of ours
            except OSError as error:
                remedy = f"let its owner run `chmod -R g+rX {self._folder}`, or a+rX for all"
                what = f"{self._folder / name}: cannot be read ({error.strerror}), and its KV is computed again"
                self._fault("subfolder", f"{what}; {remedy}")
        if not self.is_writable:
            return
        oldest = time.time() - STALE
        with os.scandir(self._writing) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):  # another process has just renamed it
                    if entry.stat().st_mtime < oldest:
                        self._remove(Path(entry.path))

    def _remove(self, path: Path) -> None:
        if not self.is_writable:
            return
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._fault("removed", f"{path}: cannot be removed ({error})")

    def _fault(self, kind: str, text: str) -> None:
        """Counts a fault, and tells of the first of its kind."""
        self.num_faults += 1
        if kind not in self._logged:
            self._logged.add(kind)
            logger.warning("%s. More of this kind is counted, not reported.", text)


def _stored_file(entry: os.DirEntry[str]) -> StoredFile | None:
    """What a file's name and state say; None if it is none of ours, or has just gone."""
    digest, _, parent = entry.name.removesuffix(SUFFIX).partition("-")
    lengths = len(digest), len(parent)
    if lengths != (2 * DIGEST_BYTES, 2 * PARENT_BYTES) or not entry.name.endswith(SUFFIX):
        return None
    try:
        state = entry.stat(follow_symlinks=False)
        num_bytes = -(-state.st_size // SECTOR) * SECTOR
        return StoredFile(bytes.fromhex(digest), bytes.fromhex(parent), num_bytes, state.st_mtime)
    except (OSError, ValueError):
        return None
