"""Why a text cannot be the name of a file, before it is used as one. Knows nothing of what the file is for."""

from __future__ import annotations

import os
from pathlib import Path


def path_fault(path: str | Path) -> str | None:
    """What is wrong with a path, as a part of a sentence; None if there is such a file, or could be.

    Null characters and lone surrogates are in no name; other names may be too long, forbidden to look at, or links in
    a cycle.
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return (error.strerror or str(error)).lower()
    except ValueError:
        return "no file can have this name"
    return None
