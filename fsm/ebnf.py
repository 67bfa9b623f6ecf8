"""Grammar text → rules over bytes: the EBNF that llama.cpp (GBNF), XGrammar and SGLang users write.

::

    root   ::= object                         the start rule is `root`
    object ::= "{" pair ("," pair)* "}"       literals, groups, | for alternatives
    pair   ::= [a-z]+ ":" (number | object)   classes; * + ? {2} {2,} {2,5}; recursion
    number ::= [0-9]{1,3}  # a comment

Escapes in literals and classes: ``\\n \\r \\t \\\\ \\" \\] \\- \\xHH \\uHHHH \\UHHHHHHHH``; `.` is any character. A
rule goes on until the next ``name ::=``, so alternatives may stand on lines of their own. Nothing is read by recursion.

A rule that begins with itself, ``a ::= a x | y``, is rewritten to ``a ::= y x*``; one that does so through other rules
is refused, with the circle named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import InvalidGrammar, InvalidRegex
from .expression import Alternation, Expression, Grammar, Literal, Repeat, Rule, Sequence
from .regex import regex_to_expression

START = "root"
MAX_NESTING = 64
MAX_REPEAT = 100_000
TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+|\#[^\n]*)
      | (?P<define>[A-Za-z_][\w.-]*[ \t\r\n]*::=)
      | (?P<name>[A-Za-z_][\w.-]*)
      | (?P<text>"(?:[^"\\\n]|\\[^\n])*")
      | (?P<set>\[\^?\]?(?:[^\]\\\n]|\\[^\n])*\])
      | (?P<count>\{[ ]*\d+[ ]*(?:,[ ]*\d*[ ]*)?\})
      | (?P<mark>[()|*+?.])""",
    re.VERBOSE,
)
ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    offset: int


@dataclass(slots=True)
class _Group:
    """An open parenthesis, or a rule's body: finished alternatives, and the one being read."""

    offset: int
    options: list[Expression] = field(default_factory=list)
    parts: list[Expression] = field(default_factory=list)
    repeatable: bool = False  # whether the last part may still get a * + ? or {…}

    def close_option(self) -> None:
        self.options.append(self.parts[0] if len(self.parts) == 1 else Sequence(tuple(self.parts)))
        self.parts = []
        self.repeatable = False

    def expression(self) -> Expression:
        self.close_option()
        return self.options[0] if len(self.options) == 1 else Alternation(tuple(self.options))


def ebnf_to_grammar(text: str) -> Grammar:
    """Reads grammar text.

    Raises:
        InvalidGrammar: where the text cannot be read (`pointer` is the offset), a rule is missing or defined twice, or
            rules begin with one another in a circle.
    """
    rules: dict[str, Expression] = {}
    references: dict[str, int] = {}
    name, groups = "", [_Group(0)]
    for token in _tokens(text):
        if token.kind == "define":
            if name:
                rules[name] = _close_rule(groups)
            elif groups[0].parts or len(groups) > 1:
                raise _error("the text before the first `name ::=` belongs to no rule", 0)
            name, groups = token.text[:-3].rstrip(), [_Group(token.offset)]
            if name in rules:
                raise _error(f"the rule {name!r} is defined twice", token.offset)
        else:
            _read(token, groups, references)
    if not name:
        raise _error("there is no rule; write `root ::= …`", 0)
    rules[name] = _close_rule(groups)
    if START not in rules:
        raise _error(f"there is no rule {START!r}, where the text begins; there are {', '.join(sorted(rules))}", 0)
    for reference, offset in references.items():
        if reference not in rules:
            raise _error(f"the rule {reference!r} is not defined", offset)
    return Grammar(_without_left_recursion(rules), START)


def _tokens(text: str) -> Iterator[_Token]:
    offset = 0
    while offset < len(text):
        match = TOKEN.match(text, offset)
        if match is None or match.lastgroup is None:
            what = {'"': "a literal that is not closed", "[": "a class that is not closed"}.get(text[offset])
            raise _error(what or f"{text[offset]!r} is not expected here", offset)
        if match.lastgroup != "space":
            yield _Token(match.lastgroup, match.group(), offset)
        offset = match.end()


def _read(token: _Token, groups: list[_Group], references: dict[str, int]) -> None:
    """Adds one token to the innermost group."""
    group = groups[-1]
    if token.kind == "count" or token.text in ("*", "+", "?"):
        if not group.repeatable:
            raise _error(f"{token.text!r} has nothing to repeat; put what it repeats in parentheses", token.offset)
        group.parts[-1] = Repeat(group.parts[-1], *_bounds(token))
        group.repeatable = False
    elif token.text == "(":
        if len(groups) > MAX_NESTING:
            raise _error(f"parentheses are nested more than {MAX_NESTING} deep; name the inner ones", token.offset)
        groups.append(_Group(token.offset))
    elif token.text == ")":
        if len(groups) == 1:
            raise _error("this parenthesis was not opened", token.offset)
        closed = groups.pop().expression()
        groups[-1].parts.append(closed)
        groups[-1].repeatable = True
    elif token.text == "|":
        group.close_option()
    else:
        group.parts.append(_atom(token, references))
        group.repeatable = True


def _atom(token: _Token, references: dict[str, int]) -> Expression:
    if token.kind == "name":
        references.setdefault(token.text, token.offset)
        return Rule(token.text)
    if token.kind == "text":
        spelt = ESCAPE.sub(lambda escape: _unescape(escape, token.offset), token.text[1:-1])
        return Literal(spelt.encode("utf-8", "surrogatepass"))
    try:
        return regex_to_expression("(?s:.)" if token.text == "." else _class_pattern(token))
    except InvalidRegex as error:
        raise _error(f"the class {token.text} cannot be read: {error}", token.offset) from error


