"""Compiled loops over a network's arrays; `network.py` is their only user."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import inner_kernel, kernel
from .memory import A_NUM_OTHERS, A_OTHERS
from .set_cost_kernels import least_cost, place_sets, settle_sets

NEVER = 1 << 29


@kernel
def lay_out(packed: Any, data: Any, sets: Any, members: Any, lists: Any, num_sets: Any) -> Any:
    """Everything that is to be worked out once all rules are built; in one call, since arguments are dear.

    Args:
        packed: int32, the numbers of nodes, literals, options, loops, rules and texts; then by node kind, arg and
            next_node; the lengths of the literals; options; loops (three each); entries, firsts (one more) and order
            of the rules; the costs of the texts. As the functions below describe them, at least one of each.
        data: uint8, all literals.
        sets, members, lists: of `SetTables`; num_sets: how many there are.

    Returns:
        kind, arg, next_node, cost, options, loops, entries of the finished network, and `calls_in_cycles`.
    """
    n, num_literals, num_options = packed[0], packed[1], packed[2]
    num_loops, num_rules, num_texts = packed[3], packed[4], packed[5]
    at = 6
    kind, arg, following = packed[at : at + n], packed[at + n : at + 2 * n], packed[at + 2 * n : at + 3 * n]
    at += 3 * n
    lens = packed[at : at + num_literals]
    at += num_literals
    options = packed[at : at + num_options].copy()
    at += num_options
    loops = np.zeros((max(num_loops, 1), 4), np.int32)
    for loop in range(num_loops):
        for column in range(3):
            loops[loop, column] = packed[at + 3 * loop + column]
    at += 3 * num_loops
    entries, firsts = packed[at : at + num_rules].copy(), packed[at + num_rules : at + 2 * num_rules + 1]
    at += 2 * num_rules + 1
    order, text_costs = packed[at : at + num_rules], packed[at + num_rules : at + num_rules + num_texts]
    kinds, args, nexts = spell_out(kind, arg, following, lens, data, options, loops, entries, firsts)
    place_sets(sets, members, options, num_sets)
    cost = settle_costs(kinds, args, nexts, options, loops, text_costs, sets, members, lists, entries, firsts, order)
    settle_sets(sets, members, lists, options, num_sets, cost)
    cycles = calls_in_cycles(kinds, args, nexts, options, loops, text_costs, cost, sets, entries)
    return kinds, args, nexts, cost, options, loops, entries, cycles


@inner_kernel
def spell_out(
    kind: Any,
    arg: Any,
    next_node: Any,
    lens: Any,
    data: Any,
    options: Any,
    loops: Any,
    entries: Any,
    firsts: Any,
) -> Any:
    """kind, arg, next_node: int32[num_nodes], with a node for each byte in the place of one for a whole literal.

    Of a literal the last byte comes first, as everything is built from its end. The numbers of nodes in `options`,
    `loops`, `entries` and `firsts` are changed accordingly; the args of CALL become entry nodes.

    Args:
        lens: int32[num_literals], data: uint8, all literals one after the other, in the order of the nodes.
        entries: int32[num_rules], the entry of each rule by its number.
        firsts: int32[num_rules + 1], the first node of each rule, in any order, and the number of nodes.
    """
    num_short = kind.shape[0]
    last = np.empty(num_short + 1, np.int32)  # where each node has gone, a literal to its first byte
    literal, num_nodes = 0, 0
    for short in range(num_short):
        num_nodes += 1
        if kind[short] == 0:
            num_nodes += lens[literal] - 1
            literal += 1
        last[short] = num_nodes - 1
    last[num_short] = num_nodes
    for i in range(entries.shape[0]):
        entries[i] = last[entries[i]]
    for i in range(options.shape[0]):
        options[i] = last[options[i]]
    for i in range(loops.shape[0]):
        loops[i, 0] = last[loops[i, 0]]
    for i in range(firsts.shape[0]):
        firsts[i] = last[firsts[i]]  # a RETURN, which is as long as before
    kinds, args, nexts = np.zeros(num_nodes, np.int32), np.empty(num_nodes, np.int32), np.empty(num_nodes, np.int32)
    literal, node, end = 0, 0, 0
    for short in range(num_short):
        k = kind[short]
        if k == 0:
            following = last[next_node[short]]
            end += lens[literal]
            for i in range(lens[literal]):
                args[node], nexts[node] = data[end - 1 - i], following
                following = node
                node += 1
            literal += 1
        else:
            kinds[node] = k
            args[node] = entries[arg[short]] if k == 4 else arg[short]
            nexts[node] = next_node[short] if k == 3 else last[next_node[short]]
            node += 1
    return kinds, args, nexts


@inner_kernel
def settle_costs(
    kind: Any,
    arg: Any,
    next_node: Any,
    options: Any,
    loops: Any,
    text_costs: Any,
    sets: Any,
    members: Any,
    lists: Any,
    entries: Any,
    firsts: Any,
    order: Any,
) -> Any:
    """int32[num_nodes]: least number of bytes from each node to the end of its rule; NEVER if there is no way.

    At most NEVER - 1 if there is one, should it be more.
    Also puts the costs of the items into `loops`.

    A least fixed point over rules: a rule whose cost has fallen has its callers looked at again. The rules that were
    built last, which are called by the others, come first; so usually each is looked at once.

    Args:
        entries: int32[num_rules], the entry of each rule by its number.
        firsts: int32[num_rules + 1], order: int32[num_rules]; the nodes of rule order[i] are firsts[i] up to
            firsts[i + 1].
    """
    num_nodes, num_rules = kind.shape[0], entries.shape[0]
    cost = np.full(num_nodes, NEVER, np.int32)
    rule_of = np.empty(num_nodes, np.int32)  # of the entries
    for rule in range(num_rules):
        rule_of[entries[rule]] = rule
    starts = np.zeros(num_rules + 2, np.int32)  # callers[starts[r] : starts[r + 1]]
    for node in range(num_nodes):
        if kind[node] == 4:  # CALL
            starts[rule_of[arg[node]] + 2] += 1
    for rule in range(num_rules):
        starts[rule + 2] += starts[rule + 1]
    callers = np.empty(starts[num_rules + 1], np.int32)
    for i in range(num_rules):
        for node in range(firsts[i], firsts[i + 1]):
            if kind[node] == 4:
                rule = rule_of[arg[node]]
                callers[starts[rule + 1]] = i
                starts[rule + 1] += 1
    queue = np.empty(num_rules, np.int32)  # a ring; a rule is in it at most once
    for i in range(num_rules):
        queue[i] = num_rules - 1 - i
    is_queued = np.ones(num_rules, np.bool_)
    begin, size = 0, num_rules
    while size:
        i = queue[begin]
        begin = begin + 1 if begin + 1 < num_rules else 0
        size -= 1
        is_queued[i] = False
        rule = order[i]
        before = cost[entries[rule]]
        first, end = firsts[i], firsts[i + 1]
        while _sweep(kind, arg, next_node, options, loops, text_costs, sets, members, lists, cost, first, end):
            pass
        if cost[entries[rule]] < before:
            for at in range(starts[rule], starts[rule + 1]):
                caller = callers[at]
                if not is_queued[caller]:
                    is_queued[caller] = True
                    at_end = begin + size
                    queue[at_end if at_end < num_rules else at_end - num_rules] = caller
                    size += 1
    for loop in range(loops.shape[0]):
        loops[loop, 3] = cost[loops[loop, 0]]
    return cost


@inner_kernel
def _sweep(
    kind: Any,
    arg: Any,
    next_node: Any,
    options: Any,
    loops: Any,
    text_costs: Any,
    sets: Any,
    members: Any,
    lists: Any,
    cost: Any,
    first: Any,
    end: Any,
) -> Any:
    """Lowers the costs of the nodes from first up to end; whether one that lies before what it leads to was lowered.

    A node usually has a greater number than all that it leads to, and then one sweep is enough.
    """
    again = False
    for node in range(first, end):
        k = kind[node]
        value: Any = np.int64(0)
        last: Any = node
        if k == 6 or k == 8:  # RETURN, KEY
            pass
        elif k == 3:  # SPLIT
            value = np.int64(NEVER)
            for option in range(arg[node], arg[node] + next_node[node]):
                value = min(value, np.int64(cost[options[option]]))
                last = max(last, np.int64(options[option]))
        else:
            rest, own, times = np.int64(cost[next_node[node]]), np.int64(1), np.int64(1)  # BYTE, BYTES
            last = np.int64(next_node[node])
            if k == 2:  # TEXT
                own = np.int64(text_costs[arg[node]])
            elif k == 4:  # CALL
                own = np.int64(cost[arg[node]])
            elif k == 5:  # LOOP
                item = loops[arg[node], 0]
                last = max(last, np.int64(item))
                times = np.int64(loops[arg[node], 1])
                own = np.int64(cost[item]) if times else np.int64(0)
            elif k == 7:  # SET
                own = least_cost(sets, members, lists, options, arg[node], cost)
            # too long to be written is not the same as impossible
            value = np.int64(NEVER) if rest >= NEVER or own >= NEVER else min(rest + own * times, np.int64(NEVER - 1))
        if value < cost[node]:
            cost[node] = value
            again = again or last > node
    return again


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
            if k == 3:  # SPLIT
                for option in range(arg[node], arg[node] + next_node[node]):
                    size = _visit(options[option], cost, is_seen, pending, size)
            elif k == 4:  # CALL
                froms[num_calls], tos[num_calls] = rule, rule_of[arg[node]]
                num_calls += 1
                if cost[arg[node]] == 0:
                    size = _visit(next_node[node], cost, is_seen, pending, size)
            elif k == 5:  # LOOP
                item, minimum = loops[arg[node], 0], loops[arg[node], 1]
                size = _visit(item, cost, is_seen, pending, size)
                if minimum == 0 or cost[item] == 0:
                    size = _visit(next_node[node], cost, is_seen, pending, size)
            elif k == 7:  # SET, whose members have a text first
                for option in range(
                    sets[arg[node], A_OTHERS], sets[arg[node], A_OTHERS] + sets[arg[node], A_NUM_OTHERS]
                ):
                    size = _visit(options[option], cost, is_seen, pending, size)
            elif k == 2 and text_costs[arg[node]] == 0:  # TEXT
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
