"""Regular expressions against Python's own `re` and `unicodedata`."""

from __future__ import annotations

import random
import re
import unicodedata
import warnings
from collections.abc import Callable

import pytest

from phloem.errors import ConstraintTooLarge, InvalidRegex
from phloem.fsm.regex.regex import regex_to_dfa
from phloem.fsm.text.extent import max_length, num_texts
from phloem.fsm.text.unicode_sets import general_category, unicode_digits, unicode_letters

PATTERNS = [
    "", "a", "ab", "a|b", "|a", "(|a)b", "a?", "a*", "a+", "a*?b", "a+?", "a??b", "a{2}", "a{2,}", "a{1,3}",
    "a{,2}", "(ab)+", "(?:a|b)*c", "(?P<x>a)b", "((a))", "[ab]", "[^ab]", "[a-c]x", "[]a]", "[a\\]b]",
    "[\\w-]+", "[a-]", "[^\\W\\d]", ".", "a.b", "(?s)a.b", "\\d+", "\\D", "\\w\\W", "\\s", "\\S+", "\\.",
    "\\x41\\u00e9", "\\t|\\n", "a\\|b", "^a", "a$", "^ab$", "^a|b$", "(^|x)ab($|y)", "a^b", "$", "^$",
    "\\Aa\\Z", "(?m)^a$", "(?m)a$\\nb", "\\bfoo\\b", "\\Bo", "a\\b", "\\b", "x\\b.\\by", "(?=a)[ab]+",
    "(?!ab)[ab]{2,3}", "(?<=a)b|(?<!a)c", "a(?=b)b(?!c)[bc]*", "((?!ab)[abc])*", "(?=.*a)(?=.*b)[abc]{2,}",
    "(?!(foo|x)$)\\w+", "(?<!\\d)1", "(?i)aB1", "(?i:a)b", "(?x) a b # c\n c?", "(a+)+b", "(a|a)*", "(a?){3}",
    "(a*)*", "(ab?c|a)(c|bc)", "a{0}", "(a|ab)(c|bcd)(d*)", "x{2,4}y{0,2}", "é+|中", "[é-ü]", "(?a:\\w)+",
    "(?a:\\b)\\w\\b", "(?=\\B)[^a]",
    "(?s).+", "(?s:.+|a)", "(?s)a?.+", "(?s)(.+)?", "(?s)(?:a|.+)b?", "(?s).{2,}", "(?s)(x.*|.+)", "(?s)a|.*",
    "(?:(?:a|b)?c)*", "[a-c&&b]", "{", "a{x}", "}{", "[[]", "(?#comment)a",
]  # fmt: skip
ALPHABET = "aabbcdxyfo1A \n-é中_"


