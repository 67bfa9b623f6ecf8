"""The tree over HTTP: as the engine has it, cheap when nothing has changed, without text and salts."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.request import SamplingParams
from phloem.runtime.server import ServerSettings
from phloem.runtime.server.page import tree_view
from phloem.runtime.server.page.tree_view import TreeView, sentence
from phloem.runtime.server.prepare import namespace_of
from phloem.runtime.server.service import Service

from ..loopback import until
from ..wire import Client
from .pages import decoded

SALT = "a-salt-of-somebody"


@contextmanager
def under_way(engine: AsyncEngine, prompt: str) -> Iterator[str]:
    """A request that decodes until the block ends."""
    sampling = SamplingParams(max_tokens=3000, ignore_eos=True, temperature=0.0)
    stream = engine.submit(prompt, sampling, request_id="held")
    deltas = iter(stream)
    next(deltas)
    try:
        yield "held"
    finally:
        stream.abort()


def test_the_snapshot_is_the_engines_tree(page: Client, page_engine: AsyncEngine) -> None:
    page.complete("The sea is wide and blue, and ships go over it.", max_tokens=4)
    page.complete("The sea is wide and green, and fish live in it, some of them.", max_tokens=4, cache_salt=SALT)
    answer = page.get("/page/tree")
    head, columns = decoded(answer.body)
    assert answer.headers["content-type"] == "application/octet-stream"
    tree = page_engine.engine.prefix_cache.tree
    nodes = {node.id: node for node in page_engine.call(tree._snapshot).result().nodes if node.id}
    assert sorted(columns["id"]) == sorted(nodes)
    for at, number in enumerate(columns["id"]):
        assert columns["num_blocks"][at] == len(nodes[number].blocks)
        assert columns["parent"][at] == (nodes[number].parent or -1)
        label = head["namespaces"][columns["namespace"][at]]
        assert (label == "default") is (nodes[number].namespace == "")
    assert head["num_blocks"] == 512 and head["block_size"] == 16 and head["num_nodes_left_out"] == 0
    assert any(label.startswith("salt ") for label in head["namespaces"])
    shown = answer.body[: 4 + int.from_bytes(answer.body[:4], "little")].decode("latin-1")
    assert SALT not in shown and namespace_of(SALT, None) not in shown


def test_what_has_not_changed_is_not_sent(page: Client) -> None:
    first = page.get("/page/tree")
    generation = decoded(first.body)[0]["generation"]
    assert page.get("/page/tree", headers={"if-none-match": first.headers["etag"]}).status == 304
    assert page.get(f"/page/tree?generation={generation}").status == 204
    page.complete("Something new under the sun, and long enough for a block.", max_tokens=2)
    until(lambda: decoded(page.get("/page/tree?generation=1").body)[0]["generation"] != generation)
    assert page.get("/page/tree", headers={"if-none-match": first.headers["etag"]}).status == 200


def test_a_request_holds_its_node(page: Client, operators_page: Client, page_engine: AsyncEngine) -> None:
    text = "Once upon a time there was a request that ran for a long while, and a page that looked at it."
    with under_way(page_engine, text):
        head, columns = decoded(page.get("/page/tree").body)
        [request] = head["requests"]
        assert request["request_id"] == "held" and request["phase"] == "decode" and request["num_output_tokens"] > 0
        at = columns["id"].index(request["node"])
        assert columns["leases"][at] >= 1 and columns["rank"][at] == -1
        found = page.get(f"/page/tree/{request['node']}").json()
        assert found["held_by"] == ["held"] and found["rank"] is None and found["text"] is None
        assert found["sentence"] == "1 request holds it, so it stays."
        shown = operators_page.get(f"/page/tree/{request['node']}").json()
        assert shown["text"] and shown["text"] in f"<s>{text}" and len(shown["text"]) <= 4000
    page_engine.call(lambda: None).result()


def test_a_pinned_node_says_for_how_long(page: Client) -> None:
    page.complete("A pinned prompt that stays, whatever else may come and go here.", max_tokens=1, pin_ttl=500.0)
    _, columns = decoded(page.get("/page/tree").body)
    pinned = [number for number, pins in zip(columns["id"], columns["pinned"], strict=True) if pins]
    assert pinned
    found = page.get(f"/page/tree/{pinned[-1]}").json()
    assert 0 < found["pinned_seconds"] <= 500 and found["held_by"] == [] and "pinned" in found["sentence"]


def test_a_node_that_is_not_there_is_a_404_and_no_id_a_400(page: Client) -> None:
    gone = page.get("/page/tree/2147483647")
    assert gone.status == 404 and gone.error["code"] == "no_such_node" and "evicted" in gone.error["message"]
    for wrong in ("x", "-1", "1.5", "99999999999", "%C2%B2"):
        assert page.get(f"/page/tree/{wrong}").status == 400, wrong


def test_sentences() -> None:
    assert sentence(0, 0, 0, 0) == "No request holds it, and it would be evicted next."
    assert sentence(3, 0, 0, 0) == "No request holds it, and 3 leaves go before it."
    assert sentence(None, 2, 0, 0) == "No request holds it; it may go once the 2 nodes below it are gone."


def test_no_text_of_a_prompt_leaves_without_admin(page: Client, page_engine: AsyncEngine) -> None:
    secret = "Zanzibar"
    page.chat(f"{secret} is what nobody shall read about here, says {secret}.", max_tokens=3)
    with under_way(page_engine, f"{secret} again and again"):
        head, columns = decoded(page.get("/page/tree").body)
        nodes = [page.get(f"/page/tree/{number}").json() for number in columns["id"][:20]]
        others = [page.get(path).json() for path in ("/page/now", "/page/requests", "/page/about")]
    assert secret not in json.dumps([head, nodes, others])


def test_a_node_has_its_own_text_and_its_longest_pin(
    page: Client, operators_page: Client, page_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = "Of all the prompts in the world these two begin in one way, and then"
    texts = [f"{begin} the first of them goes on like this.", f"{begin} the other one goes on like that."]
    for text in texts:
        page.complete(text, max_tokens=1)
    _, columns = decoded(page.get("/page/tree").body)
    parents = dict(zip(columns["id"], columns["parent"], strict=True))
    shown = {number: operators_page.get(f"/page/tree/{number}").json()["text"] for number in parents}
    paths = []
    for number in parents.keys() - set(parents.values()):
        path = ""
        while number != -1:
            path, number = shown[number] + path, parents[number]
        paths.append(path)
    assert {f"<s>{text}" for text in texts} <= set(paths)

    engine = page_engine.engine
    view = TreeView(Service(page_engine, ServerSettings(page=True), "1"))
    state = page_engine.call(lambda: engine.core.monitor.tree_state(1000)).result()
    number = columns["id"][-1]
    pinned = replace(state, pins=((number, 50.0), (number, 90.0), (number, 10.0)))
    described = view._described(pinned, number, None, 5.0)
    assert described is not None and described["pinned_seconds"] == 85.0

    monkeypatch.setattr(tree_view, "MAX_NAMES", 2)
    first = view._labels(["a", "b", "c"])
    assert view._labels(["c", "a"]) == [first[2], first[0]] and len(view._names) == 2, "others are forgotten"
    assert tree_view.shown(2**31 + 5) == tree_view.shown(5) == 5

    monkeypatch.setattr(view, "_read", lambda: (state, 2.0))
    begin_at = time.monotonic()
    asyncio.run(view._seen())
    assert view._good_until >= begin_at + tree_view.SHARE * 2.0, "a small part of the time at most is spent on it"
