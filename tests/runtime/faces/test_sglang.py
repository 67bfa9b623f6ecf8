"""SGLang's grammar backend by this engine: masks are the engine's own, whatever is rolled back, copied or jumped."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import phloem as ph
from phloem.fsm import Constraint

from ...fsm.vocabularies import allowed_ids
from ..schemas import random_schemas
from .peer_interfaces import SGLANG_BACKEND, SGLANG_GRAMMAR, SIZE, TOKENIZER, VOCABULARY, interface_of, peer

COMPILER = ph.Compiler(VOCABULARY)
SCHEMA = json.dumps(random_schemas(seed=8, count=1)[0])
TAG = json.dumps({"structures": [{"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"}], "triggers": ["<f"]})
CONSTRAINTS: dict[tuple[str, str], Constraint] = {
    ("json", SCHEMA): COMPILER.json_schema(SCHEMA, whitespace="flexible", extra_keys="never"),
    ("json", "$$ANY$$"): COMPILER.json_value(whitespace="flexible"),
    ("regex", "(ab|cd){2,5}(ef)?"): COMPILER.regex("(ab|cd){2,5}(ef)?"),
    ("ebnf", 'root ::= "a" root "b" | "c"'): COMPILER.grammar('root ::= "a" root "b" | "c"'),
    ("structural_tag", TAG): COMPILER.structural_tag(TAG, whitespace="flexible"),
}
SERVER = SimpleNamespace(constrained_json_disable_any_whitespace=False, reasoning_parser=None)


@pytest.fixture(scope="module")
def backend() -> Iterator[Any]:
    """As SGLang makes it for `--grammar-backend phloem`."""
    with peer("sglang"):
        import_module("phloem.faces.sglang").register()
        import_module("phloem.faces.sglang").register()
        assert import_module("sglang.srt.server_args").GRAMMAR_BACKEND_CHOICES.count("phloem") == 1
        registry = import_module("sglang.srt.constrained.base_grammar_backend").GRAMMAR_BACKEND_REGISTRY
        yield registry["phloem"](SERVER, TOKENIZER, SIZE, {2})


def grammar_of(backend: Any, key: tuple[str, str]) -> Any:
    """As SGLang's manager gets it: the first from the executor, others from the cache."""
    found, is_hit = backend.get_cached_or_future_value(key, False)
    if is_hit:
        return found
    found = found.result()
    backend.set_cache(key, found.copy())
    return found


def test_it_has_what_sglang_asks_for(backend: Any) -> None:
    base = import_module("sglang.srt.constrained.base_grammar_backend")
    face = import_module("phloem.faces.sglang")
    assert interface_of(face.PhloemGrammar, SGLANG_GRAMMAR) == SGLANG_GRAMMAR
    assert interface_of(face.PhloemGrammarBackend, SGLANG_BACKEND) == SGLANG_BACKEND
    assert issubclass(face.PhloemGrammar, base.BaseGrammarObject)
    own = vars(face.PhloemGrammar).keys() | {"maybe_init_reasoning", "fill_vocab_mask_batched"}
    assert SGLANG_GRAMMAR.keys() <= own, "nothing is left to methods that raise NotImplementedError"


def test_the_record_is_that_of_an_installed_sglang(backend: Any) -> None:
    base = import_module("sglang.srt.constrained.base_grammar_backend")
    for cls, interface in ((base.BaseGrammarObject, SGLANG_GRAMMAR), (base.BaseGrammarBackend, SGLANG_BACKEND)):
        there = {name: parameters for name, parameters in interface.items() if hasattr(cls, name)}
        assert interface_of(cls, there) == there


