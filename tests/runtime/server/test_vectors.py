"""Vectors and scores over HTTP: the official client, a reranker against transformers, and a query that is a prefix."""

from __future__ import annotations

import base64
import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from openai import BadRequestError, OpenAI

from phloem.errors import ConfigError
from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.loading import load
from phloem.runtime.server.reranker import INSTRUCTION, QWEN3, Reranker
from phloem.runtime.tokenizer.tokenizer import Tokenizer

from ..engine.test_vectors import write_tokenizer
from ..models.oracle import save_random_model
from .conftest import Served, serving
from .wire import client

TEXTS = ["Tarvin Ledmo is a baker.", "The boat is green.", "Tarvin Ledmo is a baker.", "x"]
QUERY = "the cat sat on the mat, yes or no " * 6


def ask(served: Served, path: str, **body: Any) -> Any:
    """The answer as it came."""
    with served.client() as client:
        return client.post(f"{served.url}{path}", body=body, cast_to=object)


def test_the_official_client_gets_the_engines_vectors(served: Served, openai_client: OpenAI) -> None:
    engine = served.async_engine.engine
    expected = engine.embed(TEXTS)
    ids = [list(engine.tokenizer.encode_whole(text)) for text in TEXTS]
    for options in ({}, {"encoding_format": "float"}, {"encoding_format": "base64"}):
        for given in (TEXTS, ids):
            answer = openai_client.embeddings.create(model="nano", input=given, **options)  # type: ignore[call-overload]
            assert [one.index for one in answer.data] == [0, 1, 2, 3]
            rows = [one.embedding for one in answer.data]
            if options.get("encoding_format") == "base64":
                rows = [np.frombuffer(base64.b64decode(row), "<f4") for row in rows]
            assert np.array(rows, np.float32).tobytes() == expected.tobytes()
            assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(map(len, ids))
    for one in (TEXTS[0], ids[0]):
        answer = openai_client.embeddings.create(model="nano", input=one, dimensions=9)
        assert np.array(answer.data[0].embedding, np.float32).tobytes() == engine.embed(one, dimensions=9).tobytes()
    served.settle()


def test_without_a_reranker_a_score_is_a_cosine(served: Served) -> None:
    vectors = served.async_engine.engine.embed(TEXTS)
    expected = vectors @ vectors[1]
    ranked = ask(served, "/rerank", model="nano", query=TEXTS[1], documents=TEXTS, return_documents=True)["results"]
    order = [one["index"] for one in ranked]
    assert order[0] == 1 and expected[order].tolist() == sorted(expected.tolist(), reverse=True)
    np.testing.assert_allclose([one["relevance_score"] for one in ranked], expected[order], rtol=0, atol=1e-6)
    assert [one["document"]["text"] for one in ranked] == [TEXTS[index] for index in order]
    best = ask(served, "/v1/rerank", query=TEXTS[1], documents=[TEXTS[0], {"text": TEXTS[1]}], top_n=1)["results"]
    assert best == [{"index": 1, "relevance_score": ranked[0]["relevance_score"]}]
    for asked in ({"text_1": TEXTS[1], "text_2": TEXTS}, {"text_1": TEXTS, "text_2": [TEXTS[1]] * 4}):
        for path in ("/v1/score", "/score"):
            scored = ask(served, path, **asked)["data"]
            np.testing.assert_allclose([one["score"] for one in scored], expected, rtol=0, atol=1e-6)
            assert all(-1 <= one["score"] <= 1 for one in scored)
    served.settle()


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/embeddings", {"input": [[1] * 9]}, 200),
        ("/v1/embeddings", {"input": [[1] * 10]}, 400),
        ("/v1/embeddings", {"input": ["a"] * 3}, 200),
        ("/v1/embeddings", {"input": ["a"] * 4}, 400),
        ("/v1/completions", {"prompt": [1] * 4, "max_tokens": 5}, 200),
        ("/v1/completions", {"prompt": [1] * 4, "max_tokens": 6}, 400),
    ],
    ids=str,
)
def test_what_just_fits_is_served(path: str, body: dict[str, Any], status: int) -> None:
    asked = client()
    asked.engine.engine.max_model_len = 9
    asked.engine.engine.config = EngineConfig(max_waiting_requests=3)
    assert asked.post(path, body).status == status


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In Qwen3-Reranker's shape."""
    return reranker_folder(tmp_path_factory.mktemp("reranker"))


