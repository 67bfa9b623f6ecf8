"""Regular expressions as automata over text.

A pattern means a set of whole texts: with `search=False` those that match from end
to end, with `search=True` (JSON Schema's `pattern`) those in which a match occurs somewhere. Anchors, word
boundaries and look-arounds are exact in either reading (see `determinise.py`); dialects are described in
`regex_syntax.py`. Results are cached by (pattern, search, dialect) and shared.

Every step is bounded by counting, and between steps the time is checked (`compile_time.py`).
"""

from __future__ import annotations

from itertools import dropwhile

from ...errors import ConstraintTooLarge
from ..compile_time import NO_LIMIT, CompileTime
from ..network.expression import Alternation, Embed, Expression, Literal, Repeat, Sequence
from ..remembered import remembered
from ..text.counted import counted
from ..text.dfa import Dfa
from ..text.literals import fits_a_table, literal_dfa
from .determinise import determinise
from .empty_text import with_empty_text_settled
from .nfa import ANY_TEXT
from .regex_syntax import Dialect, parse
from .regex_tree import (
    OPTIONAL_BREAK,
    PYTHON_END,
    Assertion,
    CharSet,
    Concat,
    Either,
    Look,
    Node,
    Plain,
    Times,
    children,
)  # fmt: skip

EAGER_POSITIONS = 3_000  # characters of the unfolded pattern; beyond that it is unfolded lazily at once
EAGER_WORK = 200_000  # positions looked at before a pattern is unfolded lazily instead; some milliseconds
COUNT_FROM = 64  # repetitions of a character that are counted where a pattern is unfolded lazily
MANY_TEXTS = 8  # plain options; this number or more become an automaton directly
MINIMISE_UP_TO = 256  # states; beyond that a smaller table is not worth the time
MOST_FOLDED = 16  # repetitions of repetitions that are taken for one


@remembered(1024)
def regex_to_dfa(
    pattern: str, *, search: bool = False, dialect: Dialect = "json-schema", compile_time: CompileTime = NO_LIMIT
) -> Dfa:
    """The texts that match a pattern, as an automaton over UTF-8 bytes.

    Raises:
        InvalidRegex: it does not parse, or is not regular (backreference ...); `pointer` is `"offset 12"`.
        ConstraintTooLarge: the automaton would pass its bounds, or the time is over.
    """
    try:
        parsed = parse(pattern, dialect, compile_time)
        tree = anchored(parsed, search=search)
        texts = plain_texts(tree)
        if texts is not None:
            return literal_dfa(texts)
        dfa = determinise(tree, compile_time=compile_time)
        dfa = with_empty_text_settled(dfa, pattern, parsed, for_all=dialect != "json-schema-possible")
    except ConstraintTooLarge as error:
        raise _of_pattern(pattern, error) from None
    return dfa.minimised() if dfa.num_states <= MINIMISE_UP_TO else dfa


def _of_pattern(pattern: str, error: ConstraintTooLarge) -> ConstraintTooLarge:
    """The same error with the pattern as its place."""
    shown = pattern if len(pattern) <= 80 else pattern[:77] + "..."
    return ConstraintTooLarge(f"pattern {shown!r}: {error}", pointer=error.pointer)


@remembered(256)
def regex_to_expression(pattern: str, *, compile_time: CompileTime = NO_LIMIT) -> Expression:
    """The whole texts that match, as an expression: an automaton where that is small, unfolded lazily where not.

    The dialect is "python". So `(.{1,1000}){1,1000}` or `[ab]*a[ab]{30}` cost what the generated text visits of them.
    Raises as `regex_to_dfa` does; a pattern with assertions inside must be small enough for an automaton.
    """
    try:
        parsed = parse(pattern, "python", compile_time)
        tree = anchored(parsed, search=False)
        texts = plain_texts(tree)
        if texts is not None:
            return Embed(literal_dfa(texts))
        lazy = _expression(tree, compile_time) if _is_long(tree) else None
        if lazy is not None:
            return lazy
        try:
            dfa = determinise(tree, EAGER_WORK, compile_time)
        except ConstraintTooLarge:
            lazy = _expression(tree, compile_time)
            if lazy is not None:
                return lazy
            dfa = determinise(tree, compile_time=compile_time)
        dfa = with_empty_text_settled(dfa, pattern, parsed, for_all=True)
    except ConstraintTooLarge as error:
        raise _of_pattern(pattern, error) from None
    return Embed(dfa.minimised() if dfa.num_states <= MINIMISE_UP_TO else dfa)


