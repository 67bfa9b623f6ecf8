"""A constraint as the page shows it: what is enforced how, what is forced, what it costs, how far a text goes in it.

It is compiled as a request's would be, within the server's limits, and only then explained, unless it is too large to
be shown. One at a time, on a worker, so that however many are asked for, the others are left to requests; a few wait,
more are sent away, and one whose client has left is not begun. One that is under way when its client leaves goes on to
its end, for which the next one waits.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field
from starlette.requests import Request

from ....errors import ConstraintError, RequestError
from ....fsm.explain import Explanation, Stepping
from ....fsm.foresight import forced_bytes
from ....fsm.vocabulary.vocabulary import token_ids_of
from ...constrain import spec as constraint_spec
from ...constrain.spec import ConstraintSpec
from ...explain import explain_with, refusal
from ..constraints import structural_tag_of
from ..errors import ApiError, api_error, invalid
from ..protocol import Body
from ..service import Service
from ..stream import until_gone

if TYPE_CHECKING:
    from ...engine.engine import Engine

MAX_TEXT = 20_000  # characters that are gone through
MAX_TOKENS = 200
MAX_LISTED = 200  # keywords
MAX_NODES = 30_000  # of its network: explaining more takes seconds
MAX_WAITING = 8
PATIENCE = 10.0  # seconds to wait for a look whose client has left
POLL = 0.02
SHOWN_BYTES = 2000
MAX_SPELT = 16  # bytes of a token that a text is spelt in


class ConstraintRequest(Body):
    """A constraint, and a text to go through."""

    kind: Literal["json_schema", "regex", "grammar", "choice", "structural_tag"]
    source: Any
    text: str | None = Field(None, max_length=MAX_TEXT)
    key_order: Literal["schema", "any"] = "schema"
    extra_keys: Literal["schema", "never"] | None = None
    whitespace: Literal["compact", "spaced", "flexible"] | None = None


class ConstraintView:
    """What `POST /page/constraint` answers."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = asyncio.Lock()
        self._num_waiting = 0
        self._worker = threading.Lock()  # held by a look that goes on after its time is over

    async def explain(self, request: Request, body: ConstraintRequest) -> dict[str, Any]:
        """
        Raises:
            ApiError: the constraint is refused, as a request's would be; the error has its place, what stands there,
                and a remedy. 429: too many are asked for.
            ClientGone: the client has left.
        """
        if self._num_waiting >= MAX_WAITING:
            raise _too_many(self._service)
        self._num_waiting += 1
        try:
            return await until_gone(request, self._in_turn(body))
        finally:
            self._num_waiting -= 1

    async def _in_turn(self, body: ConstraintRequest) -> dict[str, Any]:
        async with self._lock:
            await self._worker_free()
            return await self._service.on_worker(self._looked_at, body)

    async def _worker_free(self) -> None:
        end = time.monotonic() + PATIENCE
        while self._worker.locked():
            if time.monotonic() > end:
                raise _too_many(self._service)
            await asyncio.sleep(POLL)

    def _looked_at(self, body: ConstraintRequest) -> dict[str, Any]:
        with self._worker:
            return _looked_at(self._service.engine, body, self._extra_keys(body))

    def _extra_keys(self, body: ConstraintRequest) -> constraint_spec.ExtraKeys:
        return body.extra_keys or self._service.settings.extra_keys


def _too_many(service: Service) -> ApiError:
    text = "Other constraints are being looked at; ask again in a moment."
    return ApiError(
        429,
        text,
        kind="rate_limit_error",
        code="constraints_busy",
        headers={"Retry-After": str(service.settings.retry_after)},
    )


def _looked_at(engine: Engine, body: ConstraintRequest, extra_keys: constraint_spec.ExtraKeys) -> dict[str, Any]:
    try:
        spec = _spec(body, extra_keys)
    except RequestError as error:
        raise _refused(error, ConstraintSpec(body.kind, body.source)) from error
    try:
        num_nodes = engine.request_factory.compile(spec).automaton.network.num_nodes
        if num_nodes > MAX_NODES:
            raise invalid(
                f"The constraint can be enforced, and is too large to be shown: it has {num_nodes:,} places, and "
                f"{MAX_NODES:,} are shown. `phloem inspect` shows it, in more time.",
                "source",
                code="too_large_to_show",
            )
        found = explain_with(engine.compiler.vocabulary, engine.tokenizer.json_whitespace, spec, body.text)
    except RequestError as error:
        raise _refused(error, spec) from error
    valid = _valid(found.steps)
    place = _Place(engine, spec, valid)
    return {
        "ok": True,
        "enforced": [{"pointer": one.pointer, "keyword": one.keyword, "how": one.how} for one in found.demands][
            :MAX_LISTED
        ],
        "forced_text": place.forced,
        "shortest": (found.shortest.text or b"")[:SHOWN_BYTES].decode(errors="replace"),
        "shortest_tokens": found.shortest.num_tokens,
        "num_states": found.num_states,
        "svg": found.svg().document,
        "compile_ms": round(found.timings.grammar + found.timings.network, 3),
        "first_mask_us": round(1000 * found.timings.first_mask, 1),
        "mask_us": round(found.masks.cold_median, 1),
        "steps": None if found.steps is None else _steps(found, found.steps, valid),
        "next": {"count": len(place.allowed), "tokens": place.tokens} if place.is_known else None,
    }


