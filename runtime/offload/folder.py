"""The folder of a `DiskTier`: whose it is, whether it can be written to, and the key of its checksums.

::

    folder/key      32 random bytes, made once, by the first process that uses the folder

The key is written under another name and linked to its own, so it is there as a whole or not at all. Where the file
system has no hard links it is created under its own name by one process, and the others wait until it is whole.

Every block carries a checksum under this key, so a file that was written by a user who cannot read the key is not
taken for a block. The key lies in the folder, so all processes that may read it share the blocks.

A user who can write to the folder could also remove blocks or exchange the key. So a folder that belongs to another
user, or that others can write to, is refused unless the caller says that it is shared on purpose. A key that users can
write to who cannot write to the folder is always refused. Root counts as trusted. What is made in a shared folder is
for all who share it (`sharing`), and otherwise for its owner alone (mode 0600).

Knows no blocks.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...errors import ConfigError
from .sharing import PRIVATE, Sharing, remedy, sharing_of, unusable

KEY = "key"
KEY_BYTES = 32
READS, PAUSE = 21, 0.05  # of a key that is too short, and the seconds between them
READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
ANYBODY_WRITES = stat.S_IWUSR | OTHERS_WRITE


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that a `DiskTier` may use.

    Attributes:
        key: 32 bytes, secret.
        is_writable: whether blocks are written there; otherwise they are only read.
        sharing: which users may use what is made there.
    """

    path: Path
    key: bytes
    is_writable: bool
    sharing: Sharing = PRIVATE


def open_folder(path: Path, *, shared: bool = False) -> Folder:
    """Makes the folder for its owner alone (0700), and its key, unless they are there; reads the key.

    Args:
        shared: the owner of the folder, and all who can write to it or read its key, are trusted.

    Raises:
        ConfigError: it cannot be made, has no key and cannot be written to, is not to be trusted, or can be written to
            but holds a key or subfolders of another user that this one cannot use.
    """
    if path.exists() and not path.is_dir():
        raise ConfigError(f"disk_cache: {path} is a file and no folder; give a folder")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = path.stat()
        is_writable = _can_write(path, state)
    except OSError as error:
        raise ConfigError(
            f"disk_cache: {path} cannot be written to ({error.strerror}); give a folder that can"
        ) from error
    if not shared:
        _check_owner(path, state)
    sharing = sharing_of(state) if shared else PRIVATE
    if is_writable:
        _check_usable(path, state)
    try:
        key = keep_key(path, sharing=sharing) if is_writable else _read_key(path)
    except FileNotFoundError as error:
        raise ConfigError(
            f"disk_cache: {path} cannot be written to, and holds no blocks that could be read (there is no file"
            f" {KEY!r}); give a folder that can be written to"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"disk_cache: {path / KEY}, the key of the checksums, cannot be used ({error.strerror}); make it readable,"
            " or remove it: blocks that were written under it are then computed again"
        ) from error
    _check_key(path, state, shared=shared)
    return Folder(path, key, is_writable, sharing)


def keep_key(path: Path, key: bytes | None = None, *, sharing: Sharing = PRIVATE) -> bytes:
    """The folder's key. If it has none, `key` becomes that, or random bytes; of processes that do so at the same time
    one succeeds, and all get the same.

    Raises:
        OSError: it can be neither read nor made, or is no key.
    """
    with suppress(FileNotFoundError):
        return _read_key(path)
    content = key or os.urandom(KEY_BYTES)
    new = path / f"{KEY}-{os.getpid()}-{time.time_ns():x}"
    _write_key(new, content, sharing)
    try:
        os.link(new, path / KEY)  # unlike renaming, it leaves a key alone that is there
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links, of which each has an error of its own
        with suppress(FileExistsError):
            _write_key(path / KEY, content, sharing)
    finally:
        new.unlink(missing_ok=True)
    return _read_key(path)


def _write_key(path: Path, key: bytes, sharing: Sharing) -> None:
    """A new file, which is removed again if it cannot be written. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            sharing.apply(descriptor)
            if os.write(descriptor, key) != len(key):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)  # a key that a crash of the machine has emptied would stop every later start
        finally:
            os.close(descriptor)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _read_key(path: Path) -> bytes:
    """Waits a second for the rest of a key: where there are no hard links it is seen while it is written."""
    for turn in range(READS):
        if turn:
            time.sleep(PAUSE)
        descriptor = os.open(path / KEY, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = os.read(descriptor, KEY_BYTES + 1)
        finally:
            os.close(descriptor)
        if len(found) == KEY_BYTES:
            return found
        if len(found) > KEY_BYTES:
            break
    raise OSError(errno.EINVAL, f"it is not a file of {KEY_BYTES} bytes")


def _can_write(path: Path, state: os.stat_result) -> bool:
    """Tries it; False at once for a folder without any write permission, though root could write to it."""
    if not state.st_mode & ANYBODY_WRITES:
        return False
    probe = path / f"probe-{os.getpid()}-{time.time_ns():x}"
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        if error.errno not in READ_ONLY:
            raise
        return False
    return True


def _check_usable(path: Path, state: os.stat_result) -> None:
    found = unusable(path, KEY)
    if not found:
        return
    shown = ", ".join(f"{one.name} (mode {stat.S_IMODE(one.stat().st_mode):04o})" for one in found[:3])
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    raise ConfigError(
        f"disk_cache: {path} can be written to, but not all that is in it can be used: {shown}{more}; let their owner"
        f" run {remedy(path, state)}, or give another folder"
    )


def _check_owner(path: Path, state: os.stat_result) -> None:
    shared = "set disk_cache_shared (--disk-cache-shared) if all who can write to it are trusted"
    if not _is_trusted(state.st_uid):
        raise ConfigError(
            f"disk_cache: {path} belongs to another user (uid {state.st_uid}); give a folder of your own, or {shared}"
        )
    if state.st_mode & OTHERS_WRITE:
        raise ConfigError(
            f"disk_cache: other users can write to {path} (mode {stat.S_IMODE(state.st_mode):04o}); name a folder that"
            f" does not exist yet, as {path / 'phloem'} (it is made for you alone), `chmod go-w` this one, or {shared}"
        )


def _check_key(path: Path, folder: os.stat_result, *, shared: bool) -> None:
    """Whether only users who are trusted with the folder could have exchanged its key."""
    state = (path / KEY).stat()
    what = f"disk_cache: {path / KEY}, the key of the checksums,"
    if not shared and not _is_trusted(state.st_uid):
        raise ConfigError(
            f"{what} was made by another user (uid {state.st_uid}); remove it, or give a folder that does not exist yet"
        )
    if state.st_mode & OTHERS_WRITE & ~folder.st_mode:
        raise ConfigError(
            f"{what} can be written to by other users (mode {stat.S_IMODE(state.st_mode):04o}), who could then write"
            " blocks: if one of them may have done so, remove the folder; otherwise run"
            f" `chmod go-w {path / KEY}`"
        )


def _is_trusted(owner: int) -> bool:
    return owner in (0, os.geteuid())
