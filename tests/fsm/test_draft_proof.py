"""The boundary proof: a draft is what the tokeniser writes there whatever comes later, for every small tokeniser."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest

from phloem.fsm import Compiler, Vocabulary
from phloem.fsm.foresight import forced_tokens

NUM_TOKENISERS = 60
CONTINUATIONS = ["".join(w) for n in range(5) for w in itertools.product("ab", repeat=n)]


def merges_in_order(merges: list[tuple[str, str]]) -> Callable[[str], list[str]]:
    """Byte-pair encoding by its definition: the first merge that applies anywhere, leftmost first, again and again."""

    def encode(text: str) -> list[str]:
        parts = list(text)
        while True:
            pairs = list(itertools.pairwise(parts))
            best = next((merge for merge in merges if merge in pairs), None)
            if best is None:
                return parts
            index = pairs.index(best)
            parts[index : index + 2] = [parts[index] + parts[index + 1]]

    return encode


def likeliest(scores: dict[str, float]) -> Callable[[str], list[str]]:
    """The cut of the greatest total score (a unigram model)."""

    def encode(text: str) -> list[str]:
        best: list[tuple[float, list[str]]] = [(0.0, [])]
        for end in range(1, len(text) + 1):
            options = [
                (best[begin][0] + scores[text[begin:end]], [*best[begin][1], text[begin:end]])
                for begin in range(end)
                if text[begin:end] in scores
            ]
            best.append(max(options))
        return best[-1][1]

    return encode


def random_merges(rng: random.Random) -> tuple[list[str], Callable[[str], list[str]]]:
    tokens, merges = ["a", "b"], list[tuple[str, str]]()
    for _ in range(rng.randint(1, 8)):
        merge = rng.choice(tokens), rng.choice(tokens)
        if "".join(merge) not in tokens and len("".join(merge)) < 6:
            merges.append(merge)
            tokens.append("".join(merge))
    return tokens, merges_in_order(merges)


def random_scores(rng: random.Random) -> tuple[list[str], Callable[[str], list[str]]]:
    tokens = ["a", "b"]
    tokens += {"".join(rng.choice("ab") for _ in range(rng.randint(2, 5))) for _ in range(rng.randint(1, 8))}
    return tokens, likeliest({token: -rng.random() - 0.3 * len(token) for token in tokens})


def vocabulary_of(tokens: list[str], write: Callable[[str], list[str]]) -> Vocabulary:
    ids = {token: index for index, token in enumerate(tokens)}
    return Vocabulary([*(t.encode() for t in tokens), b""], [len(tokens)], lambda text: [ids[t] for t in write(text)])


@pytest.mark.parametrize("kind", [random_merges, random_scores])
def test_every_continuation_begins_with_the_draft(
    kind: Callable[[random.Random], tuple[list[str], Callable[[str], list[str]]]],
) -> None:
    rng = random.Random(5)
    num_tokens = num_drafted = 0
    for _ in range(NUM_TOKENISERS):
        vocabulary = vocabulary_of(*kind(rng))
        run = "".join(rng.choice("ab") for _ in range(rng.randint(1, 8)))
        following = rng.choice(["[ab]{0,4}", "b?[ab]{0,3}", "(ab|ba)?[ab]{0,2}", ""])
        compiled = Compiler(vocabulary).regex(f"(aa|ab|ba|bb){run}{following}")
        for begin, rest in itertools.product(("aa", "ab", "ba", "bb"), CONTINUATIONS):
            assert vocabulary.encode is not None
            ids = vocabulary.encode(begin + run + rest)
            cursor = compiled.cursor()
            if not all(cursor.advance(t) for t in ids) or not cursor.is_accepting:
                continue
            cursor.rollback(len(ids))
            for position, token_id in enumerate(ids):
                draft = forced_tokens(cursor)
                assert draft == ids[position : position + len(draft)], (begin, run, rest, vocabulary.tokens)
                num_tokens += 1
                num_drafted += bool(draft)
                cursor.advance(token_id)
    assert num_drafted > num_tokens / 10


def test_a_cascade_of_merges_shortens_the_draft() -> None:
    """c takes d, so b is left alone and goes to a: a boundary moves that no token covers together with what follows."""
    write = merges_in_order([("c", "d"), ("b", "c"), ("a", "b")])
    compiled = Compiler(vocabulary_of(["a", "b", "c", "d", "ab", "bc", "cd", "e"], write))
    assert write("abc") == ["a", "bc"] and write("abcd") == ["ab", "cd"]
    assert forced_tokens(compiled.regex("abc[de]").cursor()) == []
    assert forced_tokens(compiled.regex("abce").cursor()) == [0, 5, 7]
