"""POST /v1/score and /rerank: how well texts go together, as vLLM, Jina and Cohere have them.

Where the model is a reranker (`reranker`) a score is its probability of "yes", and all that comes before a document is
a prefix of the requests for the others. Else it is the cosine of two vectors.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...errors import RequestError
from ..readout import Rows
from ..request import Delta, RequestOptions
from .description import answer, described
from .errors import api_error, callers_names, invalid
from .prepare import EngineCall
from .reranker import Reranker, reranker_of
from .service import Service
from .vector_calls import check_number, options_of, read_all, read_call, respond_whole, usage_of
from .vectors_request import RerankRequest, ScoreRequest

SCORES = answer("list", "id", "created", "model", "data", "usage")
RANKS = answer(None, "id", "model", "results", "usage")


def scores_router(service: Service) -> APIRouter:
    """Raises ConfigError: the template of a reranker cannot be used."""
    router = APIRouter()
    reranker = reranker_of(service.engine, service.settings.reranker_template)

    @router.post("/v1/score", **described(SCORES, ScoreRequest))
    @router.post("/score", **described(SCORES, ScoreRequest))
    async def score(request: Request) -> Response:
        """The scores of pairs of texts, in order."""
        body, model = await service.read(request, ScoreRequest)
        asked = Scoring(service, reranker, body, body.pairs, ("text_1", "text_2"), model)
        asked.check()
        return await respond_whole(service, request, _score(asked, request))

    @router.post("/v1/rerank", **described(RANKS, RerankRequest))
    @router.post("/v2/rerank", **described(RANKS, RerankRequest))
    @router.post("/rerank", **described(RANKS, RerankRequest))
    async def rerank(request: Request) -> Response:
        """The documents by how well they answer a query, best first."""
        body, model = await service.read(request, RerankRequest)
        pairs = [(body.query, document) for document in body.documents]
        asked = Scoring(service, reranker, body, pairs, ("query", "documents"), model)
        asked.check()
        return await respond_whole(service, request, _rerank(asked, body, request))

    return router


async def _score(asked: Scoring, request: Request) -> dict[str, Any]:
    scores, found = await asked.scores(request)
    data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(scores)]
    own = {"id": f"score-{uuid.uuid4().hex}", "object": "list", "created": int(time.time()), "model": asked.model}
    return {**own, "data": data, "usage": usage_of(found)}


async def _rerank(asked: Scoring, body: RerankRequest, request: Request) -> dict[str, Any]:
    scores, found = await asked.scores(request)
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[: body.top_n]
    results: list[dict[str, Any]] = [{"index": index, "relevance_score": scores[index]} for index in order]
    if body.return_documents:
        results = [{**result, "document": {"text": body.documents[result["index"]]}} for result in results]
    return {"id": f"rerank-{uuid.uuid4().hex}", "model": asked.model, "results": results, "usage": usage_of(found)}


@dataclass(frozen=True, slots=True)
class Scoring:
    """Pairs of texts on their way to their scores.

    Attributes:
        reranker: None: the model makes vectors.
        names: of the fields in which the first and the second texts came.
        model: as answered.
    """

    service: Service
    reranker: Reranker | None
    body: ScoreRequest | RerankRequest
    pairs: Sequence[tuple[str, str]]
    names: tuple[str, str]
    model: str

    def check(self) -> None:
        """Raises ApiError: there are too many of them, or the instruction has no place."""
        check_number(self.service, len(self.pairs) + (0 if self.reranker else len(self._firsts)), self.names[1])
        if self.body.instruction is not None and (self.reranker is None or not self.reranker.has_instruction):
            raise invalid("'instruction' has no place in how this model is asked; leave it out.", "instruction")

    async def scores(self, request: Request) -> tuple[list[float], list[Delta]]:
        """The score of each pair, and the deltas of all calls."""
        api_key = self.service.api_key(request.state)
        with callers_names((("prompt", self.names[1]),)):
            calls = await self.service.on_worker(self._calls, api_key)
            found = await read_all(self.service, calls, request.state.record)
        vectors = self.service.engine.vectors.finish([delta.vector for delta in found], normalise=False)
        if self.reranker is not None:
            return [self.reranker.score(logits) for logits in vectors], found
        firsts = dict(zip(self._firsts, vectors, strict=False))
        pairs = zip(self.pairs, vectors[len(firsts) :], strict=True)
        return [_cosine(firsts[first], second) for (first, _), second in pairs], found

    @property
    def _firsts(self) -> list[str]:
        """The different first texts."""
        return list(dict.fromkeys(first for first, _ in self.pairs))

    def _calls(self, api_key: str | None) -> list[EngineCall]:
        """One for each pair, or of vectors one for each different first text and each second one."""
        service, engine, (first, second) = self.service, self.service.engine, self.names
        reranker, vectors = self.reranker, engine.vectors
        what = RequestOptions(pooling=vectors.rules.pooling) if reranker is None else {"logits_of": reranker.answers}
        options = options_of(service, self.body, api_key, what)
        try:
            firsts: list[EngineCall] = []
            seconds: list[Sequence[int]]
            if reranker is not None:
                seconds = [reranker.tokens(*pair, self.body.instruction) for pair in self.pairs]
            else:
                firsts = [read_call(engine, vectors.tokens(text, first), first, options) for text in self._firsts]
                seconds = [vectors.tokens(text, second) for _, text in self.pairs]
        except RequestError as error:
            raise api_error(error, param=error.param if error.param in self.names else second) from error
        return firsts + [read_call(engine, ids, f"{second}[{at}]", options) for at, ids in enumerate(seconds)]


def _cosine(one: Rows, other: Rows) -> float:
    """0 where one of them is nothing."""
    first, second = one.astype(np.float64), other.astype(np.float64)
    length = float(np.linalg.norm(first) * np.linalg.norm(second))
    return max(-1.0, min(1.0, float(first @ second) / length)) if length else 0.0
