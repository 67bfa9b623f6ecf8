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
from ..network.expression import EMPTY_TEXT, NOTHING, Alternation, Expression, Grammar, Repeat, Rule, Sequence, sequence
from ..network.walks import mapped, rule_names
from ..regex.regex_tree import Either, Times
from .adjacency import Adjacency
from .left_recursion import with_filled_turns
from .lexemes import NONE, Lexemes, Obligations, Terminal

MAX_RULES = 10_000  # rules with obligations in their names
MAX_ROUNDS = 200
MAX_ASKED = 50_000  # questions about which obligations a rule or terminal leaves
IGNORED = "%ignore"
Leaves = frozenset[Obligations] | None  # obligations that may be left; None: any


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
    used = {name for body in rules.values() for name in rule_names(body)}
    known = {name: terminal for name, terminal in terminals.items() if name in used}
    spaced = dict(rules)
    end: Expression = EMPTY_TEXT
    if ignored:
        between = {name: terminals[name] for name in ignored}
        run = Terminal(IGNORED, Times(Either(tuple(terminal.node for terminal in between.values())), 1, None))
        if _splits(list(between.values())) and _is_apart(run, list(known.values()), foreign):
            between, end = {IGNORED: run}, Repeat(Rule(IGNORED), 0, 1)
        else:
            end = Repeat(Alternation(tuple(map(Rule, between))), 0, None)
        spaced = {
            name: mapped(body, lambda rule: Sequence((end, rule)) if rule.name in known else rule)
            for name, body in compile_time.over(rules.items(), name="grammar, its rules")
        }
        known.update(between)
    spaced = with_filled_turns(spaced, compile_time)
    whole = f"{start}, whole"
    spaced[whole] = sequence(Rule(start), end)
    adjacency = Adjacency(spaced, compile_time)
    lexemes = Lexemes(known, adjacency.followers, foreign, compile_time)
    if not lexemes.has_obligations:
        written = {
            name: mapped(body, lambda rule: lexemes.expression(rule.name, NONE, None) if rule.name in known else rule)
            for name, body in compile_time.over(spaced.items(), name="grammar, its rules")
        }
        return Grammar(written, whole)
    return _Product(spaced, adjacency, lexemes, compile_time).grammar(whole)


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