def reranker_folder(folder: Path) -> Path:
    options = {"head_dim": 16, "vocab_size": write_tokenizer(folder, "<|endoftext|>"), "tie_word_embeddings": True}
    save_random_model(folder, "Qwen3ForCausalLM", {**options, "max_position_embeddings": 2048})
    return folder


@pytest.fixture(scope="module")
def reranking(folder: Path) -> Iterator[Served]:
    config = EngineConfig(model=str(folder), device="cpu")
    with serving(load(config), reranker_template="qwen3", num_blocks=4096, device="cpu") as running:
        yield running


class Card:
    """A score as Qwen3-Reranker's model card computes it, with transformers."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import transformers
        file = str(folder / "tokenizer.json")
        self._tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=file)
        self._model = transformers.Qwen3ForCausalLM.from_pretrained(folder).eval()
        self.answers = self._tokenizer.convert_tokens_to_ids(["yes", "no"])

    def ids(self, query: str, document: str, instruction: str = INSTRUCTION) -> list[int]:
        before, after = QWEN3.split("<Instruct>")[0], QWEN3.split("{document}")[1]
        middle = f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
        found = [self._tokenizer(text, add_special_tokens=False)["input_ids"] for text in (before, middle, after)]
        return [token_id for ids in found for token_id in ids]

    def score(self, ids: list[int]) -> float:
        with torch.inference_mode():
            logits = self._model(torch.tensor([ids])).logits[0, -1, self.answers].double()
        return float(torch.softmax(logits, 0)[0])


def test_a_reranker_scores_as_its_card_has_it(reranking: Served, folder: Path) -> None:
    card = Card(folder)
    documents = [f"the mat {index} " * (1 + index % 5) for index in range(12)]
    asked = {"text_1": QUERY, "text_2": documents}
    for own, instruction in (({}, INSTRUCTION), ({"instruction": "find cats"}, "find cats")):
        expected = [card.score(card.ids(QUERY, document, instruction)) for document in documents]
        scored = ask(reranking, "/v1/score", **asked, **own)
        found = [one["score"] for one in scored["data"]]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
        assert max(found) > min(found)
        ranked = ask(reranking, "/rerank", query=QUERY, documents=documents, **own)["results"]
        assert [one["relevance_score"] for one in ranked] == sorted(found, reverse=True), "a hit changes bits"
    assert scored["usage"]["prompt_tokens"] == sum(len(card.ids(QUERY, one, "find cats")) for one in documents)
    reranking.settle()


def num_shared(one: list[int], other: list[int]) -> int:
    return next(count for count, (mine, its) in enumerate(zip(one, other, strict=False)) if mine != its)


def test_the_query_is_computed_once_for_a_hundred_documents(reranking: Served, folder: Path) -> None:
    """All that stands before the documents is spared for each but the first, to the token."""
    card = Card(folder)
    documents = [f"{index} cats sat on the mat " * 3 for index in range(100)]
    ids = [card.ids(QUERY, document) for document in documents]
    before = min(num_shared(ids[0], other) for other in ids[1:])
    engine = reranking.async_engine.engine
    engine.flush_cache()
    computed = engine.statistics().num_computed_tokens
    usage = ask(reranking, "/rerank", query=QUERY, documents=documents)["usage"]
    computed = engine.statistics().num_computed_tokens - computed
    total = usage["prompt_tokens"]
    assert total == usage["total_tokens"] == sum(map(len, ids))
    spared = usage["prompt_tokens_details"]["cached_tokens"]
    assert computed == total - spared
    assert spared >= 99 * before and spared / total > 0.86  # as docs/server.md has it


def test_what_callers_send_makes_no_special_token(folder: Path) -> None:
    tokenizer = Tokenizer.from_folder(folder)
    plain, marked = (Reranker(QWEN3, tokenizer).tokens("cat", text, None) for text in ("cat", "<|im_end|>{query}"))
    specials = set(tokenizer.special_ids.values())
    assert [one for one in marked if one in specials] == [one for one in plain if one in specials]
    assert tokenizer.show(marked) == QWEN3.format(query="cat", document="<|im_end|>{query}", instruction=INSTRUCTION)


def test_a_template_of_ones_own_is_read_as_it_stands(folder: Path, tmp_path: Path) -> None:
    template = "<|im_start|>{query}\n{document}<|im_end|>\n"
    (tmp_path / "own.txt").write_text(template)
    config = EngineConfig(model=str(folder), device="cpu")
    with serving(load(config), reranker_template=str(tmp_path / "own.txt"), num_blocks=64, device="cpu") as running:
        scored = ask(running, "/v1/score", text_1="cat", text_2="the mat")
        with pytest.raises(BadRequestError, match="instruction"):
            ask(running, "/v1/score", text_1="cat", text_2="the mat", instruction="find cats")
    tokenizer, card = Tokenizer.from_folder(folder), Card(folder)
    ids = tokenizer.encode_formatted("<|im_start|>cat\nthe mat<|im_end|>\n")
    assert abs(scored["data"][0]["score"] - card.score(ids)) < 1e-5


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{document} {query}", "{query} and then {document}"),
        ("{query}", "{query} and then {document}"),
        ("{query} {document} {document}", "once each"),
        ("{instruction} {query} {instruction} {document}", "at most one"),
        ("{query} {document} \udcff", "cannot be read"),
        ("{query} {document}" + "x" * 70_000, "larger than"),
        (None, "cannot be read"),
    ],
)
def test_a_template_that_cannot_be_used_ends_the_start(
    folder: Path, tmp_path: Path, template: str | None, message: str
) -> None:
    file = tmp_path / "template.txt"
    if template is not None:
        file.write_bytes(template.encode("utf-8", "surrogateescape"))
    loaded = load(EngineConfig(model=str(folder), device="cpu"))
    with (
        pytest.raises(ConfigError, match="reranker_template: .*" + re.escape(message)),
        serving(loaded, reranker_template=str(file), num_blocks=64, device="cpu"),
    ):
        pass


def test_a_checkpoint_says_that_it_is_a_reranker(tmp_path: Path) -> None:
    """As sentence-transformers writes it; the prompt is known where the answers are "yes" and "no"."""
    folder = reranker_folder(tmp_path)
    kinds = [("", "base.modules.transformer.Transformer"), ("1_LogitScore", "cross_encoder.modules.LogitScore")]
    parts = [{"path": path, "type": f"sentence_transformers.{kind}"} for path, kind in kinds]
    (folder / "modules.json").write_text(json.dumps(parts))
    (folder / "1_LogitScore").mkdir()
    card = Card(folder)
    for answers, is_known in ((card.answers, True), (card.answers[::-1], False)):
        ids = dict(zip(("true_token_id", "false_token_id"), answers, strict=True))
        (folder / "1_LogitScore" / "config.json").write_text(json.dumps(ids))
        loaded = load(EngineConfig(model=str(folder), device="cpu"))
        if not is_known:
            with pytest.raises(ConfigError, match="prompt is not known"), serving(loaded, num_blocks=64, device="cpu"):
                pass
        template = None if is_known else "qwen3"
        with serving(loaded, reranker_template=template, num_blocks=64, device="cpu") as running:
            scored = ask(running, "/v1/score", text_1="cat", text_2="the mat")
        expected = card.score(card.ids("cat", "the mat"))
        assert abs(scored["data"][0]["score"] - (expected if is_known else 1 - expected)) < 1e-5
