"""Every view, light and dark, narrow and wide: axe finds nothing, and nothing is cut off at the side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .test_chat import send, set_field


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
