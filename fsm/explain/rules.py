"""Rules: a network as one graph per rule, for languages that no finite automaton writes.

A rule that calls itself has no end of states, so its states cannot be drawn; its rules can. In such a graph

    → name     pushes the place after the edge on the stack, writes the rule, and comes back (pops)
    ‹text›     is a text automaton, run until it accepts
    ‹turns›    is a counted loop, whose body is a graph of its own

and a rule may end at its accepting nodes. Positions that are reached alike are one node (a set of positions), so a
graph is deterministic but for what overlaps between bytes and names.
"""

from __future__ import annotations

from collections.abc import Callable

from ..columns import K_BYTE, K_BYTES, K_CALL, K_LOOP, K_RETURN, K_SET, K_SPLIT, K_TEXT, NEVER
from ..network.network import Network
from ..network.walks import strong_components
from .graph import Edge, Graph, Kind, Word

MAX_POSITIONS = 4000

Name = Callable[[int], str]
"""The name of a rule by its entry."""


def is_recursive(network: Network) -> bool:
    """Whether the stack can grow without end: a rule calls itself, at once or by way of others, and is not done then.

    A call that is a rule's last act leaves nothing on the stack; rules that only recur so have finitely many states.
    """
    calls = {entry: _calls(network, entry) for entry in entries(network)}
    edges = {entry: dict.fromkeys(called for called, _ in found) for entry, found in calls.items()}
    component = {entry: number for number, found in enumerate(strong_components(edges)) for entry in found}
    return any(
        component[caller] == component[called]
        for caller, found in calls.items()
        for called, is_last in found
        if not is_last
    )


def entries(network: Network) -> list[int]:
    """The entries of all rules and loop bodies that can be reached, the start first."""
    found = [network.start]
    known = set(found)
    for entry in found:
        for other in _called(network, entry):
            if other not in known:
                known.add(other)
                found.append(other)
    return found


def rule_graphs(network: Network, name: Name, text_name: Callable[[int], str], max_graphs: int = 24) -> list[Graph]:
    """The graphs of the rules, the start first, at most `max_graphs` of them."""
    return [_graph(network, entry, name, text_name) for entry in entries(network)[:max_graphs]]


def nodes_of_rule(network: Network, entry: int, *, with_loops: bool = True) -> list[int]:
    """The nodes from a rule's entry to its end; `with_loops`: the bodies of its loops as well."""
    pending = [entry]
    seen = {entry: None}
    while pending:
        node = pending.pop()
        onward = _following(network, node)
        if with_loops and network.kind[node] == K_LOOP:
            onward.append(network.loops[network.arg[node]][0])
        elif with_loops and network.kind[node] == K_SET:
            onward += network.laid.members(int(network.arg[node]))[0]
        for target in onward:
            if target not in seen and network.cost[target] < NEVER:
                seen[target] = None
                pending.append(target)
    return list(seen)


def _called(network: Network, entry: int) -> list[int]:
    """The rules and loop bodies that a rule refers to, in order."""
    return list(dict.fromkeys(called for called, _ in _calls(network, entry)))


def _calls(network: Network, entry: int) -> list[tuple[int, bool]]:
    """The same, each with whether the rule is done when that is."""
    found: list[tuple[int, bool]] = []
    for node in nodes_of_rule(network, entry, with_loops=False):
        kind, argument, following = int(network.kind[node]), int(network.arg[node]), int(network.next_node[node])
        if kind == K_CALL:
            found.append((argument, bool(network.kind[following] == K_RETURN)))
        elif kind == K_LOOP:
            found.append((network.loops[argument][0], False))
    return found


def _following(network: Network, node: int) -> list[int]:
    kind, argument, following = int(network.kind[node]), int(network.arg[node]), int(network.next_node[node])
    if kind == K_SPLIT:
        return [int(option) for option in network.options[argument : argument + following]][::-1]
    return [] if kind == K_RETURN else [following]


def _graph(network: Network, entry: int, name: Name, text_name: Callable[[int], str]) -> Graph:
    first = _closure(network, [entry])
    numbers = {first: 0}
    order = [first]
    edges: list[Edge] = []
    is_whole = True
    for source, positions in enumerate(order):
        for key, targets in _steps(network, positions, name, text_name).items():
            after = _closure(network, targets)
            if not after:
                continue
            number = numbers.get(after)
            if number is None:
                if len(order) >= MAX_POSITIONS:
                    is_whole = False
                    continue
                number = numbers[after] = len(order)
                order.append(after)
            kind, words, label = key
            edges.append(Edge(source, number, words, label, kind))
    accepting = frozenset(
        index for index, positions in enumerate(order) if any(network.kind[p] == K_RETURN for p in positions)
    )
    states = tuple(min(positions) for positions in order)
    return Graph(name(entry), states, tuple(edges), accepting, 0, 0, is_whole)


Key = tuple[Kind, tuple[Word, ...], str]


def _steps(
    network: Network, positions: frozenset[int], name: Name, text_name: Callable[[int], str]
) -> dict[Key, list[int]]:
    """Where each label leads; bytes with the same targets are one label."""
    by_byte: dict[int, list[int]] = {}
    found: dict[Key, list[int]] = {}
    for node in sorted(positions):
        kind, argument, following = int(network.kind[node]), int(network.arg[node]), int(network.next_node[node])
        if kind == K_BYTE:
            by_byte.setdefault(argument, []).append(following)
        elif kind == K_BYTES:
            for byte in range(256):
                if int(network.byte_sets[argument][byte >> 6]) >> (byte & 63) & 1:
                    by_byte.setdefault(byte, []).append(following)
        elif kind == K_TEXT:
            found.setdefault((Kind.TEXT, (), text_name(argument)), []).append(following)
        elif kind == K_CALL:
            found.setdefault((Kind.CALL, (), name(argument)), []).append(following)
        elif kind == K_LOOP:
            body, minimum, maximum, _ = network.loops[argument]
            times = f"{minimum}+" if maximum < 0 else f"{minimum}" if minimum == maximum else f"{minimum}–{maximum}"
            found.setdefault((Kind.TURNS, (), f"{times} × {name(body)}"), []).append(following)
        elif kind == K_SET:
            members, has_others = network.laid.members(argument)
            label = f"{len(members)} members{' and others' if has_others else ''}, in any order"
            found.setdefault((Kind.TURNS, (), label), []).append(following)
    groups: dict[tuple[int, ...], int] = {}
    for byte, targets in by_byte.items():
        key = tuple(sorted(set(targets)))
        groups[key] = groups.get(key, 0) | 1 << byte
    read: dict[Key, list[int]] = {(Kind.BYTES, ((mask,),), ""): list(targets) for targets, mask in groups.items()}
    return read | found


def _closure(network: Network, nodes: list[int]) -> frozenset[int]:
    """The positions that are reached without reading, those that cannot end left out."""
    found: set[int] = set()
    seen = set(nodes)
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if network.cost[node] >= NEVER:
            continue
        if network.kind[node] != K_SPLIT:
            found.add(node)
            continue
        for target in _following(network, node):
            if target not in seen:
                seen.add(target)
                pending.append(target)
    return frozenset(found)
