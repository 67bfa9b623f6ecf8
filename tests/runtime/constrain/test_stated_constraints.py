"""Constraints that cannot be meant are refused where they are stated, with the remedy."""

import itertools
from pathlib import Path
from typing import Any

import pytest

import phloem as ph
from phloem.errors import ConstraintError, InvalidRegex
from phloem.runtime.cli import run


@pytest.mark.parametrize("pattern", ["(", "a{3,2}", "[b-a]", "\\", "a**", "(?P=x)"])
def test_a_pattern_that_does_not_parse_is_refused_when_it_is_stated(pattern: str) -> None:
    with pytest.raises(InvalidRegex, match="offset"):
        ph.regex(pattern)


@pytest.mark.parametrize(
    ("make", "given"),
    [
        *itertools.product((ph.json_schema, ph.structural_tag), ("person.json", Path("person.json"))),
        (ph.grammar, Path("person.json")),
    ],
)
def test_a_path_in_the_place_of_a_text_says_how_to_read_it(make: Any, given: Any) -> None:
    with pytest.raises(ConstraintError, match=r"; of a file give the text: Path\('person.json'\)\.read_text\(\)"):
        make(given)


def test_explain_takes_a_schema_as_a_dict_or_says_what_it_takes() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert str(ph.explain(schema, text="{}").steps) == str(ph.explain(ph.json_schema(schema), text="{}").steps)
    with pytest.raises(TypeError, match=r"ph\.json_schema"):
        ph.explain("a+")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tokenizer"):
        ph.explain(schema, tokenizer=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "option"), [("s.json", "--schema"), ('{"type": "integer"}', "--schema"), ("g.lark", "--grammar")]
)
def test_inspect_names_the_option_for_a_file_that_is_no_checkpoint(
    given: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if given.endswith(".json"):
        given = str(tmp_path / given)
        Path(given).write_text('{"type": "integer"}')
    assert run(["inspect", given]) != 0
    assert option in capsys.readouterr().err
