"""XGrammar's macro for tags in free text: read, and written as rules.

::

    TagDispatch(("<call>", call), ("<note>", note), loop_after_dispatch=false, excludes=("</end>"))

is any text in which no tag and none of `excludes` occurs; where a tag is complete, a text of its rule follows, and then
free text again, or the end. No tag may stand in another one or in one of `excludes`, nor one of these in a tag, so that
it is certain which one is complete. Knows no notation but its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...errors import InvalidGrammar
from ..compile_time import CompileTime
from ..network.expression import EMPTY_TEXT, Embed, Expression, Rule, alternation, sequence
from ..text.free_text import first_marks, free_text, text_until
from .notation import Token

NAME = "TagDispatch"
BEGIN = re.compile(rf"{NAME}[ \t\r\n]*\(")
_SPACE = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_PIECE = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"|\w[\w.-]*|[(),=]')
OPTIONS = ("loop_after_dispatch", "excludes")

Fail = Callable[[str, int], InvalidGrammar]


@dataclass(frozen=True)
class TagDispatch:
    """What a macro says.

    Attributes:
        tags: each, in its quotes, with the name of its rule.
        excludes: in their quotes.
        loops: whether free text goes on after a rule.
        end: the offset after it.
    """

    tags: tuple[tuple[Token, Token], ...]
    excludes: tuple[Token, ...]
    loops: bool
    end: int


def read(text: str, offset: int, fail: Fail) -> TagDispatch:
    """Reads the macro whose arguments begin at an offset, after the parenthesis.

    Raises:
        InvalidGrammar: what `fail` makes of a message and an offset.
    """
    return _Reader(text, offset, fail).macro()


class _Reader:
    def __init__(self, text: str, offset: int, fail: Fail) -> None:
        self.text = text
        self.offset = offset
        self.fail = fail
        self.begin = offset  # of the last piece

    def piece(self) -> str:
        """The next piece; "" if there is none."""
        self.begin = self.offset = _SPACE.match(self.text, self.offset).end()  # type: ignore[union-attr]
        match = _PIECE.match(self.text, self.offset)
        if match is None:
            return ""
        self.offset = match.end()
        return match[0]

    def expect(self, wanted: str) -> None:
        if self.piece() != wanted:
            raise self.fail(f"{NAME}: expected {wanted!r} here", self.begin)

    def quoted(self, piece: str, what: str) -> Token:
        if len(piece) < 3 or piece[0] != '"':
            raise self.fail(f"{NAME}: {what} is text in double quotes that is not empty", self.begin)
        return Token("text", piece, self.begin)

    def macro(self) -> TagDispatch:
        tags: list[tuple[Token, Token]] = []
        named: dict[str, object] = {}
        piece = self.piece()
        while piece != ")":
            if piece == "(" and not named:
                tag = self.quoted(self.piece(), "a tag")
                self.expect(",")
                rule = self.piece()
                if not re.match(r"\w", rule):
                    raise self.fail(f"{NAME}: a tag goes with the name of a rule", self.begin)
                tags.append((tag, Token("name", rule, self.begin)))
                self.expect(")")
            elif piece in OPTIONS and piece not in named:
                self.expect("=")
                named[piece] = self.flag() if piece == OPTIONS[0] else self.texts()
            else:
                what = f'expected tags, ("text", rule), and after them {" and ".join(OPTIONS)}, each once'
                raise self.fail(f"{NAME}: {what}", self.begin)
            piece = self.piece()
            if piece == ",":
                piece = self.piece()
                if piece != ")":
                    continue
            elif piece == ")":
                break
            raise self.fail(f"{NAME}: expected ',' and another argument, or ')'", self.begin)
        excludes: tuple[Token, ...] = named.get(OPTIONS[1], ())  # type: ignore[assignment]
        return TagDispatch(tuple(tags), excludes, bool(named.get(OPTIONS[0], True)), self.offset)

    def flag(self) -> bool:
        piece = self.piece()
        if piece not in ("true", "false"):
            raise self.fail(f"{NAME}: loop_after_dispatch is true or false", self.begin)
        return piece == "true"

    def texts(self) -> tuple[Token, ...]:
        self.expect("(")
        found: list[Token] = []
        piece = self.piece()
        while piece != ")":
            found.append(self.quoted(piece, "one of excludes"))
            piece = self.piece()
            if piece == ",":
                piece = self.piece()
            elif piece != ")":
                raise self.fail(f"{NAME}: expected ',' or ')'", self.begin)
        return tuple(found)


def contained(tags: Sequence[str], excludes: Sequence[str], compile_time: CompileTime) -> tuple[str, str] | None:
    """A tag that stands in another text, or a text that stands in a tag, and the other one; None: there is none."""
    distinct = [*dict.fromkeys(tags), *excludes]
    for tag in compile_time.over(dict.fromkeys(tags), name="grammar, its tags"):
        for other in compile_time.over(distinct, name="grammar, its tags"):
            if (other in tag or tag in other) and (other != tag or tag in excludes):
                return (other, tag) if other in tag else (tag, other)
    return None


def written(tags: list[tuple[str, str]], excludes: tuple[str, ...], again: Expression | None) -> Expression:
    """The texts; again: what stands for all of it after a rule, None where it ends there.

    Raises:
        ConstraintTooLarge: there are too many tags to tell apart.
    """
    texts = tuple(dict.fromkeys(tag for tag, _ in tags))
    marks = tuple(dict.fromkeys((*texts, *excludes)))
    options: list[Expression] = [Embed(free_text(marks))]
    for completed in first_marks(marks) if marks else ():
        if completed.isdisjoint(excludes):
            chosen = alternation(*[Rule(rule) for tag, rule in tags if tag in completed])
            options.append(sequence(Embed(text_until(marks, completed)), chosen, again or EMPTY_TEXT))
    return alternation(*options)