def _bounds(token: _Token) -> tuple[int, int | None]:
    if token.kind == "mark":
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[token.text]
    first, comma, last = token.text[1:-1].replace(" ", "").partition(",")
    minimum, maximum = int(first), (int(last) if last else None) if comma else int(first)
    if maximum is not None and minimum > maximum:
        raise _error(f"{token.text} asks for at least {minimum} and at most {maximum}", token.offset)
    if max(minimum, maximum or 0) > MAX_REPEAT:
        raise _error(f"{token.text} repeats more than {MAX_REPEAT} times", token.offset)
    return minimum, maximum


def _unescape(escape: re.Match[str], offset: int) -> str:
    code = escape[1] or escape[2] or escape[3]
    if code is None:
        return ESCAPES.get(escape[4], escape[4])
    if int(code, 16) > 0x10FFFF or 0xD800 <= int(code, 16) <= 0xDFFF:
        raise _error(f"{escape[0]} is not a character", offset)
    return chr(int(code, 16))


def _class_pattern(token: _Token) -> str:
    """The class as a regular expression in which every character is written by its number."""
    negated, inner = ("^", token.text[2:-1]) if token.text.startswith("[^") else ("", token.text[1:-1])
    members: list[str] = []
    offset = 0
    while offset < len(inner):
        escape = ESCAPE.match(inner, offset)
        character = _unescape(escape, token.offset) if escape else inner[offset]
        offset = escape.end() if escape else offset + 1
        between = bool(members) and offset < len(inner) and "-" not in members[-2:]
        is_range = character == "-" and not escape and between
        members.append("-" if is_range else f"\\U{ord(character):08X}")
    if not members:
        raise _error("the class is empty", token.offset)
    return f"[{negated}{''.join(members)}]"


def _close_rule(groups: list[_Group]) -> Expression:
    if len(groups) > 1:
        raise _error("this parenthesis is not closed", groups[-1].offset)
    return groups[0].expression()


# -- left recursion ----------------------------------------------------------------------------------------------------


def _without_left_recursion(rules: dict[str, Expression]) -> dict[str, Expression]:
    """Rewrites ``a ::= a x | y`` to ``a ::= y x*``; refuses what begins with itself in a roundabout way."""
    nullable = _nullable(rules)
    rewritten = {name: _rewrite(name, body) for name, body in rules.items()}
    first = {name: _beginnings(body, nullable) for name, body in rewritten.items()}
    state = dict.fromkeys(rules, 0)  # 0 not seen, 1 on the path, 2 done
    for root in rules:
        path: list[tuple[str, Iterator[str]]] = []
        if state[root] == 0:
            state[root] = 1
            path.append((root, iter(first[root])))
        while path:
            name, rest = path[-1]
            follower = next(rest, None)
            if follower is None:
                state[name] = 2
                path.pop()
            elif state[follower] == 1:
                names = [entry for entry, _ in path]
                circle = " -> ".join([*names[names.index(follower) :], follower])
                raise _error(f"rules begin with one another in a circle: {circle}", 0)
            elif state[follower] == 0:
                state[follower] = 1
                path.append((follower, iter(first[follower])))
    return rewritten


def _rewrite(name: str, body: Expression) -> Expression:
    options = body.options if isinstance(body, Alternation) else (body,)
    itself = Rule(name)
    tails = [o.parts[1:] for o in options if isinstance(o, Sequence) and o.parts and o.parts[0] == itself]
    others = [o for o in options if o != itself and not (isinstance(o, Sequence) and o.parts[:1] == (itself,))]
    if not tails:
        return Alternation(tuple(others)) if len(others) < len(options) else body
    repeated = Repeat(Alternation(tuple(Sequence(tail) for tail in tails)), 0, None)
    return Sequence((Alternation(tuple(others)), repeated))


def _children(expression: Expression) -> tuple[Expression, ...]:
    if isinstance(expression, Sequence):
        return expression.parts
    if isinstance(expression, Alternation):
        return expression.options
    return (expression.item,) if isinstance(expression, Repeat) else ()


def _nullable(rules: dict[str, Expression]) -> set[str]:
    """The rules that may write nothing."""
    found: set[str] = set()
    size = -1
    while size < len(found):
        size = len(found)
        found |= {name for name, body in rules.items() if _is_nullable(body, found)}
    return found


def _is_nullable(expression: Expression, rules: set[str]) -> bool:
    # Nesting is bounded by MAX_NESTING, so this recursion is, too.
    if isinstance(expression, Rule):
        return expression.name in rules
    if isinstance(expression, Literal):
        return not expression.data
    if isinstance(expression, Repeat):
        return expression.minimum == 0 or _is_nullable(expression.item, rules)
    if isinstance(expression, Sequence):
        return all(_is_nullable(part, rules) for part in expression.parts)
    return isinstance(expression, Alternation) and any(_is_nullable(option, rules) for option in expression.options)


def _beginnings(body: Expression, nullable: set[str]) -> list[str]:
    """The rules that may stand first in a text of `body`."""
    found: dict[str, None] = {}
    pending = [body]
    while pending:
        expression = pending.pop()
        if isinstance(expression, Rule):
            found[expression.name] = None
        for child in _children(expression):
            pending.append(child)
            if isinstance(expression, Sequence) and not _is_nullable(child, nullable):
                break
    return list(found)


def _error(message: str, offset: int) -> InvalidGrammar:
    return InvalidGrammar(f"grammar, offset {offset}: {message}", pointer=f"offset {offset}", param="grammar")
