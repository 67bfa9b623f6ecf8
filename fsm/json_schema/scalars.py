"""Scalars: numbers, strings and words (`null`, `true`, `false`) that fulfil some tests, as expressions or listed.

`bit` is NUMBER or STRING, and tests are those of one branch for that type.
"""

from __future__ import annotations

from ..compile_time import CompileTime
from ..network.expression import Expression, Literal
from .algebra import FALSE, NULL, NUMBER, STRING, TRUE, Branch, Test
from .numbers import number_expression, number_expressions, number_texts
from .strings import any_string_expression, few_strings, joined_lengths, string_expression
from .texts import is_writable, string_text

WORDS = ((NULL, "null"), (TRUE, "true"), (FALSE, "false"))
WORD_LITERALS = tuple((bit, Literal(word.encode())) for bit, word in WORDS)
ANY_WORD = NULL | TRUE | FALSE


def scalars(bit: int, branches: tuple[Branch, ...], time: CompileTime, pointer: str) -> list[Expression]:
    """The numbers or strings of all branches, without repetitions.

    Args:
        pointer: JSON pointer of the schema that they are of.
    """
    if len(branches) == 1:
        tests = branches[0].numbers if bit == NUMBER else branches[0].strings
        return scalars_of(bit, tests, time)
    all_tests = {b.numbers if bit == NUMBER else b.strings: None for b in branches if b.types & bit}
    if () in all_tests:
        return scalars_of(bit, (), time)
    options: list[Expression] = []
    for tests in all_tests if bit == NUMBER else joined_lengths(all_tests, time):
        time.check(pointer)
        options += scalars_of(bit, tests, time)
    return options


def scalars_of(bit: int, tests: tuple[Test, ...], time: CompileTime) -> list[Expression]:
    """The numbers or strings that pass all tests; [] if there are none."""
    if not tests:
        return [number_expression() if bit == NUMBER else any_string_expression()]
    if len(tests) == 1 and tests[0][0] == "among" and bit == STRING:
        texts = tests[0][1]
        assert isinstance(texts, frozenset)
        return [Literal(string_text(text).encode()) for text in sorted(texts) if is_writable(text)]
    if bit == NUMBER:
        return [*number_expressions(tests, time)]
    expression = string_expression(tests, time)
    return [] if expression is None else [expression]


def listed(bit: int, tests: tuple[Test, ...], limit: int, time: CompileTime) -> list[str] | None:
    """All numbers or strings that pass the tests, as JSON texts; None if they are more than `limit`."""
    if bit == NUMBER:
        return number_texts(tests, limit, time)
    texts = few_strings(tests, limit, time)
    return None if texts is None else [string_text(text) for text in texts]
