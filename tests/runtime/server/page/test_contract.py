"""What the server answers is what `web/src/contract.ts` says, field by field; so is what the browser tests make up."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from phloem.radix import COLUMN_NAMES

from ..loopback import until
from ..wire import Client
from .pages import decoded

ROOT = Path(__file__).resolve().parents[4]
CONTRACT = (ROOT / "web" / "src" / "contract.ts").read_text(encoding="utf-8")
sys.path.insert(0, str(ROOT / "tests" / "web"))

import made_up_answers  # noqa: E402

PLAIN = {"number": (int, float), "string": str, "boolean": bool, "true": bool}


def members(text: str) -> dict[str, str]:
    """The fields of `{…}` with their types; a name that ends with "?" may be absent."""
    found, depth, part = {}, 0, ""
    for character in re.sub(r"/\*\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == ";" and not depth:
            name, _, kind = part.partition(":")
            found[name.strip()] = kind.strip()
            part = ""
        else:
            part += character
    return found | ({} if not part.strip() else members(f"{part};"))


INTERFACES = {
    name: members(body) for name, body in re.findall(r"^export interface (\w+) \{\n(.*?)^\}", CONTRACT, re.M | re.S)
}


def check(kind: str, value: Any, place: str) -> None:
    """The value is of a type of the contract, and has no field besides."""
    kind = kind.strip()
    if kind.endswith("| null"):
        if value is None:
            return
        kind = kind.removesuffix("| null").strip()
    if kind.endswith("[]"):
        assert isinstance(value, list), place
        for number, one in enumerate(value):
            check(kind.removesuffix("[]"), one, f"{place}[{number}]")
    elif kind.startswith("{") or kind in INTERFACES:
        fields = INTERFACES[kind] if kind in INTERFACES else members(kind[1:-1])
        needed = {name for name in fields if not name.endswith("?")}
        assert needed <= value.keys() <= {name.rstrip("?") for name in fields}, place
        for name, one in value.items():
            check(fields.get(name) or fields[f"{name}?"], one, f"{place}.{name}")
    else:
        kinds = [PLAIN.get(one.strip(), str) for one in kind.split("|")]
        assert any(isinstance(value, one) for one in kinds), f"{place}: {value!r} is no {kind}"


def test_columns_of_the_tree_are_those_of_the_page() -> None:
    listed = re.findall(r'"(\w+)"', CONTRACT.partition("TREE_COLUMNS = [")[2].partition("]")[0])
    assert listed == list(COLUMN_NAMES) == list(made_up_answers.COLUMNS)


def test_the_server_answers_as_the_page_expects(operators_page: Client) -> None:
    page = operators_page
    page.chat("A chat that a page may look at, over more than one block of it.", max_tokens=3)
    head, columns = decoded(page.get("/page/tree").body)
    page.get("/cache")  # a report is there, so that none is waited for
    until(lambda: page.get("/page/now?what_if").json()["what_if"] is not None)
    question = {"kind": "json_schema", "source": {"type": "object", "minProperties": 1}, "text": "{"}
    answers = {
        "About": page.get("/page/about").json(),
        "Now": page.get("/page/now").json(),
        "TreeHeader": {**head, "columns": list(head["columns"])},
        "TreeNode": page.get(f"/page/tree/{columns['id'][0]}").json(),
        "RequestRow[]": page.get("/page/requests").json()["requests"],
        "ConstraintAnswer": page.post("/page/constraint", question).json(),
    }
    for kind, answer in answers.items():
        check(kind, answer, kind)


@pytest.mark.parametrize("admin", [False, True])
def test_so_does_what_is_made_up(admin: bool) -> None:
    made = made_up_answers.MadeUp(50, admin=admin)
    snapshot = made.snapshot(None)
    assert snapshot is not None
    head, columns = decoded(snapshot)
    answers = {
        "About": made.about(),
        "Now": made.now(),
        "TreeHeader": head,
        "TreeNode": made.node(columns["id"][3]),
        "TreeRequest[]": made.requests(),
        "ConstraintAnswer": made.constraint({"source": "{}", "text": "{x"})[1],
    }
    for kind, answer in answers.items():
        check(kind, answer, f"made up {kind}")
