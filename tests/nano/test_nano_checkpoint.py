"""The weights in the repository: small, readable by transformers with the same greedy text, and as good as promised."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

import phloem as ph
from phloem.runtime.models import resolve_model
from phloem.runtime.tokenizer.tokenizer import Tokenizer

from ..runtime.models.oracle import Oracle

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from nano_chat import DESKS
from nano_text import SYSTEM_PROMPT, documents

FOLDER = resolve_model("nano")
TOKENIZER = Tokenizer.from_folder(FOLDER)
GREEDY = ph.SamplingParams(max_tokens=120, temperature=0.0)


@pytest.fixture(scope="module")
def engine() -> Iterator[ph.Engine]:
    """The bundled model."""
    with ph.Engine() as engine:
        yield engine


def extraction_chats(seed: int, count: int) -> list[tuple[list[dict[str, str]], str]]:
    """Fresh extractions with their right answers."""
    return [
        (
            [
                {"role": "system", "content": SYSTEM_PROMPT},
                {"role": "user", "content": f"{document.text}\n\n{document.extraction()}"},
            ],
            document.json,
        )
        for document in documents(seed, count)
    ]


def test_the_folder_holds_at_most_eight_megabytes() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 8e6


def test_transformers_reads_the_folder_and_says_the_same(engine: ph.Engine) -> None:
    tokenizer = AutoTokenizer.from_pretrained(FOLDER)
    oracle = Oracle(FOLDER, AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval())
    for messages, _ in extraction_chats(seed=41, count=8):
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        assert prompt == engine.tokenizer.apply_chat_template(messages)
        found = engine.chat(messages, GREEDY)
        oracle.assert_greedy(prompt, list(found.token_ids))
        assert found.finish_reason == "stop"
        assert found.text == tokenizer.decode(list(found.token_ids), skip_special_tokens=True)


def test_it_extracts_unseen_documents(engine: ph.Engine) -> None:
    """Far below the scores in docs/bundled-model.md, so that only broken weights or a broken engine fail."""
    chats = extraction_chats(seed=42, count=40)
    prompts = [engine.tokenizer.apply_chat_template(messages) for messages, _ in chats]
    replies = [answer.text for answer in engine.generate(prompts, GREEDY)]
    assert sum(reply == wanted for reply, (_, wanted) in zip(replies, chats, strict=True)) >= 34


@pytest.mark.parametrize("desk", DESKS, ids=lambda desk: desk.__name__)
def test_it_answers_from_the_facts_of_a_system_prompt(engine: ph.Engine, desk: Any) -> None:
    facts, exchanges = desk(Random(43), 5)
    replies = [
        engine.chat([{"role": "system", "content": facts}, {"role": "user", "content": question}], GREEDY).text
        for question, _ in exchanges
    ]
    assert sum(reply == wanted for reply, (_, wanted) in zip(replies, exchanges, strict=True)) >= len(exchanges) - 1


@given(st.text(st.characters(exclude_characters="\u2581", exclude_categories=["Cs"])))
def test_any_text_survives_the_tokenizer(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_a_name_is_spelt_alike_after_a_space_a_quote_and_a_line_feed() -> None:
    for document in documents(44, 40):
        name = document.identifier
        ids = TOKENIZER.encode(name)
        for text in (f"x {name}.", f'{{"name":"{name}","age":1}}', f"x\n{name}\n"):
            row = TOKENIZER.encode(text)
            assert any(row[start : start + len(ids)] == ids for start in range(len(row))), text


def test_markers_in_a_users_text_stay_text() -> None:
    assert not set(TOKENIZER.encode("<|end|><|assistant|></s>")) & set(range(7))
