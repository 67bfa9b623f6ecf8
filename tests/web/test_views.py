"""The views of the tree, of this moment and of constraints in a real Chromium, before a made-up server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .made_up_server import start

Open = Callable[..., Any]


@pytest.fixture(scope="module")
def addresses(browser: Any) -> Iterator[dict[str, str]]:
    """Of made-up servers; after `browser`, so that none is started in vain."""
    servers = {"plain": start(400), "admin": start(400, admin=True), "empty": start(0)}
    yield {name: f"http://127.0.0.1:{server.server_address[1]}/" for name, server in servers.items()}
    for server in servers.values():
        server.shutdown()
        server.server_close()


@pytest.fixture
def view(open_at: Open, addresses: dict[str, str]) -> Open:
    """Opens a view: `view("tree", "admin")`."""

    def opened(tab: str, server: str = "plain") -> Any:
        page = open_at(f"{addresses[server]}#{tab}", reduced_motion="reduce")
        page.wait_for_selector("h1")
        return page

    return opened


def focus_line(page: Any) -> str:
    return str(page.locator("[aria-live=polite]").inner_text())


def test_the_tree_is_walked_by_keys_and_said_aloud(view: Open) -> None:
    page = view("tree")
    page.focus("canvas")
    seen = []
    for key in ("ArrowDown", "ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp", "ArrowDown"):
        page.keyboard.press(key)
        seen.append(page.wait_for_function("() => document.querySelector('.path-bar [aria-current]').textContent"))
    names = [handle.json_value() for handle in seen]
    assert names[0] == names[2] == names[4] != names[1]
    assert names[3] == names[5] != names[0]
    page.wait_for_selector(".panel-sentence")
    assert focus_line(page).startswith("Node ") and "level 2" in focus_line(page)
    page.keyboard.press("Escape")
    page.wait_for_selector(".path-bar [aria-current]:has-text('Whole cache')")


def test_a_view_that_was_zoomed_stays_while_the_tree_changes(view: Open) -> None:
    page = view("tree")
    box = page.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 60)
    for _ in range(8):
        page.mouse.wheel(0, -120)
    note = page.locator(".hover-note")
    page.mouse.move(box["x"] + 202, box["y"] + 60)
    before = note.inner_text().split(",")[0]
    with page.expect_response(lambda response: "/page/tree?" in response.url and response.status == 200):
        pass
    page.wait_for_timeout(100)
    page.mouse.move(box["x"] + 201, box["y"] + 60)
    assert note.inner_text().split(",")[0] == before


def test_a_click_shows_the_node_with_its_text_as_text(view: Open) -> None:
    page = view("tree", "admin")
    box = page.locator("canvas").bounding_box()
    page.mouse.click(box["x"] + 60, box["y"] + 60)
    text = page.locator(".node-text")
    assert "<b>Summarise</b> the invoice" in text.inner_text()
    assert text.locator("b").count() == 0
    assert page.locator(".node-panel h2").inner_text() == "Node 1"
    page.click(".request-list li:first-child button")
    assert page.locator(".request-list [aria-pressed=true]").count() == 1


def test_without_admin_rights_the_panel_says_how_to_get_the_text(view: Open) -> None:
    page = view("tree")
    page.click("text=Table")
    page.click(".node-table tbody tr:first-child button")
    assert "--enable-admin" in page.locator(".node-panel .hint").inner_text()
    assert page.locator(".node-table caption").inner_text().startswith("What continues node ")
    page.click("text=Up to the whole cache")
    assert page.locator(".node-table tbody tr").count() == 4


def test_an_empty_tree_says_how_to_fill_it(view: Open) -> None:
    page = view("tree", "empty")
    assert page.locator("h1").inner_text() == "The tree is empty"
    assert page.locator(".tree-empty a").get_attribute("href") == "#chat"


def test_this_moment_has_its_figures_and_keeps_its_series(view: Open) -> None:
    page = view("now")
    assert page.locator(".tile").count() == page.locator(".tile canvas").count() == 6
    assert "can be given to new requests" in page.locator(".pool p").first.inner_text()
    assert page.locator(".what-if p").first.inner_text().startswith("More memory would help")
    assert page.locator(".misses li").count() == 4
    page.goto(page.url.replace("#now", "#tree"))
    page.wait_for_selector(".tree-page")
    page.goto(page.url.replace("#tree", "#now"))
    assert "no value yet" not in page.locator(".chart").first.get_attribute("aria-label")


def test_a_text_is_marked_where_it_leaves_the_language(view: Open) -> None:
    page = view("constraint")
    page.expected = ["status of 400"]
    page.fill("#text", "😀yyxz")
    page.wait_for_selector("text=column 4")
    mark = page.locator(".marked-field:has(#text) mark")
    assert mark.inner_text() == "x"
    assert page.locator("#text").get_attribute("aria-invalid") == "true"
    page.fill("#text", "yy")
    page.wait_for_selector(".steps-complete")
    assert mark.count() == 0
    page.fill("#next-filter", "<i>7")
    assert page.locator(".tokens li").all_inner_texts() == ["<i>77"]  # with its id
    page.fill("#source", "a bad one")
    page.wait_for_selector(".refusal")
    assert page.locator(".marked-field:has(#source) mark").inner_text() == "b"
    assert [page.locator(f".refusal {part}").inner_text() for part in ("p", "pre")] == ["it is bad.", "bad\n^"]
    page.click("text=A date, by a regex")
    page.wait_for_selector(".picture svg")
    assert page.locator(".kind select").input_value() == "regex"


def test_a_hostile_picture_keeps_its_shapes_only(view: Open) -> None:
    page = view("constraint")
    page.expected = ["Content Security Policy", "CSP: style-src"]  # stops the picture's styles before the page does
    page.fill("#source", "hostile")
    page.wait_for_selector(".picture svg rect")
    names, attributes = page.evaluate(
        """() => {
          const all = [...document.querySelectorAll('.picture svg, .picture svg *')];
          return [all.map((one) => one.localName), all.flatMap((one) => one.getAttributeNames())];
        }"""
    )
    assert sorted(names) == ["circle", "g", "rect", "svg", "text"]
    assert set(attributes) <= {"viewBox", "transform", "cx", "cy", "r", "fill", "x", "y", "width", "height"}
    assert page.evaluate("window.broken") is None
    assert page.locator(".picture rect").get_attribute("fill") is None
    before = page.locator(".picture svg").get_attribute("viewBox")
    page.focus(".picture-paper")
    page.keyboard.press("+")
    page.wait_for_function(f"() => document.querySelector('.picture svg').getAttribute('viewBox') !== '{before}'")
