"""What texts a grammar over terminals means: each terminal takes its longest match, as Lark's dynamic lexer does.

::

    start: NAME NAME     NAME: /[a-z]+/     %ignore WS

    ab cd     yes
    abcd      no: the first NAME takes all of it, so no text is left for the second one

In characters, a terminal followed by text that could have made it longer is no longer that terminal. So a terminal may
leave an *obligation*: what follows must not complete a longer match (`lexemes`). Most obligations cannot be broken by
anything that may follow in the grammar and are dropped at once (JSON has none that matter). The others become part of
the names of rules,

    rule [obligations before it → obligations that it may leave]

where obligations that the rest cannot distinguish are merged, so that nothing has to be guessed ahead.
Any number of ignored terminals may stand before every other terminal and at the end. Where they can be confused with
nothing else (JSON), a run of them is one terminal.

Knows expressions, no notation. Python's recursion follows the nesting of expressions, which their readers bound.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq

from ...errors import ConstraintTooLarge
from ..compile_time import CompileTime
from ..network.expression import (
    EMPTY_TEXT,
    NOTHING,
    Alternation,
    Expression,
    Grammar,
    Repeat,
    Rule,
    Sequence,
    alternation,
    sequence,
)
from ..network.walks import folded, mapped, rule_names
from ..regex.regex_tree import Either, Times
from .adjacency import Adjacency
from .leaving import EMPTY, NO_SPACING, Leaving, Left, Spaced, Spacing, numbers_in, too_large
from .left_recursion import with_filled_turns
from .lexemes import NONE, Lexemes
from .terminals import Keywords, Terminal

MAX_RULES = 10_000  # rules with obligations in their names
IGNORED = "%ignore"
ANY: Left = -1  # all bits
_Wanted = tuple[int, int, Left]  # a node, the number of the obligations before it, and those that it may leave


def lexed(
    rules: Mapping[str, Expression],
    start: str,
    terminals: Mapping[str, Terminal],
    ignored: Seq[str],
    foreign: Mapping[str, str],
    compile_time: CompileTime,
) -> Grammar:
    """The grammar over characters.

    Args:
        rules: over `Rule(name)` of rules and of terminals.
        start: the first rule.
        terminals: by name; none of them matches the empty text.
        foreign: other names that rules refer to, and the characters that their texts may begin with.
        ignored: those whose texts may stand between others, in front and at the end.

    Raises:
        ConstraintTooLarge: too many combinations of rules and obligations, or the time is over.
    """
    rules, terminals = _with_choices(rules, terminals, compile_time)
    used = {name for body in rules.values() for name in rule_names(body)}
    known = {name: terminal for name, terminal in terminals.items() if name in used}
    spaced = dict(rules)
    spacing = NO_SPACING
    end: Expression = EMPTY_TEXT
    if ignored:
        between = {name: terminals[name] for name in ignored}
        run = Terminal(IGNORED, Times(Either(tuple(terminal.node for terminal in between.values())), 1, None))
        if _splits(list(between.values())) and _is_apart(run, list(known.values()), foreign):
            between, end = {IGNORED: run}, Repeat(Rule(IGNORED), 0, 1)
        else:
            end = Repeat(Alternation(tuple(map(Rule, between))), 0, None)
        after = {name: Rule(f"{name}, after {IGNORED}") for name in known}
        spaced = {
            name: mapped(body, lambda rule: after.get(rule.name, rule))
            for name, body in compile_time.over(rules.items(), name="grammar, its rules")
        }
        spaced.update({rule.name: Sequence((end, Rule(name))) for name, rule in after.items()})
        spacing = Spacing({rule.name: name for name, rule in after.items()}, tuple(between), end.maximum is None)
        known.update(between)
    spaced = with_filled_turns(spaced, compile_time)
    whole = f"{start}, whole"
    spaced[whole] = sequence(Rule(start), end)
    adjacency = Adjacency(spaced, compile_time)
    lexemes = Lexemes(known, adjacency.followers, foreign, compile_time)
    if not lexemes.has_obligations:
        spelt = {name: lexemes.expression(name, NONE, None) for name in known}
        spelt.update({name: mapped(spaced[name], lambda rule: spelt[rule.name]) for name in spacing.terminals})
        written = {
            name: mapped(body, lambda rule: spelt.get(rule.name, rule))
            for name, body in compile_time.over(spaced.items(), name="grammar, its rules")
            if name not in spacing.terminals
        }
        return Grammar(written, whole)
    return _RuleProduct(
        Leaving(spaced, spacing, adjacency, lexemes, compile_time), adjacency, lexemes, compile_time
    ).grammar(whole)


def _with_choices(
    rules: Mapping[str, Expression], terminals: Mapping[str, Terminal], compile_time: CompileTime
) -> tuple[dict[str, Expression], dict[str, Terminal]]:
    """Rules in which several keywords to choose from are one terminal (`Keywords`), and the terminals with those.

    Hundreds of them are asked for what they leave and what may follow at once, then.
    """
    found = dict(terminals)

    def chosen(expression: Expression, inner: list[Expression]) -> Expression:
        if isinstance(expression, Sequence):
            return Sequence(tuple(inner))
        if isinstance(expression, Repeat):
            return Repeat(inner[0], expression.minimum, expression.maximum)
        if not isinstance(expression, Alternation):
            return expression
        rules = [option.name for option in inner if isinstance(option, Rule)]
        names = dict.fromkeys(name for name in rules if name in terminals and terminals[name].places)
        if len(names) < 2:
            return Alternation(tuple(inner))
        name = " | ".join(names)
        several = [terminals[one].places for one in compile_time.over(names, name="grammar, its terminals")]
        found[name] = Keywords(name, Either(()), several=tuple(several))
        others = [option for option in inner if not (isinstance(option, Rule) and option.name in names)]
        return alternation(Rule(name), *others)

    changed: dict[str, Expression] = {}
    for name, body in rules.items():
        try:
            changed[name] = folded(body, chosen, compile_time)
        except ConstraintTooLarge as error:
            raise ConstraintTooLarge(f"grammar, rule {name}: {error}") from None
    return changed, found


def _splits(ignored: Seq[Terminal]) -> bool:
    """Whether any texts of these terminals in a row can be read as longest matches.

    So it is if a match never goes on with what may begin another one, or with its own kind alone and two of that kind
    in a row are one of it (` `, ` ` and `  ` under / +/).
    """
    return all(
        not one.may_go_on_as(other) or (one is other and one.repeats_itself()) for one in ignored for other in ignored
    )


def _is_apart(terminal: Terminal, others: Seq[Terminal], foreign: Mapping[str, str]) -> bool:
    """Whether a match of the terminal never goes on with what may begin something else."""
    return not (terminal.may_go_on_with("".join(foreign.values())) or any(map(terminal.may_go_on_as, others)))


class _RuleProduct:
    """Rules and the obligations that they leave, given those before them: a rule for all that is asked for."""

    def __init__(self, leaving: Leaving, adjacency: Adjacency, lexemes: Lexemes, compile_time: CompileTime) -> None:
        self.leaving = leaving
        self.adjacency = adjacency
        self.lexemes = lexemes
        self.time = compile_time
        self.names: dict[_Wanted, str] = {}
        self.known: dict[_Wanted, Expression] = {}
        self.pending: list[tuple[str, _Wanted]] = []
        self.harmless: dict[tuple[int, int], bool] = {}
        self.seen: dict[tuple[int, int], object] = {}

    def grammar(self, start: str) -> Grammar:
        first = self.request(start, self.leaving.body(start), 0, ANY)
        if not isinstance(first, Rule):
            return Grammar({start: NOTHING}, start)
        rules: dict[str, Expression] = {}
        while self.pending:
            name, wanted = self.pending.pop()
            self.time.check("", f"grammar, rule {name}")
            rules[name] = self.written(*wanted)
            if len(self.names) > MAX_RULES:
                raise too_large()
        return Grammar(rules, first.name)

    def request(self, name: str, node: int, before: int, leaves: Left) -> Expression:
        """A rule that writes a node from `before` on, leaving one of `leaves`."""
        wanted = self.plainest(node, before, leaves)
        if wanted is None:
            return NOTHING
        found = self.names.get(wanted)
        if found is None:
            found = self.names[wanted] = f"{name} [{len(self.names)}]"
            self.pending.append((found, wanted))
        return Rule(found)

    def written(self, node: int, before: int, leaves: Left) -> Expression:
        """The texts of a node that break no obligation and leave one of `leaves`."""
        asked = (node, before, leaves)
        found = self.known.get(asked)
        if found is None:
            wanted = self.plainest(node, before, leaves)
            if wanted is None:
                found = NOTHING
            elif wanted == asked:
                found = self.write(*wanted)
            else:
                found = self.written(*wanted)
            self.known[asked] = found
        return found

    def plainest(self, node: int, before: int, leaves: Left) -> _Wanted | None:
        """The same texts, asked for with no more obligations than make a difference; None if there are none.

        So what is asked for in many ways is written once.
        """
        if before and not self.leaving.is_nullable[node] and self.is_harmless(node, before):
            before = 0
        possible = self.leaving.left(node, before)
        leaves = possible & leaves if possible & ~leaves else ANY
        return (node, before, leaves) if possible and leaves else None

    def write(self, node: int, before: int, leaves: Left) -> Expression:
        leaving = self.leaving
        kind = leaving.kinds[node]
        if kind is str:
            some = None if leaves == ANY else frozenset(map(leaving.obligations.__getitem__, numbers_in(leaves)))
            return self.lexemes.expression(leaving.name(node), leaving.obligations[before], some)
        if kind is Rule:
            name = leaving.name(node)
            return self.request(name, leaving.body(name), before, leaves)
        if kind is Spaced:
            return self.written(leaving.body(leaving.name(node)), before, leaves)
        if kind is Alternation:
            options = [self.written(option, before, leaves) for option in leaving.inside(node)]
            return Alternation(tuple([option for option in options if option is not NOTHING]))
        if kind is Repeat:
            return self.write_repeat(node, before, leaves)
        return self.write_sequence(node, before, leaves)

    def write_sequence(self, node: int, before: int, leaves: Left) -> Expression:
        leaving = self.leaving
        parts: list[Expression] = []
        while node != EMPTY:
            self.time.check("", "grammar, its rules")
            one, rest = leaving.inside(node) if leaving.kinds[node] is Sequence else (node, EMPTY)
            if rest == EMPTY:
                parts.append(self.written(one, before, leaves))
                return sequence(*parts)
            groups = self.distinguished(leaving.left(one, before), rest, leaves)
            if len(groups) != 1:
                options = [
                    Sequence((self.written(one, before, some), self.request("rest", rest, after, leaves)))
                    for after, some in groups
                ]
                return sequence(*parts, Alternation(tuple(options)))
            parts.append(self.written(one, before, groups[0][1]))
            node, before = rest, groups[0][0]
        return sequence(*parts, EMPTY_TEXT if leaves >> before & 1 else NOTHING)

    def distinguished(self, possible: Left, rest: int, leaves: Left) -> list[tuple[int, Left]]:
        """The obligations between a part and the rest, in groups that the rest cannot distinguish: one of each, all.

        Without those after which the rest cannot be written so that it leaves one of `leaves`.
        """
        shows = leaves != ANY and self.leaving.is_nullable[rest]
        groups: dict[object, list[int]] = {}
        for one in numbers_in(possible):
            seen: object = NONE if self.is_harmless(rest, one) else self.seen_by(rest, one)
            groups.setdefault((seen, leaves >> one & 1) if shows else seen, []).append(one)
        found: list[tuple[int, Left]] = []
        for members in groups.values():
            one = members[0]  # 0 if that is among them
            if one and not shows and self.is_harmless(rest, one):
                one = 0
            if self.leaving.left(rest, one) & leaves:
                found.append((one, ANY if len(groups) == 1 else sum([1 << member for member in members])))
        return found

    def is_harmless(self, node: int, before: int) -> bool:
        """Whether obligations change nothing for whatever a node begins with, nor outlive it."""
        if not before:
            return True
        key = (self.leaving.first[node], before)
        found = self.harmless.get(key)
        if found is None:
            names, obligations = self.adjacency.names(key[0]), self.leaving.obligations[before]
            found = self.harmless[key] = all([self.lexemes.is_harmless(name, obligations) for name in names])
        return found

    def seen_by(self, node: int, before: int) -> object:
        """What a node can tell of obligations: what is left of them after each character that it may begin with."""
        key = (self.leaving.first[node], before)
        found = self.seen.get(key)
        if found is None:
            names, obligations = self.adjacency.names(key[0]), self.leaving.obligations[before]
            found = self.seen[key] = tuple([self.lexemes.after_first(name, obligations) for name in names])
        return found

    def write_repeat(self, node: int, before: int, leaves: Left) -> Expression:
        leaving = self.leaving
        item, minimum, maximum = leaving.bounds(node)
        reached = 1 << before
        for one in (queue := [before]):  # grows
            new = leaving.left(item, one) & ~reached
            reached |= new
            queue += numbers_in(new)
        is_plain = all(self.is_harmless(item, one) for one in queue)
        if is_plain and not reached & ~leaves:
            return Repeat(self.written(item, 0, ANY), minimum, maximum)
        rest = leaving.repeat(item, max(minimum - 1, 0), None if maximum is None else maximum - 1)
        options: list[Expression] = []
        if minimum == 0 and leaves >> before & 1:
            options.append(EMPTY_TEXT)
        for after, some in self.distinguished(leaving.left(item, before), rest, leaves):
            follower = EMPTY_TEXT if rest == EMPTY else self.request("repeat", rest, after, leaves)
            options.append(Sequence((self.written(item, before, some), follower)))
        return Alternation(tuple(options))
