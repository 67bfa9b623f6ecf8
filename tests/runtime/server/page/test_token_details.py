"""How each token came about, against what usage says, against the constraint, and against the run without."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from phloem.fsm.foresight import forced_bytes
from phloem.runtime.config import EngineConfig
from phloem.runtime.constrain.spec import ConstraintSpec, json_schema, regex
from phloem.runtime.engine.engine_core import EngineCore
from phloem.runtime.execute.loading import LoadedModel
from phloem.runtime.request import Delta, SamplingParams, TokenNote
from phloem.runtime.sample.token_notes import decisions

from ..wire import Client

SCHEMA = {
    "type": "object",
    "properties": {
        "person_name": {"type": "string", "maxLength": 12},
        "year_of_birth": {"type": "integer", "minimum": 1900, "maximum": 2000},
    },
    "required": ["person_name", "year_of_birth"],
}
MAX_TOKENS = 60
PROMPT = "Ada was born in 1815. Give a JSON object with her name and the year."


def run(
    nano: LoadedModel, spec: ConstraintSpec | None, explains: bool, prompts: int = 1, n: int = 1, **settings: Any
) -> tuple[EngineCore, dict[tuple[str, int], list[Delta]]]:
    """A core, and the deltas of some requests that it has answered."""
    config = EngineConfig(device="cpu", check_invariants=True, **{"num_blocks": 256, **settings})
    core = EngineCore(config, nano, stopwatch=lambda: 0.0)
    if "num_blocks" in settings:
        _expect_short_answers(core)
    sampling = SamplingParams(max_tokens=MAX_TOKENS, temperature=0.7, seed=3, n=n)
    for number in range(prompts):
        core.add(f"{number} {PROMPT}", sampling, spec, request_id=str(number), explain_tokens=explains)
    found: dict[tuple[str, int], list[Delta]] = {}
    while core.has_work:
        for delta in core.step():
            found.setdefault((delta.request_id, delta.index), []).append(delta)
    return core, found


def _expect_short_answers(core: EngineCore) -> None:
    """Many that end at once, so that the engine takes in more than it can hold if the next ones go on."""
    ends_at_once = SamplingParams(max_tokens=50, logit_bias={9: 100}, stop_token_ids=(9,))
    for number in range(32):
        core.add([number], ends_at_once)
    while core.has_work:
        core.step()


def said(deltas: list[Delta]) -> tuple[list[int], list[TokenNote]]:
    return [t for delta in deltas for t in delta.token_ids], [note for delta in deltas for note in delta.token_notes]


def check(core: EngineCore, spec: ConstraintSpec | None, deltas: list[Delta]) -> None:
    """One note per token; what saved a step is what usage says; masks and forced text are those of the constraint."""
    token_ids, notes = said(deltas)
    assert all(len(delta.token_notes) == len(delta.token_ids) for delta in deltas)
    saved = [place for place, note in enumerate(notes) if note.how != "sampled"]
    assert saved == sorted(deltas[-1].usage.jumped_at)
    if spec is None:
        assert all(note.num_allowed is None and note.how != "forced" for note in notes)
        return
    cursor = core.request_factory.compile(spec).cursor()
    for place, (token_id, note) in enumerate(zip(token_ids, notes, strict=True)):
        bits = np.unpackbits(cursor.row_within(MAX_TOKENS - place).view(np.uint8)).sum()
        assert note.num_allowed in (None, bits)
        assert note.num_allowed is not None or (note.how == "forced" and core.config.jump == "canonical")
        if note.how != "sampled":
            token = cursor.caches.vocabulary.tokens[token_id]
            assert (note.how == "forced") is (bool(token) and forced_bytes(cursor).startswith(token))
        assert cursor.advance(token_id)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"jump": "canonical"},
        {"jump": "off", "lookup_drafts": False},
        {"run_ahead": True},
        {"num_blocks": 12},
    ],
    ids=["verified", "canonical", "off", "run ahead", "preempted"],
)
@pytest.mark.parametrize("constrained", [True, False], ids=["schema", "free"])
def test_notes_are_right_and_change_nothing(nano: LoadedModel, settings: dict[str, Any], constrained: bool) -> None:
    spec = json_schema(SCHEMA) if constrained else None
    core, noted = run(nano, spec, True, prompts=3, **settings)
    if "num_blocks" in settings:
        assert core.statistics().num_preemptions
    _, plain = run(nano, spec, False, prompts=3, **settings)
    for key, deltas in noted.items():
        check(core, spec, deltas)
        assert said(deltas)[0] == said(plain[key])[0] and not said(plain[key])[1]
    kinds = {note.how for deltas in noted.values() for note in said(deltas)[1]}
    assert "sampled" in kinds and ("forced" in kinds) is (constrained and settings.get("jump") != "off")


def test_a_token_without_text_is_not_forced_text(nano: LoadedModel) -> None:
    core = EngineCore(EngineConfig(device="cpu", num_blocks=16), nano)
    cursor = core.request_factory.compile(regex("a")).cursor()
    vocabulary = cursor.caches.vocabulary
    assert cursor.advance(vocabulary.tokens.index(b"a"))
    row = cursor.row_within(9)
    [end] = [token for token in nano.tokenizer.eos_ids if row[token // 32] >> token % 32 & 1][:1]
    assert decisions(cursor, [end], [row, row])[0][1] is False


def test_each_output_has_its_own(nano: LoadedModel) -> None:
    spec = json_schema(SCHEMA)
    core, noted = run(nano, spec, True, n=3)
    assert len(noted) == 3
    for deltas in noted.values():
        check(core, spec, deltas)


def test_a_fork_has_those_of_what_it_took_over(nano: LoadedModel) -> None:
    spec = json_schema(SCHEMA)
    core = EngineCore(EngineConfig(device="cpu", num_blocks=256), nano, stopwatch=lambda: 0.0)
    core.add(PROMPT, SamplingParams(max_tokens=MAX_TOKENS, seed=1), spec, request_id="parent", explain_tokens=True)
    found: dict[str, list[Delta]] = {}
    children: list[str] = []
    while core.has_work:
        for delta in core.step():
            found.setdefault(delta.request_id, []).append(delta)
        if not children and len(said(found["parent"])[0]) > 3:
            children = core.fork("parent", 2)
    for name in ("parent", *children):
        check(core, spec, found[name])


def test_nothing_is_noted_of_what_another_engine_has_said(nano: LoadedModel) -> None:
    core = EngineCore(EngineConfig(device="cpu", num_blocks=256), nano, stopwatch=lambda: 0.0)
    core.add(PROMPT, SamplingParams(max_tokens=9, seed=1), None, output_ids=[9, 10, 11], explain_tokens=True)
    while core.has_work:
        for delta in core.step():
            assert len(delta.token_notes) == len(delta.token_ids)


@pytest.mark.parametrize("stream", [True, False])
def test_chats_say_it_of_each_token(page: Client, stream: bool) -> None:
    fields = {"max_tokens": 60, "seed": 4, "n": 2, "return_token_ids": True, "stream": stream}
    constraint = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}
    answer = page.chat("Ada, born 1815", explain_tokens=True, **fields, **constraint)
    bodies = [body for body in answer.events() if isinstance(body, dict)] if stream else [answer.json()]
    assert "".join(bodies[0]["prompt_pieces"]).count("Ada") == 1
    assert len(bodies[0]["prompt_pieces"]) == len(bodies[0]["prompt_token_ids"])
    for index in range(2):
        choices = [choice for body in bodies for choice in body["choices"] if choice["index"] == index]
        details = [one for choice in choices for one in choice["token_details"]]
        token_ids = [one for choice in choices for one in choice.get("token_ids", [])]
        assert [one["id"] for one in details] == token_ids and token_ids
        texts = [choice["delta"].get("content", "") if stream else choice["message"]["content"] for choice in choices]
        assert "".join(one["text"] for one in details).startswith("".join(texts))
        assert {one["how"] for one in details} <= {"sampled", "forced", "foreseen"}
        assert all(one["allowed"] >= 1 for one in details)
    plain = page.chat("Ada, born 1815", **fields, **constraint)
    bodies = [body for body in plain.events() if isinstance(body, dict)] if stream else [plain.json()]
    assert all("token_details" not in choice for body in bodies for choice in body["choices"])
    assert "prompt_pieces" not in bodies[0]
