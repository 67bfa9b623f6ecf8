"""Lark's notation, judged by Lark: the same texts, walks that parse, mistakes with their place."""

from __future__ import annotations

import json
import random

import lark
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintTooLarge, EmptyLanguage, InvalidGrammar
from phloem.fsm import Compiler

from ..vocabularies import BYTES, accepts, allowed_ids, brute_force, mixed_vocabulary, random_walk, words

COMPILER = Compiler(BYTES)

ARITHMETIC = r"""
    ?start: sum
    ?sum: product | sum "+" product -> add | sum "-" product
    ?product: atom | product "*" atom | product "/" atom
    ?atom: NUMBER | "-" atom | "(" sum ")" | CNAME
    %import common.(NUMBER, CNAME, WS)
    %ignore WS
""".replace("common.(", "common (")
JSON = r"""
    ?start: value
    ?value: object | array | ESCAPED_STRING | SIGNED_NUMBER | "true" | "false" | "null"
    array: "[" [value ("," value)*] "]"
    object: "{" [pair ("," pair)*] "}"
    pair: ESCAPED_STRING ":" value
    %import common.ESCAPED_STRING
    %import common.SIGNED_NUMBER
    %import common.WS
    %ignore WS
"""
SQL = r"""
    start: select ";"?
    select: "select"i columns "from"i NAME ["where"i condition] ["limit"i INT]
    columns: "*" | NAME ("," NAME)*
    condition: comparison | condition ("and"i | "or"i) comparison
    comparison: NAME OPERATOR (INT | STRING) | "not"i comparison
    OPERATOR: "=" | "<" | ">" | "<=" | ">=" | "<>"
    NAME: /[a-z_][a-z_0-9]*/i
    STRING: /'[^'\n]*'/
    INT: "0".."9"+
    COMMENT: "--" /[^\n]*/
    %ignore /\s+/
    %ignore COMMENT
"""
C_LIKE = (
    r"""
    start: function+
    function: TYPE NAME "(" [TYPE NAME ("," TYPE NAME)*] ")" block
    block: "{" statement* "}"
    ?statement: "return" expr ";" | "if" "(" expr ")" statement ["else" statement] | block | NAME "=" expr ";"
    ?expr: expr ("+" | "<" | "==") term | term
    ?term: NAME | NUMBER | NAME "(" [expr ("," expr)*] ")" | "(" expr ")"
    TYPE: "int" | "char" "*"~0..1
    NAME: /[a-z]\w*/a
    NUMBER: /\d+(\.\d+)?/a
    WS: /[ \n]+/
    %ignore WS
""".replace("/a\n", "/\n")
    .replace(r"\w", "[a-z0-9_]")
    .replace(r"\d", "[0-9]")
)


def judge(text: str) -> lark.Lark:
    return lark.Lark(text, parser="earley", lexer="dynamic", ambiguity="resolve")


def parses(parser: lark.Lark, text: str) -> bool:
    try:
        parser.parse(text)
    except lark.exceptions.LarkError:
        return False
    except RuntimeError as error:  # what Lark says where it finds the start rule complete in two ways
        assert "multiple start symbol items" in str(error)
    return True


def check_short_texts(text: str, samples: list[str]) -> None:
    parser = judge(text)
    try:
        constraint = COMPILER.grammar(text)
    except EmptyLanguage:
        assert not any(parses(parser, sample) for sample in samples)
        return
    wrong = [sample for sample in samples if accepts(constraint, sample) != parses(parser, sample)]
    assert wrong == [], (text, wrong[:5])


