"""XGrammar's look-aheads: what a rule's end says will follow, checked against what can follow.

::

    call ::= name (= "(")       after a call the text goes on with "(": a hint, which changes no text of the grammar

XGrammar computes masks ahead with it and takes the same texts as without. So a look-ahead that is implied by the
grammar may be left out, and one that is not says something that is not so: then the grammar is refused, with a text
that may follow instead.

What can follow a rule is a grammar as well. After `r` in `s ::= x r y` comes `y` and what follows `s`; after the start
rule comes the end. Its automaton and that of the look-ahead read the same bytes until the second one accepts. Knows
expressions, no notation; nothing is walked by recursion.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import ConstraintTooLarge
from ..automaton.automaton import Automaton
from ..compile_time import CompileTime
from ..network.dead_rules import dead_rules
from ..network.expression import EMPTY_TEXT, Alternation, Expression, Grammar, Repeat, Rule, Sequence
from ..network.network import build_network
from ..vocabulary.vocabulary import Vocabulary
from .left_recursion import with_filled_turns, without_left_recursion

MAX_STEPS = 20_000  # bytes read in both automata, for one look-ahead


def instead(
    rules: Mapping[str, Expression], aheads: Mapping[str, Expression], start: str, compile_time: CompileTime
) -> dict[str, bytes | None]:
    """Of each look-ahead that the grammar does not imply a text that may follow instead, the shortest one.

    Args:
        aheads: by the names of the rules that end with them.

    Returns:
        By the names of the rules; None: it is not known whether there is one, for that takes too long.
    """
    everything = {**rules, **_followers(rules, start, compile_time)}
    everything |= {_ahead(name): ahead for name, ahead in aheads.items()}
    everything = without_left_recursion(with_filled_turns(everything, compile_time), compile_time)
    dead = dead_rules(everything, compile_time)
    found: dict[str, bytes | None] = {}
    vocabulary = Vocabulary([*(bytes((byte,)) for byte in range(256)), b""], [256])
    for name in aheads:
        compile_time.check("", f"grammar, rule {name}")
        if _after(name) in dead:
            continue  # the rule is not in use
        if _ahead(name) in dead:
            found[name] = b""
            continue
        after, ahead = (
            Automaton(build_network(Grammar(everything, one), compile_time), vocabulary)
            for one in (_after(name), _ahead(name))
        )
        try:
            text = _not_ahead(after, ahead, compile_time)
        except ConstraintTooLarge:
            found[name] = None
            continue
        if text is not None:
            found[name] = text
    return found


def _not_ahead(after: Automaton, ahead: Automaton, compile_time: CompileTime) -> bytes | None:
    """The shortest text with which what follows leaves the look-ahead before it is complete."""
    first = (after.start, ahead.start)
    texts = {first: b""}
    for pair in (queue := [first]):  # grows
        here, there = pair
        if ahead.is_accepting(there):
            continue
        if after.is_accepting(here):
            return texts[pair]
        for byte, follows in enumerate(bytes(after.live_bytes(here))):
            if not follows:
                continue
            text = texts[pair] + bytes((byte,))
            moved = after.advance_bytes(here, text[-1:]), ahead.advance_bytes(there, text[-1:])
            if not moved[1]:
                return text
            if moved not in texts:
                texts[moved] = text
                queue.append(moved)
        compile_time.check("", "grammar, its look-aheads")
        if len(texts) > MAX_STEPS:
            raise ConstraintTooLarge("grammar: too many texts may follow")
    return None


def _followers(rules: Mapping[str, Expression], start: str, compile_time: CompileTime) -> dict[str, Expression]:
    """Of each rule what may follow it, as rules."""
    options: dict[str, list[Expression]] = {name: [] for name in rules}
    rests: dict[str, Expression] = {}  # named, so that they are not nested
    options[start].append(EMPTY_TEXT)
    for name, body in rules.items():
        pending: list[tuple[Expression, Expression]] = [(body, Rule(_after(name)))]
        for part, rest in compile_time.over(pending, name=f"grammar, rule {name}"):  # grows
            if isinstance(part, Rule):
                options[part.name].append(rest)
            elif isinstance(part, Alternation):
                pending += [(option, rest) for option in part.options]
            elif isinstance(part, Sequence):
                for inner in reversed(part.parts):
                    pending.append((inner, rest))
                    rests[f"{name}, rest {len(rests)}"] = Sequence((inner, rest))
                    rest = Rule(f"{name}, rest {len(rests) - 1}")
            elif isinstance(part, Repeat) and part.maximum != 0:
                turns = None if part.maximum is None else part.maximum - 1
                pending.append((part.item, Sequence((Repeat(part.item, 0, turns), rest))))
    return {**rests, **{_after(name): Alternation(tuple(found)) for name, found in options.items()}}


def _after(name: str) -> str:
    return f"{name}, what follows"


def _ahead(name: str) -> str:
    return f"{name}, look-ahead"
