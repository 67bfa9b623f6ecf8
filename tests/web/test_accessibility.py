"""Every view, light and dark, narrow and wide: axe finds nothing, and nothing is cut off at the side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .test_chat import answered, send, set_field


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_views(
    open_page: Callable[..., Any], accessibility_faults: Callable[[Any], list[str]], width: int, scheme: str
) -> None:
    page = open_page("#chat", width=width, color_scheme=scheme, reduced_motion="reduce")
    set_field(page, "Settings", "Answers", "2")
    send(page, "Hello").get_by_role("button", name="Tokens").click()
    faults = {"#chat": accessibility_faults(page)}
    for view in ("#tree", "#now", "#constraint", "#requests"):
        page.evaluate("view => { location.hash = view }", view)
        page.locator(f'nav a[href="{view}"][aria-current="page"]').wait_for()
        page.wait_for_load_state("networkidle") if view == "#constraint" else page.wait_for_timeout(300)
        faults[view] = accessibility_faults(page)
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    assert faults == {view: [] for view in faults}


MARKDOWN = """### Bread

A **short** `recipe` with a [link](https://example.org/a).

```
bake()
```

| a | b |
|---|---|
| 1 | 2 |

> # Warm
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_that_a_conversation_holds(
    open_page: Callable[..., Any], accessibility_faults: Callable[[Any], list[str]], scheme: str
) -> None:
    page = open_page(width=360, color_scheme=scheme, reduced_motion="reduce")
    page.expected = ["status of 400"]
    faults = {"empty": accessibility_faults(page)}
    set_field(page, "Settings", "Temperature", "hot")
    faults["wrong setting"] = accessibility_faults(page)
    page.locator(".panel").get_by_label("Temperature").fill("0")
    set_field(page, "Tools", "Tools, as JSON", '{"name": "f", "parameters": {"type": "strong"}}')
    send(page, "One")
    faults["refused"] = accessibility_faults(page)
    page.get_by_role("button", name="Edit").click()
    faults["edited"] = accessibility_faults(page)
    page.get_by_role("button", name="Cancel").click()
    call = {"index": 0, "id": "1", "function": {"name": "f", "arguments": "{}"}}
    answered(page, {"content": MARKDOWN, "reasoning_content": MARKDOWN, "tool_calls": [call]})
    document = {"name": "a.txt", "mimeType": "text/plain", "buffer": b"text"}
    page.locator("input[type=file]").set_input_files(files=[document])
    faults["attached"] = accessibility_faults(page)
    send(page, "Two").locator(".thoughts summary").click()
    page.locator(".document summary").click()
    page.get_by_role("button", name="Conversations").click()
    page.get_by_role("button", name="Delete One").click()
    faults["full"] = accessibility_faults(page)
    assert faults == {state: [] for state in faults}
