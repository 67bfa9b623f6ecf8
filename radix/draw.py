"""The tree as text, for people."""

from __future__ import annotations

from collections.abc import Callable

from .snapshot import NodeRecord, Snapshot
from .tokens import unpack


def draw_tree(
    tree: Snapshot,
    now: float,
    *,
    label: Callable[[list[int]], str] | None = None,
    max_lines: int = 200,
) -> str:
    """One line per node: size, age, leases and the first tokens of its run.

    ::

        namespace 'default'
        ├─ 125 blocks · 3 s · 2 leases  [1, 734, 2091, …]
        │  ├─ 9 blocks · 41 s  [88, 12, …]
        │  └─ 4 blocks · 3 s · 1 lease  [88, 19, …]

    Args:
        now: the tree's clock, for the ages (seconds since the last use that ended there).
        label: shows the first tokens of a run, by default as ids.
        max_lines: further nodes are counted in a last line.
    """
    nodes = {node.id: node for node in tree.nodes}
    lines: list[str] = []
    left_out = 0
    for namespace, (children, _) in tree.roots.items():
        lines.append(f"namespace {namespace!r}")
        stack = _to_draw(children, "")
        while stack:
            number, margin, branch = stack.pop()
            stack += _to_draw(nodes[number].children, margin + ("   " if branch == "└─ " else "│  "))
            if len(lines) < max_lines:
                lines.append(margin + branch + _describe(nodes[number], now, label))
            else:
                left_out += 1
    if left_out:
        lines.append(f"… and {left_out} more nodes")
    return "\n".join(lines)


def _to_draw(children: list[int], margin: str) -> list[tuple[int, str, str]]:
    """Children in reverse order of drawing (for a stack), the last one with a closing branch."""
    branches = ["├─ "] * (len(children) - 1) + ["└─ "]
    return [(child, margin, branch) for child, branch in zip(children, branches, strict=False)][::-1]


def _describe(node: NodeRecord, now: float, label: Callable[[list[int]], str] | None) -> str:
    parts = [_count(len(node.blocks), "block"), _age(now - node.last_used)]
    if node.num_leases:
        parts.append(_count(node.num_leases, "lease"))
    if node.priority:
        parts.append(f"priority {node.priority}")
    token_ids = unpack(node.tokens[:32])
    if label is not None:
        text = label(token_ids)
    else:
        more = ", …" if len(node.tokens) > 32 else ""
        text = f"[{', '.join(map(str, token_ids))}{more}]"
    return " · ".join(parts) + "  " + text


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
