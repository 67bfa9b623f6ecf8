"""Grammar text → rules over bytes: the EBNF that llama.cpp (GBNF), XGrammar and SGLang users write.

::

    root   ::= object                         the start rule is `root`
    object ::= "{" pair ("," pair)* "}"       literals, groups, | for alternatives
    pair   ::= [a-z]+ ":" (number | object)   classes; * + ? {2} {2,} {2,5}; recursion
    number ::= [0-9]{1,3}  # a comment

Escapes in literals and classes: ``\\n \\r \\t \\a \\b \\f \\v \\0 \\e \\xHH \\uHHHH \\UHHHHHHHH``, and a backslash
before punctuation. `.` is any character. A rule goes on until the next ``name ::=``, so alternatives may stand on lines
of their own. Rules may begin with themselves, directly or indirectly (`left_recursion`). The parser does not recurse.

Refused: llama.cpp's token matches (``<think>``, ``<[1000]>``) and XGrammar's look-ahead ``(= …)`` and `TagDispatch`;
structural tags serve their purpose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ...errors import InvalidGrammar
from ..compile_time import CompileTime
from ..network.expression import Expression, Grammar, Literal, Repeat, Rule
from ..regex.nfa import ANY
from ..regex.regex_tree import CharSet, Node
from ..text.alphabet import complement, normalised
from ..text.language import Language
from ..text.unicode_sets import Intervals
from .character_class import character_class
from .factoring import factored
from .fusing import fused
from .group import Group, Token
from .left_recursion import with_filled_turns, without_left_recursion
from .place import grammar_error

START = "root"
MAX_NESTING = 64
MAX_REPEAT = 100_000
MACROS = ("TagDispatch", "TokenTagDispatch", "Token", "ExcludeToken", "EOS")
TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+|\#[^\n]*)
      | (?P<define>\w[\w.-]*[ \t\r\n]*::=)
      | (?P<name>\w[\w.-]*)
      | (?P<text>"(?:[^"\\\n]++|\\[^\n])*+")
      | (?P<set>\[\^?\]?(?:[^\]\\\n]++|\\[^\n])*+\])
      | (?P<count>\{[ ]*(?:\d+[ ]*(?:,[ ]*\d*[ ]*)?|,[ ]*\d+[ ]*)\})
      | (?P<mark>[()|*+?.])""",
    re.VERBOSE,
)
ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "e": "\x1b"}
MISTAKES = {
    '"': "a literal that is not closed",
    "[": "a class that is not closed",
    "<": "tokens cannot be matched by name or number; write what they spell as a literal",
    "!": "tokens cannot be excluded; write a class or a literal, or use a structural tag",
    "/": "a regular expression cannot stand here; write a class, or use the Lark notation",
    "'": 'literals are written in double quotes, "like this"',
    "{": "a repetition is {2}, {2,}, {,5} or {2,5}, after what it repeats",
    "=": "a rule is defined by `name ::= …`, and look-aheads `(= …)` cannot be enforced",
}
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")


def ebnf_to_grammar(text: str, compile_time: CompileTime) -> Grammar:
    """Reads grammar text.

    Raises:
        InvalidGrammar: where the text cannot be read, or a rule is missing or defined twice; `pointer` is the line and
            the column.
        ConstraintTooLarge: more than 64 rules begin with one another, or the time is over.
    """
    return _Reader(text, compile_time).grammar()


