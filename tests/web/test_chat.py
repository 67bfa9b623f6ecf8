"""The view Chat, by hand of a browser, on the bundled model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

Opener = Callable[..., Any]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}}, "required": ["name"]}
HOSTILE = """<img src=x onerror="window.hacked = 1"> </script><script>window.hacked = 1</script>

[run](javascript:window.hacked=1) and [read](https://example.org/a) ![picture](https://example.org/a.png)
<javascript:window.hacked=1> `<b>code</b>`
"""


def send(page: Any, text: str) -> Any:
    """Sends a message; the reply, when it is there."""
    before = page.locator(".reply").count()
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Enter")
    reply = page.locator(".reply").last
    page.wait_for_function("before => document.querySelectorAll('.reply').length > before", arg=before)
    finished(page)
    return reply


def finished(page: Any) -> None:
    page.locator('.reply[aria-busy="true"]').wait_for(state="detached")


def set_field(page: Any, panel: str, field: str, value: str) -> None:
    button = page.locator(".composer-bar").get_by_role("button", name=panel)
    if button.get_attribute("aria-expanded") != "true":
        button.click()
    page.locator(".panel").get_by_label(field).fill(value)


def cached(reply: Any) -> tuple[int, int]:
    """How many tokens of the prompt were cached, and how many it had."""
    found = re.search(r"(\d+) of (\d+) prompt tokens? cached", reply.inner_text())
    assert found is not None, reply.inner_text()
    return int(found[1]), int(found[2])


def answered(page: Any, *bodies: dict[str, Any]) -> list[dict[str, Any]]:
    """Chats are answered by these chunks, one reply after the other; what was asked."""
    asked: list[dict[str, Any]] = []

    def fulfil(route: Any) -> None:
        body = bodies[min(len(asked), len(bodies) - 1)]
        asked.append(route.request.post_data_json)
        chunk = {"choices": [{"index": 0, "delta": body, "finish_reason": "stop"}]}
        route.fulfill(content_type="text/event-stream", body=f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n")

    page.route("**/v1/chat/completions", fulfil)
    return asked


def test_two_turns_and_a_branch(open_page: Opener) -> None:
    page = open_page()
    set_field(page, "Settings", "Temperature", "0")
    set_field(page, "Settings", "System prompt", "You read documents. Answer briefly.")
    send(page, "Mr Vesk is a baker in Tolva. What does he do?")
    second = send(page, "Where?")
    hits, tokens = cached(second)
    assert 16 <= hits < tokens

    page.get_by_role("button", name="Edit").last.click()
    page.get_by_role("form", name="Edit your message").get_by_role("textbox").fill("Who is he?")
    page.get_by_role("button", name="Send as a new branch").click()
    page.get_by_text("2 of 2").wait_for()
    finished(page)
    assert "Who is he?" in page.locator(".bubble").last.inner_text()
    assert cached(page.locator(".reply").last)[0] >= 16  # what both branches have in common
    page.get_by_role("button", name="Earlier message").click()
    assert "Where?" in page.locator(".bubble").last.inner_text()

    page.reload()  # kept in the browser, with both branches
    assert "Where?" in page.locator(".bubble").last.inner_text()
    page.get_by_role("button", name="Later message").click()
    assert "Who is he?" in page.locator(".bubble").last.inner_text()


def test_formats(open_page: Opener) -> None:
    page = open_page()
    page.expected = ["status of 400"]
    page.get_by_role("button", name="Format").click()
    page.get_by_label("JSON Schema").check()
    source = page.get_by_role("textbox", name="JSON Schema")
    source.fill('{"type": ')
    page.get_by_label("Message", exact=True).fill("Facts?")
    assert "Not JSON yet" in page.locator("#source-JSON-Schema-fault").inner_text()
    assert page.get_by_role("button", name="Send").is_disabled()

    source.fill('{"type": "object", "properties": {"a": {"type": "strong"}}}')
    send(page, "Facts?")
    fault = page.locator("#source-JSON-Schema-fault")
    assert "/properties/a" in fault.inner_text()
    assert source.get_attribute("aria-invalid") == "true"

    source.fill(json.dumps(SCHEMA))
    assert fault.count() == 0
    page.get_by_role("button", name="Try again").click()
    page.locator(".reply .formatted").wait_for()
    finished(page)
    assert set(json.loads(page.locator(".reply .formatted").inner_text())) == {"name"}

    page.get_by_label("Regular expression").check()
    page.get_by_role("textbox", name="Regular expression").fill(r"\d{4}-\d\d")
    assert re.search(r"^\d{4}-\d\d$", send(page, "When?").locator(".formatted").inner_text())


@pytest.mark.parametrize(
    ("kind", "source", "pattern"),
    [("Choice", "yes\nno, not\n", "yes|no, not"), ("Grammar", 'root ::= "It is " [0-9] "."', r"It is \d\.")],
)
def test_answers_by_a_choice_or_a_grammar(open_page: Opener, kind: str, source: str, pattern: str) -> None:
    page = open_page()
    page.locator(".composer-bar").get_by_role("button", name="Format").click()
    page.get_by_label(kind, exact=True).check()
    page.get_by_role("textbox", name=kind).fill(source)
    assert re.fullmatch(pattern, send(page, "Is it?").locator(".formatted").inner_text())


def test_an_example_is_for_its_own_conversation(open_page: Opener) -> None:
    page = open_page()
    page.get_by_role("button", name="An answer by a pattern").click()
    page.keyboard.press("Enter")
    finished(page)
    titles = page.get_by_role("navigation", name="Conversations")
    for title in ("How much is the chair?", "How much is the chair? (2)"):
        assert titles.get_by_role("button", name=title, exact=True).count() == 1
        titles.get_by_role("button", name="New conversation").first.click()
        page.locator(".composer-bar").get_by_role("button", name="Settings").click()
        assert page.locator(".panel").get_by_label("System prompt").input_value() == ""
        page.locator(".composer-bar").get_by_role("button", name="Settings").click()
        if title.endswith("?"):
            send(page, "How much is the chair?")


@pytest.mark.parametrize("height", [360, 700])
def test_send_is_in_sight_on_a_phone(open_page: Opener, height: int) -> None:
    page = open_page(width=375, height=height)
    page.locator(".composer-bar").get_by_role("button", name="Settings").click()
    page.get_by_label("Text files", exact=True).set_input_files(
        [
            {"name": "a.txt", "mimeType": "text/plain", "buffer": b"Ann is a baker."},
            {"name": "b.dat", "mimeType": "application/octet-stream", "buffer": b"\0"},
        ]
    )
    page.get_by_text("b.dat is not a text file in UTF-8.").wait_for()
    page.get_by_label("Message", exact=True).fill("one\ntwo\nthree")
    box = page.locator(".composer").get_by_role("button", name="Send").bounding_box()
    assert box["y"] + box["height"] <= height and box["x"] + box["width"] <= 375
    page.get_by_role("button", name="Conversations").click()
    page.get_by_role("navigation", name="Conversations").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("navigation", name="Conversations").wait_for(state="hidden")
    page.locator(".composer").get_by_role("button", name="Send").click()
    finished(page)
    assert page.get_by_text("b.dat is not").count() == 0


def test_answers_side_by_side_and_one_that_is_stopped(open_page: Opener) -> None:
    page = open_page()
    set_field(page, "Settings", "Answers", "2")
    reply = send(page, "Hello")
    assert reply.locator(".answers > *").count() == 2
    reply.get_by_label("Answer 2").check()
    second = reply.locator(".answers > *").nth(1).locator(".answer").inner_text()

    set_field(page, "Settings", "Answers", "1")
    page.locator(".composer-bar").get_by_role("button", name="Format").click()
    page.get_by_label("Regular expression").check()
    page.get_by_role("textbox", name="Regular expression").fill("[a-z ]{3000}")
    page.get_by_label("Message", exact=True).fill("A long one, please.")
    with page.expect_request("**/v1/chat/completions") as asked:
        page.keyboard.press("Enter")
    assert asked.value.post_data_json["messages"][1] == {"role": "assistant", "content": second}
    page.locator(".reply").last.locator(".formatted").wait_for()
    page.locator(".composer").get_by_role("button", name="Stop").click()
    finished(page)
    assert "Stopped." in page.locator(".reply").last.inner_text()
    assert 0 < len(page.locator(".reply").last.locator(".formatted").inner_text()) < 3000


def test_tokens_tell_how_they_came_about(open_page: Opener) -> None:
    page = open_page()
    page.get_by_role("button", name="Format").click()
    page.get_by_label("JSON Schema").check()
    page.get_by_role("textbox", name="JSON Schema").fill(json.dumps(SCHEMA))
    reply = send(page, "Facts?")
    reply.get_by_role("button", name="Tokens").click()
    tokens = reply.get_by_role("option")
    assert tokens.count() > 3
    assert {"forced", "sampled"} <= set(re.findall(r", (\w+)", " ".join(tokens.evaluate_all(LABELS))))
    assert tokens.evaluate_all("all => all.filter(one => one.tabIndex === 0).length") == 1
    tokens.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert tokens.nth(2).evaluate("one => one === document.activeElement")
    assert "allowed" in page.locator(".token-card").inner_text()
    page.keyboard.press("Escape")
    assert page.locator(".token-card").count() == 0

    kind = reply.get_by_role("button", name="forced")
    kind.click()
    assert kind.get_attribute("aria-pressed") == "false"
    reply.get_by_role("button", name="Prompt").click()
    assert "<|user|>" in reply.get_by_role("listbox", name="Tokens of the prompt").inner_text()


LABELS = "all => all.map(one => one.ariaLabel)"


def test_text_of_models_and_users_is_never_html(open_page: Opener) -> None:
    page = open_page()
    asked = answered(page, {"content": HOSTILE, "reasoning_content": HOSTILE})
    document = {"name": "<img src=x onerror=hacked=1>.txt", "mimeType": "text/plain", "buffer": b"</document> hidden"}
    page.locator("input[type=file]").set_input_files(files=[document])
    reply = send(page, HOSTILE)
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script, main b").count() == 0
    links = reply.locator("a").evaluate_all("all => all.map(one => [one.protocol, one.rel])")
    assert {protocol for protocol, _ in links} == {"https:"} and all("noopener" in rel for _, rel in links)
    assert "<img src=x" in reply.inner_text()
    [message] = asked[0]["messages"]
    assert message["content"].startswith('<document name="<img src=x onerror=hacked=1>.txt">\n</document> hidden\n')
    assert message["content"].endswith(HOSTILE.strip())


def test_tools_are_called_and_their_results_sent(open_page: Opener) -> None:
    page = open_page()
    call = {"index": 0, "id": "call_1", "function": {"name": "weather", "arguments": '{"city":"Tolva"}'}}
    asked = answered(page, {"tool_calls": [call]}, {"content": "It rains."})
    set_field(page, "Tools", "Tools, as JSON", '{"name": "weather", "parameters": {"type": "object"}}')
    reply = send(page, "How is the weather?")
    assert asked[0]["tools"] == [
        {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    ]
    reply.get_by_label("Result of weather").fill("rain")
    reply.get_by_role("button", name="Send the result").click()
    page.get_by_text("It rains.", exact=True).wait_for()
    said, result = asked[1]["messages"][1:]
    assert said["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city":"Tolva"}'}
    assert result == {"role": "tool", "tool_call_id": "call_1", "content": "rain"}


@pytest.mark.parametrize("status", [503, None], ids=["503", "connection lost"])
def test_errors_say_what_to_do_and_lose_nothing(open_page: Opener, status: int | None) -> None:
    page = open_page()
    page.expected = ["status of 503", "ERR_"]
    error = {"error": {"message": "The server drains.", "type": "server_error", "param": None, "code": "unavailable"}}

    def fail(route: Any) -> None:
        if status is None:
            route.abort()
        else:
            route.fulfill(status=status, json=error, headers={"retry-after": "3"})

    page.route("**/v1/chat/completions", fail)
    reply = send(page, "Hello")
    shown = reply.get_by_role("alert").inner_text()
    assert ("Try again in 3 s" if status else "connection to the server was lost") in shown
    page.unroute("**/v1/chat/completions")
    page.get_by_role("button", name="Try again").click()
    page.locator(".reply .measures").wait_for()
    assert "Hello" in page.locator(".bubble").inner_text()


def test_a_key_is_asked_for_once(open_page: Opener) -> None:
    page = open_page()
    page.expected = ["status of 401"]

    def guard(route: Any) -> None:
        if route.request.headers.get("authorization") == "Bearer right":
            route.continue_()
        else:
            error = {"message": "Wrong API key.", "type": "invalid_request_error", "param": None}
            route.fulfill(status=401, json={"error": {**error, "code": "invalid_api_key"}})

    page.route("**/page/about", guard)
    page.reload()
    page.get_by_label("This server wants an API key").fill("wrong")
    page.keyboard.press("Enter")
    page.get_by_label("did not accept this key").fill("right")
    page.keyboard.press("Enter")
    page.get_by_label("Message", exact=True).wait_for()
    assert page.evaluate("[sessionStorage.length, localStorage.getItem('phloem.key')]") == [1, None]


def test_a_model_without_a_chat_template_continues_text(open_page: Opener) -> None:
    page = open_page()

    def without_chat(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "has_chat": False})

    page.route("**/page/about", without_chat)
    page.reload()
    page.get_by_text("has no chat template").wait_for()
    page.get_by_label("Text").fill("The lamp costs")
    page.get_by_role("button", name="Continue the text").click()
    page.locator(".measures").wait_for()
    page.get_by_role("button", name="Append to the text").click()
    assert len(page.get_by_label("Text").input_value()) > len("The lamp costs")
