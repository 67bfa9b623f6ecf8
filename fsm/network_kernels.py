"""Compiled loops over a network's arrays; `network.py` is their only user."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import kernel


@kernel
def relax_costs(kind: Any, arg: Any, next_node: Any, options: Any, loops: Any, text_costs: Any, never: Any) -> Any:
    """int32[num_nodes]: least number of bytes from each node to the end of its rule; `never` if there is no way.

    A least fixed point by sweeps (Bellman-Ford); most continuations have smaller numbers or follow directly, so
    a few sweeps in both directions settle it.
    """
    num_nodes = kind.shape[0]
    cost = np.full(num_nodes, never, np.int32)
    changed = True
    forwards = True
    while changed:
        changed = False
        for i in range(num_nodes):
            node = i if forwards else num_nodes - 1 - i
            k = kind[node]
            if k == 6:  # RETURN
                value = 0
            elif k == 3:  # SPLIT
                value = never
                for option in range(arg[node], arg[node] + next_node[node]):
                    value = min(value, cost[options[option]])
            else:
                value = cost[next_node[node]]
                if k == 2:  # TEXT
                    value += text_costs[arg[node]]
                elif k == 4:  # CALL
                    value += cost[arg[node]]
                elif k == 5:  # LOOP
                    if loops[arg[node], 1] > 0:
                        each = np.int64(cost[loops[arg[node], 0]])
                        value = min(np.int64(never), value + each * loops[arg[node], 1])
                else:  # BYTE, BYTES
                    value += 1
            if value < cost[node]:
                cost[node] = value
                changed = True
        forwards = not forwards
    return cost


@kernel
def text_costs(table: Any, accepting: Any, byte_costs: Any) -> Any:
    """int32[num_states]: least number of bytes from a character boundary to acceptance; 1 << 29 if none.

    Args:
        table: int32[num_states, num_classes], accepting: uint8[num_states].
        byte_costs: int32[num_classes], least number of bytes of a character of the class.
    """
    never = 1 << 29
    num_states, num_classes = table.shape
    cost = np.full(num_states, never, np.int32)
    changed = True
    forwards = False
    while changed:
        changed = False
        for i in range(1, num_states):
            state = i if forwards else num_states - i
            value = 0 if accepting[state] else never
            for class_id in range(1, num_classes):
                target = table[state, class_id]
                if target:
                    value = min(value, cost[target] + byte_costs[class_id])
            if value < cost[state]:
                cost[state] = value
                changed = True
        forwards = not forwards
    return cost
