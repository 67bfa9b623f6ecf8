"""Network, mail and hardware addresses as regular expressions."""

from __future__ import annotations

from .ranges import whole

BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
IPV4 = rf"{BYTE}(\.{BYTE}){{3}}"

_GROUP = "[0-9A-Fa-f]{1,4}"


def _groups(most: int) -> str:
    return f"({_GROUP}(:{_GROUP}){{0,{most - 1}}})?" if most else ""


def _ipv6() -> str:
    """Eight groups, or fewer with `::` for those that are 0."""
    options = [rf"({_GROUP}:){{7}}{_GROUP}"]
    for before in range(8):
        left = rf"({_GROUP}:){{{before - 1}}}{_GROUP}" if before else ""
        options.append(f"{left}::{_groups(7 - before)}")
    return f"({'|'.join(options)}|::([Ff]{{4}}:)?{IPV4})"


IPV6 = _ipv6()


def _networks(text: str, bits: int) -> str:
    return f"{text}(/{whole(0, bits)})?"


IPV4_INTERFACE = _networks(IPV4, 32)
IPV6_INTERFACE = _networks(IPV6, 128)


def _multiples(step: int, most: int) -> str:
    return "|".join(str(number) for number in range(0, most + 1, step))


def _ipv4_networks(bits_before: int = 0) -> str:
    """Addresses whose bits after the prefix are 0; the prefix also counts the bits that stand before the address."""
    options = [f"{IPV4}(/{bits_before + 32})?"]
    for prefix in range(32):
        whole_bytes, bits = divmod(prefix, 8)
        free = rf"({BYTE}\.){{{whole_bytes}}}"
        zeros = r"\.0" * (3 - whole_bytes)
        options.append(f"{free}({_multiples(2 ** (8 - bits), 255)}){zeros}/{bits_before + prefix}")
    return f"({'|'.join(options)})"


def _ipv6_networks() -> str:
    """Addresses whose bits after the prefix are 0."""
    options = [f"{IPV6}(/128)?"]
    options.append(f"::([Ff]{{4}}:)?{_ipv4_networks(96)}")  # as Python 3.13 and later write them
    for groups in range(8):  # that are free; of the next one the first bits are, and the others are 0
        ends = [f"{_first_bits(bits)}{':0' * (7 - groups)}/{16 * groups + bits}" for bits in range(16)]
        free = [f"({_GROUP}:){{{groups}}}"]
        free += [f"{_groups(groups - 1 - after)}::({_GROUP}:){{{after}}}" for after in range(groups)]
        options.append(f"({'|'.join(free)})({'|'.join(ends)})")
        prefixes = whole(16 * groups, 16 * groups + 15)
        options.append(f"{_groups(groups)}::/{prefixes}")
        if groups < 7:
            parts = [f"{_first_bits(bits)}::/{16 * groups + bits}" for bits in range(1, 16)]
            options.append(f"({_GROUP}:){{{groups}}}({'|'.join(parts)})")
    return f"({'|'.join(options)})"


def _first_bits(bits: int) -> str:
    """A group of up to four hexadecimal digits of which only the first n bits may be other than 0."""
    if bits == 0:
        return "0"
    full, rest = divmod(bits, 4)
    part = ["[" + "".join(f"{n:x}{n:X}" if n > 9 else str(n) for n in range(0, 16, 16 >> rest)) + "]"] if rest else []
    places = ["[0-9A-Fa-f]"] * full + part + ["0"] * (4 - full - len(part))
    return "(" + "|".join("".join(places[first:]) for first in range(4)) + ")"


IPV4_NETWORK = _ipv4_networks()
IPV6_NETWORK = _ipv6_networks()

_LABEL = "[A-Za-z0-9]([A-Za-z0-9]|-[A-Za-z0-9])*"
_RESERVED = "|".join(
    "".join(f"[{letter}{letter.upper()}]" for letter in name)
    for name in ("arpa", "invalid", "local", "localhost", "onion", "test")  # RFC 6761: no mail is delivered there
)
_SIGNS = "!#$%&'*+/=?^_`{|}~-"
_MAIL_LOCAL = rf"[A-Za-z0-9{_SIGNS}]+(\.[A-Za-z0-9{_SIGNS}]+)*"
_MAIL_HOST = (
    rf"((?=[^.]{{1,63}}\.){_LABEL}\.){{1,2}}(?!({_RESERVED})(>|$))[A-Za-z]{{2,61}}"
    rf"|((?=[^.]{{1,30}}\.){_LABEL}\.){{3,5}}(?!({_RESERVED})(>|$))[A-Za-z]{{2,24}}"
)
EMAIL = f"(?=[^@]{{1,64}}@){_MAIL_LOCAL}@({_MAIL_HOST})"
"""Of at most 254 characters, with nothing to count: two labels and a top-level domain of full length, or five of 30."""


def named_email(has_points: bool) -> str:
    """`Ada Lovelace <ada@example.com>`, or the address alone.

    Args:
        has_points: whether names may have points: pydantic takes `J. R. <jr@example.com>` from 2.14 on.
    """
    name = rf"[A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u017f0-9{'.' if has_points else ''}{_SIGNS}]+"
    return f"({name}( {name})* <({EMAIL})>|{EMAIL})"


_PAIR = "[0-9A-Fa-f]{2}"
_PAIRS = "|".join(f"({sign}{_PAIR}){{{count}}}" for sign in ":-" for count in (5, 7))
MAC = rf"{_PAIR}({_PAIRS})|[0-9A-Fa-f]{{4}}(\.[0-9A-Fa-f]{{4}}){{2}}"
DOMAIN = (
    r"([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.){1,3}[a-zA-Z]{2,61}"
    r"|([a-zA-Z0-9]([a-zA-Z0-9-]{0,28}[a-zA-Z0-9])?\.){4,7}[a-zA-Z]{2,36}"
)
"""Of at most 253 characters, with nothing to count."""