@pytest.mark.parametrize(
    ("text", "alphabet"),
    [
        ('start: "a" "b"', "ab"),
        ("start: A A\nA: /a+/", "a "),
        ("start: A A\nA: /a+/\n%ignore / +/", "a "),
        ('start: A "a" B?\nA: /[ab]+/\nB: "b"\n%ignore " "', "ab "),
        ("start: (A | B)*\nA: /a+/\nB: /ab/\n%ignore / /", "ab "),
        ('start: "x"~2..3 ["y"] | "z"~2', "xyz"),
        ('start: NAME ("in" NAME)*\nNAME: /[in]+/\n%ignore / +/', "in "),
        ('start: n "," n\nn: INT | FLOAT\nINT: /1+/\nFLOAT: /1+\\.1+/', "1.,"),
        ('start: N "." N\nN: /1+(\\.1+)?/', "1."),
        ("start: start A | A\nA: /a+|b/", "ab"),
        ("start: x start | x\nx: A | B\nA: /aa*/\nB: /ba*/", "ab"),
        ('start: "a"i B* \nB: "b".."c"', "Aabcd"),
        ('start: S\nS: "<" /.*?/ ">"', "<>a"),
        ("start: S+\nS: /<.*?>/", "<>a"),
        ('start: A? (B A?)*\nA: "a"\nB.2: "b" | "bb"\n%ignore "c"+', "abc"),
        ('start: (NL | A)+\nNL: "\\n"\nA: "a"\n%ignore / +/\n%ignore /#[^\\n]*/', "a#\n "),
        ('start: "a" SP "a"\nSP: " "\n%ignore / +/', "a "),
        ("start: A\nA: / ?a/\n%ignore / /", " a"),
        ("start: A | C\nA: /.{2}b/\nC: /c/\n%ignore /b/\n%ignore /ab?/", "abc"),
        ("start: C?\nC: /c/\n%ignore /ab?a.|ab?/", "abc"),
        ("start: A*\nA: /a[ab]/\n%ignore /a/\n%ignore /b+/", "ab"),
        ("start: | A\nA: /a/", "a"),
        ('start: "(" start ")" | [start] "x"', "()x"),
        ('start: A ("+" A)*\nA: /[a-b]/\n   | "ab"\n   // comment\n%ignore " "', "ab+ "),
    ],
)
def test_short_texts_are_those_that_lark_parses(text: str, alphabet: str) -> None:
    check_short_texts(text, words(alphabet, 7 if len(alphabet) < 3 else 6 if len(alphabet) < 4 else 5))


@pytest.mark.parametrize("start", ['"b" [A]', '"b" A?', '(A | "c")*', 'r "b"\nr: r A "c" | A', '"c" (A "b"){0}'])
@pytest.mark.parametrize("quantifier", ["*", "?"])
def test_a_terminal_that_may_be_empty_is_one_that_may_be_left_out(start: str, quantifier: str) -> None:
    """lark's own parser refuses such terminals."""
    least = {"*": '"a"+', "?": '"a"'}[quantifier]
    found = COMPILER.grammar(f'start: {start}\nA: "a"{quantifier}', "lark")
    same = COMPILER.grammar(f"start: {start.replace('A', '[B]')}\nB: {least}", "lark")
    assert [word for word in words("abc", 5) if accepts(found, word) != accepts(same, word)] == []


@st.composite
def grammars(draw: st.DrawFn) -> str:
    """Terminals that run into one another, in rules that repeat and recur."""
    patterns = ["/a+/", "/ab?/", "/[ab]+/", '"a"', '"b"', '"ab"', "/b+/", "/a(ba)*/"]
    terminals = {name: draw(st.sampled_from(patterns)) for name in ("A", "B")}
    symbols = st.sampled_from(["A", "B", "A", "B", "x", '"c"'])
    quantified = st.tuples(symbols, st.sampled_from(["", "", "", "?", "*", "+", "~2"]))
    body = st.lists(st.lists(quantified, min_size=1, max_size=3), min_size=1, max_size=2)
    lines = [
        f"{name}: {' | '.join(' '.join(symbol + q for symbol, q in option) for option in draw(body))}"
        for name in ("start", "x")
    ]
    lines += [f"{name}: {pattern}" for name, pattern in terminals.items()]
    ignored = st.lists(st.sampled_from(["/c+/", "/c/", "/ca?/", "/b/", "A"]), max_size=2, unique=True)
    return "\n".join([*lines, *(f"%ignore {pattern}" for pattern in draw(ignored))])


@settings(max_examples=80, deadline=None)
@given(grammars())
def test_random_grammars_write_what_lark_parses(text: str) -> None:
    try:
        check_short_texts(text, words("abc", 4))
    except ConstraintTooLarge:
        assume(False)


