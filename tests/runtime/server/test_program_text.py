"""What programs on other machines ask of the tokenizer."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest

from .conftest import KEY, Served

TEXTS = ["Hello", " a  b\n", "<|user|>x", "é😀", "<s>"]


def asked(served: Served, body: dict[str, Any] | None) -> Any:
    headers = {"authorization": f"Bearer {KEY}"}
    method = "GET" if body is None else "POST"
    return httpx.request(method, f"{served.url}/program/text", json=body, headers=headers, timeout=60).json()


def test_the_answers_are_the_tokenizers(served: Served) -> None:
    tokenizer = served.async_engine.engine.tokenizer
    facts = asked(served, None)
    assert facts["bos_id"] == tokenizer.bos_id and facts["control_ids"] == dict(tokenizer.control_ids)
    encode = {
        "prompt": tokenizer.encode_prompt,
        "inside": tokenizer.encode,
        "message": tokenizer.encode_message,
        "template_start": lambda text: tokenizer.encode_pieces([text]),
        "template": lambda text: tokenizer.encode_pieces(["", text]),
    }
    places = [(text, place) for text in TEXTS for place in encode]
    messages = [{"role": "user", "content": "<|user|>"}]
    found = asked(
        served,
        {
            "texts": [{"text": text, "place": place} for text, place in places],
            "tokens": list(range(tokenizer.vocab_size)),
            "messages": messages,
        },
    )
    assert found["token_ids"] == [encode[place](text) for text, place in places]
    assert [base64.b64decode(one) for one in found["token_bytes"]] == [
        tokenizer.token_bytes(token_id) for token_id in range(tokenizer.vocab_size)
    ]
    assert found["pieces"] == list(tokenizer.chat_template.render(messages))


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"tokens": [0, 10**8]}, "tokens[1]"),
        ({"tokens": [-1]}, "tokens[0]"),
        ({"texts": [{"text": "a", "place": "nowhere"}]}, "texts[0].place"),
        ({"texts": [{"place": "inside"}]}, "texts[0].text"),
        ({"messages": []}, "messages"),
        ({"model": "nope"}, "model"),
    ],
)
def test_what_cannot_be_answered_is_refused(body: dict[str, Any], param: str, served: Served) -> None:
    assert asked(served, body)["error"]["param"] == param
