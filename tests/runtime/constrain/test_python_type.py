"""Python types as constraints: what they describe is what can be written, and it comes back as their values."""

from __future__ import annotations

import dataclasses
import enum
import json
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

import phloem as ph
from phloem.errors import InvalidSchema, RequestError
from phloem.fsm import Compiler, Vocabulary
from phloem.runtime.constrain.spec import ConstraintSpec

COMPILER = Compiler(Vocabulary([bytes([byte]) for byte in range(256)] + [b""], [256]))


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    name: str = ""


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str = ""


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


class Home(BaseModel):
    first: Pet
    others: list[Pet] = []


@dataclasses.dataclass
class Point:
    x: int
    y: float


class Colour(enum.Enum):
    RED = "red"
    ODD = 'gr"een'


def accepts(spec: ConstraintSpec, text: str) -> bool:
    cursor = COMPILER.json_schema(str(spec.source), extra_keys=spec.extra_keys).cursor()
    return all(cursor.advance(byte) for byte in text.encode()) and cursor.is_accepting


@pytest.mark.parametrize(
    ("kind", "text", "value", "refused"),
    [
        (list[int], "[1,2]", [1, 2], '["a"]'),
        (int | None, "null", None, '"a"'),
        (Literal["a", 1], '"a"', "a", "2"),
        (Point, '{"x":1,"y":2.5}', Point(1, 2.5), '{"x":1}'),
        (Colour, '"gr\\"een"', Colour.ODD, '"blue"'),
        (list[Cat], '[{"name":"Tom"}]', [Cat(name="Tom")], '{"name":"Tom"}'),
        (tuple[int, str], '[1,"a"]', (1, "a"), "[1]"),
        (bool, "true", True, "1"),
    ],
    ids=str,
)
def test_what_pydantic_describes_is_a_constraint(kind: Any, text: str, value: object, refused: str) -> None:
    spec = ph.json_schema(kind)
    assert accepts(spec, text) and not accepts(spec, refused)
    found = spec.parse(text)
    assert found == value and type(found) is type(value)


def test_what_tells_the_options_of_a_union_apart_is_written() -> None:
    """Pydantic gives it a default and so does not ask for it in the schema, but refuses what lacks it."""
    spec = ph.json_schema(Home)
    assert accepts(spec, '{"first":{"kind":"dog"},"others":[{"kind":"cat","name":"Tom"}]}')
    for text in ('{"first":{}}', '{"first":{"name":"Tom"}}', '{"first":{"kind":"dog"},"others":[{}]}'):
        assert not accepts(spec, text)
        with pytest.raises(RequestError):
            spec.parse(text)
    tag = ph.structural_tag([{"begin": "<pet>", "schema": Pet, "end": "</pet>"}])
    assert '"required"' in str(tag.source)
    assert json.loads(str(ph.json_schema(Cat).source)) == Cat.model_json_schema()


@pytest.mark.parametrize(
    "make", [lambda **o: ph.json_schema({}, **o), ph.json_object, lambda **o: ph.structural_tag([], **o)]
)
def test_a_layout_that_is_none_is_refused_where_it_is_named(make: Any) -> None:
    for odd in ("tabs", ""):
        with pytest.raises(RequestError, match="whitespace: expected one of compact, spaced, flexible"):
            make(whitespace=odd)


def test_what_pydantic_cannot_describe_is_refused() -> None:
    class Opaque:
        pass

    with pytest.raises(InvalidSchema, match="Opaque has no schema"):
        ph.json_schema(Opaque)
    with pytest.raises(InvalidSchema, match="or a type, got NoneType"):
        ph.json_schema(None)
    with pytest.raises(RequestError, match="got the text 'yes'"):
        ph.choice("yes")


def test_a_type_leaves_no_room_for_keys_that_its_values_cannot_hold() -> None:
    class Open(BaseModel, extra="allow"):
        name: str

    text, more = '{"x":1,"y":2}', '{"x":1,"y":2,"z":3}'
    assert accepts(ph.json_schema(Point), text) and not accepts(ph.json_schema(Point), more)
    assert accepts(ph.json_schema(Point, extra_keys="schema"), more)
    schema = json.loads(str(ph.json_schema(Point).source))
    assert accepts(ph.json_schema(schema), more)
    assert accepts(ph.json_schema(Open), '{"name":"a","z":3}')
    assert accepts(ph.json_schema(dict[str, int]), '{"z":3}')
    tag = json.loads(str(ph.structural_tag([{"begin": "<p>", "schema": Point, "end": "</p>"}]).source))
    assert tag["format"]["tags"][0]["content"]["extra_keys"] == "never"
