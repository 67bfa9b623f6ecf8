"""What one rendering of a chat template may make and how long it may take: one account, charged by every operation.

A template is somebody else's program. Whatever large value it makes, it makes from small ones, in one operation or in
many. So two rules bound it, and neither needs to know what an operation does:

* before an operation that may make more than its inputs together, the product of their sizes must fit the account
  (`'x'.ljust(n)` has the inputs 1 and n, `text.replace('', text)` the text twice): no such operation makes more;
* after an operation, its result is charged, with all that is in it, at every place where it is: a list that holds
  another one twice is charged for it twice, as its text would be.

Operations that are known to make no more than their inputs (`LINEAR_METHODS`, `LINEAR_FILTERS`) are excused from the
first rule alone; one that is missing there is refused too early, never too late. Turns of loops and everything that is
written are charged as well, so an endless template ends. Units are characters, about: an account of 32 Mi lasts for a
second or two and for less than a gigabyte. Knows values only, no template.
"""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.sandbox import MAX_RANGE, SandboxedFormatter

PER_OPERATION = 100
PER_ELEMENT = 16  # of a list or an object: a pointer, and the object behind it
PER_CHAR_OF_OUTPUT = 32  # an account lasts for so many times the longest output
MAX_BITS = 1 << 20  # of a number
# fmt: off
LINEAR_METHODS = frozenset((
    "capitalize", "casefold", "count", "encode", "endswith", "find", "index", "isalnum", "isalpha", "isascii",
    "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper",
    "lower", "lstrip", "partition", "removeprefix", "removesuffix", "rfind", "rindex", "rpartition", "rsplit",
    "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper",
))
LINEAR_FILTERS = frozenset((
    "abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "forceescape",
    "int", "items", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "safe",
    "select", "selectattr", "sort", "string", "sum", "title", "trim", "unique", "upper", "wordcount",
))
CONSTANT_FILTERS = frozenset(("attr", "count", "d", "default", "first", "length"))  # they read nothing of a list
# fmt: on
_DIGITS = re.compile(r"\d{5,}")
_CONTAINERS = (list, tuple, set, frozenset, KeysView, ValuesView, ItemsView)
_SIZED = (dict, range, *_CONTAINERS)


class TooMuchWork(SecurityError):
    """The account is empty."""


class Work:
    """The account of one rendering.

    Attributes:
        max_chars: the longest output.
    """

    def __init__(self, max_chars: int) -> None:
        self.max_chars = max_chars
        self._total = self._left = PER_CHAR_OF_OUTPUT * max_chars

    def charge(self, amount: int) -> None:
        """Raises TooMuchWork."""
        self._left -= amount
        if self._left < 0:
            raise TooMuchWork(f"it makes more than {self._total} characters on the way, or never ends")

    def charge_input(self, value: Any) -> None:
        """Reading a value once: a text is read quickly, element after element is not."""
        if isinstance(value, str | bytes):
            self.charge(PER_OPERATION + (len(value) >> 4))
        else:
            self.charge(PER_OPERATION + (PER_ELEMENT * len(value) if isinstance(value, _SIZED) else 0))

    def charge_slice(self, value: Any) -> Any:
        """Charges for a part of a text or list; returns it."""
        self.charge(PER_OPERATION + (len(value) if isinstance(value, str | bytes | list | tuple) else 0))
        return value

    def charge_sum(self, num_elements: int) -> None:
        """Adding up lists copies every sum."""
        self.charge(num_elements * num_elements >> 4)

    def charge_comparisons(self, value: Any, others: Iterable[Any]) -> None:
        """Reading each of the others for every element of a value."""
        if not isinstance(value, str | bytes):
            count = len(value) if isinstance(value, _SIZED) else MAX_RANGE if isinstance(value, Iterator) else 1
            self.charge(count * sum(len(other) >> 6 for other in others if isinstance(other, str)))

    def charge_result(self, value: Any) -> Any:
        """Charges for a value that was made; returns it."""
        if type(value) is str:  # nearly always
            self.charge(PER_OPERATION + len(value))
        elif value is not None and type(value) is not bool:
            self.charge(PER_OPERATION + self.size(value))
        return value

    def check_product(self, value: Any, others: Iterable[Any], name: str) -> None:
        """That `value`, for each part of the others, fits the account; numbers among the others count as they are."""
        factor = 1 + sum(_number(other) if isinstance(other, int) else self.size(other) for other in others)
        size = 1 if isinstance(value, int | float) else 1 + self.size(value)
        if size * factor > self._left:
            raise TooMuchWork(f"it makes something too large with {name}")

    def check_widths(self, form: str) -> None:
        """That no width in a format is large."""
        if any(int(digits[:9]) > MAX_BITS for digits in _DIGITS.findall(form)):
            raise TooMuchWork("it makes something too large with a width in a format")

    def check_percent(self, form: str, values: tuple[Any, ...]) -> None:
        """That `form % values` fits the account."""
        self.check_widths(form)
        # with * widths are among the values
        sizes = values if "*" in form else [self.size(value) for value in values]
        self.check_product("%" * form.count("%"), sizes, "a format")

    def size(self, value: Any) -> int:
        """Characters and elements of a value, as its text would repeat them. Stops at what is left of the account."""
        if isinstance(value, str | bytes):
            return len(value)
        if isinstance(value, int):
            return value.bit_length() >> 3
        found, todo = 0, [iter((value,))]
        while todo:
            for inner in todo[-1]:
                if isinstance(inner, str | bytes):
                    found += PER_ELEMENT + len(inner)
                    continue
                found += PER_ELEMENT + len(todo)  # indented, it takes as much as it is deep
                elements = _elements(inner)
                if elements is not None:
                    todo.append(elements)
                    break
            else:
                todo.pop()
            if found > self._left:
                raise TooMuchWork("it makes a list or an object that is too large")
        return found


class BoundedFormatter(SandboxedFormatter):
    """`str.format` of the sandbox, charged for every place that it fills."""

    def __init__(self, environment: Any, work: Work) -> None:
        super().__init__(environment)
        self._work = work

    def format_field(self, value: Any, format_spec: str) -> str:
        self._work.check_widths(format_spec)
        self._work.size(value)
        text: str = self._work.charge_result(super().format_field(value, format_spec))
        return text


def _number(value: int) -> int:
    return 0 if isinstance(value, bool) else abs(value)


def _elements(value: Any) -> Iterator[Any] | None:
    if isinstance(value, Mapping):
        return (part for pair in value.items() for part in pair)
    return iter(value) if isinstance(value, _CONTAINERS) else None