class _Reader:
    def __init__(self, text: str, compile_time: CompileTime) -> None:
        self.text = text
        self.time = compile_time
        self.references: dict[str, int] = {}
        self.patterns: dict[Language, Node] = {}

    def error(self, message: str, offset: int) -> InvalidGrammar:
        return grammar_error(message, self.text, offset)

    def grammar(self) -> Grammar:
        rules: dict[str, Expression] = {}
        name, groups = "", [Group(0)]
        for token in self._tokens():
            self.time.check("", f"grammar, rule {name}")
            if token.kind == "define":
                if name:
                    rules[name] = self._close_rule(groups)
                elif groups[0].parts or len(groups) > 1:
                    raise self.error("the text before the first `name ::=` belongs to no rule", 0)
                name, groups = token.text[:-3].rstrip(), [Group(token.offset)]
                if name in rules:
                    raise self.error(f"the rule {name!r} is defined twice", token.offset)
            else:
                self._read(token, groups)
        if not name:
            raise self.error("there is no rule; write `root ::= …`", 0)
        rules[name] = self._close_rule(groups)
        if START not in rules:
            names = ", ".join(sorted(rules)[:10])
            raise self.error(f"there is no rule {START!r}, where the text begins; there are {names}", 0)
        for reference, offset in self.references.items():
            if reference not in rules:
                raise self.error(f"the rule {reference!r} is not defined; {self._remedy(reference, offset)}", offset)
        rules = with_filled_turns(fused(rules, self.patterns, self.time), self.time)  # fewer ways to read a text
        return Grammar(factored(without_left_recursion(rules, self.time), self.time), START)

    def _remedy(self, reference: str, offset: int) -> str:
        if reference in MACROS:
            return "XGrammar's macros are said by structural tags"
        if reference == "i" and self.text[:offset].endswith('"'):
            return 'this notation does not ignore case; write [aA] [bB] for "ab"i, or use the Lark notation'
        return "define it"

    def _tokens(self) -> Iterator[Token]:
        text, offset = self.text, 0
        while offset < len(text):
            match = TOKEN.match(text, offset)
            if match is None or match.lastgroup is None:
                what = MISTAKES.get(text[offset], f"{text[offset]!r} is not expected here")
                raise self.error(what, offset)
            if match.lastgroup != "space":
                yield Token(match.lastgroup, match.group(), offset)
            else:
                self.time.check("", "grammar, its text")
            offset = match.end()

    def _read(self, token: Token, groups: list[Group]) -> None:
        """Adds one token to the innermost group."""
        group, offset = groups[-1], token.offset
        if token.kind == "count" or token.text in ("*", "+", "?"):
            if not group.repeatable:
                raise self.error(f"{token.text!r} has nothing to repeat; put what it repeats in parentheses", offset)
            group.parts[-1] = Repeat(group.parts[-1], *self._bounds(token))
            group.repeatable = False
        elif token.text == "(":
            if len(groups) > MAX_NESTING:
                raise self.error(f"parentheses are nested more than {MAX_NESTING} deep; name the inner ones", offset)
            groups.append(Group(offset))
        elif token.text == ")":
            if len(groups) == 1:
                raise self.error("this parenthesis was not opened", offset)
            closed = groups.pop().expression()
            groups[-1].parts.append(closed)
            groups[-1].repeatable = True
        elif token.text == "|":
            group.close_option()
        else:
            group.parts.append(self._atom(token))
            group.repeatable = True

    def _atom(self, token: Token) -> Expression:
        if token.kind == "name":
            self.references.setdefault(token.text, token.offset)
            return Rule(token.text)
        if token.kind == "text":
            if "\\" not in token.text:
                return Literal(token.text[1:-1].encode())
            return Literal(
                "".join(
                    character for character, _ in self.time.over(self._characters(token, 1), name="grammar, its text")
                ).encode()
            )
        intervals = ANY if token.text == "." else self._intervals(token)
        characters = character_class(intervals)
        self.patterns[characters.language] = CharSet(intervals)
        return characters

    def _bounds(self, token: Token) -> tuple[int, int | None]:
        if token.kind == "mark":
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[token.text]
        first, comma, last = token.text[1:-1].replace(" ", "").partition(",")
        minimum = int(first or 0)
        maximum = (int(last) if last else None) if comma else minimum
        if maximum is not None and minimum > maximum:
            raise self.error(f"{token.text} asks for at least {minimum} and at most {maximum}", token.offset)
        if max(minimum, maximum or 0) > MAX_REPEAT:
            raise self.error(f"{token.text} repeats more than {MAX_REPEAT} times", token.offset)
        return minimum, maximum

    def _characters(self, token: Token, begin: int) -> Iterator[tuple[str, bool]]:
        """The characters of a literal or class, and whether each was escaped."""
        text, position = token.text[:-1], begin
        while position < len(text):
            escape = ESCAPE.match(text, position)
            if escape is None:
                yield text[position], False
                position += 1
                continue
            code = escape[1] or escape[2] or escape[3]
            if code is not None:
                if int(code, 16) > 0x10FFFF or 0xD800 <= int(code, 16) <= 0xDFFF:
                    raise self.error(f"{escape[0]} is not a character", token.offset + position)
                yield chr(int(code, 16)), True
            elif escape[4].isalnum() and escape[4] not in ESCAPES:
                raise self.error(
                    f"{escape[0]} is no escape; write a class ([0-9], [a-zA-Z0-9_], [ \\t\\n]) or \\xHH",
                    token.offset + position,
                )
            else:
                yield ESCAPES.get(escape[4], escape[4]), True
            position = escape.end()

    def _intervals(self, token: Token) -> Intervals:
        negated = token.text.startswith("[^")
        members: list[list[int]] = []
        is_range = False
        characters = list(self.time.over(self._characters(token, 2 if negated else 1), name="grammar, a class"))
        for index, (character, escaped) in enumerate(self.time.over(characters, name="grammar, a class")):
            point = ord(character)
            if is_range:
                if point < members[-1][0]:
                    raise self.error(f"the class {token.text} has a range that runs backwards", token.offset)
                members[-1][1] = point
                is_range = False
            elif character == "-" and not escaped and 0 < index < len(characters) - 1 and members[-1][1] < 0:
                is_range = True
            else:
                members.append([point, -1])
        distinct = {(first, last if last >= 0 else first) for first, last in members}
        found = normalised(self.time.over(sorted(distinct), name="grammar, a class"))
        if not found and not negated:
            raise self.error("the class is empty", token.offset)
        return tuple(complement(found) if negated else found)

    def _close_rule(self, groups: list[Group]) -> Expression:
        if len(groups) > 1:
            raise self.error("this parenthesis is not closed", groups[-1].offset)
        return groups[0].expression()
