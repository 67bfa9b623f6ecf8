"""What llguidance adds to Lark's notation, judged by definitions read aloud."""

from __future__ import annotations

import itertools
import json
import random
import re

import pytest

from phloem.errors import InvalidGrammar
from phloem.fsm import Compiler, Vocabulary

from ..vocabularies import BYTES, accepts, words

COMPILER = Compiler(BYTES)


def test_substrings_are_runs_of_the_chunks() -> None:
    rng, samples = random.Random(4), words("ab", 7)
    for _ in range(25):
        chunks = ["".join(rng.choice("ab") for _ in range(rng.randint(0, 3))) for _ in range(rng.randint(0, 5))]
        pairs = itertools.combinations_with_replacement(range(len(chunks) + 1), 2)
        runs = {"".join(chunks[first:last]) for first, last in pairs}
        constraint = COMPILER.grammar(f'start: "<" %regex {json.dumps({"substring_chunks": chunks})} ">"')
        assert {text for text in samples if accepts(constraint, f"<{text}>")} == {run for run in runs if len(run) <= 7}


@pytest.mark.parametrize(
    ("structure", "chunks"),
    [
        ({"substring_words": "to be, or_1  not-é."}, ["to", " ", "be", ",", " ", "or_1", "  ", "not", "-", "é", "."]),
        ({"substring_chars": "aba é"}, list("aba é")),
    ],
)
def test_words_and_characters_are_chunks(structure: dict[str, str], chunks: list[str]) -> None:
    (text,) = structure.values()
    constraint = COMPILER.grammar(f'start: "<" S ">"\nS: %regex {json.dumps(structure)}')
    pairs = itertools.combinations_with_replacement(range(len(chunks) + 1), 2)
    runs = {"".join(chunks[first:last]) for first, last in pairs}
    pairs = itertools.combinations_with_replacement(range(len(text) + 1), 2)
    parts = {text[first:last] for first, last in pairs}
    assert {part for part in parts if accepts(constraint, f"<{part}>")} == runs


@pytest.mark.parametrize("follower", ["[ab]*", "a?", "b*a"])
@pytest.mark.parametrize(
    ("options", "body", "pattern"),
    [
        ("lazy", "/[ab]*b/", "[ab]*b"),
        ("lazy, capture", '/a+/ "b"?', "a+b?"),
        ('capture="x", suffix="ba"', "/[ab]*/", "[ab]*ba"),
        ("suffix=END", "/a*/", "a*(?:b|ab)"),
        ("suffix=/b+/", "A", "a+b+"),
    ],
)
def test_lazy_is_the_shortest_match(options: str, body: str, pattern: str, follower: str) -> None:
    def is_read(text: str) -> bool:
        ends = [end for end in range(1, len(text) + 1) if re.fullmatch(pattern, text[:end])]
        return bool(ends) and re.fullmatch(follower, text[ends[0] :]) is not None

    text = f'start: x y\nx[{options}]: {body}\ny: /{follower}/\nA: /a+/\nEND: "b" | "ab"'
    constraint = COMPILER.grammar(text)
    wrong = [sample for sample in words("ab", 6) if accepts(constraint, sample) != is_read(sample)]
    assert wrong == []


def test_special_tokens_stand_in_rules() -> None:
    tokens = [bytes([byte]) for byte in range(256)] + [b""] * 5
    names = {"<|call|>": 256, "<think>": 257, "</think>": 258, "<x>": 259}
    vocabulary = Vocabulary(tokens, [260], special_ids=names)
    text = """
        start: thought? (<|call|> | <[258-259,256]>) "a"
        thought: <think> /[^<]*/ </think>
    """
    constraint = Compiler(vocabulary).grammar(text)
    ends = {(first, ord("a")) for first in (256, 258, 259)}
    thoughts = [(), (257, 258), (257, ord("b"), 258)]
    pool = (ord("a"), ord("b"), *names.values())
    for length in range(6):
        for sample in (
            itertools.product(pool, repeat=length) if length < 4 else [(*t, *e) for t in thoughts for e in ends]
        ):
            cursor = constraint.cursor()
            taken = all(cursor.advance(token) for token in sample) and cursor.is_accepting
            inner = sample[1:-3] if len(sample) >= 4 else ()
            is_thought = len(sample) >= 4 and sample[0] == 257 and sample[-3] == 258 and all(t < 256 for t in inner)
            assert taken == (sample[-2:] in ends and (len(sample) == 2 or is_thought)), sample
    for wrong in ("<[97]>", "<[260]>", "<nothing>", "<[255-257]>", "<[*]>", "<[^256]>"):
        with pytest.raises(InvalidGrammar, match="line 1, column 8"):
            Compiler(vocabulary).grammar(f"start: {wrong}")


def test_hundreds_of_chunks_are_read_and_thousands_are_not() -> None:
    chunks = [f"{number} " for number in range(300)]
    constraint = COMPILER.grammar(f'start: "<" %regex {json.dumps({"substring_chunks": chunks})} ">"')
    assert accepts(constraint, "<" + "".join(chunks[17:250]) + ">") and not accepts(constraint, "<1 3 >")
    with pytest.raises(InvalidGrammar, match="at most 1000"):
        COMPILER.grammar(f"start: %regex {json.dumps({'substring_chunks': ['a'] * 1001})}")