@remembered(1024)
def long_run(pattern: str, *, for_all: bool = True) -> tuple[Dfa, int, int | None] | None:
    """What `^[a-z]{1,60000}$` asks for: only such characters, and how many; None if the pattern is of another kind.

    In the dialect "json-schema" (if not `for_all`, "json-schema-possible" but for a last line break), wherever a match
    may be.
    """
    if "{" not in pattern:  # nearly always
        return None
    if not for_all and pattern.endswith("$"):
        pattern = pattern[:-1] + r"\Z"
    tree = anchored(parse(pattern, "json-schema" if for_all else "json-schema-possible"), search=True)
    if not isinstance(tree, Times):
        return None
    node = folded(tree)
    if not isinstance(node.item, CharSet) or max(node.minimum, node.maximum or 0) < COUNT_FROM:
        return None
    return determinise(Times(node.item, 0, None)), node.minimum, node.maximum


def _is_long(tree: Node) -> bool:
    """Whether the unfolded tree spells out EAGER_POSITIONS characters or more."""
    total = 0
    pending: list[tuple[Node, int]] = [(tree, 1)]
    while pending and total < EAGER_POSITIONS:
        node, times = pending.pop()
        if isinstance(node, Times):
            pending.append((node.item, times * max(node.minimum, node.maximum or 1, 1)))
        elif isinstance(node, (Concat, Either, Look)):
            pending.extend((child, times) for child in children(node))
        elif isinstance(node, Plain):
            total += times * len(node.text)
        else:
            total += times
    return total >= EAGER_POSITIONS


def _expression(tree: Node, compile_time: CompileTime) -> Expression | None:
    """The expression of a tree, or None if it holds an assertion. Iterative, operands on a stack."""
    tasks: list[tuple[Node, bool]] = [(tree, False)]
    done: list[Expression] = []
    texts: dict[Node, Expression] = {}
    while tasks:
        node, is_ready = tasks.pop()
        compile_time.check_here()
        if isinstance(node, CharSet):
            if node not in texts:
                texts[node] = _one_character(node)
            done.append(texts[node])
        elif isinstance(node, Plain):
            has_surrogate = any("\ud800" <= character <= "\udfff" for character in node.text)
            done.append(Alternation(()) if has_surrogate else Literal(node.text.encode()))
        elif isinstance(node, (Assertion, Look)):
            return None
        elif not is_ready and (options := plain_texts(node)) is not None:
            done.append(Embed(literal_dfa(options)))
        elif isinstance(node, Times) and (runs := _counted_run(node)) is not None:
            done.append(runs)
        elif not is_ready:
            tasks.append((node, True))
            tasks.extend([(child, False) for child in children(node)])
        elif isinstance(node, Times):
            done.append(Repeat(done.pop(), node.minimum, node.maximum))
        else:
            first = len(done) - len(children(node))
            operands = tuple(reversed(done[first:]))
            del done[first:]
            done.append(_joined(operands) if isinstance(node, Concat) else Alternation(operands))
    return done.pop()


def plain_texts(tree: Node) -> list[str] | None:
    """The texts of an alternation of many plain texts; None if it is anything else."""
    if not isinstance(tree, Either) or len(tree.options) < MANY_TEXTS:
        return None
    texts: list[str] = []
    for option in tree.options:
        if isinstance(option, Plain):
            text = option.text
        else:
            parts = option.parts if isinstance(option, Concat) else (option,)
            characters = [_plain_part(part) for part in parts]
            if None in characters:
                return None
            text = "".join(map(str, characters))
        texts.append(text)
    return texts if fits_a_table(texts) else None


