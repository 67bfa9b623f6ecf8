"""Reads a regular expression into a tree (`regex_tree.py`). `regex.py` makes automata of trees.

Two dialects: "python" (the `re` module: \\w \\d \\s in Unicode) and "json-schema" (ECMA-262: \\w and \\d in ASCII).
Many validators read the latter with the former's engine. So in "json-schema" a class holds the characters that
belong to it for both (`\\s` without U+FEFF, `\\W` without é), and what matches does so for either of them; in
"json-schema-possible" those that belong to it for one of them, and what does not match does so for neither (so `$`
also stands before a last line break). The dialects also differ in `[]`, `[^]`, `{,n}`, and what `.` leaves out. In
"python" and "json-schema" `$` is the very end of the text (or of a line under the m flag). Groups are only brackets
here: names and numbers are read and dropped; lazy quantifiers mean the same set of texts as greedy ones.

Refused with the offset: backreferences, conditionals, unknown escapes; atomic groups and possessive quantifiers where
it depends on the search what they match (`committed.py`); in a look-behind (which may be of any width) what asks about
the text that follows, as in a look-ahead a look-behind.
The parser keeps its own stack: nesting depth costs memory, not Python's call stack.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Literal as OneOf

from ...errors import ConstraintTooLarge, InvalidRegex
from ..compile_time import NO_LIMIT, CompileTime
from ..text.alphabet import MAX_CODE_POINT, Interval, complement, normalised
from ..text.letter_case import ignoring_case, in_all_dialects, in_any_dialect, with_capitals_in
from ..text.unicode_sets import ASCII_WORD, Intervals, unicode_word
from .committed import committed
from .regex_escapes import read_escape, syntax_error, unsupported
from .regex_tree import PYTHON_END, Assertion, CharSet, Concat, Either, Look, Node, Plain, Times

Dialect = OneOf["json-schema", "json-schema-possible", "python"]

PYTHON_LINE_BREAKS: Intervals = ((10, 10),)
ECMA_LINE_BREAKS: Intervals = ((10, 10), (13, 13), (0x2028, 0x2029))

MAX_PATTERN_LEN = 200_000
MAX_REPEAT = 10_000_000
CLASSES = frozenset(f"\\{letter}" for letter in "dDsSwW")
MAX_MEMBERS = 10_000  # intervals of a class that are gathered before those that overlap are joined

_PLAIN_RUN = re.compile(r"(?:[^\\.\[\](){}*+?|^$](?![*+?{]))+")  # characters that mean themselves, once
_PLAIN_OPTIONS = re.compile(r"(?:[^\\.\[\](){}*+?|^$]+\|)+[^\\.\[\](){}*+?|^$]+(?=\)|\Z)")  # a|b|c and nothing else
_REPEAT = re.compile(r"\{(\d*)(,?)(\d*)\}", re.ASCII)
_GROUP_NAME = re.compile(r"\w+")
_FLAGS = re.compile(r"([imsxauL]*)(?:-([imsx]+))?([:)])")


@functools.lru_cache(maxsize=8)  # several ask for the same one after another
def parse(pattern: str, dialect: Dialect, compile_time: CompileTime = NO_LIMIT) -> Node:
    """The tree of a pattern; InvalidRegex with the offset if it does not parse."""
    if len(pattern) > MAX_PATTERN_LEN:
        raise ConstraintTooLarge(f"the pattern has {len(pattern)} characters; at most {MAX_PATTERN_LEN} are read")
    return _Parser(pattern, dialect, compile_time).parse()


@dataclass(slots=True)
class _Level:
    """An open group: its finished options, the parts of the current one, and what closing it makes of them.

    Attributes:
        within: `ahead` or `behind` if it is a look-around of that kind, or stands in one.
        num_lazy: how many lazy quantifiers stand before it.
    """

    offset: int
    outer_flags: frozenset[str]
    kind: str
    options: list[Node]
    parts: list[Node]
    within: str = ""
    num_lazy: int = 0

    def close(self) -> Node:
        body = Either((*self.options, _concat(self.parts))) if self.options else _concat(self.parts)
        if self.kind in ("group", "atomic"):
            return body
        return Look(body, is_ahead="<" not in self.kind, is_negative="!" in self.kind)


def _concat(parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else Concat(tuple(parts))


def _looks_on(atom: Node) -> bool:
    """Whether an atom asks what follows it."""
    return "start" not in atom.kind if isinstance(atom, Assertion) else not isinstance(atom, CharSet)


class _Parser:
    def __init__(self, pattern: str, dialect: Dialect, compile_time: CompileTime) -> None:
        self.pattern = pattern
        self.time = compile_time
        self.is_python = dialect == "python"
        self.flags: frozenset[str] = frozenset()
        self.position = self.num_lazy = 0
        self.for_all = dialect == "json-schema"  # classes hold what belongs to them in both readings, not in either
        self.sets: dict[Intervals, CharSet] = {}
        self.line_breaks: Intervals = PYTHON_LINE_BREAKS if self.is_python else ECMA_LINE_BREAKS

    def error(self, message: str, offset: int | None = None) -> InvalidRegex:
        return syntax_error(self.pattern, message, self.position if offset is None else offset)

    def unsupported(self, message: str, offset: int | None = None) -> InvalidRegex:
        return unsupported(self.pattern, message, self.position if offset is None else offset)

    def parse(self) -> Node:
        pattern = self.pattern
        levels = [_Level(0, self.flags, "group", [], [])]
        while self.position < len(pattern):
            c = pattern[self.position]
            self.time.check_here()
            if c == "|":
                self.position += 1
                levels[-1].options.append(_concat(levels[-1].parts))
                levels[-1].parts = []
            elif c == "(":
                level = self._open_group(levels[-1])
                if level is not None:
                    levels.append(level)
            elif c == ")":
                if len(levels) == 1:
                    raise self.error("a ')' without a '('")
                level = levels.pop()
                self.position += 1
                self.flags = level.outer_flags
                if "!" in level.kind:
                    self.for_all = not self.for_all
                closed = level.close()
                if level.kind == "atomic":
                    closed = self._committed(closed, "an atomic group", level.within, level.offset, level.num_lazy)
                levels[-1].parts.append(self._quantified(closed, levels[-1].within))
            elif c in " \t\n\r\v\f#" and "x" in self.flags:
                self._skip_blank()
            elif not self.flags and not levels[-1].parts and (run := _PLAIN_OPTIONS.match(pattern, self.position)):
                levels[-1].options.extend(map(Plain, run[0].split("|")))
                levels[-1].parts = [levels[-1].options.pop()]
                self.position = run.end()
            elif not self.flags and (run := _PLAIN_RUN.match(pattern, self.position)):
                levels[-1].parts.append(Plain(run[0]))
                self.position = run.end()
            else:
                offset = self.position
                node = self._atom(c)
                if levels[-1].within == "behind" and _looks_on(node):
                    raise self.unsupported(
                        "an assertion about what follows, inside a look-behind; move it outside", offset
                    )
                levels[-1].parts.append(self._quantified(node, levels[-1].within) if type(node) is CharSet else node)
        if len(levels) > 1:
            raise self.error("a '(' that is never closed", levels[-1].offset)
        return levels[0].close()

    # ---------------------------------------------------------------- groups

    def _open_group(self, outer: _Level) -> _Level | None:
        """Reads `(` and what belongs to it. None if it was a comment or sets flags for the rest of the group."""
        offset, pattern = self.position, self.pattern
        self.position += 1
        outer_flags = self.flags
        kind = "group"
        if pattern.startswith("?", self.position):
            rest = pattern[self.position + 1 : self.position + 3]
            if rest.startswith("#"):
                end = pattern.find(")", self.position)
                if end < 0:
                    raise self.error("a comment that is never closed", offset)
                self.position = end + 1
                return None
            if rest[:1] in ("=", "!"):
                kind = rest[0]
                self.position += 2
            elif rest in ("<=", "<!"):
                kind = rest
                self.position += 3
            elif rest == "P=":
                raise self.unsupported("a backreference is not regular", offset)
            elif rest == "P<" or rest.startswith("<"):
                self._group_name(2 if rest.startswith("P") else 1)
            elif rest.startswith(">"):
                kind, self.position = "atomic", self.position + 2
            elif rest.startswith("("):
                raise self.unsupported("a conditional group is not regular", offset)
            elif self._flags(offset):
                return None
        if "!" in kind:
            self.for_all = not self.for_all
        within = outer.within if kind in ("group", "atomic") else "behind" if "<" in kind else "ahead"
        if outer.within and within != outer.within:
            what = f"a look-{within} inside a look-{outer.within}"
            raise self.unsupported(f"{what} is not supported; move it out of there. It begins", offset)
        return _Level(offset, outer_flags, kind, [], [], within, self.num_lazy)

    def _committed(self, node: Node, what: str, within: str, offset: int, num_lazy: int) -> Node:
        """What is matched first, and not given back, of an atomic group or a possessive repetition."""
        is_read = self.is_python and num_lazy == self.num_lazy and within != "behind"
        found = committed(node, self.time) if is_read else None
        if found is None:
            raise self.unsupported(f"{what} whose match depends on how it is searched for; remove it", offset)
        return found

    def _group_name(self, skip: int) -> None:
        self.position += 1 + skip
        match = _GROUP_NAME.match(self.pattern, self.position)
        if match is None or not self.pattern.startswith(">", match.end()):
            raise self.error("a group name is missing or not closed by '>'")
        self.position = match.end() + 1

    def _flags(self, offset: int) -> bool:
        """Reads `?ims-x:` or `?ims)`; True if it was the latter, which holds for the rest of the group."""
        match = _FLAGS.match(self.pattern, self.position + 1)
        if match is None:
            raise self.error("an unknown kind of group", offset)
        self.position = match.end()
        self.flags = (self.flags | frozenset(match[1])) - frozenset(match[2] or "")
        return match[3] == ")"

    def _skip_blank(self) -> None:
        """Under the x flag: white space, and comments up to the end of the line."""
        if self.pattern[self.position] == "#":
            end = self.pattern.find("\n", self.position)
            self.position = len(self.pattern) if end < 0 else end
        else:
            self.position += 1

    # ---------------------------------------------------------------- quantifiers

    def _quantified(self, node: Node, within: str) -> Node:
        """The node with the quantifiers that follow it."""
        if "x" in self.flags:
            while self.pattern[self.position : self.position + 1] in tuple(" \t\n\r\v\f#"):
                self._skip_blank()
        offset = self.position
        bounds = self._quantifier()
        if bounds is None:
            return node
        minimum, maximum = bounds
        is_possessive, is_lazy = (self.pattern.startswith(mark, self.position) for mark in "+?")
        self.position += is_possessive or is_lazy
        self.num_lazy += is_lazy
        follower = self.position
        if self._quantifier() is not None:
            raise self.error("a quantifier after a quantifier", follower)
        if maximum is not None and maximum < minimum:
            raise self.error(f"the bounds {{{minimum},{maximum}}} are the wrong way round", offset)
        if max(minimum, maximum or 0) > MAX_REPEAT:
            raise ConstraintTooLarge(
                f"a repetition at offset {offset} asks for more than {MAX_REPEAT} times", pointer=f"offset {offset}"
            )
        if isinstance(node, Look):  # asked once or many times, the answer is the same
            return node if minimum > 0 else Either((Concat(()), node)) if maximum != 0 else Concat(())
        repeated = Times(node, minimum, maximum)
        return self._committed(repeated, "a possessive +", within, offset, self.num_lazy) if is_possessive else repeated

    def _quantifier(self) -> tuple[int, int | None] | None:
        c = self.pattern[self.position : self.position + 1]
        if c in ("*", "+", "?"):
            self.position += 1
            return {"*": (0, None), "+": (1, None), "?": (0, 1)}[c]
        if c != "{":
            return None
        match = _REPEAT.match(self.pattern, self.position)
        if match is None or not (match[1] or (match[2] and self.is_python)):
            return None  # a literal brace
        if len(match[1]) > 9 or len(match[3]) > 9:
            raise ConstraintTooLarge(
                f"a repetition at offset {self.position} asks for more than {MAX_REPEAT} times",
                pointer=f"offset {self.position}",
            )
        self.position = match.end()
        minimum = int(match[1] or 0)
        if not match[2]:
            return minimum, minimum
        return minimum, int(match[3]) if match[3] else None

    # ---------------------------------------------------------------- single characters and classes

    def _set(self, members: Intervals, classes: Intervals = (), *, negated: bool = False) -> CharSet:
        """classes: what is meant by `\\w` and the like, beside the members."""
        if "i" in self.flags and (self.is_python or "a" in self.flags):
            is_ascii = "a" in self.flags
            found = with_capitals_in(members) if is_ascii and self.is_python else members
            intervals = ignoring_case(found, ascii_only=is_ascii, classes=classes)
        elif "i" in self.flags:
            intervals = (in_all_dialects if self.for_all ^ negated else in_any_dialect)(members, classes)
        else:
            intervals = tuple(normalised([*members, *classes])) if len(members) > 1 or classes else members
        intervals = tuple(complement(intervals)) if negated else intervals
        return self.sets.get(intervals) or self.sets.setdefault(intervals, CharSet(intervals))

    def _atom(self, c: str) -> Node:
        offset = self.position
        self.position += 1
        if c == ".":
            if "s" in self.flags:
                return self._set(((0, MAX_CODE_POINT),))
            return self._set(tuple(complement(self.line_breaks if self.for_all else PYTHON_LINE_BREAKS)))
        if c in "^$":
            edge = "start" if c == "^" else "end"
            if "m" in self.flags:
                return Assertion("line_" + edge, self.line_breaks)
            return PYTHON_END if c == "$" and not self.is_python and not self.for_all else Assertion(edge)
        if c == "[":
            return self._class(offset)
        if c in "*+?":
            raise self.error("a quantifier with nothing to repeat", offset)
        if c == "{" and _REPEAT.match(self.pattern, offset) and self._would_repeat(offset):
            raise self.error("a quantifier with nothing to repeat", offset)
        if c != "\\":
            return self._set(((ord(c), ord(c)),))
        following = self.pattern[self.position : self.position + 1]
        kind = {"b": "word_boundary", "B": "inside_word", "A": "start", "Z": "end", "z": "end"}.get(following)
        if kind is not None:
            self.position += 1
            return self._word_edge(kind) if following in "bB" else Assertion(kind)
        found = self._escape(offset, in_class=False)
        return self._set((), found) if f"\\{following}" in CLASSES else self._set(found)

    def _word_edge(self, kind: str) -> Node:
        """\\b or \\B; for a schema what both readings of a word call so, or what one of them does."""
        if self.is_python:
            return Assertion(kind, ASCII_WORD if "a" in self.flags else unicode_word())
        readings = Assertion(kind, ASCII_WORD), Assertion(kind, unicode_word())
        return Concat(readings) if self.for_all else Either(readings)

    def _would_repeat(self, offset: int) -> bool:
        position, self.position = self.position, offset
        bounds = self._quantifier()
        self.position = position
        return bounds is not None

    def _class(self, offset: int) -> CharSet:
        """Reads the rest of `[...]`."""
        pattern = self.pattern
        negated = pattern.startswith("^", self.position)
        self.position += negated
        self.for_all ^= negated
        members, classes = list[Interval](), list[Interval]()
        first = True
        while True:
            if self.position >= len(pattern):
                raise self.error("a '[' that is never closed", offset)
            if pattern[self.position] == "]" and not (first and self.is_python):
                self.position += 1
                break
            first = False
            self.time.check_here()
            if len(members) > MAX_MEMBERS:
                members = normalised(members)
            is_class = pattern[self.position : self.position + 2] in CLASSES
            low = self._class_member()
            if (
                pattern.startswith("-", self.position)
                and not pattern.startswith("-]", self.position)
                and self.position + 1 < len(pattern)
            ):
                dash = self.position
                self.position += 1
                high = self._class_member()
                if len(low) == 1 and len(high) == 1 and low[0][0] == low[0][1] and high[0][0] == high[0][1]:
                    if high[0][0] < low[0][0]:
                        raise self.error("a range that runs backwards", dash)
                    members.append((low[0][0], high[0][0]))
                elif self.is_python:
                    raise self.error("a range whose end is a class", dash)
                else:
                    members.extend((*low, (0x2D, 0x2D), *high))
            else:
                (classes if is_class else members).extend(low)
        self.for_all ^= negated
        return self._set(tuple(members), tuple(classes), negated=negated)

    def _class_member(self) -> Intervals:
        offset = self.position
        c = self.pattern[offset]
        self.position += 1
        if c != "\\":
            return ((ord(c), ord(c)),)
        return self._escape(offset, in_class=True)

    def _escape(self, offset: int, *, in_class: bool) -> Intervals:
        """Reads the escape whose backslash stands at `offset`: a set, often of one."""
        intervals, self.position = read_escape(
            self.pattern,
            offset,
            in_class=in_class,
            is_python=self.is_python,
            ascii_only=not self.is_python or "a" in self.flags,
            for_all=self.for_all,
        )
        return intervals
