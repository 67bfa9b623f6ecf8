"""Random values, as people and pydantic write them."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

Values = Callable[[Random], Any]
UTC = dt.UTC


def one_of(*values: Any) -> Values:
    return lambda rng: rng.choice(values)


def word(rng: Random, letters: str = "abcXYZ019", longest: int = 8) -> str:
    return "".join(rng.choice(letters) for _ in range(rng.randint(1, longest)))


def sentence(rng: Random) -> str:
    return "".join(rng.choice('abc XYZ019.-_é日\n"\\😀') for _ in range(rng.randint(0, 10)))


def moment(rng: Random) -> dt.datetime:
    """With days 29 to 31."""
    first = dt.datetime(rng.randint(1, 9998), 1, 1)
    parts = rng.choice([0, 500_000, rng.randint(0, 999_999)])
    return first + dt.timedelta(days=rng.randint(0, 364), seconds=rng.randint(0, 86_399), microseconds=parts)


def zone(rng: Random) -> dt.timezone:
    return dt.timezone(dt.timedelta(minutes=rng.choice([0, 60, -330, rng.randint(-1439, 1439)])))


def day_between(first: dt.date, last: dt.date) -> Values:
    return lambda rng: first + dt.timedelta(days=rng.randint(0, (last - first).days))


def moment_between(first: dt.datetime, last: dt.datetime) -> Values:
    return lambda rng: first + (last - first) * rng.random()


def span_between(first: dt.timedelta, last: dt.timedelta) -> Values:
    return lambda rng: rng.choice([first + (last - first) * rng.random(), dt.timedelta(seconds=1)])


def span(rng: Random) -> dt.timedelta:
    days = rng.choice([0, 3, 400, rng.randint(0, 900_000_000)])
    return rng.choice([1, -1]) * dt.timedelta(
        days=days, seconds=rng.choice([0, 5, rng.randint(0, 86_399)]), milliseconds=7
    )


def decimals(low: int, high: int, places: int) -> Values:
    """Of integers that are scaled by up to a number of places."""
    return lambda rng: Decimal(rng.randint(low, high)).scaleb(-rng.randint(0, places))


def cents(low: int, high: int) -> Values:
    return lambda rng: Decimal(rng.randint(low, high)).scaleb(-2)


def ipv4(rng: Random) -> str:
    return str(ipaddress.IPv4Address(rng.getrandbits(32)))


def ipv6(rng: Random) -> str:
    bits = rng.getrandbits(128)
    return str(ipaddress.IPv6Address(rng.choice([0, 1, bits, bits & ~(0xFFFFFFFF << rng.randint(0, 90)), bits >> 64])))


def ipv4_network(rng: Random) -> str:
    return str(ipaddress.IPv4Network((rng.getrandbits(32), rng.randint(0, 32)), strict=False))


def ipv6_network(rng: Random) -> str:
    bits = rng.choice([rng.getrandbits(128), 0, 0xFFFF << 32])
    return str(ipaddress.IPv6Network((bits, rng.randint(0, 128)), strict=False))


def url(*schemes: str, ascii_only: bool = False) -> Values:
    def write(rng: Random) -> str:
        login = rng.choice(["", "", "user@", "user:pw@", "u%40x:p%2Fw@", ":secret@"])
        hosts = ["localhost", "example.com", "a-b.c-d.co.uk", "db", "my_host", ipv4(rng), f"[{ipv6(rng)}]"]
        port = rng.choice(["", ":8000", ":11434", ":65535"])
        rest = ["", "/", "/a/b.html", "/x?q=1&r=%20z#frag", "?a=b", *([] if ascii_only else ["/é/ü"])]
        return f"{rng.choice(schemes)}://{login}{rng.choice(hosts)}{port}{rng.choice(rest)}"

    return write


def mail(rng: Random) -> str:
    host = rng.choice(["example.com", "mail.some.co.uk", "a-b.org", "x.museum"])
    return f"{word(rng)}{rng.choice(['', '.x', '+tag', '_y', '-z', chr(39) + 'n'])}@{host}"


def encoded(encode: Callable[[bytes], bytes], values: Callable[[Random], bytes]) -> Values:
    return lambda rng: encode(values(rng)).decode()


def some_bytes(rng: Random) -> bytes:
    return rng.randbytes(rng.randint(0, 9))
