"""Grammar text in Lark's notation → rules over terminals, and terminals as regular expressions.

::

    start: sum                                  rules are lower case; the text is written by `start`
    ?sum: product | sum ("+" | "-") product     ?, !, _, -> alias and .priority shape trees and mean nothing here
    product: NUMBER ["^" INT~1..3]              [x] and x? are optional; x~3, x~2..5, x{2,5}; groups; recursion
    HEX.2: "0x"i /[0-9a-f]+/i | "a".."f"        terminals are upper case; literals, regexes, ranges, flags
    %import common (NUMBER, INT, WS)
    %ignore WS                                  may stand between terminals, before the first, after the last
    value: %json {"type": "integer"}            JSON that is valid under a schema (llguidance's extension)

`lexing` turns texts of terminals into texts of characters; more of llguidance's extensions are in `lark_extensions`.
`@name` stands for another grammar of a list (`grammar_list`). Refused, with their place: templates, `%declare`,
`%override`, `%extend`, libraries other than `common`, and regexes that look beyond what they match (``\\b``,
``(?=…)``), since what follows a terminal is not part of it. The parser does not recurse.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator

from ...errors import ConstraintError, ConstraintTooLarge, InvalidGrammar, InvalidRegex
from ..compile_time import CompileTime
from ..network.expression import Alternation, Expression, Grammar, Literal, Repeat, Rule, sequence
from ..network.walks import first_characters, renamed
from ..regex.regex_syntax import parse
from ..regex.regex_tree import Assertion, CharSet, Concat, Look, Node, Plain, nodes_of
from ..text.letter_case import ignoring_case
from .factoring import factored
from .grammar_list import Named
from .lark_common import COMMON
from .lark_extensions import SpellSpecial, check_header, options, special_tokens, substring
from .lark_terminals import IGNORED, terminals_of
from .lark_tokens import tokens_of, unescaped
from .left_recursion import without_left_recursion
from .lexing import lexed
from .notation import Group, Token, grammar_error

START = "start"
MAX_NESTING = 64
MAX_REPEAT = 100_000
MAX_DIGITS = 9  # of such a number: Python reads no numbers of some thousand digits
REMEDIES = {
    "@": "; another grammar is @name",
    "<": "; a token is <name> or <[12]>",
    "{": "; a repetition is {2}, {2,}, {,5} or {2,5}, and templates are not supported: write the rule out",
}


def lark_to_grammar(
    text: str,
    compile_time: CompileTime,
    spell_special: SpellSpecial = lambda _: None,
    named: Named = lambda _: None,
) -> Grammar:
    """Reads grammar text; `spell_special`: what stands for a special token, by its text or number; `named`: the other
    grammars, by name.

    Raises:
        InvalidGrammar: where the text cannot be read, or a name is missing or defined twice; `pointer` is the line and
            the column.
        ConstraintError: of a schema in `%json`.
        ConstraintTooLarge: a terminal is too large, too many rules begin with one another, or the time is over.
    """
    return _Reader(text, compile_time, spell_special, named).grammar()


class _Reader:
    def __init__(self, text: str, compile_time: CompileTime, spell_special: SpellSpecial, named: Named) -> None:
        self.text = text
        self.time = compile_time
        self.spell_special = spell_special
        self.named = named
        self.rules: dict[str, Expression] = {}
        self.adopted: dict[str, Expression] = {}  # of schemas and other grammars: rules over bytes
        self.foreign: dict[str, str] = {}  # their first rules, and the characters that their texts begin with
        self.bodies: dict[str, Expression] = {}  # of terminals
        self.trees: dict[str, Node] = {}  # of terminals without a definition: literals, regexes, what is imported
        self.lazy: set[str] = set()  # terminals that the text calls so
        self.ignored: list[Expression] = []
        self.offsets: dict[str, int] = {}
        self.references: dict[str, int] = {}
        self.used_in_terminals: dict[str, int] = {}

    def error(self, message: str, offset: int) -> InvalidGrammar:
        return grammar_error(message, self.text, offset)

    def grammar(self) -> Grammar:
        for item in self._items():
            self._read_item(item)
        if START not in self.rules:
            raise self.error(f"there is no rule {START!r}, where the text begins", 0)
        for name, offset in self.references.items():
            if name not in self.rules and name not in self.bodies and name not in self.trees:
                remedy = f"; %import common.{name}" if name in COMMON else ""
                raise self.error(f"{name!r} is not defined{remedy}", offset)
        for name, offset in self.used_in_terminals.items():
            if name in self.rules:
                raise self.error(f"a terminal cannot use the rule {name!r}", offset)
        for number, body in enumerate(self.ignored):
            self.bodies[f"{IGNORED} {number}"] = body
        terminals = terminals_of(self.trees, self.bodies, self.lazy, self.offsets, self.text, self.time)
        rules = dict(self.rules)
        for name, terminal in list(terminals.items()):
            self.time.check("", f"grammar, terminal {name}")
            if terminal.places:
                continue
            if terminal.dfa.is_empty() and not terminal.matches.accepts(""):
                raise self.error(f"the terminal {name} matches nothing", self.offsets.get(name, 0))
            if name in self.lazy and terminal.matches.accepts(""):
                message = "the shortest match is always empty; let it end with what it goes on to"
                raise self.error(message, self.offsets.get(name, 0))
            if terminal.matches.accepts("") and not name.startswith(IGNORED):  # may be left out, then
                filled = f"{name}, at least a character"  # rules have names of their own for that
                rules[name] = Repeat(Rule(filled), 0, 1)
                terminals[filled] = terminals.pop(name)
        ignored = [name for name in terminals if name.startswith(IGNORED)]
        rules = without_left_recursion(rules, self.time)
        lexed_grammar = lexed(rules, START, terminals, ignored, self.foreign, self.time)
        return Grammar({**factored(lexed_grammar.rules, self.time), **self.adopted}, lexed_grammar.start)

    # ---------------------------------------------------------------- items

    def _items(self) -> Iterator[list[Token]]:
        """The tokens of each definition or directive. A line that begins with | goes on with the one before."""
        item: list[Token] = []
        at_line_begin = False
        for token in tokens_of(self.text, self.time):
            if token.kind == "newline":
                at_line_begin = True
                continue
            if at_line_begin and item and token.text != "|":
                yield item
                item = []
            at_line_begin = False
            item.append(token)
        if item:
            yield item

    def _read_item(self, item: list[Token]) -> None:
        first = item[0]
        self.time.check("", f"grammar, {first.text}")
        if first.kind == "directive":
            if first.text == "%ignore":
                self.ignored.append(self._expression(item[1:], first.offset, in_terminal=True))
            elif first.text == "%import":
                self._import(item)
            else:
                raise self.error(f"{first.text} is not supported", first.offset)
            return
        if first.kind == "header":
            check_header(self.text, item)
            return
        position = 0
        while item[position].text in ("?", "!"):
            position = self._next(item, position)
        name = item[position]
        if name.kind != "name":
            raise self.error("expected a definition, `name: …`", name.offset)
        position = self._next(item, position)
        if item[position].text == "{":
            raise self.error("templates are not supported; write the rule out", item[position].offset)
        is_lazy, suffix = False, None
        if item[position].text == ".":
            position = self._next(item, self._next(item, position))
        if item[position].text == "[":
            is_lazy, suffix, position = options(self.text, item, position + 1)
            position = self._next(item, position)
        if item[position].text != ":":
            raise self.error(f"expected ':' after {name.text!r}", item[position].offset)
        self._define(name.text, name.offset)
        is_lazy = is_lazy or suffix is not None
        is_terminal = is_lazy or _is_terminal(name.text)
        body = self._expression(item[position + 1 :], name.offset, in_terminal=is_terminal)
        if suffix is not None:
            body = sequence(body, self._atom(suffix, True))
        own = name.text
        if is_lazy and not _is_terminal(own):
            own = f"{own}, lazy"
            self.rules[name.text] = Rule(own)
        self.offsets[own] = name.offset
        self.lazy.update([own] * is_lazy)
        (self.bodies if is_terminal else self.rules)[own] = body

    def _next(self, item: list[Token], position: int) -> int:
        if position + 1 >= len(item):
            raise self.error("the definition ends too early", item[position].offset)
        return position + 1

    def _define(self, name: str, offset: int) -> None:
        if name in self.rules or name in self.bodies or name in self.trees:
            raise self.error(f"{name!r} is defined twice", offset)
        self.offsets[name] = offset

    def _import(self, item: list[Token]) -> None:
        offset = item[0].offset
        spelt = "".join(token.text for token in item[1:])
        match = re.fullmatch(r"common(?:\.(\w+)(?:->(\w+))?|\((\w+(?:,\w+)*)\))", spelt)
        if match is None:
            raise self.error(f"{spelt!r} cannot be imported; there is `common.NAME` and `common (NAME, NAME)`", offset)
        wanted = [(name, name) for name in match[3].split(",")] if match[3] else [(match[1], match[2] or match[1])]
        for name, new_name in wanted:
            if name not in COMMON:
                raise self.error(f"common has no terminal {name!r}; it has {', '.join(COMMON)}", offset)
            if not _is_terminal(new_name):
                raise self.error(f"a terminal's name is upper case, not {new_name!r}", offset)
            self._define(new_name, offset)
            self.trees[new_name] = parse(COMMON[name], "python")

    # ---------------------------------------------------------------- expressions

    def _expression(self, tokens: list[Token], offset: int, *, in_terminal: bool) -> Expression:
        groups = [Group(offset)]
        position = 0
        while position < len(tokens):
            token, group = tokens[position], groups[-1]
            self.time.check("", "grammar, its text")
            position += 1
            if token.kind == "count" or token.text in ("*", "+", "?", "~"):
                if not group.repeatable:
                    raise self.error(f"{token.text!r} has nothing to repeat", token.offset)
                if token.text == "~":
                    minimum, maximum, position = self._tilde(tokens, position)
                else:
                    minimum, maximum = self._bounds(token.text, token.offset)
                group.parts[-1] = Repeat(group.parts[-1], minimum, maximum)
                group.repeatable = False
            elif token.text in ("(", "["):
                if len(groups) > MAX_NESTING:
                    raise self.error(f"brackets are nested more than {MAX_NESTING} deep", token.offset)
                groups.append(Group(token.offset, ")" if token.text == "(" else "]"))
            elif token.text in (")", "]"):
                if token.text != group.closes_with:
                    raise self.error("this bracket was not opened", token.offset)
                closed = groups.pop().expression()
                groups[-1].parts.append(Repeat(closed, 0, 1) if token.text == "]" else closed)
                groups[-1].repeatable = True
            elif token.text == "|":
                group.close_option()
            elif token.text == "->":
                if [alias.kind for alias in tokens[position : position + 1]] != ["name"]:
                    raise self.error("an alias is `-> name`", token.offset)
                position += 1
            elif token.text == "..":
                position = self._range(tokens, position, group)
            else:
                group.parts.append(self._atom(token, in_terminal))
                group.repeatable = True
        if len(groups) > 1:
            raise self.error("this bracket is not closed", groups[-1].offset)
        return groups[0].expression()

    def _atom(self, token: Token, in_terminal: bool) -> Expression:
        if token.kind == "name":
            self.references.setdefault(token.text, token.offset)
            if in_terminal:
                self.used_in_terminals.setdefault(token.text, token.offset)
            return Rule(token.text)
        if token.kind == "json":
            if in_terminal:
                raise self.error("%json cannot stand inside a terminal", token.offset)
            return self._json(token)
        if token.kind == "other":
            return self._other(token, in_terminal)
        if token.kind == "special":
            if in_terminal:
                raise self.error("a token cannot stand inside a terminal", token.offset)
            self.adopted[token.text] = Alternation(
                tuple(map(Literal, special_tokens(self.text, token, self.spell_special)))
            )
            self.foreign[token.text] = ""
            return Rule(token.text)
        if token.kind == "structured":
            name = f"%regex {token.offset}"
            self.trees[name], self.offsets[name] = substring(self.text, token), token.offset
            return Rule(name)
        if token.kind not in ("text", "regex"):
            raise self.error(f"{token.text!r} is not expected here{REMEDIES.get(token.text, '')}", token.offset)
        if token.text not in self.trees:
            self.trees[token.text] = self._literal(token) if token.kind == "text" else self._regex(token)
            self.offsets[token.text] = token.offset
        return Rule(token.text)

    def _json(self, token: Token) -> Expression:
        from ..json_schema import schema_to_grammar  # half of the constraint engine, for grammars with a schema in them

        try:
            grammar = schema_to_grammar(json.loads(token.text), compile_time=self.time)
        except ConstraintError as error:
            place = grammar_error(str(error), self.text, token.offset)
            raise type(error)(str(place), pointer=f"{place.pointer}, {error.pointer}", param="grammar") from error
        return self._adopt(f"%json {token.offset} ", grammar)

    def _other(self, token: Token, in_terminal: bool) -> Expression:
        if in_terminal:
            raise self.error("another grammar cannot stand inside a terminal", token.offset)
        grammar = self.named(token.text[1:])
        if grammar is None:
            list_form = '{"grammars": [{"lark_grammar": "…"}, {"name": "…", "lark_grammar": "…"}]}'
            raise self.error(f"there is no grammar {token.text}; give grammars in a list, {list_form}", token.offset)
        return self._adopt(f"{token.text} ", grammar)

    def _adopt(self, prefix: str, grammar: Grammar) -> Expression:
        """A whole text of another grammar."""
        start = prefix + grammar.start
        if start not in self.foreign:
            self.adopted.update({prefix + name: renamed(body, prefix) for name, body in grammar.rules.items()})
            self.foreign[start] = first_characters(grammar)
        return Rule(start)

    def _literal(self, token: Token) -> Node:
        text = unescaped(self.text, token.text[1 : token.text.rindex('"')], token.offset)
        return Concat(tuple(map(_in_any_case, text))) if token.text.endswith("i") else Plain(text)

    def _parsed(self, pattern: str, token: Token) -> Node:
        try:
            return parse(pattern, "python", self.time)
        except InvalidRegex as error:
            raise self.error(f"{token.text}: {error}", token.offset) from error
        except ConstraintTooLarge as error:
            place = grammar_error(str(error), self.text, token.offset)
            raise ConstraintTooLarge(str(place), pointer=place.pointer, param="grammar") from error

    def _regex(self, token: Token) -> Node:
        end = token.text.rindex("/")
        pattern, flags = token.text[1:end].replace("\\/", "/"), token.text[end + 1 :].replace("u", "")
        if "l" in flags:
            raise self.error("the flag l depends on the machine; leave it out", token.offset)
        node = self._parsed(f"(?{''.join(sorted(set(flags)))}:{pattern})" if flags else pattern, token)
        if any(isinstance(inner, (Assertion, Look)) for inner in nodes_of(node)):
            raise self.error(
                f"{token.text} looks at what stands next to it, which is not its own; leave that out", token.offset
            )
        return node

    def _range(self, tokens: list[Token], position: int, group: Group) -> int:
        """`"a".."z"`: the first literal has become a part already."""
        offset = tokens[position - 1].offset
        ends = tokens[position - 2 : position - 1] + tokens[position : position + 1]
        points = [unescaped(self.text, token.text[1:-1], token.offset) for token in ends if token.kind == "text"]
        if len(points) != 2 or any(len(point) != 1 for point in points) or points[0] > points[1]:
            raise self.error('a range is "a".."z", from one character to a later one', offset)
        name = f"{ends[0].text}..{ends[1].text}"
        self.trees[name] = CharSet(((ord(points[0]), ord(points[1])),))
        group.parts[-1] = Rule(name)
        return position + 1

    def _tilde(self, tokens: list[Token], position: int) -> tuple[int, int | None, int]:
        """`3` or `2..5` of `~3` or `~2..5`: what follows the tilde."""
        numbers = []
        for index in (position, position + 2):
            numbers += [token.text for token in tokens[index : index + 1] if token.kind == "number"]
            if "".join(token.text for token in tokens[index + 1 : index + 2]) != "..":
                break
        if not numbers:
            raise self.error("a repetition is ~3 or ~2..5", tokens[position - 1].offset)
        bounds = self._bounds(f"{{{','.join(numbers)}}}", tokens[position].offset)
        return *bounds, position + (3 if len(numbers) == 2 else 1)

    def _bounds(self, text: str, offset: int) -> tuple[int, int | None]:
        if text in ("*", "+", "?"):
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[text]
        first, comma, last = text[1:-1].replace(" ", "").partition(",")
        if max(len(first), len(last)) > MAX_DIGITS:
            raise self.error(f"a repetition of more than {MAX_REPEAT} times", offset)
        minimum = int(first or 0)
        maximum = (int(last) if last else None) if comma else minimum
        if minimum < 0 or (maximum is not None and minimum > maximum):
            raise self.error(f"at least {minimum} and at most {maximum} do not go together", offset)
        if max(minimum, maximum or 0) > MAX_REPEAT:
            raise self.error(f"a repetition of more than {MAX_REPEAT} times", offset)
        return minimum, maximum


@functools.lru_cache(1024)
def _in_any_case(character: str) -> CharSet:
    return CharSet(ignoring_case(((ord(character), ord(character)),), ascii_only=False))


def _is_terminal(name: str) -> bool:
    return name.lstrip("_")[:1].isupper()