def _plain_part(part: Node) -> str | None:
    if isinstance(part, Plain):
        return part.text
    if isinstance(part, CharSet) and len(part.intervals) == 1 and part.intervals[0][0] == part.intervals[0][1]:
        return chr(part.intervals[0][0])
    return None


def _counted_run(node: Times) -> Expression | None:
    """Many characters of one set, their number being counted; None if it is anything else."""
    node = folded(node)
    if not isinstance(node.item, CharSet) or max(node.minimum, node.maximum or 0) < COUNT_FROM:
        return None
    found = counted(determinise(Times(node.item, 0, None)), node.minimum, node.maximum)
    return None if found is None else Embed(found)


def folded(node: Times) -> Times:
    """`(x{a,b}){c,d}` as `x{ac,bd}` where no number of times between these is left out."""
    for _ in range(MOST_FOLDED):
        if not isinstance(node.item, Times) or node.maximum == 0:
            break
        low, high = node.item.minimum, node.item.maximum
        fewest = max(node.minimum, 1)
        skips = node.minimum == 0 and low > 1
        skips = skips or (high is not None and low * (fewest + 1) > high * fewest + 1)  # between n and n + 1 times
        if skips and node.maximum != node.minimum:
            break
        maximum = 0 if high == 0 else None if high is None or node.maximum is None else high * node.maximum
        node = Times(node.item.item, low * node.minimum, maximum)
    return node


def _joined(parts: tuple[Expression, ...]) -> Expression:
    """The sequence of the parts, neighbouring literals as one."""
    if len(parts) == 1:
        return parts[0]
    joined: list[Expression] = []
    for part in parts:
        if isinstance(part, Literal) and joined and isinstance(joined[-1], Literal):
            joined[-1] = Literal(joined[-1].data + part.data)
        else:
            joined.append(part)
    return joined[0] if len(joined) == 1 else Sequence(tuple(joined))


def _one_character(node: CharSet) -> Expression:
    if len(node.intervals) == 1 and node.intervals[0][0] == node.intervals[0][1]:
        point = node.intervals[0][0]
        return Alternation(()) if 0xD800 <= point <= 0xDFFF else Literal(chr(point).encode())
    return Embed(determinise(node))


def anchored(tree: Node, *, search: bool) -> Node:
    """The tree for whole texts: outer ^ and $ are dropped, and under `search` their absence becomes "any text"."""
    if not search and plain_texts(tree) is not None:
        return tree
    groups: dict[tuple[bool, bool], list[Node]] = {}
    for option in tree.options if isinstance(tree, Either) else (tree,):
        body, starts, ends = _without_anchors(option)
        groups.setdefault((starts or not search, ends or not search), []).append(body)
    options: list[Node] = []
    for (starts, ends), bodies in groups.items():
        body = bodies[0] if len(bodies) == 1 else Either(tuple(bodies))
        before, after = () if starts else (ANY_TEXT,), () if ends else (ANY_TEXT,)
        options.append(Concat((*before, body, *after)) if before or after else body)
    return options[0] if len(options) == 1 else Either(tuple(options))


def _without_anchors(option: Node) -> tuple[Node, bool, bool]:
    parts = list(option.parts) if isinstance(option, Concat) else [option]
    body = list(dropwhile(lambda part: isinstance(part, Assertion) and part.kind == "start", parts))
    starts, ends, parts = len(body) < len(parts), False, body
    while parts and isinstance(parts[-1], Assertion) and parts[-1].kind == "end":
        ends = True
        parts.pop()
    if parts and parts[-1] is PYTHON_END:
        ends = True
        parts[-1] = OPTIONAL_BREAK
    return parts[0] if len(parts) == 1 else Concat(tuple(parts)), starts, ends