class _Product:
    """Rules and the obligations that they leave, given those before them.

    `possible` holds, for a rule and the obligations before it, all that it can leave; `rules` gets a rule for all that
    is asked for, by rule, obligations before it and those it may leave.
    """

    def __init__(
        self, rules: Mapping[str, Expression], adjacency: Adjacency, lexemes: Lexemes, compile_time: CompileTime
    ) -> None:
        self.old = rules
        self.time = compile_time
        self.adjacency = adjacency
        self.lexemes = lexemes
        self.possible: dict[tuple[str, Obligations], frozenset[Obligations]] = {}
        self.names: dict[object, str] = {}
        self.unsettled: list[tuple[str, Obligations]] = []
        self.rules: dict[str, Expression] = {}
        self.num_asked = 0
        self.pending: list[tuple[str, Expression, Obligations, Leaves]] = []

    def grammar(self, start: str) -> Grammar:
        first = self.requested(start, NONE, None)
        while self.pending:
            name, body, obligations, leaves = self.pending.pop()
            self.time.check("", f"grammar, rule {name}")
            self.rules[name] = self.written(body, obligations, leaves)
            if len(self.names) > MAX_RULES:
                raise _too_large()
        return Grammar(self.rules, first.name)

    # ---------------------------------------------------------------- the obligations left

    def left_by(self, expression: Expression, before: Obligations) -> frozenset[Obligations]:
        """The obligations that an expression can leave, as far as is known."""
        if isinstance(expression, Rule):
            self.num_asked += 1
            if self.num_asked > MAX_ASKED:
                raise _too_large()
            if expression.name not in self.old:
                return self.lexemes.left_by(expression.name, before)
            key = expression.name, before
            if key not in self.possible:
                self.possible[key] = frozenset()
                self.unsettled.append(key)
                if len(self.unsettled) == 1:
                    self.settle()
            return self.possible[key]
        if isinstance(expression, Alternation):
            return frozenset().union(*(self.left_by(option, before) for option in expression.options))
        if isinstance(expression, Sequence):
            return self.left_by_all(expression.parts, before)
        assert isinstance(expression, Repeat)
        here, found, turns = frozenset((before,)), frozenset[Obligations](), 0
        seen: dict[frozenset[Obligations], int] = {}
        while True:
            if here in seen and turns < expression.minimum:  # it goes round: whole rounds need not be walked
                period = turns - seen[here]
                turns += (expression.minimum - turns) // period * period
            if turns >= expression.minimum:
                if here <= found:
                    return found
                found |= here
            if turns == expression.maximum:
                return found
            seen[here] = turns
            here = frozenset().union(*(self.left_by(expression.item, one) for one in here))
            turns += 1

    def left_by_all(self, parts: Seq[Expression], before: Obligations) -> frozenset[Obligations]:
        here = frozenset((before,))
        for part in parts:
            here = frozenset().union(*(self.left_by(part, one) for one in here))
        return here

    def settle(self) -> None:
        """Finds the obligations that rules asked about for the first time leave: a fixed point, by iteration.

        Those asked about before depend on none of them.
        """
        for _ in range(MAX_ROUNDS):
            is_settled = True
            for name, before in self.unsettled:  # grows
                self.time.check("", f"grammar, rule {name}")
                found = self.left_by(self.old[name], before)
                is_settled = is_settled and found == self.possible[name, before]
                self.possible[name, before] = found
            if len(self.possible) > MAX_RULES:
                raise _too_large()
            if is_settled:
                self.unsettled.clear()
                return
        raise _too_large()

    # ---------------------------------------------------------------- the rules

    def requested(self, name: str, before: Obligations, leaves: Leaves) -> Rule:
        return self.request((name, before, leaves), name, self.old[name], before, leaves)

    def request(self, key: object, name: str, body: Expression, before: Obligations, leaves: Leaves) -> Rule:
        """A rule that writes the body from `before` on, leaving one of `leaves`."""
        found = self.names.get(key)
        if found is None:
            found = self.names[key] = f"{name} [{len(self.names)}]"
            self.pending.append((found, body, before, leaves))
        return Rule(found)

    def written(self, expression: Expression, before: Obligations, leaves: Leaves) -> Expression:
        if isinstance(expression, Rule):
            possible = self.left_by(expression, before)
            wanted = None if leaves is None or possible <= leaves else possible & leaves
            if expression.name not in self.old:
                return self.lexemes.expression(expression.name, before, wanted)
            return self.requested(expression.name, before, wanted) if possible and wanted != frozenset() else NOTHING
        if isinstance(expression, Alternation):
            return Alternation(tuple(self.written(option, before, leaves) for option in expression.options))
        if isinstance(expression, Sequence):
            return self.written_all(expression.parts, before, leaves)
        assert isinstance(expression, Repeat)
        return self.written_repeat(expression, before, leaves)

    def written_all(self, parts: Seq[Expression], before: Obligations, leaves: Leaves) -> Expression:
        if not parts:
            return EMPTY_TEXT if leaves is None or before in leaves else NOTHING
        if len(parts) == 1:
            return self.written(parts[0], before, leaves)
        rest = Sequence(tuple(parts[1:]))
        options = []
        for after, members in self.distinguished(self.left_by(parts[0], before), rest, leaves):
            if leaves is not None and self.left_by(rest, after).isdisjoint(leaves):
                continue
            first = self.written(parts[0], before, members)
            options.append((first, after))
        if len(options) == 1:
            return sequence(options[0][0], self.written_all(parts[1:], options[0][1], leaves))
        return Alternation(
            tuple(
                Sequence((first, self.request(("rest", rest.parts, after, leaves), "rest", rest, after, leaves)))
                for first, after in options
            )
        )

    def distinguished(
        self, possible: frozenset[Obligations], rest: Expression, leaves: Leaves
    ) -> list[tuple[Obligations, Leaves]]:
        """The obligations between a part and the rest, in groups that the rest cannot distinguish: one of each, all."""
        firsts = self.adjacency.first(rest)
        shows = leaves is not None and self.adjacency.is_nullable(rest)
        groups: dict[Obligations, set[Obligations]] = {}
        for one in possible:
            is_harmless = all(self.lexemes.is_harmless(name, one) for name in firsts)
            if is_harmless and shows and leaves is not None and (one in leaves) != (NONE in leaves):
                is_harmless = False
            groups.setdefault(NONE if is_harmless else one, set()).add(one)
        return [(one, None if members == possible else frozenset(members)) for one, members in groups.items()]

    def written_repeat(self, expression: Repeat, before: Obligations, leaves: Leaves) -> Expression:
        item, minimum, maximum = expression.item, expression.minimum, expression.maximum
        reached = {before}
        for one in (queue := [before]):  # grows
            for left in self.left_by(item, one):
                if left not in reached:
                    reached.add(left)
                    queue.append(left)
        is_plain = all(self.lexemes.is_harmless(name, one) for name in self.adjacency.first(item) for one in reached)
        if is_plain and (leaves is None or reached <= leaves):
            return Repeat(self.written(item, NONE, None), minimum, maximum)
        if maximum == 0:
            return self.written_all((), before, leaves)
        rest = Repeat(item, max(minimum - 1, 0), None if maximum is None else maximum - 1)
        options: list[Expression] = [self.written_all((), before, leaves)] if minimum == 0 else []
        for after, members in self.distinguished(self.left_by(item, before), rest, leaves):
            if leaves is None or not self.left_by(rest, after).isdisjoint(leaves):
                key = ("repeat", item, rest.minimum, rest.maximum, after, leaves)
                follower = self.request(key, "repeat", rest, after, leaves)
                options.append(Sequence((self.written(item, before, members), follower)))
        return Alternation(tuple(options))


def _too_large() -> ConstraintTooLarge:
    return ConstraintTooLarge(
        "grammar: there are too many ways in which terminals could run into one another; "
        "put a character between them that belongs to neither"
    )
