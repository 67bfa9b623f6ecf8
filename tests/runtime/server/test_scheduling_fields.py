"""What a request says of its place in the queue and the cache reaches the engine, whatever is asked."""

from __future__ import annotations

from typing import Any

import pytest

from .wire import client

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/completions": {"prompt": "a"},
    "/v1/responses": {"input": "a"},
    "/v1/messages": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 8},
    "/v1/embeddings": {"input": ["a", "b"]},
    "/v1/score": {"text_1": "a", "text_2": "b"},
    "/rerank": {"query": "a", "documents": ["b"]},
}


@pytest.mark.parametrize("path", BODIES)
def test_priority_deadline_and_salt_reach_every_call(path: str) -> None:
    asked = client()
    for fields, expected in (({}, (0, None)), ({"priority": 3, "deadline_seconds": 9.0, "cache_salt": "s"}, (3, 9.0))):
        asked.engine.calls.clear()
        assert asked.post(path, {**BODIES[path], **fields}).status == 200
        assert asked.engine.calls
        for call in asked.engine.calls:
            assert (call["priority"], call["deadline_seconds"]) == expected
            assert bool(call["namespace"]) == bool(fields)


@pytest.mark.parametrize("path", BODIES)
def test_keys_part_the_cache_of_every_route(path: str) -> None:
    asked, found = client(api_keys=("sk-one", "sk-two")), []
    for key in ("sk-one", "sk-two"):
        asked.engine.calls.clear()
        assert asked.post(path, BODIES[path], headers={"authorization": f"Bearer {key}"}).status == 200
        found.append({call["namespace"] for call in asked.engine.calls})
    assert len(found[0]) == len(found[1]) == 1 and found[0] != found[1] and "" not in found[0] | found[1]
