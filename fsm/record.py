"""record: an immutable class of fields that costs no more to make than an ordinary object.

`dataclass(frozen=True)` assigns each field through `object.__setattr__`, which takes four times as long as an
assignment; a schema is made of thousands of such objects, and making them was a quarter of compiling it. Here the type
checker alone forbids to assign to a field, and it is as strict: nothing in the project changes a record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=False)
def record(cls: type[T]) -> type[T]:
    """A record that equals only itself."""
    return dataclass(slots=True, eq=False)(cls)


@dataclass_transform(frozen_default=True)
def value_record(cls: type[T]) -> type[T]:
    """A record that equals another of its class with equal fields, and hashes accordingly."""
    return dataclass(slots=True, unsafe_hash=True)(cls)
