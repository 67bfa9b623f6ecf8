"""What programs on other machines ask of the tokenizer, so that their prompts are token ids to the last one.

A program keeps ids and never tokenises a text twice (`runtime/program/transcript.py`). Away from the model it asks here
what `/tokenize` does not tell: a text as it stands inside a message, the template's text around it, bytes of tokens.
"""

from __future__ import annotations

import base64
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ...errors import RequestError
from ..tokenizer.no_tokenizer import refuse_text
from ..tokenizer.tokenizer import Tokenizer
from .body import read_request
from .description import answer, described
from .errors import api_error, json_response
from .prepare import check_tokens
from .protocol import Body, Message
from .service import Service

PATH = "/program/text"


class TextToEncode(Body):
    """A text, and where it stands: `Tokenizer.encode_prompt`, `encode`, `encode_message`, or of a template's text
    `encode_pieces`, at the start or after other text."""

    text: str
    place: Literal["prompt", "inside", "message", "template_start", "template"]


class ProgramTextRequest(Body):
    """Any of three questions."""

    model: str | None = None
    texts: list[TextToEncode] = Field([], max_length=4096)
    tokens: list[int] = Field([], max_length=1 << 16)
    messages: list[Message] | None = Field(None, min_length=1)
    add_generation_prompt: bool = True


def program_text_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.get(PATH, **described(answer(None, "bos_id", "control_ids", "max_model_len")))
    async def facts() -> Response:
        """What does not change while the server runs."""
        tokenizer = service.engine.tokenizer
        if not tokenizer.has_text:
            refuse_text("texts", "send token ids to /v1/completions")
        bos_text = tokenizer.token_text(tokenizer.bos_id) if tokenizer.bos_id >= 0 else ""
        return json_response(
            {
                "bos_id": tokenizer.bos_id,
                "bos_text": bos_text,
                "control_ids": dict(tokenizer.control_ids),
                "max_model_len": service.engine.request_factory.longest(0, None),
            }
        )

    @router.post(PATH, **described(answer(None, "token_ids", "token_bytes", "pieces"), ProgramTextRequest))
    async def questions(request: Request) -> Response:
        body = await read_request(request, ProgramTextRequest, service.settings)
        service.check_model(body.model)
        tokenizer = service.engine.tokenizer
        if not tokenizer.has_text:
            refuse_text("texts", "send token ids to /v1/completions")
        return json_response(await service.on_worker(_answers, tokenizer, body))

    return router


def _answers(tokenizer: Tokenizer, body: ProgramTextRequest) -> dict[str, Any]:
    """Ids of each text, the bytes of each token in Base64, and the pieces of the rendered messages.

    Raises:
        ApiError: an id out of the vocabulary, text that is no Unicode, or messages that the template refuses.
    """
    check_tokens(tokenizer, body.tokens)
    pieces: list[str] | None = None
    try:
        if body.messages is not None:
            messages = [message.as_sent() for message in body.messages]
            rendered = tokenizer.chat_template.render(messages, add_generation_prompt=body.add_generation_prompt)
            pieces = list(rendered)
        token_ids = [_encode(tokenizer, one) for one in body.texts]
    except RequestError as error:
        raise api_error(error, param="texts" if body.messages is None else "messages") from error
    token_bytes = [base64.b64encode(tokenizer.token_bytes(token_id)).decode() for token_id in body.tokens]
    return {"token_ids": token_ids, "token_bytes": token_bytes, "pieces": pieces}


def _encode(tokenizer: Tokenizer, one: TextToEncode) -> list[int]:
    match one.place:
        case "prompt":
            return tokenizer.encode_prompt(one.text)
        case "inside":
            return tokenizer.encode(one.text)
        case "message":
            return tokenizer.encode_message(one.text)
        case "template_start":
            return tokenizer.encode_pieces([one.text])
        case "template":
            return tokenizer.encode_pieces([one.text], at_start=False)
