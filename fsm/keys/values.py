"""Values: JSON values that a text may become equal to, read byte by byte.

A value may be written in many ways: members in any order, blanks, `1.0` or `10e-1` for `1`. A `Place` is where a text
that has begun stands within one value, if it can still become that value; strings and words have one spelling. Numbers
are compared by their exact value.

A place is a stack, as nested pairs, of what is still to be written, the innermost first; None: nothing but blanks.
Invariant: `step` gives up a place only where no text that goes on so is the value; the last byte is always decided
exactly. It knows no lists and no automata.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from json.encoder import encode_basestring
from typing import Any, Literal

from ..record import record, value_record

BLANKS = b" \n\t\r"
DIGITS = b"0123456789"
IN_NUMBER = DIGITS + b".eE+-"
QUOTE = ord('"')
GONE: Literal[False] = False  # as a place: the text cannot become the value any more

Place = tuple[Any, Any] | None
Value = Any
"""bytes (a word or a string as it is written), Number, Items or Members."""


@value_record
class Number:
    """A number: its digits, without zeros before and after them, times ten to the power of `exponent`.

    Zero has no digits, and is not negative.
    """

    is_negative: bool
    digits: str
    exponent: int

    @classmethod
    def of(cls, text: str) -> Number:
        """The number that a text is."""
        mantissa, _, power = text.lower().partition("e")
        whole, _, fraction = mantissa.lstrip("-").partition(".")
        digits = (whole + fraction).lstrip("0")
        stripped = digits.rstrip("0")
        exponent = len(digits) - len(stripped) - len(fraction) + (int(power) if power.strip("+-") else 0)
        return cls(mantissa[:1] == "-", stripped, exponent) if stripped else cls(False, "", 0)


@record
class Items:
    """A list."""

    items: list[Value]


@record
class Members:
    """An object, by its keys as they are written with quotes."""

    members: dict[bytes, Value]


@dataclass(slots=True, frozen=True)
class _Rest:
    """What is left of a word or a string."""

    text: bytes


@dataclass(slots=True, frozen=True)
class _InNumber:
    """What has been written of a number that may still become `number`, without digits that change nothing.

    These are zeros at the end of a fraction or at the beginning of a power, and the power of zero.
    """

    number: Number
    text: str = ""

    def after(self, byte: int) -> _InNumber | Literal[False]:
        """The same after one more byte, or GONE."""
        text, number = self.text + chr(byte).lower(), self.number
        mantissa, mark, power = text.partition("e")
        digits = mantissa.lstrip("-").replace(".", "").lstrip("0")
        is_read = digits.rstrip("0") == number.digits
        if not is_read and (mark or not number.digits.startswith(digits)):
            return GONE
        if mark and digits:
            missing = number.exponent - Number.of(mantissa).exponent
            is_fit = not power or missing == 0 or (power[0] == "-") == (missing < 0)
            if not is_fit or not str(abs(missing)).startswith(power.lstrip("+-").lstrip("0")):
                return GONE
        is_idle = is_read and byte in DIGITS and (mark or "." in mantissa) and Number.of(text) == Number.of(self.text)
        return self if is_idle else replace(self, text=text)

    def is_whole(self) -> bool:
        """Whether it is the number."""
        return Number.of(self.text) == self.number


@dataclass(slots=True, frozen=True)
class _InItems:
    """Before the comma or bracket that follows so many items."""

    value: Items
    count: int


@dataclass(slots=True, frozen=True)
class _InMembers:
    """Before the comma or brace that follows a member, and before the first one."""

    value: Members
    left: frozenset[bytes]


@dataclass(slots=True, frozen=True)
class _InKey:
    value: Members
    left: frozenset[bytes]
    typed: bytes


@dataclass(slots=True, frozen=True)
class _BeforeColon:
    value: Value


def value_of(text: bytes) -> tuple[Value, str]:
    """The value that a text is, and the text that all spellings of it have in common."""
    loaded = json.loads(text, parse_int=Number.of, parse_float=Number.of)
    return _value(loaded), json.dumps(loaded, sort_keys=True, default=_spelt, separators=(",", ":"))


def _spelt(number: Number) -> list[Any]:
    return [{}, number.is_negative, number.digits, number.exponent]  # a list of this form is none of a text


def _value(loaded: Any) -> Value:
    if isinstance(loaded, Number):
        return loaded
    if isinstance(loaded, list):
        return Items([_value(item) for item in loaded])
    if isinstance(loaded, dict):
        return Members({encode_basestring(key).encode(): _value(item) for key, item in loaded.items()})
    return encode_basestring(loaded).encode() if isinstance(loaded, str) else json.dumps(loaded).encode()


def step(place: Place, byte: int) -> Place | Literal[False]:
    """The place after one more byte, or GONE."""
    if place is None:
        return None if byte in BLANKS else GONE
    top, rest = place
    match top:
        case _Rest():
            if byte != top.text[0]:
                return GONE
            return (_Rest(top.text[1:]), rest) if len(top.text) > 1 else rest
        case _InNumber():
            if byte in IN_NUMBER:
                number = top.after(byte)
                return (number, rest) if number else GONE
            return step(rest, byte) if top.is_whole() else GONE
        case _InKey() if top.typed or byte == QUOTE:
            typed = top.typed + bytes((byte,))
            if typed in top.left:
                return _BeforeColon(top.value.members[typed]), (_InMembers(top.value, top.left - {typed}), rest)
            is_begun = any(key.startswith(typed) for key in top.left)
            return (_InKey(top.value, top.left, typed), rest) if is_begun else GONE
    if byte in BLANKS:
        return place
    match top:
        case bytes():
            return step((_Rest(top), rest), byte)
        case Number():
            if byte not in b"-0123456789" or (top.digits and (byte == ord("-")) != top.is_negative):
                return GONE
            return step((_InNumber(top), rest), byte)
        case Items():
            return (_InItems(top, 0), rest) if byte == ord("[") else GONE
        case Members():
            return (_InMembers(top, frozenset(top.members)), rest) if byte == ord("{") else GONE
        case _BeforeColon():
            return (top.value, rest) if byte == ord(":") else GONE
        case _InItems(value, count):
            if byte == ord("]"):
                return rest if count == len(value.items) else GONE
            if count == len(value.items) or (byte != ord(",") and count > 0):
                return GONE
            after = value.items[count], (_InItems(value, count + 1), rest)
            return after if count else step(after, byte)
        case _InMembers(value, left):
            if byte == ord("}"):
                return GONE if left else rest
            is_first = len(left) == len(value.members)
            if not left or (byte != ord(",") and not is_first):
                return GONE
            after = _InKey(value, left, b""), rest
            return step(after, byte) if is_first else after
    return GONE  # a key without its quote


def is_complete(place: Place) -> bool:
    """Whether the text is the value."""
    if place is None:
        return True
    top, rest = place
    return rest is None and isinstance(top, _InNumber) and top.is_whole()


def following(place: Place) -> bytes:
    """Bytes with which a text may go on without being given up, and perhaps others."""
    if place is None:
        return BLANKS + b",]"
    top, _ = place
    match top:
        case _Rest():
            return top.text[:1]
        case bytes():
            return BLANKS + top[:1]
        case _InKey() if top.typed:
            return bytes({key[len(top.typed)] for key in top.left if key.startswith(top.typed)})
        case _InNumber():
            return IN_NUMBER + BLANKS + b",]}"
        case Number():
            return DIGITS + b"-" + BLANKS
        case Items():
            return b"[" + BLANKS
        case Members():
            return b"{" + BLANKS
        case _BeforeColon():
            return b":" + BLANKS
        case _InItems(value, count):
            return BLANKS + b",]" + (following((value.items[0], None)) if value.items and not count else b"")
    return BLANKS + b',}"'
