"""A constraint over HTTP, against what the explanation and a cursor say; refusals name place and remedy."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from starlette.requests import Request

from phloem.fsm.foresight import forced_bytes
from phloem.runtime.constrain.spec import choice, grammar, json_schema, regex
from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.explain import explain
from phloem.runtime.server import ServerSettings
from phloem.runtime.server.errors import ApiError
from phloem.runtime.server.page import constraint_view
from phloem.runtime.server.page.constraint_view import MAX_WAITING, ConstraintRequest, ConstraintView
from phloem.runtime.server.service import Service
from phloem.runtime.server.stream import ClientGone

from ..wire import Client

SCHEMA = {"type": "object", "properties": {"ab": {"type": "integer", "minimum": 3}}, "required": ["ab"]}
SHAPES = {"svg", "title", "desc", "g", "path", "circle", "rect", "text", "tspan"}


@pytest.mark.parametrize(
    ("body", "spec"),
    [
        ({"kind": "regex", "source": "(ab|cd)+e?", "text": "abc"}, regex("(ab|cd)+e?")),
        ({"kind": "choice", "source": ["yes", "no"], "text": "ye"}, choice(["yes", "no"])),
        ({"kind": "choice", "source": '["yes", "no"]'}, choice(["yes", "no"])),
        ({"kind": "grammar", "source": 'root ::= "x" root | "y"', "text": "xx"}, grammar('root ::= "x" root | "y"')),
        ({"kind": "json_schema", "source": SCHEMA, "text": '{"a'}, json_schema(SCHEMA, extra_keys="never")),
    ],
)
def test_a_constraint_is_explained_as_it_is(
    page: Client, page_engine: AsyncEngine, body: dict[str, Any], spec: Any
) -> None:
    found = page.post("/page/constraint", body).json()
    engine = page_engine.engine
    known = explain(spec, tokenizer=engine.tokenizer, text=body.get("text"))
    assert found["ok"] and found["num_states"] == known.num_states
    assert (known.shortest.text or b"").decode() == found["shortest"]
    assert [one["pointer"] for one in found["enforced"]] == [one.pointer for one in known.demands]
    cursor = engine.request_factory.compile(spec).cursor()
    for token_id in engine.tokenizer.encode(body.get("text", "")):
        assert cursor.advance(token_id)
    assert found["next"]["count"] == np.unpackbits(cursor.row().view(np.uint8)).sum()
    assert found["forced_text"] == forced_bytes(cursor).decode()
    assert all(engine.tokenizer.token_text(one["id"]) == one["text"] for one in found["next"]["tokens"])
    steps = {"valid_up_to": len(body["text"]), "complete": False} if "text" in body else None
    assert steps is None or steps.items() <= found["steps"].items()
    _check_picture(found["svg"])
    assert found["svg"] == known.svg().document


def _check_picture(document: str) -> None:
    """Shapes and texts alone, with no attribute that a strict policy for content would refuse."""
    parts = list(ElementTree.fromstring(document).iter())
    assert {part.tag.rpartition("}")[2] for part in parts} <= SHAPES
    for part in parts:
        assert not any(name in ("style", "class") or name.startswith("on") or "href" in name for name in part.attrib)


@pytest.mark.parametrize(
    ("text", "valid", "complete", "words"),
    [
        ("abab", 4, True, "complete"),
        ("abx", 2, False, "'x' is not allowed at line 1, column 3"),
        ("ab\u20ac", 2, False, "not allowed"),
        ("", 0, False, "next comes"),
    ],
)
def test_a_text_is_followed_as_far_as_it_goes(page: Client, text: str, valid: int, complete: bool, words: str) -> None:
    steps = page.post("/page/constraint", {"kind": "regex", "source": "(ab)+", "text": text}).json()["steps"]
    assert steps["valid_up_to"] == valid and steps["complete"] is complete and words in steps["sentence"]


@pytest.mark.parametrize(
    ("body", "details"),
    [
        ({"kind": "regex", "source": "a("}, {"pointer": "offset 1", "part": "a(\n ^"}),
        ({"kind": "json_schema", "source": {"type": "strin"}}, {"pointer": "/type", "part": '"strin"'}),
        ({"kind": "grammar", "source": "root ::= foo"}, {"pointer": "line 1, column 10", "remedy": "define it"}),
        (
            {"kind": "json_schema", "source": {"type": "integer", "minimum": 3, "maximum": 1}},
            {"code": "empty_language"},
        ),
        ({"kind": "json_schema", "source": '{"type":'}, {"param": "source"}),
        ({"kind": "choice", "source": ["a", 1]}, {"param": "source"}),
        ({"kind": "choice", "source": []}, {"param": "source"}),
        ({"kind": "structural_tag", "source": {"type": "structural_tag"}}, {"param": "source"}),
        ({"kind": "regex", "source": 5}, {"param": "source"}),
        ({"kind": "regex"}, {"param": "source"}),
        ({"kind": "rhyme", "source": "a"}, {"param": "kind"}),
        ({"kind": "regex", "source": "a", "text": "a" * 20_001}, {"param": "text"}),
        ({"kind": "regex", "source": "a", "key_order": "none"}, {"param": "key_order"}),
    ],
)
def test_what_cannot_be_enforced_is_refused_with_place_and_remedy(
    page: Client, body: dict[str, Any], details: dict[str, str]
) -> None:
    answer = page.post("/page/constraint", body)
    assert answer.status == 400 and details.items() <= answer.error.items()
    if "pointer" in answer.error:
        assert answer.error["remedy"] and answer.error["reason"] and "part" in answer.error


def test_what_is_too_large_is_refused_as_for_a_request(page: Client) -> None:
    too_large = {"kind": "regex", "source": "(" * 500 + "a{1,1000}" + "){1,1000}" * 500}
    answer = page.post("/page/constraint", too_large)
    assert answer.status == 400
    asked = page.complete("x", regex=too_large["source"])
    assert re.sub(r"\d", "", asked.error["message"]) == re.sub(r"\d", "", answer.error["message"])


def test_what_is_too_large_is_enforced_and_not_shown(page: Client) -> None:
    schema = {"type": "object", "properties": {f"k{number}": {"type": "integer"} for number in range(20_000)}}
    answer = page.post("/page/constraint", {"kind": "json_schema", "source": schema})
    assert answer.status == 400 and answer.error["code"] == "too_large_to_show"


def test_more_than_wait_are_sent_away_and_those_who_have_left_are_not_begun(
    page_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that lasts; others wait, and one more is refused. When clients go, their places are free at once."""
    begun, goes_on = threading.Event(), threading.Event()
    num_begun = 0

    def lasting(*_: object) -> dict[str, object]:
        nonlocal num_begun
        num_begun += 1
        begun.set()
        goes_on.wait(60)
        return {"ok": True}

    monkeypatch.setattr(constraint_view, "_looked_at", lasting)

    async def asked() -> None:
        view = ConstraintView(Service(page_engine, ServerSettings(), "1"))
        view._service.open()
        body = ConstraintRequest(kind="regex", source="a")
        gone = asyncio.Event()

        async def receive() -> dict[str, str]:
            await gone.wait()
            return {"type": "http.disconnect"}

        request = Request({"type": "http", "headers": []}, receive)  # type: ignore[arg-type]
        looks = [asyncio.create_task(view.explain(request, body)) for _ in range(MAX_WAITING)]
        await asyncio.to_thread(begun.wait, 60)
        with pytest.raises(ApiError) as caught:
            await view.explain(request, body)
        assert caught.value.status == 429
        gone.set()
        found = await asyncio.gather(*looks, return_exceptions=True)
        assert all(isinstance(one, ClientGone) for one in found)
        assert num_begun == 1 and not view._num_waiting
        monkeypatch.setattr(constraint_view, "PATIENCE", 0.0)
        gone.clear()
        with pytest.raises(ApiError) as caught:  # the first one still goes on
            await view.explain(request, body)
        assert caught.value.status == 429 and num_begun == 1
        monkeypatch.setattr(constraint_view, "PATIENCE", 60.0)
        last = asyncio.create_task(view.explain(request, body))
        await asyncio.sleep(0)
        goes_on.set()
        await last
        assert num_begun == 2, "it has waited for the first one's end"
        view._service.close()

    asyncio.run(asked())
