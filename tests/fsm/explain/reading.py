"""Graphs read by the letter: what a picture says, as a recogniser that shares nothing with the automaton."""

from __future__ import annotations

from collections.abc import Mapping

from phloem.fsm.explain import Edge, Graph, Kind


def accepts(graph: Graph, data: bytes) -> bool:
    """Whether the picture of an automaton spells the text; loops are counted since their node was entered."""
    places: list[set[tuple[int, int]]] = [set() for _ in range(len(data) + 1)]
    places[0].add((graph.start, 0))
    leaving = graph.leaving()
    for position in range(len(data) + 1):
        pending = list(places[position])
        for node, turns in pending:
            for edge in leaving[node]:
                assert edge.kind is Kind.BYTES
                is_loop = edge.most is not None
                if edge.most is not None and turns >= edge.most:
                    continue
                for word in edge.words:
                    if spells(word, data, position):
                        places[position + len(word)].add((edge.target, turns + 1 if is_loop else 0))
    return any(node in graph.accepting for node, _ in places[len(data)])


def spells(word: tuple[int, ...], data: bytes, position: int) -> bool:
    """Whether the word reads the bytes from a position on."""
    found = data[position : position + len(word)]
    return len(found) == len(word) and all(mask >> byte & 1 for mask, byte in zip(word, found, strict=True))


def rules_accept(graphs: Mapping[str, Graph], start: str, data: bytes) -> bool:
    """Whether the pictures of rules, calls and turns taken literally, write the text."""
    known: dict[tuple[str, int], frozenset[int]] = {}
    return len(data) in _ends(graphs, start, data, 0, known)


def _ends(
    graphs: Mapping[str, Graph], rule: str, data: bytes, begin: int, known: dict[tuple[str, int], frozenset[int]]
) -> frozenset[int]:
    """Where the rule can end if it begins there."""
    if (rule, begin) in known:
        return known[rule, begin]
    graph = graphs[rule]
    leaving = graph.leaving()
    seen = {(graph.start, begin, 0)}
    pending = [(graph.start, begin, 0)]
    while pending:
        node, position, turns = pending.pop()
        for edge in leaving[node]:
            if edge.most is not None and turns >= edge.most:
                continue
            for end in _edge_ends(graphs, edge, data, position, known):
                place = (edge.target, end, turns + 1 if edge.most is not None else 0)
                if place not in seen:
                    seen.add(place)
                    pending.append(place)
    found = frozenset(position for node, position, _ in seen if node in graph.accepting)
    known[rule, begin] = found
    return found


def _edge_ends(
    graphs: Mapping[str, Graph], edge: Edge, data: bytes, position: int, known: dict[tuple[str, int], frozenset[int]]
) -> set[int]:
    if edge.kind is Kind.BYTES:
        return {position + len(word) for word in edge.words if spells(word, data, position)}
    if edge.kind is Kind.CALL:
        return set(_ends(graphs, edge.name, data, position, known))
    assert edge.kind is Kind.TURNS
    times, body = edge.name.split(" × ")
    low, _, high = times.removesuffix("+").partition("–")
    most = len(data) + 2 if times.endswith("+") else int(high or low)
    found: set[int] = set()
    ends = {position}
    for turn in range(max(most, int(low)) + 1):
        if turn >= int(low):
            found |= ends
        ends = {end for begin in ends for end in _ends(graphs, body, data, begin, known)}
        if not ends:
            break
    return found
