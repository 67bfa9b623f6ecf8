"""vLLM's structured outputs by this engine: masks are the engine's own, whatever is drafted, rolled back or refused."""

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
from phloem.faces import vllm as face
from phloem.fsm import Cursor

from ...fsm.vocabularies import allowed_ids
from ..schemas import random_schemas
from .peer_interfaces import SIZE, TOKENIZER, VLLM_BACKEND, VLLM_GRAMMAR, VOCABULARY, interface_of, peer

SPECS = [
    ("JSON", json.dumps(random_schemas(seed=8, count=1)[0])),
    ("JSON_OBJECT", ""),
    ("REGEX", "(ab|cd){2,5}(ef)?"),
    ("CHOICE", '["yes", "no", "maybe so"]'),
    ("GRAMMAR", 'root ::= "a" root "b" | "c"'),
    (
        "STRUCTURAL_TAG",
        json.dumps(
            {"structures": [{"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"}], "triggers": ["<f"]}
        ),
    ),
]
CONFIG = SimpleNamespace(
    structured_outputs_config=SimpleNamespace(disable_any_whitespace=False),
    model_config=SimpleNamespace(get_vocab_size=lambda: SIZE, is_diffusion=False),
    scheduler_config=SimpleNamespace(max_num_seqs=4),
    num_speculative_tokens=3,
)


def own(kind: str, spec: str) -> Cursor:
    compiler = ph.Compiler(VOCABULARY)
    made = {
        "JSON": lambda: compiler.json_schema(spec, whitespace="flexible", extra_keys="never"),
        "JSON_OBJECT": lambda: compiler.json_object(whitespace="flexible"),
        "REGEX": lambda: compiler.regex(spec),
        "CHOICE": lambda: compiler.choice(json.loads(spec)),
        "GRAMMAR": lambda: compiler.grammar(spec),
        "STRUCTURAL_TAG": lambda: compiler.structural_tag(spec, whitespace="flexible"),
    }
    return made[kind]().cursor()


@pytest.fixture
def backend() -> face.PhloemBackend:
    return face.PhloemBackend(CONFIG, TOKENIZER, SIZE)


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("VLLM_PLUGINS", "other,phloem")
    with peer("vllm"):
        cls = import_module("vllm.v1.structured_output").StructuredOutputManager
        monkeypatch.setattr(cls, "grammar_init", cls.grammar_init)
        face.register()
        face.register()
        made = cls.__new__(cls)
        made.__dict__.update(
            *[{"backend": None, "backend_name": None, "vllm_config": CONFIG, "tokenizer": TOKENIZER}],
            _use_async_grammar_compilation=False,
            _grammar_bitmask=None,
            _full_mask=torch.tensor(-1, dtype=torch.int32),
            enable_in_reasoning=False,
            reasoner_cls=None,
            fill_bitmask_parallel_threshold=128,
        )
        yield made


def request(manager: Any, kind: str, spec: str, checked_for: str = "xgrammar") -> Any:
    options = SimpleNamespace(name=kind)
    made = SimpleNamespace(
        request_id="r",
        sampling_params=SimpleNamespace(
            structured_outputs=SimpleNamespace(_backend=checked_for), all_stop_token_ids={2}
        ),
        structured_output_request=SimpleNamespace(
            structured_output_key=(options, spec), grammar=None, reasoning_ended=None, reasoner=None
        ),
        use_structured_output=True,
    )
    manager.grammar_init(made)
    return made


def test_it_has_what_vllm_asks_for() -> None:
    assert interface_of(face.PhloemGrammar, VLLM_GRAMMAR) == VLLM_GRAMMAR
    assert interface_of(face.PhloemBackend, VLLM_BACKEND) == VLLM_BACKEND


def test_the_record_is_that_of_an_installed_vllm() -> None:
    with peer("vllm"):
        types = import_module("vllm.v1.structured_output.backend_types")
        for cls, interface in (
            (types.StructuredOutputGrammar, VLLM_GRAMMAR),
            (types.StructuredOutputBackend, VLLM_BACKEND),
        ):
            assert cls.__abstractmethods__ == interface.keys()


