"""Types that pydantic reads more narrowly than its schemas say: what can be written is what can be read."""

from __future__ import annotations

import datetime
import ipaddress
import random
import uuid
from decimal import Decimal
from typing import Annotated, Any

import numpy as np
import pytest
from pydantic import UUID1, UUID4, UUID7, AnyUrl, AwareDatetime, Field, HttpUrl, IPvAnyAddress, NaiveDatetime

import phloem as ph
from phloem.fsm import Compiler, Constraint, Vocabulary
from phloem.runtime.constraint_spec import ConstraintSpec

END = 256
COMPILER = Compiler(Vocabulary([bytes([byte]) for byte in range(END)] + [b""], [END]))
EMAIL = Annotated[str, Field(json_schema_extra={"format": "email"})]  # as EmailStr has it, without its package

READ = {
    "decimal": (Decimal, ["12", "-0.5", '"19.99"', '"-7"']),
    "money": (Annotated[Decimal, Field(max_digits=6, decimal_places=2)], ['"1234.56"', '"-0.1"', '"9999"']),
    "no debts": (Annotated[Decimal, Field(ge=0, decimal_places=2)], ['"19.99"', '"0"', '"123456789"']),
    "above 0": (Annotated[Decimal, Field(gt=0, max_digits=3)], ['"0.01"', '"999"', '"1.25"']),
    "whole": (Annotated[Decimal, Field(decimal_places=0)], ['"-12"', '"0"']),
    "below 1": (Annotated[Decimal, Field(max_digits=2, decimal_places=2)], ['"0.25"', '"-0.9"']),
    "between": (Annotated[Decimal, Field(gt=1, le=5)], ["1.5", "5"]),
    "address": (IPvAnyAddress, ['"10.0.0.1"', '"::1"']),
    "span": (datetime.timedelta, ['"P3D"', '"PT90M"', '"P1W"']),
    "uuid": (uuid.UUID, ['"12345678-1234-5678-1234-567812345678"']),
    "uuid 1": (UUID1, ['"12345678-1234-1678-9234-567812345678"']),
    "uuid 4": (UUID4, ['"12345678-1234-4678-9234-567812345678"']),
    "uuid 7": (UUID7, ['"12345678-1234-7678-9234-567812345678"']),
    "web": (HttpUrl, ['"https://www.example.com:8080/a/b?c=d#e"', '"http://a-b.de"']),
    "url": (AnyUrl, ['"mailto:ada@example.com"', '"https://localhost/"']),
    "local time": (NaiveDatetime, ['"2031-05-17T12:30:00"', '"1999-12-28T00:00:00.25"']),
    "time with a zone": (AwareDatetime, ['"2031-05-17T12:30:00Z"']),
    "several": (dict[str, list[Decimal | None]], ['{"a":[1,null,"2.5"]}']),
}


def written(constraint: Constraint, rng: random.Random, max_tokens: int) -> str:
    """What a model that knows nothing writes within a budget."""
    cursor, data = constraint.cursor(), bytearray()
    for left in range(max_tokens, 0, -1):
        allowed = np.flatnonzero(np.unpackbits(cursor.row_within(left).view(np.uint8), bitorder="little"))
        token_id = int(rng.choice(allowed.tolist()))
        assert cursor.advance(token_id)
        if token_id == END:
            break
        data.append(token_id)
    return data.decode()


def compiled(spec: ConstraintSpec) -> Constraint:
    return COMPILER.json_schema(str(spec.source), extra_keys=spec.extra_keys)


@pytest.mark.parametrize(("kind", "texts"), READ.values(), ids=READ)
def test_whatever_is_written_is_read(kind: Any, texts: list[str]) -> None:
    spec, rng = ph.json_schema(kind), random.Random(7)
    constraint = compiled(spec)
    for text in texts:
        cursor = constraint.cursor()
        assert all(cursor.advance(byte) for byte in text.encode()) and cursor.is_accepting, text
        spec.parse(text)
    for round_ in range(60):
        spec.parse(written(constraint, rng, max(constraint.min_tokens(), (8, 20, 60)[round_ % 3])))


def test_an_address_has_a_host_that_takes_mail() -> None:
    constraint, rng = compiled(ph.json_schema(EMAIL)), random.Random(7)
    for text in ("ada@example.com", "Ada.L+x_1@mail-2.some.co.uk"):
        cursor = constraint.cursor()
        assert all(cursor.advance(byte) for byte in f'"{text}"'.encode()) and cursor.is_accepting
    for text in (
        "ada@local",
        "ada@10.0.0.1",
        "a..b@c.de",
        "ada@shop.test",
        '\\"a\\"@b.de',
        "a" * 65 + "@b.de",
        f"a@{'b' * 64}.de",
    ):
        cursor = constraint.cursor()
        assert not (all(cursor.advance(byte) for byte in f'"{text}"'.encode()) and cursor.is_accepting), text
    for _ in range(60):
        name, host = written(constraint, rng, 40).strip('"').split("@")
        assert name and "." in host and not host.rpartition(".")[2].isdigit()


def test_both_kinds_of_addresses_are_written() -> None:
    constraint, rng = compiled(ph.json_schema(IPvAnyAddress)), random.Random(3)
    found = {ipaddress.ip_address(written(constraint, rng, 45).strip('"')).version for _ in range(40)}
    assert found == {4, 6}