def probes(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return ["", *("".join(rng.choice(ALPHABET) for _ in range(rng.randint(0, 6))) for _ in range(count))]


def agrees(pattern: str, texts: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        oracle = re.compile(pattern)
    whole, somewhere = regex_to_dfa(pattern, dialect="python"), regex_to_dfa(pattern, search=True, dialect="python")
    for text in texts:
        if ("\n" in text and "$" in pattern) or ("\\B" in pattern and not text):
            continue  # Python's $ also stands before a final line break, and its \B never in an empty text
        assert whole.accepts(text) == bool(oracle.fullmatch(text)), (pattern, text)
        assert somewhere.accepts(text) == bool(oracle.search(text)), (pattern, text)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_agrees_with_re(pattern: str) -> None:
    agrees(pattern, [*probes(len(pattern), 400), "foo", "foo bar", "a.b", "aA", "xx", "ab\nc", "x-y"])


def test_multiline_dollar_is_the_end_of_a_line() -> None:
    dfa = regex_to_dfa("(?m)a$\n^b", dialect="python")
    assert dfa.accepts("a\nb") and not dfa.accepts("ab")


@pytest.mark.parametrize("name", ["Lu", "L", "Nd", "P", "Zs", "Cn", "Uppercase_Letter", "gc=Sm"])
def test_general_categories_are_those_of_unicodedata(name: str) -> None:
    inside, outside = regex_to_dfa(f"\\p{{{name}}}"), regex_to_dfa(f"\\P{{{name}}}")
    short = {"Uppercase_Letter": "Lu", "gc=Sm": "Sm"}.get(name, name)
    for point in [*range(0, 0x3000, 3), *range(0x1F300, 0x1F600, 7), 0xE000, 0x10FFFF]:
        if not 0xD800 <= point < 0xE000:
            expected = unicodedata.category(chr(point)).startswith(short)
            assert inside.accepts(chr(point)) == expected and outside.accepts(chr(point)) != expected


@pytest.mark.parametrize("escape", ["\\w", "\\d", "\\s", "\\W", "\\D", "\\S"])
def test_python_classes_are_those_of_re(escape: str) -> None:
    dfa, oracle = regex_to_dfa(escape, dialect="python"), re.compile(escape)
    for point in [*range(0x2100), *range(0x3000, 0x3100), 0x1D7CE, 0x10400, 0xFEFF]:
        assert dfa.accepts(chr(point)) == bool(oracle.fullmatch(chr(point))), hex(point)


def test_letters_and_digits_are_general_categories() -> None:
    assert unicode_letters() == general_category("L") and unicode_digits() == general_category("Nd")


def test_json_schema_dialect_is_that_of_ecma_262() -> None:
    assert not regex_to_dfa("\\d").accepts("٣") and regex_to_dfa("\\d", dialect="python").accepts("٣")
    assert not regex_to_dfa("\\w").accepts("é") and regex_to_dfa("\\W", dialect="json-schema-possible").accepts("é")
    assert regex_to_dfa("[^]").accepts("\n") and regex_to_dfa("[]").is_empty()
    assert not regex_to_dfa(".").accepts("\u2028") and regex_to_dfa(".", dialect="python").accepts("\u2028")
    assert num_texts(regex_to_dfa("\\u{1F600}|\\uD83D\\uDE00"), 5) == 1
    assert (
        regex_to_dfa("a{,2}").accepts("a{,2}")
        and regex_to_dfa("\\cJ").accepts("\n")
        and regex_to_dfa("\\/").accepts("/")
    )


ECMA_SPACE = "\t\n\v\f\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff" + "".join(map(chr, range(0x2000, 0x200B)))


@pytest.mark.parametrize(
    ("pattern", "means"),
    [
        ("\\d", lambda d, w, s, dot: d), ("\\D", lambda d, w, s, dot: not d), ("\\w", lambda d, w, s, dot: w),
        ("\\W", lambda d, w, s, dot: not w), ("\\s", lambda d, w, s, dot: s), ("\\S", lambda d, w, s, dot: not s),
        ("[^\\d]", lambda d, w, s, dot: not d), ("[^\\W]", lambda d, w, s, dot: w),
        ("[^\\W\\d]", lambda d, w, s, dot: w and not d), ("[\\s\\d]", lambda d, w, s, dot: s or d),
        ("(?!\\w).", lambda d, w, s, dot: not w and dot), ("(?=\\W).", lambda d, w, s, dot: not w and dot),
    ],
)  # fmt: skip
def test_json_schema_classes_are_those_of_both_readings(pattern: str, means: Callable[..., bool]) -> None:
    """ECMA-262 by its own definition, Python by `re`."""
    certain, possible = (regex_to_dfa(pattern, dialect=name) for name in ("json-schema", "json-schema-possible"))
    for point in [*range(0x250), 0x661, 0x1680, *range(0x2000, 0x2070), 0x3000, 0x4E2D, 0xFEFF]:
        c = chr(point)
        ecma = means(
            "0" <= c <= "9", c.isascii() and (c.isalnum() or c == "_"), c in ECMA_SPACE, c not in "\n\r\u2028\u2029"
        )
        readings = (ecma, bool(re.fullmatch(pattern, c)))
        if pattern in ("[^\\W\\d]", "(?!\\w).", "(?=\\W)."):  # classes of two readings may mix
            assert certain.accepts(c) <= all(readings) and possible.accepts(c) >= any(readings), hex(point)
        else:
            assert certain.accepts(c) == all(readings) and possible.accepts(c) == any(readings), hex(point)


@pytest.mark.parametrize(
    ("pattern", "offset"),
    [
        ("(a)\\1", 3), ("a(?P=x)", 1), ("(?<n>a)\\k<n>", 7), ("(", 0), ("a)", 1), ("[a", 0), ("a**", 2), ("*a", 0),
        ("a{3,2}", 1), ("[b-a]", 2), ("\\", 0), ("\\p{Klingon}", 0), ("(?:a|ab)++", 8), ("(?>a*?)", 0), ("(?(1)a)", 0),
        ("\\xg", 0),
        ("\\y", 0), ("a{2}{3}", 4), ("(?q)", 0), ("(?#", 0), ("(?P<1", 4),
        ("a[a-\\d]", 3), ("\\p{", 0), ("\\u{110000}", 0), ("a\\400", 1), ("[\\777]", 1),
        ("a(?<=a$)b", 6), ("(?<!\\b)", 4), ("(?=b|(?<=a)b)", 5), ("(?<=(?=a)a)", 4),
    ],
)  # fmt: skip
def test_errors_name_the_offset(pattern: str, offset: int) -> None:
    with pytest.raises(InvalidRegex) as caught:
        regex_to_dfa(pattern, dialect="python")
    assert caught.value.pointer == f"offset {offset}"
    assert f"offset {offset} " in str(caught.value)


@pytest.mark.parametrize(
    "pattern",
    ["(.{1,1000}){1,1000}", "a{1000000}", "[ab]*a[ab]{30}", "((((a{1,9}){1,9}){1,9}){1,9}){1,9}", "(a{1,100}){1,100}b",
     "a{99999999}", "(?=.*a[ab]{25})[ab]*", "x" * 300_000],
)  # fmt: skip
def test_patterns_that_explode_are_refused_with_a_word(pattern: str) -> None:
    with pytest.raises(ConstraintTooLarge):
        regex_to_dfa(pattern)


def test_deep_nesting_costs_no_call_stack() -> None:
    assert regex_to_dfa("(" * 20_000 + "a" + ")" * 20_000).accepts("a")
    assert regex_to_dfa("(?:" * 2_000 + "a" + ")?" * 2_000).accepts("")


@pytest.mark.parametrize(
    "pattern", [".{0,1000}", "\\w{1,200}", "[^\\n]{1,200}", "(\\d{1,3}\\.){3}\\d{1,3}", "\\p{L}{2,100}"]
)
def test_bounded_repetition_is_exact_at_its_bounds(pattern: str) -> None:
    dfa = regex_to_dfa(pattern, dialect="python")
    longest = max_length(dfa)
    assert longest is not None
    unit = "é" if pattern != "(\\d{1,3}\\.){3}\\d{1,3}" else None
    if unit:
        assert dfa.accepts(unit * longest) and not dfa.accepts(unit * (longest + 1))
    else:
        assert dfa.accepts("123.123.123.123") and longest == 15
