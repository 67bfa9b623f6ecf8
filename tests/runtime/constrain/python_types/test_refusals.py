"""What cannot be enforced is refused with its place and what to do, and no type of these packages is anything else."""

from __future__ import annotations

import importlib
import pkgutil
import re
import uuid
import warnings
from collections.abc import Callable
from random import Random
from typing import Annotated, Any, Literal

import pydantic
import pydantic_extra_types
import pytest
from pydantic import AliasChoices, AliasPath, BaseModel, Discriminator, Field, Json, Tag, create_model
from pydantic_extra_types import isbn, payment, phone_numbers, routing_number

import phloem as ph
from phloem.errors import InvalidSchema, RequestError, UnsupportedSchema

from .walks import compiled, takes, written


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


class Opaque:
    pass


def kind_of(value: Any) -> str:
    return str(value["kind"])


BY_FUNCTION = Annotated[Annotated[Cat, Tag("cat")] | Annotated[Dog, Tag("dog")], Discriminator(kind_of)]
REFUSED: dict[str, tuple[Any, str, str]] = {
    "a function chooses": (BY_FUNCTION, "/properties/f", "use a field of Literal"),
    "in a list": (list[BY_FUNCTION], "/properties/f/items", "a function chooses the option"),
    "as an option": (int | Json[int], "/properties/f/anyOf/1", "use the type inside of Json"),
    "in a dict": (dict[str, pydantic.FilePath], "/properties/f/additionalProperties", "use pathlib.Path"),
    "as a key": (dict[isbn.ISBN, int], "/properties/f/propertyNames", "check digit"),
    "folder": (pydantic.DirectoryPath, "/properties/f", "files of the machine"),
    "import": (pydantic.ImportString, "/properties/f", "use str, or an Enum"),
    "card": (payment.PaymentCardNumber, "/properties/f", "check digit"),
    "bank": (routing_number.ABARoutingNumber, "/properties/f", "check digit"),
    "phone": (phone_numbers.PhoneNumber, "/properties/f", "use str with a pattern"),
    "tuple as a key": (dict[tuple[int, int], int], "/properties/f", "keys of this type are no text in JSON"),
    "null as a key": (dict[None, int], "/properties/f", "keys of this type are no text in JSON"),
    "no option is a key": (
        dict[tuple[int, int] | frozenset[int] | None, int],
        "/properties/f",
        "keys of this type are no text in JSON",
    ),
    "an option of a key": (dict[int | Json[int], int], "/properties/f/propertyNames/anyOf/1", "inside of Json"),
    "set as a key": (dict[frozenset[int], int], "/properties/f", "keys of this type are no text in JSON"),
    "function": (Callable[[int], int], "/properties/f", "takes Python objects alone"),
    "class": (type[int], "/properties/f", "takes Python objects alone"),
    "bytes' pattern": (re.Pattern[bytes], "/properties/f", "use re.Pattern"),
    "flags": (
        Annotated[str, Field(pattern=re.compile("a", re.I))],
        "/properties/f",
        "the flags I of a compiled pattern",
    ),
    "Rust's sets": (Annotated[str, Field(pattern="[a-z&&[^b]]")], "/properties/f", "is read by pydantic alone"),
    "steps of digits": (
        Annotated[pydantic.condecimal(max_digits=4), Field(multiple_of=3)],
        "/properties/f",
        "power of ten",
    ),
    "bounds of an address": (Annotated[pydantic.UUID4, Field(ge=uuid.UUID(int=5))], "/properties/f", "leave them out"),
    "length of what is decoded": (
        Annotated[pydantic.Base64Str, Field(max_length=3)],
        "/properties/f",
        "leave them out",
    ),
    "steps of keys": (dict[Annotated[int, Field(multiple_of=7)], int], "/properties/f/propertyNames", "leave it out"),
}


@pytest.mark.parametrize(("kind", "pointer", "remedy"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_with_its_place_and_the_remedy(kind: Any, pointer: str, remedy: str) -> None:
    with pytest.raises(
        UnsupportedSchema, match=f"^json_schema: .*{re.escape(remedy)}.*in Holder, at {re.escape(pointer)}"
    ) as caught:
        ph.json_schema(create_model("Holder", f=(kind, ...)))
    assert caught.value.pointer == pointer and caught.value.param == "json_schema"


def test_a_field_below_a_path_is_refused_where_it_has_no_other_name() -> None:
    class Below(BaseModel):
        a: int = Field(validation_alias=AliasPath("x", 0))

    class Beside(BaseModel):
        a: int = Field(validation_alias=AliasChoices(AliasPath("x", 0), "y"))

    with pytest.raises(UnsupportedSchema, match=r"AliasChoices.*at /properties/a"):
        ph.json_schema(Below)
    assert takes(compiled(Beside), '{"y":3}')


def test_objects_of_python_alone_drop_out_of_a_union_and_are_refused_elsewhere() -> None:
    class Holder(BaseModel, arbitrary_types_allowed=True):
        f: Opaque | int

    class Needing(BaseModel, arbitrary_types_allowed=True):
        f: Opaque

    assert takes(compiled(Holder), '{"f":3}')
    with pytest.raises(
        UnsupportedSchema, match=r"^json_schema: this type takes Python objects alone.*at /properties/f"
    ):
        ph.json_schema(Needing)


def test_a_validator_of_the_users_own_is_beyond_the_mask_and_heard_when_the_value_is_read() -> None:
    def even(number: int) -> int:
        if number % 2:
            raise ValueError("odd")
        return number

    kind = Annotated[int, Field(ge=0), pydantic.AfterValidator(even)]
    spec, constraint = ph.json_schema(kind), compiled(kind)
    assert takes(constraint, "3") and not takes(constraint, "-2")
    assert spec.parse("4") == 4
    with pytest.raises(RequestError, match="odd"):
        spec.parse("3")


def test_a_schema_of_the_users_own_is_taken_at_its_word() -> None:
    kind = Annotated[Opaque, pydantic.WithJsonSchema({"type": "string", "maxLength": 2})]

    class Holder(BaseModel, arbitrary_types_allowed=True):
        f: kind  # type: ignore[valid-type]

    assert takes(compiled(Holder), '{"f":"ab"}') and not takes(compiled(Holder), '{"f":"abc"}')


def every_type() -> dict[str, Any]:
    """The classes and annotated types that pydantic and pydantic-extra-types export."""
    names = ["pydantic.types", "pydantic.networks"]
    names += [f"pydantic_extra_types.{module.name}" for module in pkgutil.iter_modules(pydantic_extra_types.__path__)]
    found: dict[str, Any] = {}
    for name in names:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            module = importlib.import_module(name)
            for own in getattr(module, "__all__", [own for own in vars(module) if not own.startswith("_")]):
                value = getattr(module, own)
                if (isinstance(value, type) and getattr(value, "__module__", "") == name) or hasattr(
                    value, "__metadata__"
                ):
                    found[f"{name}.{own}"] = value
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_every_type_of_these_packages_is_enforced_or_refused() -> None:
    """Also those that are yet to come: what is not known is refused, and what is let through is read."""
    rng, enforced = Random(5), 0
    for name, kind in every_type().items():
        try:
            spec = ph.json_schema(kind)
        except (UnsupportedSchema, InvalidSchema):  # the latter: no type, but what makes one
            continue
        enforced += 1
        constraint = compiled(kind)
        for budget in (8, 20, 60):
            text = written(constraint, rng, budget)
            try:
                spec.parse(text)
            except RequestError as error:
                raise AssertionError(f"{name}: {text}") from error
    assert enforced > 80
