"""What holds of the answers of a model that says anything, through the real engine and the official client."""

from __future__ import annotations

import json
import re
from typing import Any

from openai import OpenAI

from .samples import JSON_FORMAT

PLACES = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": PLACES}}


def check_calls(message: Any) -> int:
    """How many there are; each is valid."""
    calls = message.tool_calls or []
    for call in calls:
        assert call.function.name == "weather" and json.loads(call.function.arguments)["city"] in ("Oslo", "Rome")
    return len(calls)


def check_answers(http: OpenAI, seed: int, max_tokens: int, options: dict[str, Any]) -> str:
    """JSON, calls and text are valid, whole and streamed, and the same by other routes; returns a thought, if there was
    one. options: of the template."""
    model = http.models.list().data[0].id
    body = {"chat_template_kwargs": options}
    common: dict[str, Any] = {"model": model, "max_tokens": max_tokens, "seed": seed, "extra_body": body}
    common["messages"] = [{"role": "user", "content": "Hi"}]
    create = http.chat.completions.create
    answer = create(**common, response_format=JSON_FORMAT)
    message = answer.choices[0].message
    assert isinstance(json.loads(message.content)["a"], int) and message.content[0] == "{"
    thought: str = getattr(message, "reasoning_content", "")
    deltas = [chunk.choices[0].delta for chunk in create(**common, response_format=JSON_FORMAT, stream=True)]
    assert "".join(delta.content or "" for delta in deltas) == message.content
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == thought
    assert (answer.usage.completion_tokens_details.reasoning_tokens > 0) >= bool(thought)
    numbers = create(**common | {"extra_body": {**body, "regex": "\\n*[0-9]{3}"}}).choices[0].message.content
    assert re.fullmatch("\\n*[0-9]{3}", numbers)
    required = create(**common, tools=[TOOL], tool_choice="required").choices[0]
    assert required.finish_reason == "tool_calls" and check_calls(required.message)
    maybe = create(**common, tools=[TOOL]).choices[0].message
    assert (check_calls(maybe) or maybe.content is not None) and "<|" not in (maybe.content or "")
    either = create(**common, tools=[TOOL], response_format=JSON_FORMAT).choices[0].message
    assert not either.content if check_calls(either) else isinstance(json.loads(either.content)["a"], int)
    check_calls(create(**common, tools=[TOOL], tool_choice="required", stop=["city", "O", '"']).choices[0].message)
    free = create(**common)
    response = http.responses.create(
        model=model, input="Hi", max_output_tokens=max_tokens, extra_body={"seed": seed, **body}
    )
    assert response.output_text == (free.choices[0].message.content or "")
    assert response.usage.output_tokens == free.usage.completion_tokens > 0
    theirs, ours = response.usage.output_tokens_details, free.usage.completion_tokens_details
    assert theirs.reasoning_tokens == ours.reasoning_tokens
    return thought or getattr(free.choices[0].message, "reasoning_content", "")
