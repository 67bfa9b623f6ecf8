"""Network, mail and hardware addresses as regular expressions."""

from __future__ import annotations

from .ranges import whole

_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
IPV4 = rf"{_BYTE}(\.{_BYTE}){{3}}"

_GROUP = "[0-9A-Fa-f]{1,4}"


def _ipv6() -> str:
    """Eight groups, or fewer with `::` for those that are 0."""
    options = [rf"({_GROUP}:){{7}}{_GROUP}"]
    for before in range(8):
        left = rf"({_GROUP}:){{{before - 1}}}{_GROUP}" if before else ""
        most = 7 - before
        right = rf"({_GROUP}(:{_GROUP}){{0,{most - 1}}})?" if most else ""
        options.append(f"{left}::{right}")
    return f"({'|'.join(options)}|::([Ff]{{4}}:)?{IPV4})"


IPV6 = _ipv6()


def _networks(text: str, bits: int) -> str:
    return f"{text}(/{whole(0, bits)})?"


IPV4_INTERFACE = _networks(IPV4, 32)
IPV6_INTERFACE = _networks(IPV6, 128)


def _multiples(step: int, most: int) -> str:
    return "|".join(str(number) for number in range(0, most + 1, step))


def _ipv4_networks() -> str:
    """Addresses whose bits after the prefix are 0."""
    options = [f"{IPV4}(/32)?"]
    for prefix in range(32):
        whole_bytes, bits = divmod(prefix, 8)
        free = rf"({_BYTE}\.){{{whole_bytes}}}"
        zeros = r"\.0" * (3 - whole_bytes)
        options.append(f"{free}({_multiples(2 ** (8 - bits), 255)}){zeros}/{prefix}")
    return f"({'|'.join(options)})"


def _ipv6_networks() -> str:
    """Addresses whose bits after the prefix are 0: they end with `::`, or with as many groups of zeros."""
    options = [f"{IPV6}(/128)?"]
    for prefix in range(128):
        groups, bits = divmod(prefix, 16)
        free = f"({_GROUP}:){{{groups}}}"
        part = _first_bits(bits)
        zeros = ":0" * (7 - groups)
        tails = f"({zeros}|::)" if groups < 7 else ""
        found = [f"{free}{part}{tails}"]
        if groups < 8:
            found.append(f"({_GROUP}(:{_GROUP}){{0,{groups - 1}}})?::" if groups else "::")
        options.append(f"({'|'.join(found)})/{prefix}")
    return f"({'|'.join(options)})"


def _first_bits(bits: int) -> str:
    """A group of four hexadecimal digits of which only so many bits may be other than 0."""
    if bits == 0:
        return "0"
    digits, rest = divmod(bits, 4)
    free = "[0-9A-Fa-f]" * digits
    part = "" if rest == 0 else "[" + "".join(f"{n:X}{n:x}" if n > 9 else str(n) for n in range(0, 16, 16 >> rest)) + "]"
    return f"({free}{part}{'0' * (4 - digits - (rest > 0))}|0)"


IPV4_NETWORK = _ipv4_networks()
IPV6_NETWORK = _ipv6_networks()

_LABEL = "[A-Za-z0-9]([A-Za-z0-9]|-[A-Za-z0-9])*"
_RESERVED = "|".join(
    "".join(f"[{letter}{letter.upper()}]" for letter in name)
    for name in ("arpa", "invalid", "local", "localhost", "onion", "test")  # RFC 6761: nobody has mail there
)
_MAIL_LOCAL = r"[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*"
_MAIL_HOST = (
    rf"((?=[^.]{{1,63}}\.){_LABEL}\.){{1,2}}(?!({_RESERVED})(>|$))[A-Za-z]{{2,61}}"
    rf"|((?=[^.]{{1,30}}\.){_LABEL}\.){{3,5}}(?!({_RESERVED})(>|$))[A-Za-z]{{2,24}}"
)
EMAIL = f"(?=[^@]{{1,64}}@){_MAIL_LOCAL}@({_MAIL_HOST})"
"""Of at most 254 characters without anybody counting: two labels and a top-level domain of full length, or five of 30."""
_NAME = r"[A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u017f0-9_.'-]+"
NAMED_EMAIL = f"({_NAME}( {_NAME})* <({EMAIL})>|{EMAIL})"

_PAIR = "[0-9A-Fa-f]{2}"
MAC = rf"{_PAIR}((:{_PAIR}){{5}}|(-{_PAIR}){{5}}|(:{_PAIR}){{7}}|(-{_PAIR}){{7}})|[0-9A-Fa-f]{{4}}(\.[0-9A-Fa-f]{{4}}){{2}}"
DOMAIN = (
    r"([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.){1,3}[a-zA-Z]{2,61}"
    r"|([a-zA-Z0-9]([a-zA-Z0-9-]{0,28}[a-zA-Z0-9])?\.){4,7}[a-zA-Z]{2,36}"
)
"""Of at most 253 characters without anybody counting."""
