"""The view Requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .test_chat import send


def test_each_request_has_a_line(open_page: Callable[..., Any]) -> None:
    page = open_page()
    send(page, "Hello")
    send(page, "Hello again")
    page.get_by_role("link", name="Requests").click()
    line = page.locator("details.request-line").first
    line.wait_for()
    assert "chat" in line.locator("summary").inner_text() and " cached" in line.locator("summary").inner_text()
    assert line.locator(".bar-phase.decode").count() == 1
    line.locator("summary").click()
    assert "req_" in line.locator(".request-details").inner_text()
