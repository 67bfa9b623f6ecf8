"""Drafts: forced bytes in the tokens that the model's own tokeniser would have written."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable

import pytest
import sentencepiece
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from phloem.fsm import Compiler, Constraint, Vocabulary
from phloem.fsm.foresight import forced_bytes, forced_tokens

from .vocabularies import BYTES, allowed_ids

WORDS = "name age city invoice total items status active pending description value true false null type id email Paris"


def corpus() -> list[str]:
    rng = random.Random(11)
    words = WORDS.split()
    lines = []
    for _ in range(400):
        record = {rng.choice(words): rng.choice([rng.randrange(1000), rng.choice(words), True, None]) for _ in range(4)}
        lines.append(json.dumps(record, separators=rng.choice([(",", ":"), (", ", ": ")])))
        lines.append(" ".join(rng.choice(words) for _ in range(12)) + ". Été à 中文, 3.14!")
    return lines


def sentencepiece_vocabulary() -> Vocabulary:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=written, vocab_size=600, model_type="bpe", byte_fallback=True,
        split_digits=True, add_dummy_prefix=False, normalization_rule_name="identity", remove_extra_whitespaces=False,
        hard_vocab_limit=False, minloglevel=2, num_threads=1,
    )  # fmt: skip
    model = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    tokens = []
    for i in range(model.vocab_size()):
        piece = model.id_to_piece(i)
        if model.is_control(i) or model.is_unknown(i):
            tokens.append(b"")
        else:
            tokens.append(bytes([int(piece[3:5], 16)]) if model.is_byte(i) else piece.replace("▁", " ").encode())
    return Vocabulary(tokens, [model.eos_id()], model.encode)


def byte_level_vocabulary() -> Vocabulary:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=alphabet, show_progress=False, special_tokens=["</s>"]
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    byte_of = {}
    spare = 256
    for byte in range(256):
        is_plain = 33 <= byte <= 126 or 161 <= byte <= 172 or byte >= 174
        byte_of[chr(byte if is_plain else spare)] = byte
        spare += not is_plain
    size = tokenizer.get_vocab_size()
    tokens = [bytes(byte_of[c] for c in tokenizer.id_to_token(i)) if i else b"" for i in range(size)]
    cut = tokenizer.pre_tokenizer.pre_tokenize_str
    return Vocabulary(
        tokens,
        [0],
        lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids),
        lambda text: [end for _, (_, end) in cut(text)],
    )


VOCABULARIES: dict[str, Callable[[], Vocabulary]] = {
    "sentencepiece": sentencepiece_vocabulary,
    "byte-level": byte_level_vocabulary,
}


@pytest.fixture(scope="module", params=VOCABULARIES)
def compiler(request: pytest.FixtureRequest) -> Compiler:
    return Compiler(VOCABULARIES[request.param]())


PATTERNS = [
    r'\{"name": "[a-z]+", "age": [0-9]+, "city": "(Paris|Rome)"\}',
    r'\{"invoice":\{"total":[0-9]{1,3}(\.[0-9]{2})?,"items":\[("[a-z]+"(,"[a-z]+")*)?\]\},"status":"(active|pending)"\}',
    r"(description|descriptions): (true|false|null)!",
    r"Été à 中文, 3\.14(!|\?)",
    r"name name name( name)*",
    r"(value|values|valued)(type|types)",
    r"a{300}b",
    r"active(true)*  +pending",
]
# here every boundary could still be moved by what follows
NOTHING_CERTAIN = ("(value|values|valued)(type|types)", "active(true)*  +pending")


def encode(constraint: Constraint, text: str) -> list[int]:
    assert constraint.vocabulary.encode is not None
    return constraint.vocabulary.encode(text)


def spelt(constraint: Constraint, ids: list[int]) -> bytes:
    return b"".join(constraint.vocabulary.tokens[i] for i in ids)


def walk(constraint: Constraint, rng: random.Random) -> list[tuple[list[int], list[int]]]:
    """A random text that takes every draft: (tokens so far, draft) at every place, ending in a complete text."""
    cursor, tokens, places = constraint.cursor(), list[int](), []
    for _ in range(300):
        draft = forced_tokens(cursor)
        places.append((tokens.copy(), draft))
        choices = draft[:1] or [t for t in allowed_ids(cursor.row()) if t not in constraint.vocabulary.eos_ids]
        if not choices or (cursor.is_accepting and rng.random() < 0.5):
            break
        for token_id in draft or [rng.choice(choices)]:
            assert cursor.advance(token_id), "a draft is always allowed"
            tokens.append(token_id)
    return places


@pytest.mark.parametrize("pattern", PATTERNS)
def test_drafts_are_canonical(compiler: Compiler, pattern: str) -> None:
    constraint = compiler.regex(pattern)
    rng = random.Random(len(pattern))
    for _ in range(15):
        for _, draft in walk(constraint, rng):
            assert encode(constraint, spelt(constraint, draft).decode()) == draft


@pytest.mark.parametrize("pattern", PATTERNS)
def test_along_a_canonical_text_drafts_are_its_tokens(compiler: Compiler, pattern: str) -> None:
    """Wherever the text so far is canonical, the draft is what the tokeniser writes for the complete text there."""
    constraint = compiler.regex(pattern)
    rng = random.Random(2)
    num_drafted = 0
    for _ in range(15):
        text = spelt(constraint, walk(constraint, rng)[-1][0])
        if not constraint.automaton.is_accepting(constraint.automaton.advance_bytes(constraint.automaton.start, text)):
            continue
        ids = encode(constraint, text.decode())
        cursor = constraint.cursor()
        for position, token_id in enumerate(ids):
            draft = forced_tokens(cursor)
            assert draft == ids[position : position + len(draft)], (text, spelt(constraint, ids[:position]))
            num_drafted += bool(draft)
            assert cursor.advance(token_id)
    assert num_drafted or pattern in NOTHING_CERTAIN


def test_drafts_cover_most_of_what_is_forced(compiler: Compiler) -> None:
    constraint = compiler.regex(PATTERNS[0])
    ids = encode(constraint, '{"name": "ada", "age": 36, "city": "Paris"}')
    cursor, sampled, position = constraint.cursor(), 0, 0
    while position < len(ids):
        run = forced_tokens(cursor) or ids[position : position + 1]
        sampled += not forced_tokens(cursor)
        for token_id in run:
            assert cursor.advance(token_id)
        position += len(run)
    assert sampled <= len(ids) * 0.75


def test_a_long_run_is_found_whole() -> None:
    constraint = Compiler(BYTES).regex("(x|y)" + "abc" * 500 + "z?")
    cursor = constraint.cursor()
    assert forced_bytes(cursor) == b""
    cursor.advance(ord("x"))
    assert forced_bytes(cursor) == b"abc" * 500
    assert forced_tokens(cursor) == []  # this vocabulary cannot tokenise


def test_runs_are_found_inside_recursion() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "v": {"const": 1}}}
    node |= {"required": ["v"], "additionalProperties": False}
    cursor = Compiler(BYTES).json_schema({"$ref": "#/$defs/node", "$defs": {"node": node}}).cursor()
    for byte in b'{"next":{"next":{"v':
        assert cursor.advance(byte)
    assert forced_bytes(cursor) == b'":1},"v":1},"v":1}'
