"""Grammar text → rules over bytes: the EBNF that llama.cpp (GBNF), XGrammar and SGLang users write.

::

    root   ::= object                         the start rule is `root`
    object ::= "{" pair ("," pair)* "}"       literals, groups, | for alternatives
    pair   ::= [a-z]+ ":" (number | object)   classes; * + ? {2} {2,} {2,5}; recursion
    number ::= [0-9]{1,3}  # a comment

Escapes in literals and classes: ``\\n \\r \\t \\a \\b \\f \\v \\0 \\e \\xHH \\uHHHH \\UHHHHHHHH``, and a backslash
before punctuation. `.` is any character. A rule goes on until the next ``name ::=``, so alternatives may stand on lines
of their own. Rules may begin with themselves, directly or indirectly (`left_recursion`). The parser does not recurse.

Of XGrammar's: a look-ahead ``(= …)`` at the end of a rule, which must be implied by the grammar (`look_ahead`), and
`TagDispatch`, free text with tags in it (`tag_dispatch`). Refused: its other macros, since structural tags serve their
purpose, and llama.cpp's token matches (``<think>``, ``<[1000]>``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ...errors import ConstraintTooLarge, InvalidGrammar
from ..compile_time import CompileTime
from ..network.expression import Embed, Expression, Grammar, Literal, Repeat, Rule
from ..regex.determinise import determinise
from ..regex.nfa import ANY
from ..regex.regex_tree import CharSet, Node
from ..remembered import remembered
from ..text.alphabet import complement, normalised
from ..text.language import Language
from ..text.unicode_sets import Intervals
from . import tag_dispatch
from .factoring import factored
from .fusing import fused
from .left_recursion import with_filled_turns, without_left_recursion
from .notation import Group, Token, grammar_error

START = "root"
AHEAD = "look-ahead"
MAX_NESTING = 64
MAX_REPEAT = 100_000
MAX_DIGITS = 9  # of such a number: Python reads no numbers of some thousand digits
MACROS = ("TokenTagDispatch", "Token", "ExcludeToken", "EOS")
TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+|\#[^\n]*)
      | (?P<define>\w[\w.-]*[ \t\r\n]*::=)
      | (?P<name>\w[\w.-]*)
      | (?P<text>"(?:[^"\\\n]++|\\[^\n])*+")
      | (?P<set>\[\^?\]?(?:[^\]\\\n]++|\\[^\n])*+\])
      | (?P<ahead>\([ \t]*=)
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
    "=": "a rule is defined by `name ::= …`",
}
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")


@remembered(512)
def character_class(intervals: Intervals) -> Embed:
    """One character of the given intervals of code points (sorted, disjoint, both ends included): one automaton."""
    return Embed(determinise(CharSet(intervals)))


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
        self.dispatched: dict[str, Expression] = {}  # rules of macros
        self.ahead: tuple[Expression, int] | None = None  # one that has just been read
        self.aheads: dict[str, tuple[Expression, int]] = {}  # by the name of the rule that ends with it
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
            elif name in self.aheads:
                raise self.error("a look-ahead stands at the end of a rule, and once", token.offset)
            else:
                self._read(token, groups)
                if self.ahead is not None:
                    self.aheads[name] = self.ahead
                    self.ahead = None
        if not name:
            raise self.error("there is no rule; write `root ::= …`", 0)
        rules[name] = self._close_rule(groups)
        if START not in rules:
            names = ", ".join(sorted(rules)[:10])
            raise self.error(f"there is no rule {START!r}, where the text begins; there are {names}", 0)
        for reference, offset in self.references.items():
            if reference not in rules:
                raise self.error(f"the rule {reference!r} is not defined; {self._remedy(reference, offset)}", offset)
        rules.update(self.dispatched)
        self._check_look_aheads(rules)
        rules = with_filled_turns(fused(rules, self.patterns, self.time), self.time)  # fewer ways to read a text
        return Grammar(factored(without_left_recursion(rules, self.time), self.time), START)

    def _check_look_aheads(self, rules: Mapping[str, Expression]) -> None:
        if not self.aheads:
            return
        from .look_ahead import instead  # few grammars have any

        aheads = {name: ahead for name, (ahead, _) in self.aheads.items()}
        for name, text in instead(rules, aheads, START, self.time).items():
            shown = "it is not known what may follow" if text is None else "the text may end there, or go on otherwise"
            if text:
                shown = f"{text.decode(errors='replace')!r} may follow"
            message = f"the look-ahead of {name!r} is not what always follows it: {shown}; leave it out, or correct it"
            raise self.error(message, self.aheads[name][1])

    def _remedy(self, reference: str, offset: int) -> str:
        if reference in MACROS:
            return "XGrammar's macros are said by structural tags"
        if reference == "i" and self.text[:offset].endswith('"'):
            return 'this notation does not ignore case; write [aA] [bB] for "ab"i, or use the Lark notation'
        return "define it"

    def _tokens(self) -> Iterator[Token]:
        text, offset = self.text, 0
        while offset < len(text):
            macro = tag_dispatch.BEGIN.match(text, offset)
            if macro is not None:
                read = tag_dispatch.read(text, macro.end(), self.error)
                yield Token("macro", self._dispatch(read, offset), offset)
                offset = read.end
                continue
            match = TOKEN.match(text, offset)
            if match is None or match.lastgroup is None:
                what = MISTAKES.get(text[offset], f"{text[offset]!r} is not expected here")
                raise self.error(what, offset)
            if match.lastgroup != "space":
                yield Token(match.lastgroup, match.group(), offset)
            else:
                self.time.check("", "grammar, its text")
            offset = match.end()

    def _dispatch(self, read: tag_dispatch.TagDispatch, offset: int) -> str:
        """Makes the rule of a macro; returns its name."""
        name = f"{tag_dispatch.NAME} {offset}"

        def text(token: Token) -> str:
            return "".join(character for character, _ in self._characters(token, 1))

        tags = [(text(tag), rule.text) for tag, rule in read.tags]
        excludes = tuple(map(text, read.excludes))
        inside = tag_dispatch.contained([tag for tag, _ in tags], excludes, self.time)
        if inside is not None:
            raise self.error(f"{inside[0]!r} stands in {inside[1]!r}, so which of both counts is not certain", offset)
        for _, rule in read.tags:
            self.references.setdefault(rule.text, rule.offset)
        again = Rule(name) if read.loops else None
        try:
            self.dispatched[name] = tag_dispatch.written(tags, excludes, again)
        except ConstraintTooLarge as error:
            place = grammar_error(str(error), self.text, offset)
            raise ConstraintTooLarge(str(place), pointer=place.pointer, param="grammar") from error
        return name

    def _read(self, token: Token, groups: list[Group]) -> None:
        """Adds one token to the innermost group."""
        group, offset = groups[-1], token.offset
        if token.kind == "count" or token.text in ("*", "+", "?"):
            if not group.repeatable:
                raise self.error(f"{token.text!r} has nothing to repeat; put what it repeats in parentheses", offset)
            group.parts[-1] = Repeat(group.parts[-1], *self._bounds(token))
            group.repeatable = False
        elif token.kind == "ahead":
            if len(groups) > 1 or not (group.parts or group.options):
                raise self.error("a look-ahead stands at the end of a rule, after all else", offset)
            groups.append(Group(offset, AHEAD))
        elif token.text == "(":
            if len(groups) > MAX_NESTING:
                raise self.error(f"parentheses are nested more than {MAX_NESTING} deep; name the inner ones", offset)
            groups.append(Group(offset))
        elif token.text == ")":
            if len(groups) == 1:
                raise self.error("this parenthesis was not opened", offset)
            closed = groups.pop().expression()
            if group.closes_with == AHEAD:
                self.ahead = closed, group.offset
                return
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
        if token.kind == "macro":
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
        if max(len(first), len(last)) > MAX_DIGITS:
            raise self.error(f"a repetition of more than {MAX_REPEAT} times", token.offset)
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
