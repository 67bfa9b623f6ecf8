"""Numbers of bytes as text for people."""

from __future__ import annotations


def bytes_text(count: int) -> str:
    """`12 B`, `1.5 KiB`, `3.25 MiB`, `1,024.00 GiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:,.2f} GiB"