def _refused(error: RequestError, spec: ConstraintSpec) -> ApiError:
    """The error with what stands at its place and what to do about it, as far as that is known."""
    answer = api_error(error, param="source")
    if isinstance(error, ConstraintError):
        with suppress(ValueError, TypeError):  # a source that is no JSON
            why = refusal(error, spec)
            answer.details = {"reason": why.reason, "part": why.part, "remedy": why.remedy}
    return answer


def _spec(body: ConstraintRequest, extra_keys: constraint_spec.ExtraKeys) -> ConstraintSpec:
    """Raises RequestError."""
    kind, source = body.kind, body.source
    if kind in ("json_schema", "structural_tag", "choice") and isinstance(source, str):
        try:
            source = json.loads(source)
        except (ValueError, RecursionError) as error:
            raise invalid(f"Invalid 'source': no JSON text: {error}.", "source") from error
    if kind == "json_schema":
        return constraint_spec.json_schema(
            source, whitespace=body.whitespace, key_order=body.key_order, extra_keys=extra_keys
        )
    if kind == "structural_tag":
        return structural_tag_of(source, extra_keys)
    if kind == "choice":
        if not isinstance(source, list) or not all(isinstance(option, str) for option in source):
            raise invalid("Invalid type for 'source': for \"choice\" it is an array of strings.", "source")
        return constraint_spec.choice(source)
    if not isinstance(source, str):
        raise invalid(f"Invalid type for 'source': for \"{kind}\" it is a string.", "source")
    return constraint_spec.regex(source) if kind == "regex" else constraint_spec.grammar(source)


def _valid(steps: Stepping | None) -> str:
    """As much of the text as is in the language, in whole characters."""
    if steps is None:
        return ""
    return steps.text.encode(errors="surrogatepass")[: steps.num_bytes].decode(errors="ignore")


def _steps(found: Explanation, steps: Stepping, valid: str) -> dict[str, Any]:
    return {
        "valid_up_to": len(valid),
        "complete": steps.is_complete and not steps.leaves,
        "sentence": _sentence(steps, valid),
    }


def _sentence(steps: Stepping, valid: str) -> str:
    place = f"line {steps.line}, column {steps.column + 1}"
    if steps.leaves:
        refused = steps.text[len(valid) : len(valid) + 1]
        allowed = f"allowed is {steps.allowed}" if steps.allowed else "the text has to end here"
        reasons = f" ({'; '.join(steps.reasons)})" if steps.reasons else ""
        return f"{refused!r} is not allowed at {place}: {allowed}{reasons}."
    if not steps.is_complete:
        return f"The text may begin like this; next comes {steps.allowed}."
    return f"The text is complete, and may go on with {steps.allowed}." if steps.allowed else "The text is complete."


class _Place:
    """Where a text ends in a constraint: what must come next, and which tokens may.

    Masks know bytes, so it does not matter in which tokens the text is spelt.

    Attributes:
        is_known: False if the vocabulary has no tokens for the text, or the constraint is too large to go there.
    """

    def __init__(self, engine: Engine, spec: ConstraintSpec, text: str) -> None:
        self.is_known, self.forced, self.allowed = False, "", list[int]()
        vocabulary = engine.compiler.vocabulary
        cursor = engine.request_factory.compile(spec).cursor()
        with suppress(ConstraintError):
            token_ids = _spelt(vocabulary.tokens, text.encode(errors="surrogatepass"))
            if token_ids is not None and all(cursor.advance(token_id) for token_id in token_ids):
                self.allowed = token_ids_of(cursor.row())
                self.forced = forced_bytes(cursor)[:SHOWN_BYTES].decode(errors="replace")
                self.is_known = True
        spell = engine.tokenizer.token_text
        self.tokens = [{"id": one, "text": spell(one)} for one in self.allowed[:MAX_TOKENS]]


def _spelt(tokens: Sequence[bytes], text: bytes) -> list[int] | None:
    """Tokens that spell a text, the longest first; None if one of its bytes begins no token."""
    ids = {token: token_id for token_id, token in enumerate(tokens) if 0 < len(token) <= MAX_SPELT}
    found, at = list[int](), 0
    while at < len(text):
        lengths = range(min(MAX_SPELT, len(text) - at), 0, -1)
        length = next((length for length in lengths if text[at : at + length] in ids), 0)
        if not length:
            return None
        found.append(ids[text[at : at + length]])
        at += length
    return found