@pytest.mark.parametrize(
    ("text", "samples"),
    [
        (ARITHMETIC, ["1+2*3", " (a - -1.5e3)*b2 / 7 ", "1.", "x"]),
        (JSON, ['{"a": [1, -2.5e-3, null], "b\\"": {"c": true}}', "[]", '"x"', " [1 ] "]),
        (
            SQL,
            ["select * from t", "SELECT a, b FROM t where not a >= 3 AND b = 'x y' limit 5;", "select a --x\nfrom b"],
        ),
        (C_LIKE, ["int f(int a, char* b) { if (a < 1) return 1; else { x = f(a+1, 2.5); } return x == 3; }"]),
    ],
)
def test_known_grammars_accept_their_sentences_and_walks_parse(text: str, samples: list[str]) -> None:
    constraint = Compiler(mixed_vocabulary(300, 7)).grammar(text, "lark")
    plain, parser = COMPILER.grammar(text), judge(text)
    assert [sample for sample in samples if not (accepts(plain, sample) and parses(parser, sample))] == []
    rng = random.Random(11)
    for _ in range(15):
        data, ended = random_walk(constraint, rng, constraint.min_tokens() + 25)
        assert ended and parses(parser, data.decode()), data


@pytest.mark.parametrize("text", [ARITHMETIC, SQL, C_LIKE])
def test_masks_agree_with_brute_force(text: str) -> None:
    constraint = Compiler(mixed_vocabulary(400, 2)).grammar(text)
    cursor, rng = constraint.cursor(), random.Random(3)
    for _ in range(40):
        row = cursor.row()
        assert (row == brute_force(constraint, cursor.state)).all()
        assert cursor.advance(rng.choice(allowed_ids(row)))
        if cursor.is_finished:
            cursor = constraint.cursor()


def test_nested_calls_do_not_multiply_states() -> None:
    constraint = COMPILER.grammar(C_LIKE)
    for depth in (5, 40):
        text = "int f() { return " + "g(a, " * depth + "b" + ")" * depth + "; }"
        assert accepts(constraint, text)
    sizes = [len(constraint.automaton.configurations(state)) for state in range(1, constraint.automaton.num_states)]
    assert max(sizes) < 60


def test_schemas_stand_in_rules() -> None:
    constraint = COMPILER.grammar('start: "<call>" arguments "</call>"\narguments: %json {"type": "integer"}')
    assert accepts(constraint, "<call>12</call>") and not accepts(constraint, "<call>x</call>")
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    constraint = COMPILER.grammar(f"start: WORD value\nvalue: %json {json.dumps(schema)}\n%import common.WORD")
    assert accepts(constraint, 'ab{"a":true}') and not accepts(constraint, 'ab{"a":1}')
    with pytest.raises(EmptyLanguage):  # the word would take it
        COMPILER.grammar('start: WORD value\nvalue: %json {"type": "boolean"}\n%import common.WORD')


def test_empty_matches_are_options() -> None:
    """Lark refuses such terminals; llguidance's users write them."""
    constraint = COMPILER.grammar('start: TEXT "!"\nTEXT: /[a-z]*/')
    assert [word for word in ("!", "ab!", "a") if accepts(constraint, word)] == ["!", "ab!"]


