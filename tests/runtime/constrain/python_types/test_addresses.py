"""The regular expressions of addresses against what Python's `ipaddress` reads."""

from __future__ import annotations

import ipaddress
import re
from random import Random

from phloem.runtime.constrain.python_types import addresses


def reads(text: str) -> bool:
    try:
        ipaddress.IPv6Network(text)
    except ValueError:
        return False
    return True


def test_an_ipv6_network_that_ends_as_an_ipv4_one_is_one_where_python_reads_it() -> None:
    """Python 3.13 and later write networks of mapped addresses so."""
    pattern, rng, num_read = re.compile(addresses.IPV6_NETWORK), Random(3), 0
    for _ in range(2000):
        prefix = rng.randint(96, 129)
        free = min(32, max(0, 128 - prefix + rng.randint(-1, 1)))  # bits that are 0: too few, exactly, too many
        address = ipaddress.IPv4Address(rng.getrandbits(32) >> free << free)
        text = f"{rng.choice(['::', '::ffff:', '::FFFF:'])}{address}/{prefix}"
        assert (pattern.fullmatch(text) is not None) == reads(text), text
        num_read += reads(text)
    assert 500 < num_read < 1900
