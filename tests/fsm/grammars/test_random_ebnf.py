"""Random EBNF against Earley's algorithm: what may follow, byte by byte and token by token, and where a text ends."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintTooLarge, EmptyLanguage
from phloem.fsm import Compiler, Constraint, Cursor
from phloem.fsm.foresight import forced_bytes

from ..vocabularies import BYTES, allowed_ids, random_walk, small_vocabulary
from .earley import ANY, ContextFree, Node, Reading, without

PIECES = ["ab", "ba", "aa", "((", "()", "))", 'a"', '"a', "a(", ")a", "aé", "é€", "\na", "𝄞"]
PARTS = ["é".encode()[:1], "é".encode()[1:] + b"a", "€".encode()[1:], b"a" + "𝄞".encode()[:2]]
BYTE_COMPILER = Compiler(BYTES)
TOKENS = small_vocabulary([piece.encode() for piece in PIECES] + PARTS)
TOKEN_COMPILER = Compiler(TOKENS)
NAMES = ["root", "x", "y-1"]

Spelt = tuple[str, Node]
"""The same as EBNF and as it is meant."""

CHARACTERS = [(character, character) for character in "aaab()é€𝄞-"]
CHARACTERS += [("\\x61", "a"), ("\\u20AC", "€"), ("\\U0001D11E", "𝄞"), ('\\"', '"'), ("\\\\", "\\"), ("\\n", "\n")]
IN_CLASSES = [pair for pair in CHARACTERS if pair[0] != "-"] + [("\\-", "-"), ("\\]", "]"), ("\\^", "^")]
TIMES = {"*": (0, None), "+": (1, None), "?": (0, 1), "{2}": (2, 2), "{1,2}": (1, 2), "{2,}": (2, None), "{,2}": (0, 2)}


def literal(characters: list[tuple[str, str]]) -> Spelt:
    return '"' + "".join(spelt for spelt, _ in characters) + '"', ("text", "".join(meant for _, meant in characters))


def character_class(negation: str, members: list[list[tuple[str, str]]]) -> Spelt:
    intervals = []
    for ends in members:
        ends.sort(key=lambda pair: pair[1])
        intervals.append((ord(ends[0][1]), ord(ends[-1][1])))
    text = f"[{negation}{''.join('-'.join(spelt for spelt, _ in ends) for ends in members)}]"
    return text, ("set", without(intervals) if negation else tuple(intervals))


def larger(inner: st.SearchStrategy[Spelt]) -> st.SearchStrategy[Spelt]:
    several = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        several.map(lambda parts: (f"({' '.join(text for text, _ in parts)})", ("all", [node for _, node in parts]))),
        several.map(lambda parts: (f"({' | '.join(text for text, _ in parts)})", ("any", [node for _, node in parts]))),
        st.tuples(inner, st.sampled_from(sorted(TIMES))).map(
            lambda pair: (f"({pair[0][0]}){pair[1]}", ("times", pair[0][1], *TIMES[pair[1]]))
        ),
    )


LEAVES = st.one_of(
    st.lists(st.sampled_from(CHARACTERS), max_size=2).map(literal),
    st.builds(
        character_class,
        st.sampled_from(["", "", "^"]),
        st.lists(st.lists(st.sampled_from(IN_CLASSES), min_size=1, max_size=2), min_size=1, max_size=2),
    ),
    st.sampled_from(NAMES).map(lambda name: (name, ("rule", name))),
    st.just((".", ("set", ANY))),
)
BODIES = st.recursive(LEAVES, larger, max_leaves=5)


def check_forced(cursor: Cursor, reading: Reading) -> None:
    for byte in forced_bytes(cursor):
        assert reading.next_bytes() == {byte} and not reading.is_accepting
        reading = reading.after(bytes((byte,))) or reading


def check_bytes(constraint: Constraint, first: Reading, rng: random.Random) -> None:
    """From 20 beginnings: the live bytes, and whether the text may end."""
    queue = [(constraint.cursor(), first)]
    for cursor, reading in queue[:20]:
        live = reading.next_bytes()
        assert set(allowed_ids(cursor.row())) == live | ({256} if reading.is_accepting else set())
        assert cursor.is_accepting == reading.is_accepting
        check_forced(cursor, reading)
        for byte in rng.sample(sorted(live), min(3, len(live))):
            fork, longer = cursor.fork(), reading.after(bytes((byte,)))
            assert fork.advance(byte) and longer is not None
            queue.append((fork, longer))


def check_tokens(constraint: Constraint, first: Reading, rng: random.Random) -> None:
    """Along a walk that now and then goes back: the rows, token by token."""
    cursor, readings = constraint.cursor(), [first]
    for _ in range(6):
        reading = readings[-1]
        live = reading.next_bytes()
        begun = [number for number, token in enumerate(TOKENS.tokens) if token and token[0] in live]
        wanted = [number for number in begun if number < 256 or reading.after(TOKENS.tokens[number])]
        ends = [*TOKENS.eos_ids] if reading.is_accepting else []
        assert allowed_ids(cursor.row()) == wanted + ends
        if not wanted:
            return
        token_id = rng.choice([number for number in wanted if number > 255] or wanted)
        assert cursor.advance(token_id)
        readings.append(reading.after(TOKENS.tokens[token_id]) or first)
        if rng.random() < 0.3:
            num_tokens = rng.randrange(len(readings))
            cursor.rollback(num_tokens)
            del readings[len(readings) - num_tokens :]


@settings(max_examples=60, deadline=None)
@given(st.tuples(BODIES, BODIES, BODIES), st.sampled_from([" ", "\n  ", " # …\n"]), st.randoms(use_true_random=False))
def test_rows_are_those_of_earley(bodies: tuple[Spelt, ...], blank: str, rng: random.Random) -> None:
    order = rng.sample(range(3), 3)
    text = "\n".join(f"{NAMES[index]} ::={blank}{bodies[index][0]}" for index in order)
    grammar = ContextFree({name: node for name, (_, node) in zip(NAMES, bodies, strict=True)}, "root")
    try:
        check(text, grammar, rng)
    except EmptyLanguage:
        assert grammar.is_empty, text
    except ConstraintTooLarge:  # rules that repeat one another so that everything can be read in every way
        assume(False)


KNOWN: dict[str, dict[str, list[str]]] = {  # alternatives by rule; other words than names are text
    "brackets": {"root": ["( root ) root", ""]},
    "sums": {"root": ["x", "root + x"], "x": ["1", "12", "( root )"]},
    "palindromes": {"root": ["a root a", "b root b", "é", ""]},
    "as many b as a": {"root": ["a root b", "a b"]},
    "ambiguous": {"root": ["root root", "a", "ab"]},
    "empty in the middle": {"root": ["x y-1 x"], "x": ["a", ""], "y-1": ["x b", "x"]},
    "a list": {"root": ["[ x ]"], "x": ["", "y-1", "y-1 , x"], "y-1": ["1", "root"]},
}


@pytest.mark.parametrize("name", KNOWN)
def test_rows_of_well_known_grammars_are_those_of_earley(name: str) -> None:
    rules = KNOWN[name]

    def spelt(option: str) -> Spelt:
        words = option.split()
        text = " ".join(word if word in rules else f'"{word}"' for word in words) or '""'
        return text, ("all", [("rule" if word in rules else "text", word) for word in words])

    options = {rule: list(map(spelt, bodies)) for rule, bodies in rules.items()}
    text = "\n".join(f"{rule} ::= {' | '.join(spelling for spelling, _ in found)}" for rule, found in options.items())
    nodes: dict[str, Node] = {rule: ("any", [node for _, node in found]) for rule, found in options.items()}
    for seed in range(3):
        check(text, ContextFree(nodes, "root"), random.Random(seed))


def check(text: str, grammar: ContextFree, rng: random.Random) -> None:
    constraint = TOKEN_COMPILER.grammar(text)
    assert not grammar.is_empty, text
    check_bytes(BYTE_COMPILER.grammar(text), grammar.begin(), rng)
    check_tokens(constraint, grammar.begin(), rng)
    least = constraint.min_tokens()
    assert not constraint.is_within(least - 1)
    for more in (0, 1, 5):
        written, _ = random_walk(constraint, rng, least + more) if least + more else (b"", True)
        reading = grammar.begin().after(written)
        assert reading is not None and reading.is_accepting, (text, written)