def test_common_terminals_mean_what_larks_mean() -> None:
    samples = [*words('1.e+-"\\', 4), *words("a_A1 \n\t#-/*", 3), "/* a * b */", '"a\\"b"', "--x", "12.5E-7", "/***/"]
    names = "INT SIGNED_INT DECIMAL FLOAT SIGNED_FLOAT NUMBER SIGNED_NUMBER ESCAPED_STRING WORD CNAME WS WS_INLINE"
    names += " NEWLINE SH_COMMENT CPP_COMMENT C_COMMENT SQL_COMMENT HEXDIGIT LETTER LF CR"
    for name in names.split():
        text = f"start: {name}\n%import common.{name}"
        constraint, parser = COMPILER.grammar(text), judge(text)
        wrong = [sample for sample in samples if accepts(constraint, sample) != parses(parser, sample)]
        assert wrong == [], name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("begin: A\nA: /a/", "no rule 'start'"),
        ("start: x", "line 1, column 8: 'x' is not defined"),
        ("start: WS", "%import common.WS"),
        ("start: A\nA: x\nx: /b/", "line 2, column 4: a terminal cannot use the rule 'x'"),
        ("start: A\nA: B\nB: A", "contains itself"),
        ('start: "a', "a literal that is not closed"),
        ("start: /a", "a regular expression that is not closed"),
        ("start: (A\nA: /a/", "not closed|not expected"),
        ("start: A)\nA: /a/", "line 1, column 9: this bracket was not opened"),
        ("start: *", "nothing to repeat"),
        ("start: A~3..2\nA: /a/", "do not go together"),
        ("start: /a(/", "line 1, column 8: /a\\(/"),
        ("start: /a\\b/", "looks at what stands next to it"),
        ("start: /a(?=b)/", "looks at what stands next to it"),
        ("start: /a+?b*/", "cannot mix lazy"),
        ('start: "z".."a"', "a range is"),
        ("start: A\nA: /a/\nA: /b/", "line 3, column 1: 'A' is defined twice"),
        ("%declare A\nstart: A", "%declare is not supported"),
        ("%import python.NAME\nstart: NAME", "cannot be imported"),
        ("%import common.WIZARD\nstart: WIZARD", "common has no terminal 'WIZARD'"),
        ("start: list{A}\nlist{x}: x\nA: /a/", "column 12: .* templates are not supported"),
        ("start: <think> A\nA: /a/", "line 1, column 8: <think> is no special token"),
        ("start: @other", "column 8: there is no grammar @other"),
        ("start: < A\nA: /a/", "a token is <name>"),
        ("start: %json {", "followed by a JSON Schema"),
        ('start: %json {"type": "wizard"}', "line 1, column 8"),
        ("start: /[^\\s\\S]/", "matches nothing"),
        ("start A", "expected ':' after 'start'"),
        ('start: (-> "0".."9")', "line 1, column 9: an alias is"),
        ('start: "a" ->', "an alias is"),
        ("start", "column 1: the definition ends too early"),
        ("start{x}: x", "column 6: templates are not supported"),
        ("start[a]: A\nA: /a/", "column 7: 'a' is no option of a rule"),
        ('start[max_tokens=3]: "a"', "column 7: the option max_tokens counts tokens"),
        ('start[temperature=0.7, lazy]: "a"', "the option temperature is no matter"),
        ('start[stop="b"]: "a"', "the option stop hides"),
        ("start[lazy]: x\nx: A\nA: /a/", "a terminal cannot use the rule 'x'"),
        ("start[lazy]: /a*/", "line 1, column 1: the shortest match is always empty"),
        ("start: A\nA: B B\nB[lazy]: /a+/", "contains one with the option lazy"),
        ("start[lazy", "column 6: this bracket is not closed"),
        ("start: <[1-x]>", "tokens are given by number"),
        ("start: <[9-1]>", "a range of 1 to 10000"),
        ("A: <a>\nstart: A", "a token cannot stand inside a terminal"),
        ("start: %regex {}", "column 8: %regex takes one of substring_chunks"),
        ('start: %regex {"substring_words": 1}', "expected text"),
        ("start: %regex [", "followed by a JSON object"),
        ('"a": "b"', "column 1: expected a definition"),
        ("%import common.INT -> int\nstart: int", "a terminal's name is upper case, not 'int'"),
        ('start: ("a"', "column 8: this bracket is not closed"),
        ("start: " + "(" * 66 + '"a"' + ")" * 66, "column 72: brackets are nested more than 64 deep"),
        ("A: %json {}\nstart: A", "column 4: %json cannot stand inside a terminal"),
        ("start: /a/l", "column 8: the flag l depends on the machine"),
        ('start: "a" ~', "column 12: a repetition is ~3 or ~2..5"),
        ('start: "a"~100001', "more than 100000 times"),
        (f'start: "a"~1..{"9" * 5000}', "more than 100000 times"),
        (r'start: "\ud800"', "column 8: .ud800 is not a character"),
    ],
)
def test_mistakes_are_named_with_their_place(text: str, words: str) -> None:
    with pytest.raises(Exception, match=words) as caught:
        COMPILER.grammar(text, "lark")
    assert isinstance(caught.value, InvalidGrammar) or '"wizard"' in text


def test_the_notation_is_recognised() -> None:
    assert accepts(COMPILER.grammar('start: "a"'), "a")
    assert accepts(COMPILER.grammar('root ::= "a: b"'), "a: b")
    assert accepts(COMPILER.grammar('%ignore " "\n?start.2: "a::="'), "a::=")
    with pytest.raises(InvalidGrammar, match="expected"):
        COMPILER.grammar('root ::= "a"', "lark")
