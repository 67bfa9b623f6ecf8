"""Intervals as patterns, against what Python says of every text near their bounds."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from random import Random
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from phloem.runtime.constrain.python_types import ranges, times
from phloem.runtime.constrain.python_types.addresses import IPV4_NETWORK, IPV6, IPV6_NETWORK


def is_within(value: object, low: object, high: object, opens: tuple[bool, bool] = (False, False)) -> bool:
    above = low is None or (value > low if opens[0] else value >= low)  # type: ignore[operator]
    below = high is None or (value < high if opens[1] else value <= high)  # type: ignore[operator]
    return bool(above and below)


def in_order(low: object, high: object) -> tuple[object, object]:
    is_wrong = low is not None and high is not None and low > high  # type: ignore[operator]
    return (high, low) if is_wrong else (low, high)


def test_whole_numbers() -> None:
    rng = Random(1)
    for _ in range(150):
        ends = [rng.choice([None, rng.randint(-1200, 1200), rng.randint(-20, 20)]) for _ in range(2)]
        low, high = in_order(*ends)
        pattern = re.compile(ranges.whole(low, high))  # type: ignore[arg-type]
        for number in range(-1250, 1250, 1):
            assert bool(pattern.fullmatch(str(number))) == is_within(number, low, high), (low, high, number)
        assert not pattern.fullmatch("-0") and not pattern.fullmatch("01")


def test_decimals() -> None:
    rng, num_within = Random(1), 0
    for _ in range(1500):
        ends = [rng.choice([None, Decimal(rng.randint(-3000, 3000)).scaleb(-rng.randint(0, 3))]) for _ in range(2)]
        low, high = in_order(*ends) if rng.random() < 0.9 else ends
        opens = (low is not None and rng.random() < 0.5, high is not None and rng.random() < 0.5)
        places = rng.choice([None, 0, 1, 2, 3])
        pattern = re.compile(ranges.decimals(low, high, opens=opens, places=places))  # type: ignore[arg-type]
        for _ in range(30):
            near = rng.choice([low, high, Decimal(rng.randint(-3000, 3000)).scaleb(-2)])
            step = Decimal(rng.choice([0, 0, 1, -1, 10, -10, 500])).scaleb(-rng.randint(0, 4))
            text = f"{(near if isinstance(near, Decimal) else Decimal(7)) + step:f}"
            if rng.random() < 0.5 and "." in text:
                text = text.rstrip("0").rstrip(".")
            elif rng.random() < 0.3:
                text += "0" if "." in text else ".0"
            if text.startswith("-") and Decimal(text) == 0:
                continue
            is_short = places is None or len(text.partition(".")[2]) <= places
            expected = is_within(Decimal(text), low, high, opens) and is_short
            assert bool(pattern.fullmatch(text)) == expected, (low, high, opens, places, text)
            num_within += expected
    assert num_within > 5000


def test_boxes_hold_every_value_once() -> None:
    rng, most = Random(2), (2, 3, 1, 4)
    values = [(a, b, c, d) for a in range(3) for b in range(4) for c in range(2) for d in range(5)]
    for _ in range(300):
        low, high = rng.choice(values), rng.choice(values)
        found = ranges.boxes(low, high, most)
        for value in values:
            holding = [box for box in found if all(a <= v <= b for v, (a, b) in zip(value, box, strict=True))]
            assert len(holding) == (low <= value <= high), (low, high, value)


def test_spans_and_moments_between_bounds_are_what_pydantic_takes() -> None:
    """Every text that pydantic writes of a value near a bound is matched if and only if the value is within."""
    rng, micro = Random(3), dt.timedelta(microseconds=1)
    for _ in range(25):
        spans = sorted(dt.timedelta(microseconds=rng.randint(-(10 ** rng.randint(1, 15)), 10**12)) for _ in range(2))
        moments = sorted(dt.datetime(2020, 2, 28) + abs(span) for span in spans)
        names = {"gt" if rng.random() < 0.5 else "ge": 0, "lt" if rng.random() < 0.5 else "le": 1}
        for kind, ends, form in ((dt.timedelta, spans, times.timedelta), (dt.datetime, moments, times.datetime)):
            bounds = {name: ends[index] for name, index in names.items()}
            plain, bounded = TypeAdapter(kind), TypeAdapter(Annotated[kind, Field(**bounds)])
            described = form(bounds)
            patterns = [re.compile(part["pattern"]) for part in described.get("allOf", [described])]
            for _ in range(12):
                value = rng.choice(ends) + rng.choice([0, 1, -1, 1000, -(10**6), rng.randint(-(10**9), 10**9)]) * micro
                text = plain.dump_json(value).decode().strip('"')
                try:
                    bounded.validate_python(value)
                except ValidationError:
                    assert not all(pattern.search(text) for pattern in patterns), (bounds, text)
                else:
                    assert all(pattern.search(text) for pattern in patterns), (bounds, text)


def test_networks_have_no_bits_after_the_prefix() -> None:
    import ipaddress

    rng, four, six, address = Random(4), re.compile(IPV4_NETWORK), re.compile(IPV6_NETWORK), re.compile(IPV6)
    for _ in range(600):
        prefix = rng.randint(0, 128)
        bits = rng.getrandbits(128) >> rng.choice([0, 0, 96]) << rng.choice([0, 0, 128 - prefix]) & (1 << 128) - 1
        text = str(ipaddress.IPv6Address(bits))
        assert address.fullmatch(text)
        for pattern, size, low in ((six, 128, text), (four, 32, str(ipaddress.IPv4Address(bits >> 96)))):
            network = f"{low}/{prefix * size // 128}"
            try:
                expected = str(ipaddress.ip_network(network)) == network
            except ValueError:
                expected = False
            assert bool(pattern.fullmatch(network)) == expected, network
