"""`phloem inspect` of a constraint: what it prints, draws and refuses; `ph.explain`, the same in Python."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

import phloem as ph
from phloem.fsm.explain import as_data
from phloem.runtime.cli import run
from phloem.runtime.explain import refusal
from phloem.runtime.models import resolve_model

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 30, "title": "who"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
GRAMMAR = 'root ::= "(" root ")" | [0-9]+'
TAG = json.dumps({"structures": [{"begin": "<f>", "schema": PERSON, "end": "</f>"}], "triggers": ["<f>"]})
Inspect = Callable[..., tuple[int, str, str]]


@pytest.fixture
def inspect(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Inspect:
    for name in (*(name for name in os.environ if name.startswith("PHLOEM_")), "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(["inspect", *arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return call


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--regex", "[0-9]{4}-[0-9]"], ["[0-9]{4}'-'", "automaton  7 nodes", "compressed form  3 nodes"]),
        (["--choice", "yes", "--choice", "no"], ["'yes'", "'no'", "shortest output  'no'"]),
        (["--schema", json.dumps(PERSON)], ["""'{"name":"'""", "character ≤ 30×", "/properties/name/title"]),
        (["--grammar", GRAMMAR], ["recursive", "→ root", "no end of states"]),
        (["--json-object"], ["→ member", "‹string›", "‹number›"]),
        (["--structural-tag", TAG], ["→ tag /structures/0", "‹text like '<f>'›", "'</f>'"]),
    ],
)
def test_every_kind_of_constraint_is_shown(inspect: Inspect, arguments: list[str], shown: list[str]) -> None:
    code, out, err = inspect(*arguments)
    assert code == 0 and not err
    for text in (*shown, "forced", "budget", "compiled in", "first time", "memory"):
        assert text in out, text
    assert max(map(len, out.splitlines())) <= 100 and "\x1b" not in out


def test_schemas_and_grammars_come_from_files_too(inspect: Inspect, tmp_path: Path) -> None:
    schema, grammar = tmp_path / "person.json", tmp_path / "deep.gbnf"
    schema.write_text(json.dumps(PERSON))
    grammar.write_text(GRAMMAR)
    assert "character ≤ 30×" in inspect("--schema", str(schema))[1]
    assert "→ root" in inspect("--grammar", str(grammar))[1]
    assert '": "' in inspect("--schema", str(schema), "--whitespace", "spaced")[1]


def test_json_holds_the_same(inspect: Inspect) -> None:
    code, out, _ = inspect("--schema", json.dumps(PERSON), "--json", "--text", '{"name":7')
    data = json.loads(out)
    assert code == 1 and data["num_states"] == data["automaton"][0]["num_nodes"]
    assert data["annotations"] == [{"pointer": "/properties/name/title", "reason": "a description; demands nothing"}]
    assert data["text"]["num_bytes"] == 8 and data["text"]["reasons"] == ['at /name: /properties/name/type: "string"']


def test_a_text_is_followed_to_where_it_leaves(
    inspect: Inspect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, out, _ = inspect("--regex", "[0-9]{4}-[0-9]{2}", "--text", "2024-x")
    lines = out.splitlines()
    at = lines.index("  2024-x")
    assert code == 1 and lines[at + 1] == "       ^" and "may follow   [0-9]" in out
    code, out, _ = inspect("--regex", "[0-9]{4}-[0-9]{2}", "--text", "2024-")
    assert code == 0 and "is the beginning of texts of the language" in out
    code, out, _ = inspect("--grammar", GRAMMAR, "--text", "(1)")
    assert code == 0 and "belongs to the language" in out
    given = tmp_path / "text"
    given.write_text("((2\n")
    with given.open() as file:
        monkeypatch.setattr("sys.stdin", file)
        code, out, _ = inspect("--grammar", GRAMMAR, "--text", "-")
    assert code == 0 and "in rules     root < root < root" in out


def test_svg_goes_into_a_file(inspect: Inspect, tmp_path: Path) -> None:
    file = tmp_path / "date.svg"
    assert inspect("--regex", "[0-9]{4}-", "--svg", str(file))[0] == 0
    root = ElementTree.parse(file).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    code, _, err = inspect("--regex", "a", "--svg", str(tmp_path / "no" / "such.svg"))
    assert code == 1 or code == 2
    assert "such.svg" in err


def test_pictures_are_cut_where_told_and_say_so(inspect: Inspect) -> None:
    _, out, _ = inspect("--choice", "abcdefghij", "--choice", "klmnopqrst", "--max-nodes", "5")
    assert "nodes and" in out and "are not drawn" in out
    narrow = inspect("--schema", json.dumps(PERSON), "--width", "60")[1]
    assert max(map(len, narrow.splitlines())) <= 60


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["--schema", '{"properties":{"a":{"$ref":"http://x/y"}}}'],
            ["/properties/a/$ref", 'there   "http://x/y"', "remedy"],
        ),
        (["--schema", '{"type":"integer","minimum":2,"maximum":1}'], ["minimum", "contradict"]),
        (["--schema", '{"type":"text"}'], ["at      /type", 'there   "text"']),
        (["--regex", r"(a)\1"], ["offset 3", "             ^"]),
        (["--grammar", "root ::= x"], ["'x' is not defined", "line 1, column 10", "                   ^"]),
    ],
)
def test_refusals_show_the_place_and_the_remedy(inspect: Inspect, arguments: list[str], told: list[str]) -> None:
    code, out, err = inspect(*arguments)
    assert code == 2 and not out and err.startswith("error: ") and "remedy" in err
    assert all(text in err for text in told), err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--regex", "a", "--choice", "b"], "exclude each other"),
        (["--regex", "a", "--cache", "http://x"], "exclude each other"),
        (["--text", "a"], "need a constraint"),
        (["--schema", "/nowhere.json"], "--schema /nowhere.json: no such file"),
        (["--schema", "{"], "not JSON"),
        (["--json-object", "--whitespace", "wild"], "compact, spaced or flexible"),
        (["--regex", "a", "--tokenizer", "/nowhere"], "/nowhere"),
        (["--regex", "a", "--max-nodes", "0"], "--max-nodes"),
    ],
)
def test_mistakes_are_told_in_one_line(inspect: Inspect, arguments: list[str], told: str) -> None:
    code, out, err = inspect(*arguments)
    assert code == 2 and not out and told in err and err.count("\n") == 1


def test_colour_is_for_terminals_that_want_it(inspect: Inspect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    coloured = inspect("--regex", "ab|c")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" in coloured and "\x1b[" not in inspect("--regex", "ab|c")[1]


def test_python_explains_the_same() -> None:
    spec = ph.regex("[0-9]{4}-[0-9]{2}")
    found = ph.explain(spec, text="2024-x")
    assert found.min_tokens == 7 and found.steps is not None and found.steps.column == 5
    assert found.compressed[0].num_nodes == 3 and "compressed form" in str(found)
    with pytest.raises(ph.UnsupportedSchema) as caught:
        ph.explain(ph.json_schema({"$ref": "http://x/y"}))
    refused = refusal(caught.value, ph.json_schema({"$ref": "http://x/y"}))
    assert (refused.pointer, refused.part) == ("/$ref", '"http://x/y"') and refused.remedy


def test_what_is_explained_is_what_the_spec_says() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    text = '{"a":1,"b":2}'
    left = ph.explain(ph.json_schema(schema), text=text).steps
    assert left is not None and left.is_complete
    closed = ph.explain(ph.json_schema(schema, extra_keys="never"), text=text)
    assert closed.steps is not None and not closed.steps.is_complete
    assert 'the option extra_keys="never": "b" is no key of the schema' in str(closed)
    assert "Keys that the schema does not name are not allowed unless" in str(closed)
    assert "Keys that the schema does not name are allowed unless" in str(ph.explain(ph.json_schema(schema)))
    assert [as_data(found)["extra_keys"] for found in (closed, ph.explain(ph.regex("a")))] == ["never", None]


def test_white_space_is_explained_as_the_model_writes_it(tmp_path: Path) -> None:
    nano = resolve_model("nano")
    for file in nano.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "generation_config.json").unlink()
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 6}')
    spec = ph.json_schema({"const": [1, 2]})
    shortest = [ph.explain(spec, tokenizer=str(folder)).shortest.text for folder in (nano, tmp_path)]
    assert shortest == [b"[1,2]", b"[1, 2]"]
