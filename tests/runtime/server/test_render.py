"""The render routes say which tokens the prompt of a request will be."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from .conftest import KEY, PATIENCE, Served
from .samples import WEATHER
from .wire import client

CHATS: list[dict[str, Any]] = [
    {},
    {"tools": [WEATHER]},
    {"response_format": {"type": "json_object"}, "cache_salt": "s", "max_tokens": 30},
    {"stream": True, "n": 2},
]


def post(served: Served, path: str, body: dict[str, Any]) -> Any:
    answer = httpx.post(served.url + path, json=body, headers={"Authorization": f"Bearer {KEY}"}, timeout=PATIENCE)
    assert answer.status_code == 200
    return answer.json()


@pytest.mark.parametrize("fields", CHATS)
def test_a_chats_tokens_are_those_of_its_request(fields: dict[str, Any], served: Served) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather in Ur?"}]
    body = {"messages": messages, "max_tokens": 2, **fields}
    rendered = post(served, "/v1/chat/completions/render", body)
    asked = {name: value for name, value in body.items() if name not in ("stream", "max_tokens")}
    answered = post(served, "/v1/chat/completions", {**asked, "return_token_ids": True, "max_tokens": 60})
    assert rendered == {"model": "nano", "token_ids": answered["prompt_token_ids"], "features": None}


@pytest.mark.parametrize("prompt", ["Ada", ["Ada", "Lovelace was"], [5, 6, 7], [[5, 6], [7]]])
def test_each_prompts_tokens_are_those_of_its_request(prompt: Any, served: Served) -> None:
    body = {"prompt": prompt, "max_tokens": 1}
    rendered = post(served, "/v1/completions/render", body)
    answered = post(served, "/v1/completions", {**body, "return_token_ids": True})
    assert [one["token_ids"] for one in rendered] == [choice["prompt_token_ids"] for choice in answered["choices"]]


def test_what_would_be_refused_is() -> None:
    asked = client()
    body = {"messages": [{"role": "user", "content": "Hi"}], "model": "other"}
    assert asked.post("/v1/chat/completions/render", body).error["code"] == "model_not_found"
    assert asked.post("/v1/completions/render", {"prompt": [999]}).status == 400
    assert not asked.engine.calls, "nothing is computed"
