"""Which users may use what is made in the folder of a `DiskTier`, as with git's `core.sharedRepository`.

A file or subfolder that is made in a shared folder gets the folder's group, and the permission bits that the folder
gives to its group and to others (a file those for reading only). They are set after it was made, so the umask does not
matter. Where the group cannot be set, the group gets nothing: it would be another one. In a folder that is not shared
all of it is for its owner alone.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

OTHERS_READ = stat.S_IRGRP | stat.S_IROTH
OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Sharing:
    """What a folder gives to its group and to others.

    Attributes:
        bits: permission bits of group and others, and the bit by which subfolders inherit the group; 0: private.
        group: the folder's; None: that of the process that makes it.
    """

    bits: int = 0
    group: int | None = None

    def apply(self, descriptor: int) -> None:
        """To a new file or folder, open under `descriptor`. Raises OSError."""
        if not self.bits:
            return
        state = os.fstat(descriptor)
        bits = self.bits
        if self.group is not None and state.st_gid != self.group:
            try:
                os.fchown(descriptor, -1, self.group)
            except PermissionError:
                bits &= ~(stat.S_IRWXG | stat.S_ISGID)
        is_folder = stat.S_ISDIR(state.st_mode)
        os.fchmod(descriptor, stat.S_IRWXU | bits if is_folder else stat.S_IRUSR | stat.S_IWUSR | bits & OTHERS_READ)

    def make_folder(self, path: Path, *, parents: bool = False) -> None:
        """Makes a folder unless it is there. Raises OSError."""
        try:
            path.mkdir(mode=0o700, parents=parents)
        except FileExistsError:
            if not path.is_dir():
                raise
            return
        if self.bits:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                self.apply(descriptor)
            finally:
                os.close(descriptor)


PRIVATE = Sharing()


def sharing_of(state: os.stat_result) -> Sharing:
    """Of a folder that is shared on purpose."""
    if not state.st_mode & OTHERS:
        return PRIVATE
    return Sharing(state.st_mode & (OTHERS | stat.S_ISGID), state.st_gid)


def unusable(folder: Path, key: str) -> list[Path]:
    """What of a folder's key and subfolders this process cannot use as it must, to write blocks there."""
    found = [folder / key] if (folder / key).exists() and not os.access(folder / key, os.R_OK) else []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            is_ours = entry.name == "writing" or len(entry.name) == 2
            if is_ours and entry.is_dir() and not os.access(entry.path, os.R_OK | os.W_OK | os.X_OK):
                found.append(Path(entry.path))
    return found


def remedy(folder: Path, state: os.stat_result) -> str:
    """The command that lets the users who share a folder use what is in it."""
    classes = [name for name, bit in (("g", stat.S_IWGRP), ("o", stat.S_IWOTH)) if state.st_mode & bit]
    if not classes:
        return f"`chown -R {os.geteuid()} {folder}`"
    group = f"chgrp -R {state.st_gid} {folder} && " if "g" in classes else ""
    return f"`{group}chmod -R {''.join(classes)}+rwX {folder}`"
