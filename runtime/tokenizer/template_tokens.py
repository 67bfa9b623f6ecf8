"""Which added tokens a chat template writes, and where it looks for their texts in messages.

A template writes its own data and string constants, and what it puts together of them: `'<|' + role + '|>'` writes
`<|user|>`. So a token counts as written if its text is in one of these fragments, or begins at the end of one and ends
at the beginning of one. That may be more than the template ever writes, and it is never less, as long as the template
does not take its own constants apart. A token of blanks alone is no mark of a template: it is layout, in messages too.

Texts of messages come with such tokens cut in two (`chat_message`). A template that looks for one (`'</think>' in
content`, `content.split('</think>')`) must look for it as it is there: cut. Constants that are looked for are found by
their places in the tree. One that is overlooked finds nothing, and stays harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from jinja2 import nodes

from .beginnings import Beginnings
from .token_pieces import SPACE

SEARCHED = "_phloem_searched"  # the filter that cuts what is looked for
_PLACE = re.compile(r"\{[^{}]*\}|%[-#0 +\d.]*[a-z]")  # of a value in a format
# of methods and filters, how many leading arguments are looked for
_METHODS = dict.fromkeys(
    (
        "count", "endswith", "find", "index", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex",
        "rpartition", "rsplit", "split", "startswith",
    ),
    1,
)  # fmt: skip
_EVERY = 9  # no test, and no filter that hands its arguments to one, has more
_FILTERS = {"replace": 1, **dict.fromkeys(("reject", "rejectattr", "select", "selectattr"), _EVERY)}
_TESTS = ("==", "eq", "equalto", "in", "ne", "!=")


def fragments(tree: nodes.Template) -> list[str]:
    """The texts that a template is made of, formats taken apart."""
    found = [data.data for data in tree.find_all(nodes.TemplateData)]
    for constant in tree.find_all(nodes.Const):
        if isinstance(constant.value, str):
            found += [constant.value, *_PLACE.split(constant.value)]
    return [text for text in dict.fromkeys(found) if text]


def written(texts: Iterable[str], fragments: Iterable[str]) -> list[str]:
    """Those of the texts of tokens that the template may write."""
    texts, fragments = list(texts), list(fragments)
    whole, firsts, lasts = "\0".join(fragments), _firsts(texts, fragments), _lasts(texts, fragments)

    most = max(map(len, firsts), default=0)

    def is_put_together(text: str) -> bool:
        begins = _cuts(text, lasts)
        ends = range(max(len(text) - most, begins[0]), len(text)) if begins else ()
        return any(text[at:] in firsts for at in ends)

    return [text for text in texts if not _is_blank(text) and (text in whole or is_put_together(text))]


def endings(texts: Iterable[str], fragments: Iterable[str]) -> frozenset[str]:
    """What would make one of the texts, right after the end of a fragment."""
    texts = list(texts)
    lasts = _lasts(texts, fragments)
    return frozenset(text[at:] for text in texts for at in _cuts(text, lasts))


def mark_searches(tree: nodes.Template, texts: Iterable[str]) -> None:
    """Puts the filter around constants, and names of constants, that are looked for and have one of the texts."""
    texts = list(texts)

    def has_mark(node: nodes.Node) -> bool:
        return isinstance(node, nodes.Const) and isinstance(node.value, str) and any(t in node.value for t in texts)

    named = {
        node.target.name
        for node in tree.find_all(nodes.Assign)
        if isinstance(node.target, nodes.Name) and has_mark(node.node)
    }

    def cut(node: nodes.Expr) -> nodes.Expr:
        if has_mark(node) or (isinstance(node, nodes.Name) and node.name in named):
            return nodes.Filter(node, SEARCHED, [], [], None, None, lineno=node.lineno)
        return node

    for compare in list(tree.find_all(nodes.Compare)):
        compare.expr = cut(compare.expr)
        for operand in compare.ops:
            operand.expr = cut(operand.expr)
    for call in list(tree.find_all(nodes.Call)):
        if isinstance(call.node, nodes.Getattr):
            count = _METHODS.get(call.node.attr, 0)
            call.args[:count] = map(cut, call.args[:count])
    for found in list(tree.find_all((nodes.Filter, nodes.Test))):
        if isinstance(found, nodes.Filter):
            count = _FILTERS.get(found.name, 0)
        else:
            count = _EVERY if found.name in _TESTS else 0
            if count:
                found.node = cut(found.node)
        found.args[:count] = map(cut, found.args[:count])


def _is_blank(text: str) -> bool:
    return not text.replace(SPACE, "").strip()


def _cuts(text: str, lasts: set[str]) -> list[int]:
    """Where a text can be cut so that what is before the cut is one of `lasts`."""
    most = max(map(len, lasts), default=0)
    return [at for at in range(1, min(most + 1, len(text))) if text[:at] in lasts]


def _firsts(texts: Iterable[str], fragments: Iterable[str]) -> set[str]:
    """The ends of the texts that fragments begin with."""
    return {last[::-1] for last in _lasts((t[::-1] for t in texts), (f[::-1] for f in fragments))}


def _lasts(texts: Iterable[str], fragments: Iterable[str]) -> set[str]:
    """The beginnings of the texts that fragments end with. Memory: of what is found."""
    begins = Beginnings(texts)
    found = set[str]()
    for fragment in fragments:
        found.update(
            part for n in range(1, min(len(fragment), begins.longest) + 1) if (part := fragment[-n:]) in begins
        )
    return found
