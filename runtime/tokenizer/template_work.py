"""What one rendering of a chat template may make and how long it may take: one account, charged by every operation.

A template is a program from a foreign source. Whatever large value it makes, it makes from small ones, in one operation
or in many. So two rules bound it, and neither needs to know what an operation does:

* before an operation that may make more than its inputs together, the product of their sizes must fit the account
  (`'x'.ljust(n)` has the inputs 1 and n, `text.replace('', text)` the text twice): no such operation makes more;
* after an operation, its result is charged, with all that is in it, at every place where it is: a list that holds
  another one twice is charged for it twice, as its text would be.

Operations that are known to make no more than their inputs (`LINEAR_METHODS`, `LINEAR_FILTERS`) are excused from the
first rule alone; one that is missing there is refused too early, never too late. Iterations of loops and everything
that is written are charged as well, so an endless template ends; and so is everything that an operation reads, with all
that is in it. Two things need no account, because a template has no use for them: numbers of more than `MAX_INT_BITS`
bits, and methods of texts and numbers that give bytes (`REFUSED_METHODS`). Units are characters, about: an account of
16 Mi lasts for about a second and for less than a gigabyte. Knows values only, no template.
"""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, NoReturn

from jinja2.exceptions import SecurityError
from jinja2.sandbox import MAX_RANGE, SandboxedFormatter

PER_OPERATION = 100
PER_ELEMENT = 16  # of a list or an object: a pointer, and the object it points to
PER_CHAR_OF_OUTPUT = 32  # the account, in multiples of the longest output, if that is short;
BASE = 12 << 20  # otherwise this much,
PER_CHAR_OF_LONG_OUTPUT = 4  # and this multiple of the longest output
PER_SLOW_CHAR = 8  # read by code of Python's, word by word
MAX_BITS = 1 << 20  # the largest width in a format
MAX_INT_BITS = 256  # of a number
MAX_PRECISION = 308  # decimal digits that a float has before its point, and that make a difference after it
MAX_DATE_FORMAT = 256  # characters
# fmt: off
LINEAR_METHODS = frozenset((
    "capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii",
    "isdecimal", "isdigit", "isidentifier", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper",
    "lower", "lstrip", "partition", "removeprefix", "removesuffix", "rfind", "rindex", "rpartition", "rsplit",
    "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper",
))
LINEAR_FILTERS = frozenset((
    "abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "forceescape",
    "int", "items", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "safe",
    "select", "selectattr", "sort", "string", "sum", "title", "trim", "unique", "upper", "wordcount",
))
CONSTANT_FILTERS = frozenset(("attr", "count", "d", "default", "first", "length", "safe"))  # they read nothing
SLOW_FILTERS = frozenset(("pprint", "title", "truncate", "urlize", "wordcount", "wordwrap", "xmlattr"))
CONSTANT_TESTS = frozenset((
    "boolean", "callable", "defined", "escaped", "false", "filter", "float", "integer", "iterable", "mapping", "none",
    "number", "sameas", "sequence", "string", "test", "true", "undefined",
))
CONSTANT_METHODS = frozenset(("copy", "get", "items", "keys", "values"))  # of lists and objects
# what gives bytes or takes them, and what takes texts apart (see `template_tokens`)
REFUSED_METHODS = frozenset((
    "decode", "encode", "from_bytes", "fromhex", "hex", "maketrans", "striptags", "to_bytes", "translate", "unescape",
))
# fmt: on
_LETTER = re.compile(r"%(\([^)]*\))?[-#0 +\d.*hlL]*c")  # in a format, that of a code point
_DIGITS = re.compile(r"\d{5,}")
_CONTAINERS = (list, tuple, set, frozenset, KeysView, ValuesView, ItemsView)
_SIZED = (dict, range, *_CONTAINERS)


class TooMuchWork(SecurityError):
    """The account is empty."""


class Work:
    """The account of one rendering, whose output has at most `max_chars` characters."""

    def __init__(self, max_chars: int) -> None:
        self._total = min(PER_CHAR_OF_OUTPUT * max_chars, BASE + PER_CHAR_OF_LONG_OUTPUT * max_chars)
        self._left = self._total

    def charge(self, amount: int) -> None:
        """Raises TooMuchWork."""
        self._left -= max(amount, 0)
        if self._left < 0:
            raise TooMuchWork(f"it makes more than {self._total} characters on the way, or never ends")

    def charge_input(self, value: Any, per_char: int = 0) -> None:
        """Reading a value once, with all that is in it; per_char: of its size, 0 for a quarter."""
        if value is None or type(value) is bool:
            self.charge(PER_OPERATION)
        else:
            size = len(value) if isinstance(value, str | bytes) else self.size(value)
            self.charge(PER_OPERATION + (size * per_char or size >> 2))

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
            self.check_int(value)
            self.charge(PER_OPERATION + self.size(value))
        return value

    def check_product(self, value: Any, others: Iterable[Any], name: str) -> None:
        """That `value`, for each part of the others, fits the account; numbers among the others count as they are."""
        factor = 1 + sum(_number(other) if isinstance(other, int) else self.size(other) for other in others)
        size = 1 if isinstance(value, int | float) else 1 + self.size(value)
        if size * factor > self._left:
            raise TooMuchWork(f"it makes something too large with {name}")

    def check_int(self, value: Any) -> None:
        """That a number is not too wide to be reckoned with at no cost."""
        if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
            raise TooMuchWork(f"it makes a number of more than {MAX_INT_BITS} bits")

    def check_precision(self, digits: Any) -> None:
        """Checks that a number can be rounded to n digits."""
        if isinstance(digits, int) and abs(digits) > MAX_PRECISION:
            raise TooMuchWork(f"it rounds to more than {MAX_PRECISION} digits")

    def check_widths(self, form: str) -> None:
        """That no width in a format is large."""
        if any(int(digits[:9]) > MAX_BITS for digits in _DIGITS.findall(form)):
            raise TooMuchWork("it makes something too large with a width in a format")

    def check_percent(self, form: str, values: tuple[Any, ...]) -> None:
        """That `form % values` fits the account."""
        self.check_widths(form)
        if _LETTER.search(form):
            refuse("%c")
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
        if isinstance(value, int) and format_spec.endswith("c"):
            refuse("{:c}")
        self._work.size(value)
        text: str = self._work.charge_result(super().format_field(value, format_spec))
        return text


def refuse(name: str) -> NoReturn:
    """Refuses what only takes texts of messages apart and puts them together otherwise (see `template_tokens`)."""
    raise SecurityError(f"{name} of a text has no use in a chat template")


def _number(value: int) -> int:
    return 0 if isinstance(value, bool) else abs(value)


def _elements(value: Any) -> Iterator[Any] | None:
    if isinstance(value, Mapping):
        return (part for pair in value.items() for part in pair)
    return iter(value) if isinstance(value, _CONTAINERS) else None
