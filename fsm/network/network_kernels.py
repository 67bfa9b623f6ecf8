"""Compiled loops over a network's arrays; `network.py` is their only user."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inner_kernel, unlocked_kernel
from ..memory import (
    K_BYTE,
    K_CALL,
    K_KEY,
    K_LOOP,
    K_RETURN,
    K_SET,
    K_SPLIT,
    K_TEXT,
    MEMBER_WIDTH,
    N_ARG,
    N_COST,
    N_EDGES,
    N_END,
    N_ENTRIES,
    N_KIND,
    N_LISTS,
    N_LOOPS,
    N_MAX_WORDS,
    N_MEMBERS,
    N_NEXT,
    N_NUM_CYCLES,
    N_NUM_SETS,
    N_OPTIONS,
    N_SETS,
    N_SHORTEST,
    N_START,
    N_TRIES,
    NETWORK_HEAD,
    NEVER,
    SET_WIDTH,
    TRIE_WIDTH,
)
from .call_cycle_kernels import calls_in_cycles
from .set_cost_kernels import least_cost, place_sets, settle_sets
from .set_trie_kernels import BUILT_WIDTH, fill_sets, measure_sets

# the head of what `Positions` has built: how many there are of each
(
    P_NODES,
    P_LITERALS,
    P_OPTIONS,
    P_LOOPS,
    P_RULES,
    P_TEXTS,
    P_SETS,
    P_MEMBERS,
    P_RELATIONS,
) = range(9)
PACKED_HEAD = 9


@unlocked_kernel
def lay_out(packed: Any, data: Any) -> Any:
    """Everything that is to be worked out once all rules are built; in one call, since arguments and results are dear.

    Args:
        packed: int32, a head (P_..), then by node kind, arg and next_node; the lengths of the literals; options;
            loops (three each); entries, firsts (one more) and order of the rules; the costs of the texts; sets,
            required and relations of `SetBuilder`. As the functions below describe them.
        data: bytes, all literals.

    Returns:
        int32: a head (`memory.N_KIND` ..), and where that says kind, arg, next_node, cost, options, loops, entries and
        the tables of the sets of the finished network; behind them `calls_in_cycles`, if there are any.
    """
    n, num_literals, num_options = packed[P_NODES], packed[P_LITERALS], packed[P_OPTIONS]
    num_loops, num_rules, num_texts = packed[P_LOOPS], packed[P_RULES], packed[P_TEXTS]
    num_sets, num_members, num_relations = packed[P_SETS], packed[P_MEMBERS], packed[P_RELATIONS]
    at = PACKED_HEAD
    kind, arg, following = packed[at : at + n], packed[at + n : at + 2 * n], packed[at + 2 * n : at + 3 * n]
    at += 3 * n
    lens = packed[at : at + num_literals]
    at += num_literals
    short_options = packed[at : at + num_options]
    at += num_options
    short_loops = packed[at : at + 3 * num_loops]
    at += 3 * num_loops
    short_entries, firsts = packed[at : at + num_rules], packed[at + num_rules : at + 2 * num_rules + 1].copy()
    at += 2 * num_rules + 1
    order = packed[at : at + num_rules]
    at += num_rules
    text_costs = packed[at : at + num_texts]
    at += num_texts
    built = packed[at : at + BUILT_WIDTH * num_sets].reshape(num_sets, BUILT_WIDTH)
    at += BUILT_WIDTH * num_sets
    required = packed[at : at + num_members]
    at += num_members
    relations = packed[at : at + num_relations]

    begins, heads = np.zeros(num_literals + 1, np.int64), np.zeros(num_literals, np.int64)
    for literal in range(num_literals):
        begins[literal + 1] = begins[literal] + lens[literal]
    num_tries, num_edges, num_words, max_words = measure_sets(built, data, begins, heads)
    last = place_nodes(kind, following, begins, heads)
    num_nodes = last[n]

    sizes = np.full(N_END, num_nodes, np.int64)  # kinds, args, nexts and costs
    sizes[N_OPTIONS], sizes[N_LOOPS], sizes[N_ENTRIES] = num_options, 4 * max(num_loops, 1), num_rules
    sizes[N_SETS], sizes[N_MEMBERS] = SET_WIDTH * num_sets, MEMBER_WIDTH * num_members
    sizes[N_TRIES], sizes[N_EDGES], sizes[N_LISTS] = TRIE_WIDTH * num_tries, 2 * num_edges, num_words + num_relations
    found = np.zeros(NETWORK_HEAD + sizes.sum(), np.int32)
    begin = np.int64(NETWORK_HEAD)
    for index in range(N_END):
        found[index] = begin
        begin += sizes[index]
    found[N_END], found[N_NUM_SETS], found[N_MAX_WORDS] = begin, num_sets, max_words

    kinds, args = found[found[N_KIND] : found[N_ARG]], found[found[N_ARG] : found[N_NEXT]]
    nexts = found[found[N_NEXT] : found[N_COST]]
    cost, options = found[found[N_COST] : found[N_OPTIONS]], found[found[N_OPTIONS] : found[N_LOOPS]]
    loops = found[found[N_LOOPS] : found[N_ENTRIES]].reshape(max(num_loops, 1), 4)
    entries = found[found[N_ENTRIES] : found[N_SETS]]
    sets = found[found[N_SETS] : found[N_MEMBERS]].reshape(num_sets, SET_WIDTH)
    members = found[found[N_MEMBERS] : found[N_TRIES]].reshape(num_members, MEMBER_WIDTH)
    tries = found[found[N_TRIES] : found[N_EDGES]].reshape(num_tries, TRIE_WIDTH)
    edges = found[found[N_EDGES] : found[N_LISTS]].reshape(num_edges, 2)
    lists = found[found[N_LISTS] : found[N_END]]
    for i in range(num_options):
        options[i] = last[short_options[i]]
    for i in range(num_loops):
        loops[i, 0], loops[i, 1], loops[i, 2] = last[short_loops[3 * i]], short_loops[3 * i + 1], short_loops[3 * i + 2]
    for i in range(num_rules):
        entries[i] = last[short_entries[i]]
    for i in range(num_rules + 1):
        firsts[i] = last[firsts[i]]  # a RETURN, which is as long as before
    spell_out(kind, arg, following, data, begins, heads, last, entries, kinds, args, nexts)
    fill_sets(built, required, relations, heads, data, begins, sets, members, tries, edges, lists)
    place_sets(sets, members, options, num_sets)
    settle_costs(kinds, args, nexts, options, loops, text_costs, sets, members, lists, entries, firsts, order, cost)
    settle_sets(sets, members, lists, options, num_sets, cost)
    found[N_START], found[N_SHORTEST] = entries[0], cost[entries[0]]
    cycles = calls_in_cycles(kinds, args, nexts, options, loops, text_costs, cost, sets, entries)
    found[N_NUM_CYCLES] = cycles.shape[0]
    if cycles.shape[0] == 0:
        return found
    longer = np.empty(begin + 2 * cycles.shape[0], np.int32)
    longer[:begin] = found
    for i in range(cycles.shape[0]):
        longer[begin + 2 * i], longer[begin + 2 * i + 1] = cycles[i, 0], cycles[i, 1]
    return longer


@inner_kernel
def place_nodes(kind: Any, next_node: Any, begins: Any, heads: Any) -> Any:
    """int32[num_nodes + 1]: where each node goes, a literal to the first byte of it that is not read by a trie.

    A literal of which nothing is left goes where it leads to. The last number is that of all nodes.

    Args:
        begins: int64[num_literals + 1], where each literal begins; heads: how much of it a trie reads.
    """
    last = np.empty(kind.shape[0] + 1, np.int32)
    literal, num_nodes = 0, np.int64(0)
    for short in range(kind.shape[0]):
        length = np.int64(1)
        if kind[short] == K_BYTE:
            length = begins[literal + 1] - begins[literal] - heads[literal]
            literal += 1
        num_nodes += length
        last[short] = num_nodes - 1 if length else last[next_node[short]]
    last[kind.shape[0]] = num_nodes
    return last


@inner_kernel
def spell_out(
    kind: Any,
    arg: Any,
    next_node: Any,
    data: Any,
    begins: Any,
    heads: Any,
    last: Any,
    entries: Any,
    kinds: Any,
    args: Any,
    nexts: Any,
) -> None:
    """Fills in kinds, args and nexts: a node for each byte in the place of one for a whole literal.

    Of a literal the last byte comes first, as everything is built from its end. The args of CALL become entry nodes.

    Args:
        kind, arg, next_node: int32[num_short], before; last: see `place_nodes`.
        data: bytes, all literals one after the other, in the order of the nodes; begins, heads: see `place_nodes`.
        entries: int32[num_rules], the entry of each rule by its number.
    """
    literal, node = 0, 0
    for short in range(kind.shape[0]):
        k = kind[short]
        if k == K_BYTE:
            following = last[next_node[short]]
            for i in range(begins[literal + 1] - 1, begins[literal] + heads[literal] - 1, -1):
                args[node], nexts[node] = data[i], following
                following = node
                node += 1
            literal += 1
        else:
            kinds[node] = k
            args[node] = entries[arg[short]] if k == K_CALL else arg[short]
            nexts[node] = next_node[short] if k == K_SPLIT else last[next_node[short]]
            node += 1


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
    cost: Any,
) -> None:
    """Fills in cost, int32[num_nodes]: least number of bytes from each node to the end of its rule; NEVER if none.

    At most NEVER - 1 if there is one, should it be more.
    Also puts the costs of the items into `loops`.

    A least fixed point over rules: passes over all rules, those that are called before those that call them, until
    no rule is left that calls one whose cost has fallen since. Without recursion that is one pass.

    Args:
        entries: int32[num_rules], the entry of each rule by its number.
        firsts: int32[num_rules + 1], order: int32[num_rules]; the nodes of rule order[i] are firsts[i] up to
            firsts[i + 1].
    """
    num_nodes, num_rules = kind.shape[0], entries.shape[0]
    cost[:] = NEVER
    rule_of = np.empty(num_nodes, np.int32)  # of the entries
    for rule in range(num_rules):
        rule_of[entries[rule]] = rule
    callers, starts, sequence = _calls(kind, arg, rule_of, order, firsts)
    places = np.empty(num_rules, np.int32)
    for place in range(num_rules):
        places[sequence[place]] = place
    is_due = np.ones(num_rules, np.bool_)
    again = True
    while again:
        again = False
        for place in range(num_rules):
            i = sequence[place]
            if not is_due[i]:
                continue
            is_due[i] = False
            rule = order[i]
            before = cost[entries[rule]]
            first, end = firsts[i], firsts[i + 1]
            while _sweep(kind, arg, next_node, options, loops, text_costs, sets, members, lists, cost, first, end):
                pass
            if cost[entries[rule]] < before:
                for at in range(starts[rule], starts[rule + 1]):
                    is_due[callers[at]] = True
                    again = again or places[callers[at]] <= place
    for loop in range(loops.shape[0]):
        loops[loop, 3] = cost[loops[loop, 0]]


@inner_kernel
def _calls(kind: Any, arg: Any, rule_of: Any, order: Any, firsts: Any) -> Any:
    """Who calls whom; rules by their place in `order`, but for those that are called.

    Returns:
        callers and starts: callers[starts[r] : starts[r + 1]] call the rule of number r; and all rules, each behind
        those that it calls unless they call it as well.
    """
    num_rules = order.shape[0]
    starts, numbers = np.zeros(num_rules + 2, np.int32), np.empty(num_rules, np.int32)
    for i in range(num_rules):
        numbers[order[i]] = i
        for node in range(firsts[i], firsts[i + 1]):
            if kind[node] == K_CALL:
                starts[rule_of[arg[node]] + 2] += 1
    for rule in range(num_rules):
        starts[rule + 2] += starts[rule + 1]
    callers = np.empty(starts[num_rules + 1], np.int32)
    for i in range(num_rules):
        for node in range(firsts[i], firsts[i + 1]):
            if kind[node] == K_CALL:
                rule = rule_of[arg[node]]
                callers[starts[rule + 1]] = i
                starts[rule + 1] += 1
    sequence, path, num_done = np.empty(num_rules, np.int32), np.empty(num_rules, np.int32), 0
    at = firsts[:num_rules].copy()  # the node of each rule that is looked at next
    is_met = np.zeros(num_rules, np.bool_)
    for root in range(num_rules):
        depth = 0
        if not is_met[root]:
            is_met[root], path[0], depth = True, root, 1
        while depth:
            i = path[depth - 1]
            node = at[i]
            if node == firsts[i + 1]:
                depth -= 1
                sequence[num_done] = i
                num_done += 1
                continue
            at[i] += 1
            if kind[node] == K_CALL and not is_met[numbers[rule_of[arg[node]]]]:
                path[depth] = numbers[rule_of[arg[node]]]
                is_met[path[depth]] = True
                depth += 1
    return callers, starts, sequence


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
        if k == K_SPLIT:
            value = np.int64(NEVER)
            for option in range(arg[node], arg[node] + next_node[node]):
                value = min(value, np.int64(cost[options[option]]))
                last = max(last, np.int64(options[option]))
        elif k != K_RETURN and k != K_KEY:
            rest, own, times = np.int64(cost[next_node[node]]), np.int64(1), np.int64(1)  # of one byte
            last = np.int64(next_node[node])
            if k == K_TEXT:
                own = np.int64(text_costs[arg[node]])
            elif k == K_CALL:
                own = np.int64(cost[arg[node]])
            elif k == K_LOOP:
                item = loops[arg[node], 0]
                last = max(last, np.int64(item))
                times = np.int64(loops[arg[node], 1])
                own = np.int64(cost[item]) if times else np.int64(0)
            elif k == K_SET:
                own = least_cost(sets, members, lists, options, arg[node], cost)
            # too long to be written is not the same as impossible
            value = np.int64(NEVER) if rest >= NEVER or own >= NEVER else min(rest + own * times, np.int64(NEVER - 1))
        if value < cost[node]:
            cost[node] = value
            again = again or last > node
    return again