@pytest.mark.parametrize(("kind", "spec"), SPECS, ids=[kind for kind, _ in SPECS])
def test_random_walks_with_drafts_and_roll_backs(backend: face.PhloemBackend, kind: str, spec: str) -> None:
    source = random.Random(kind)
    grammar = backend.compile_grammar(SimpleNamespace(name=kind), spec, {2})
    cursor, bitmask = own(kind, spec), backend.allocate_token_bitmask(2)
    assert bitmask.shape == (2, -(-SIZE // 32))
    for _ in range(60):
        grammar.fill_bitmask(bitmask, 1)
        assert np.array_equal(bitmask[1].numpy(), cursor.row())
        assert (bitmask[0] == -1).all()
        tokens = allowed_ids(cursor.row())
        if cursor.num_consumed and (not tokens or source.random() < 0.2):
            count = source.randint(1, cursor.num_consumed)
            grammar.rollback(count)
            cursor.rollback(count)
            continue
        draft = [source.choice(tokens), source.randrange(SIZE), source.randrange(SIZE)]
        ahead = cursor.fork()
        right = next((i for i, token in enumerate(draft) if ahead.is_finished or not ahead.advance(token)), 3)
        assert grammar.validate_tokens(draft) == draft[:right]
        assert grammar.accept_tokens("r", draft[:right])
        assert all(map(cursor.advance, draft[:right]))
        refused = next((t for t in range(SIZE) if t not in allowed_ids(cursor.row())), None)
        assert cursor.is_finished or refused is None or not grammar.accept_tokens("r", [refused])
        assert grammar.is_terminated() == cursor.is_finished
    grammar.reset()
    grammar.fill_bitmask(bitmask, 1)
    assert np.array_equal(bitmask[1].numpy(), own(kind, spec).row())


def test_after_the_end_token_others_are_ignored(backend: face.PhloemBackend) -> None:
    grammar = backend.compile_grammar(SimpleNamespace(name="REGEX"), "a*", {2})
    assert grammar.accept_tokens("r", [2, 5, 6])
    assert grammar.is_terminated() and grammar.validate_tokens([5]) == []
    grammar.rollback(1)
    assert not grammar.is_terminated()


def test_requests_may_end_with_tokens_of_their_own(backend: face.PhloemBackend) -> None:
    grammar, bitmask = (
        backend.compile_grammar(SimpleNamespace(name="REGEX"), "", {2, 9}),
        backend.allocate_token_bitmask(1),
    )
    grammar.fill_bitmask(bitmask, 0)
    assert allowed_ids(bitmask[0].numpy()) == [2, 9]


def test_the_manager_asks_this_engine_whatever_requests_were_checked_for(manager: Any) -> None:
    """vLLM by itself would refuse the second request."""
    requests = {"r": request(manager, *SPECS[2]), "s": request(manager, *SPECS[3], checked_for="guidance")}
    assert isinstance(manager.backend, face.PhloemBackend)
    types = import_module("vllm.v1.structured_output.backend_types")
    assert isinstance(manager.backend, types.StructuredOutputBackend)
    drafts, rows = {}, []
    for name, (kind, spec) in zip(requests, SPECS[2:4], strict=True):
        assert isinstance(requests[name].structured_output_request.grammar, types.StructuredOutputGrammar)
        cursor, drafts[name] = own(kind, spec), []
        rows.append(cursor.row().copy())
        for _ in range(3):
            drafts[name].append(allowed_ids(cursor.row())[0])
            assert cursor.advance(drafts[name][-1])
            rows.append(cursor.row().copy())
    assert np.array_equal(manager.grammar_bitmask(requests, ["r", "s"], drafts), np.stack(rows))


def test_a_schema_that_cannot_be_read_fails_its_request_alone(manager: Any) -> None:
    future = request(manager, "JSON", '{"type": 3}').structured_output_request.grammar
    assert isinstance(future.exception(), ph.InvalidSchema)
    assert isinstance(request(manager, *SPECS[2]).structured_output_request.grammar, face.PhloemGrammar)


def test_it_does_nothing_unless_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (None, "", "other"):
        monkeypatch.setenv("VLLM_PLUGINS", value) if value is not None else monkeypatch.delenv("VLLM_PLUGINS", False)
        with peer("vllm"):
            cls = import_module("vllm.v1.structured_output").StructuredOutputManager
            before = cls.grammar_init
            face.register()
            assert cls.grammar_init is before


def test_another_vllm_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_PLUGINS", "phloem")
    with peer("vllm"):
        monkeypatch.setattr(import_module("vllm.version"), "__version__", "0.40.1")
        with pytest.raises(ph.ConfigError, match=r"vLLM 0\.40\.1: .* written for 0\.31, 0\.32, 0\.33"):
            face.register()
