"""The bundled model's language: documents say what their records hold, and nothing is published that cannot be met."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import jsonschema
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from nano_chat import DESKS, conversation, plain_text
from nano_text import KINDS, SCHEMAS, documents


def values(item: Any) -> Iterator[Any]:
    """Every scalar of a JSON value."""
    if isinstance(item, dict | list):
        for inner in item.values() if isinstance(item, dict) else item:
            yield from values(inner)
    else:
        yield item


def test_there_are_at_least_six_kinds_and_documents_come_in_turn() -> None:
    assert len(KINDS) >= 6
    assert [document.kind.name for document in documents(1, len(KINDS))] == list(KINDS)
    assert {document.kind.name for document in documents(1, 4, kinds=("trip",))} == {"trip"}


def test_the_same_seed_gives_the_same_documents_and_another_seed_others() -> None:
    first, again, other = (list(documents(seed, 16)) for seed in (3, 3, 4))
    assert first == again
    assert not {document.text for document in first} & {document.text for document in other}


def test_every_record_is_valid_under_its_published_schema() -> None:
    for document in documents(5, 800):
        jsonschema.Draft202012Validator(SCHEMAS[document.kind.name]).validate(json.loads(document.json))


def test_keys_come_in_the_schemas_order_so_that_the_answer_is_the_canonical_one() -> None:
    for document in documents(6, 80):
        assert list(json.loads(document.json)) == list(document.kind.schema["properties"])
        assert json.dumps(json.loads(document.json), separators=(",", ":")) == document.json


def test_every_string_and_number_of_a_record_stands_in_the_text() -> None:
    for document in documents(7, 800):
        for value in values(document.record):
            if not isinstance(value, bool):
                assert str(value) in document.text, (value, document.text)


def test_a_boolean_can_be_read_from_the_text() -> None:
    """Two records that differ in nothing but a flag never read alike."""
    signs: dict[tuple[str, str], dict[bool, set[str]]] = {}
    for document in documents(8, 4000):
        for key, value in document.record.items():
            if isinstance(value, bool):
                spoken = document.kind.speak(document.record)
                signs.setdefault((document.kind.name, key), {True: set(), False: set()})[value].update(
                    phrase for phrase in spoken.values() if phrase in document.text
                )
    assert len(signs) >= 4
    for flags in signs.values():
        assert flags[True] - flags[False] and flags[False] - flags[True]


def test_answers_stand_in_the_document_or_are_yes_or_no() -> None:
    rng = Random(9)
    for document in documents(9, 400):
        for question, answer in document.questions(rng):
            assert question.endswith("?") and "{" not in question + answer
            assert answer in ("yes", "no") or all(part in document.text for part in answer.split(", ")), answer


@pytest.mark.parametrize("desk", DESKS, ids=lambda desk: desk.__name__)
def test_a_desks_answers_are_facts_of_its_system_prompt(desk: Any) -> None:
    for seed in range(50):
        facts, exchanges = desk(Random(seed), 6)
        assert all(answer in facts for _, answer in exchanges)


def test_in_a_conversation_the_user_and_the_assistant_take_turns() -> None:
    for seed in range(200):
        roles = [role for role, _ in islice(conversation(Random(seed), progress=seed / 200), 13)]
        turns = roles[1:] if roles[0] == "system" else roles
        assert turns == ["user", "assistant"] * (len(turns) // 2) + ["user"] * (len(turns) % 2)


def test_plain_text_is_documents_without_end() -> None:
    assert len(set(islice(plain_text(Random(1)), 50))) == 50
