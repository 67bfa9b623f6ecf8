"""The tree as text, for people."""

from __future__ import annotations

from collections.abc import Callable

from .tokens import unpack
from .view import View


def draw_tree(
    view: View,
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
    lines: list[str] = []
    left_out = 0
    for namespace, root in view.roots.items():
        lines.append(f"namespace {namespace!r}")
        stack = _children_to_draw(view, root, "")
        while stack:
            node, margin, branch = stack.pop()
            stack += _children_to_draw(view, node, margin + ("   " if branch == "└─ " else "│  "))
            if len(lines) < max_lines:
                lines.append(margin + branch + _describe(view, node, now, label))
            else:
                left_out += 1
    if left_out:
        lines.append(f"… and {left_out} more nodes")
    return "\n".join(lines)


def _children_to_draw(view: View, node: int, margin: str) -> list[tuple[int, str, str]]:
    """Children in reverse order of drawing (for a stack), the last one with a closing branch."""
    children = view.children(node)
    branches = ["├─ "] * (len(children) - 1) + ["└─ "]
    return [(child, margin, branch) for child, branch in zip(children, branches, strict=False)][::-1]


def _describe(view: View, node: int, now: float, label: Callable[[list[int]], str] | None) -> str:
    fields = view.memory.nodes[node]
    parts = [_count(int(fields["num_blocks"]), "block"), _age(now - float(fields["last_used"]))]
    if fields["num_leases"]:
        parts.append(_count(int(fields["num_leases"]), "lease"))
    if fields["priority"]:
        parts.append(f"priority {fields['priority']}")
    tokens = view.run_tokens(node)
    token_ids = unpack(tokens[:32])
    if label is not None:
        text = label(token_ids)
    else:
        more = ", …" if len(tokens) > 32 else ""
        text = f"[{', '.join(map(str, token_ids))}{more}]"
    return " · ".join(parts) + "  " + text


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