@pytest.mark.parametrize("key", CONSTRAINTS, ids=lambda key: key[0])
def test_random_walks_with_roll_backs_and_copies(backend: Any, key: tuple[str, str]) -> None:
    source, cursor = random.Random(key[0]), CONSTRAINTS[key].cursor()
    grammar, other = grammar_of(backend, key), grammar_of(backend, key)
    assert other.grammar_stats.is_cache_hit
    mask = grammar.allocate_vocab_mask(SIZE, 2, "cpu")
    assert mask.shape == (2, -(-SIZE // 32)) and mask.dtype == torch.int32
    for _ in range(60):
        grammar.fill_vocab_mask_batched([SimpleNamespace(row=1, grammar=grammar)], mask)
        assert np.array_equal(mask[1].numpy(), cursor.row())
        assert (mask[0] == -1).all(), "the row of a request without a grammar"
        assert grammar.is_terminated() == cursor.is_finished
        tokens = allowed_ids(cursor.row())
        if cursor.num_consumed and (not tokens or source.random() < 0.2):
            count = source.randint(1, cursor.num_consumed)
            grammar.rollback(count)
            cursor.rollback(count)
            continue
        token = source.choice(tokens)
        twin = grammar.copy()
        twin.accept_token(token)
        grammar.fill_vocab_mask(mask, 1)
        assert np.array_equal(mask[1].numpy(), cursor.row()), "a copy goes on by itself"
        refused = next((t for t in range(SIZE) if t not in tokens), SIZE)
        with pytest.raises(ValueError, match=rf"token {refused} is not allowed after {cursor.num_consumed} tokens"):
            grammar.accept_token(refused)
        grammar.accept_token(token)
        assert cursor.advance(token)
    other.fill_vocab_mask(mask, 1)
    assert np.array_equal(mask[1].numpy(), CONSTRAINTS[key].cursor().row())


def test_what_is_applied_forbids_what_the_mask_forbids(backend: Any) -> None:
    source = torch.Generator().manual_seed(3)
    mask = torch.randint(-(1 << 31), 1 << 31, (4, -(-SIZE // 32)), generator=source, dtype=torch.int64).to(torch.int32)
    for width in (SIZE, SIZE - 40, SIZE + 40):
        logits = torch.randn(4, width, generator=source)
        after = logits.clone()
        backend.apply_vocab_mask(logits=after, vocab_mask=mask)
        for row in range(4):
            kept = set(allowed_ids(mask[row].numpy())) | {*range(mask.shape[1] * 32, width)}
            expected = [logits[row, t].item() if t in kept else -torch.inf for t in range(width)]
            assert after[row].tolist() == expected
    mask = backend.move_vocab_mask(mask, "cpu")
    import_module("phloem.faces.sglang").PhloemGrammar.reset_vocab_mask(mask)
    assert (mask == -1).all()


def test_single_tokens_are_allowed_and_forbidden(backend: Any) -> None:
    mask = backend.allocate_vocab_mask(SIZE, 2, "cpu")
    backend.set_token_filter(mask, [31, 32, 63], 1, is_allowed=True)
    assert allowed_ids(mask[1].numpy()) == [31, 32, 63] and (mask[0] == -1).all()
    backend.set_token_filter(mask, [31, 63], 1, is_allowed=False, reset_vocab_mask=False)
    assert allowed_ids(mask[1].numpy()) == [32]
    backend.set_token_filter(mask, [31], 0, is_allowed=False)
    assert allowed_ids(mask[0].numpy()) == [t for t in range(mask.shape[1] * 32) if t != 31]


def test_forced_text_is_jumped_and_tokenised_anew(backend: Any) -> None:
    pattern = "The shop is in (Lyon|Rome)"
    grammar, encode = grammar_of(backend, ("regex", pattern)), COMPILER.vocabulary.encode
    assert encode is not None
    old = encode("The sh")
    for token in old:
        grammar.accept_token(token)
    helper = grammar.try_jump_forward(TOKENIZER)
    text, state = grammar.jump_forward_str_state(helper)
    assert text == "op is in "
    new = encode("The shop is in")
    grammar.jump_and_retokenize(old, new, state)
    cursor = COMPILER.regex(pattern).cursor()
    assert all(map(cursor.advance, new))
    mask = grammar.allocate_vocab_mask(SIZE, 1, "cpu")
    grammar.fill_vocab_mask(mask, 0)
    assert np.array_equal(mask[0].numpy(), cursor.row())
    assert grammar_of(backend, ("regex", "[a-z]")).try_jump_forward(TOKENIZER) is None


@pytest.mark.parametrize(
    ("key", "place"),
    [
        (("json", '{"type": 3}'), "/type"),
        (("json", "{"), "not JSON"),
        (("regex", "(a"), "offset 0"),
        (("ebnf", "root"), ""),
    ],
)
def test_what_cannot_be_enforced_is_an_invalid_grammar(backend: Any, key: tuple[str, str], place: str) -> None:
    found = grammar_of(backend, key)
    assert type(found).__name__ == "InvalidGrammarObject"
    assert place in found.error_message


def test_after_the_end_token_nothing_happens(backend: Any) -> None:
    grammar = grammar_of(backend, ("regex", "a*"))
    grammar.accept_token(2)
    grammar.accept_token(5)
    assert grammar.is_terminated()
    grammar.rollback(1)
    assert not grammar.is_terminated()


def test_what_was_compiled_is_let_go(backend: Any) -> None:
    grammar_of(backend, ("regex", "abc"))
    backend.reset()
    assert not backend.cache
