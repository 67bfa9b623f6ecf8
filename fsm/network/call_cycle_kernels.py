"""Rules that begin with themselves, found by a compiled loop; used by `network_kernels` only."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inner_kernel
from ..memory import A_NUM_OTHERS, A_OTHERS, K_CALL, K_LOOP, K_SET, K_SPLIT, K_TEXT, NEVER


@inner_kernel
def calls_in_cycles(
    kind: Any,
    arg: Any,
    next_node: Any,
    options: Any,
    loops: Any,
    text_costs: Any,
    cost: Any,
    sets: Any,
    entries: Any,
) -> Any:
    """int32[n, 2]: for each rule that leads to itself without a byte being read, a rule that it may begin with.

    Rules that such a rule does not begin with are left out, so that following the pairs ends in a cycle. n is 0
    if no rule can begin with itself.
    """
    num_nodes, num_rules = kind.shape[0], entries.shape[0]
    rule_of = np.full(num_nodes, -1, np.int32)
    for rule in range(num_rules):
        rule_of[entries[rule]] = rule
    froms, tos = np.empty(num_nodes, np.int32), np.empty(num_nodes, np.int32)
    num_calls = 0
    is_seen = np.zeros(num_nodes, np.bool_)
    pending = np.empty(num_nodes, np.int32)
    for rule in range(num_rules):
        size = _visit(entries[rule], cost, is_seen, pending, 0)
        while size:
            size -= 1
            node = pending[size]
            k = kind[node]
            if k == K_SPLIT:
                for option in range(arg[node], arg[node] + next_node[node]):
                    size = _visit(options[option], cost, is_seen, pending, size)
            elif k == K_CALL:
                froms[num_calls], tos[num_calls] = rule, rule_of[arg[node]]
                num_calls += 1
                if cost[arg[node]] == 0:
                    size = _visit(next_node[node], cost, is_seen, pending, size)
            elif k == K_LOOP:
                item, minimum = loops[arg[node], 0], loops[arg[node], 1]
                size = _visit(item, cost, is_seen, pending, size)
                if minimum == 0 or cost[item] == 0:
                    size = _visit(next_node[node], cost, is_seen, pending, size)
            elif k == K_SET:  # its members have a text first
                for option in range(
                    sets[arg[node], A_OTHERS], sets[arg[node], A_OTHERS] + sets[arg[node], A_NUM_OTHERS]
                ):
                    size = _visit(options[option], cost, is_seen, pending, size)
            elif k == K_TEXT and text_costs[arg[node]] == 0:
                size = _visit(next_node[node], cost, is_seen, pending, size)
    return _cycles(froms[:num_calls], tos[:num_calls], num_rules)


@inner_kernel
def _visit(node: Any, cost: Any, is_seen: Any, pending: Any, size: Any) -> Any:
    """Puts a node that can be completed on the stack, once; the size of the stack then."""
    if is_seen[node] or cost[node] >= NEVER:
        return size
    is_seen[node] = True
    pending[size] = node
    return size + 1


@inner_kernel
def _cycles(froms: Any, tos: Any, num_rules: Any) -> Any:
    """One edge (from, to) for each vertex that is left when vertices without an edge to one that is left are taken
    away again and again; such edges lead to a vertex that is left, too."""
    starts = np.zeros(num_rules + 2, np.int32)
    num_onward = np.zeros(num_rules, np.int32)
    for edge in range(froms.shape[0]):
        starts[tos[edge] + 2] += 1
        num_onward[froms[edge]] += 1
    for rule in range(num_rules):
        starts[rule + 2] += starts[rule + 1]
    backwards = np.empty(froms.shape[0], np.int32)
    for edge in range(froms.shape[0]):
        backwards[starts[tos[edge] + 1]] = froms[edge]
        starts[tos[edge] + 1] += 1
    pending = np.empty(num_rules, np.int32)
    size = 0
    for rule in range(num_rules):
        if num_onward[rule] == 0:
            pending[size] = rule
            size += 1
    num_left = num_rules
    while size:
        size -= 1
        rule = pending[size]
        num_left -= 1
        for at in range(starts[rule], starts[rule + 1]):
            caller = backwards[at]
            num_onward[caller] -= 1
            if num_onward[caller] == 0:
                pending[size] = caller
                size += 1
    found = np.empty((num_left, 2), np.int32)
    count = 0
    for edge in range(froms.shape[0]):
        rule = froms[edge]
        if num_onward[rule] > 0 and num_onward[tos[edge]] != 0:
            found[count, 0], found[count, 1] = rule, tos[edge]
            num_onward[rule] = -1
            count += 1
    return found
