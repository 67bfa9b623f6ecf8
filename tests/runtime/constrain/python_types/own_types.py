"""Types as users of pydantic define them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import ipaddress
import uuid
from decimal import Decimal
from random import Random
from typing import Generic, Literal, NamedTuple, TypeVar

import pydantic as p
import typing_extensions
from pydantic import Field

from .values import moment, span


class Colour(enum.Enum):
    RED = "red"
    ODD = 'gr"é'
    THREE = 3
    HALF = 0.5
    UNREADABLE = Decimal("1.5")


class Size(enum.IntEnum):
    S = 1
    L = -2


class Unit(enum.StrEnum):
    METRE = "m"
    MILE = "mi le"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2
    OWN = 8


class Pair(NamedTuple):
    a: int
    b: str = "x"


class Options(typing_extensions.TypedDict, total=False):
    a: typing_extensions.Required[int]
    b: str


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5
    z: int = dataclasses.field(init=False, default=3)


class Named(p.BaseModel):
    number: int = Field(alias="no")
    when: dt.date | None = None


Inner = TypeVar("Inner")


class Box(p.BaseModel, Generic[Inner]):
    inner: Inner
    others: list[Inner] = []


class Still(p.BaseModel, frozen=True):
    a: int


class Days(p.RootModel[list[dt.date]]):
    pass


class Tree(p.BaseModel):
    value: int = 0
    kids: list[Tree] = []


class Cat(p.BaseModel):
    kind: Literal["cat"] = "cat"
    n: int = 0


class Dog(p.BaseModel):
    kind: Literal["dog", "puppy"] = "dog"


class Open(p.BaseModel, extra="allow"):
    a: int
    __pydantic_extra__: dict[str, int]


class Short(p.BaseModel, str_max_length=3, str_min_length=1, str_strip_whitespace=True):
    a: str


class InBase64(p.BaseModel, val_json_bytes="base64", ser_json_bytes="base64"):
    a: bytes


class InHex(p.BaseModel, val_json_bytes="hex", ser_json_bytes="hex"):
    a: bytes


class InSeconds(p.BaseModel, ser_json_timedelta="float", ser_json_inf_nan="strings"):
    a: dt.timedelta
    b: float


class Strict(p.BaseModel, strict=True):
    a: int
    b: float
    c: Decimal
    d: dt.datetime
    e: uuid.UUID
    f: Colour
    g: tuple[int, ...]
    h: set[str]
    i: bytes
    j: ipaddress.IPv4Address
    k: dt.timedelta


def strict(rng: Random) -> Strict:
    address = ipaddress.IPv4Address(5)
    return Strict(
        a=1, b=2.5, c=Decimal("1.5"), d=moment(rng), e=uuid.UUID(int=5), f=Colour.RED,
        g=(1,), h={"a"}, i=b"x", j=address, k=span(rng),
    )  # fmt: skip
