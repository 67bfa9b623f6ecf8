"""A constraint over HTTP, against what the explanation and a cursor say; refusals name place and remedy."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from phloem.runtime.constrain.spec import choice, grammar, json_schema, regex
from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.explain import explain

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
    assert found["forced_text"] == cursor.forced_bytes().decode()
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
