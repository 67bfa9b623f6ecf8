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
from .left_recursion import with_filled_turns
from .lexemes import NONE, Lexemes
from .rule_product import NO_SPACING, RuleProduct, Spacing
from .terminals import Keywords, Terminal

IGNORED = "%ignore"


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
    rules = with_filled_turns(rules, compile_time)
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
        spacing = Spacing({rule.name: name for name, rule in after.items()}, tuple(between))
        known.update(between)
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
    return RuleProduct(spaced, spacing, adjacency, lexemes, compile_time).grammar(whole)


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
