"""Whatever a chat template does, it ends, in bounded memory, with a text or a clear error. Run by
`test_template_limits`, in a process of its own."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import ModelError, PhloemError, RequestError
from phloem.runtime.tokenizer.template_environment import template_environment
from phloem.runtime.tokenizer.template_work import MAX_BITS, TooMuchWork, Work

from ...bounded import bounds  # noqa: F401 (a fixture)
from .test_chat_template import template

CHAT = [{"role": "user", "content": "a\nb\tc"}]
MOST_BYTES = 400 << 20
BIG = 3_000_000_000


def grown(change: str, begin: str = "'abcdefgh'") -> str:
    """A template that changes a value again and again."""
    return (
        f"{{% set ns = namespace(x={begin}) %}}{{% for i in range(60) %}}{{% set ns.x = {change} %}}{{% endfor %}}"
        "{{ ns.x }}"
    )


TOO_MUCH = {
    "ljust": "{{ 'x'.ljust(3000000000) }}",
    "centred by a filter": "{{ 'x' | center(3000000000) }}",
    "tabs": "{{ '\t'.expandtabs(3000000000) }}",
    "indented": "{{ 'a\nb' | indent(3000000000) }}",
    "indented JSON": "{{ [1, 2] | tojson(indent=3000000000) }}",
    "a width in a format": "{{ '{:>3000000000}'.format('x') }}",
    "a width for a format": "{{ '{:>{}}'.format('x', 3000000000) }}",
    "a width in a format of a map": "{{ '{a:>3000000000}'.format_map({'a': 1}) }}",
    "a width in per cent": "{{ '%3000000000d' % 1 }}",
    "a width for per cent": "{{ '%*d' % (3000000000, 1) }}",
    "a width in a filter": "{{ '%3000000000d' | format(1) }}",
    "a method by its name": "{{ 'x'['zfill'](3000000000) }}",
    "a method out of a filter": "{{ ('x' | attr('rjust'))(3000000000) }}",
    "batches": "{{ [1] | batch(3000000000, 0) | list }}",
    "slices": "{{ [1] | slice(3000000000) | list }}",
    "digits": "{{ 1.5 | round(3000000000, 'ceil') }}",
    "doubled": grown("ns.x + ns.x"),
    "joined": grown("ns.x ~ ns.x"),
    "squared": grown("ns.x * ns.x", "3"),
    "replaced": grown("ns.x.replace('', ns.x)"),
    "replaced by a filter": grown("ns.x | replace('a', ns.x)"),
    "a list in a list": grown("[ns.x, ns.x]"),
    "an object in an object": grown("{'a': ns.x, 'b': ns.x}"),
    "an object from a call": grown("dict(a=ns.x, b=ns.x)"),
    "lists compared": grown("[ns.x, ns.x]") + "{{ ns.x == ns.x }}",
    "lists kept": grown("ns.x + [('é' * 100000) | list]", "[]"),
    "text over text": "{% set s = 'x' * 1000000 %}{{ s.join(s) }}",
    "the same again": "{% set s = 'x' * 1000000 %}{{ ('{0}' * 100000).format(s) }}",
    "sums of lists": "{{ ([[1]] * 100000) | sum(start=[]) }}",
    "kept output": "{% set s = 'x' * 1000000 %}{% set y %}{% for a in range(99999) %}{{ s }}{% endfor %}{% endset %}",
    "kept data": "{% set y %}{% for a in range(9999) %}" + "x" * 10000 + "{% endfor %}{% endset %}",
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}",
    "searches": "{% set s = 'x' * 1000000 %}{% for a in range(99999) %}{% if 'yy' in s %}{% endif %}{% endfor %}",
    "texts selected": "{% set s = 'x' * 1000000 %}{{ (['y'] * 5000) | select('in', s) | list }}",
    "texts rejected": "{% set s = 'x' * 1000000 %}{{ (['x'] * 5000) | reject('in', s) | list }}",
    "objects selected": "{% set s = 'x' * 1000000 %}{{ ([{'a': 'y'}] * 5000) | selectattr('a', 'in', s) | list }}",
    "numbers selected": "{% set s = 'x' * 1000000 %}{{ range(5000) | map('string') | select('in', s) | list }}",
    "parts of a text": "{% set s = 'x' * 1000000 %}{% for a in range(100) %}{% set y = s[1:] %}{% endfor %}",
    "parts of a list": "{% set s = [1] * 100000 %}{% for a in range(1000) %}{% set y = s[1:] %}{% endfor %}",
}


@pytest.mark.parametrize("case", TOO_MUCH)
def test_what_makes_too_much_is_refused_with_its_line(case: str) -> None:
    source = "\n" + TOO_MUCH[case]
    with pytest.raises(RequestError, match=r"messages: .* template cannot render them \(line \d: TooMuchWork"):
        template(source).render(CHAT)


NESTED = {
    "parentheses": ("(", "1", ")"),
    "lists": ("[", "", "]"),
    "negations": ("not ", "1", ""),
    "sums": ("1 + ", "1", ""),
    "filters": ("", "1", " | abs"),
    "calls": ("", "a", "()"),
    "attributes": ("", "a", ".b"),
    "choices": ("1 if 0 else ", "1", ""),
}
BLOCKS = {
    "conditions": ("{% if 1 %}", "{% endif %}"),
    "loops": ("{% for x in [1] %}", "{% endfor %}"),
    "macros": ("{% macro m() %}", "{% endmacro %}"),
    "call blocks": ("{% call m() %}", "{% endcall %}"),
    "set blocks": ("{% set x %}", "{% endset %}"),
    "elifs": ("{% if 0 %}" + "{% elif 0 %}" * 300, "{% endif %}"),
}


@pytest.mark.parametrize("depth", [30, 300, 3000])
@pytest.mark.parametrize("case", [*NESTED, *BLOCKS])
def test_deep_templates_are_rendered_or_refused_with_their_line(case: str, depth: int) -> None:
    if case in NESTED:
        before, middle, after = NESTED[case]
        source = "\n\n{{ " + before * depth + middle + after * depth + " }}"
    else:
        opened, closed = BLOCKS[case]
        depth = min(depth, 300 if case != "elifs" else 3)
        source = "\n\n" + opened * depth + closed * depth
    try:
        template(source).render(CHAT)
    except ModelError as error:
        assert "template: the chat template is nested too deeply (line 3)" in str(error)
    except RequestError as error:
        assert "line 3" in str(error)  # calls of nothing
    else:
        assert depth < 3000 or case == "elifs"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("{% break %}", "outside loop"),
        ("{{ dict(a=1, a=2) }}", "keyword argument repeated"),
        ("{{ " + "9" * 5000 + " }}", "digits"),
        ("{% block a %}{% endblock %}{% block a %}{% endblock %}", "defined twice"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "RecursionError"),
    ],
)
def test_what_means_nothing_is_an_error_of_the_model(source: str, told: str) -> None:
    with pytest.raises(PhloemError, match=told):
        template(source).render(CHAT)


METHODS = sorted({name for kind in (str, bytes, int, list, dict) for name in dir(kind) if not name.startswith("_")})
FILTERS = sorted(name for name in template_environment().filters if not name.startswith("_"))
VALUES = st.sampled_from(
    ["ns.x", "ns.y", "'ab\n\t'", f"{BIG}", "99999", "1000", "-1", "0.5", "[ns.x]", "{'a': ns.x}", "range(9999)",
     "'%99999999d'", "'{0:>99999999}'", "'{0}{0}'", "'%s%s'", "true", "none", "ns.x.encode()", "messages"]
)  # fmt: skip
CHANGES = st.one_of(
    st.tuples(VALUES, st.sampled_from(METHODS), st.lists(VALUES, max_size=3)).map(
        lambda found: f"({found[0]}).{found[1]}({', '.join(found[2])})"
    ),
    st.tuples(VALUES, st.sampled_from(FILTERS), st.lists(VALUES, max_size=3)).map(
        lambda found: f"({found[0]}) | {found[1]}({', '.join(found[2])})"
    ),
    st.tuples(VALUES, st.sampled_from(["+", "*", "~", "%", "**", "//", "=="]), VALUES).map(" ".join),
    st.tuples(VALUES, VALUES).map(lambda found: f"[{found[0]}, {found[1]}]"),
)


@settings(max_examples=60, deadline=None)
@given(changes=st.lists(CHANGES, min_size=1, max_size=4), shown=VALUES, again=st.booleans())
def test_random_operations_stay_in_their_memory(changes: list[str], shown: str, again: bool) -> None:
    steps = "".join(f"{{% set ns.{'xy'[at % 2]} = {change} %}}" for at, change in enumerate(changes))
    loop = "{% for i in range(40) %}" + steps + "{% endfor %}" if again else steps
    source = "{% set ns = namespace(x='abc\n', y=7) %}" + loop + "{{ " + shown + " }}"
    tracemalloc.start()
    try:
        template(source).render(CHAT)
    except (RequestError, ModelError):
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MOST_BYTES


def test_long_conversations_are_far_from_the_bounds() -> None:
    source = (
        "{% for m in messages %}{% if loop.index0 == messages | length - 1 %}last{% endif %}"
        "{% set c = m.content %}{% if '</think>' in c %}{% set c = c.split('</think>')[-1].lstrip('\n') %}{% endif %}"
        "{{ '<|im_start|>' + m['role'] + '\n' + c | trim + '<|im_end|>' + '\n' }}{% endfor %}"
        "{{ tools | tojson(indent=4) }}"
    )
    many = [{"role": "user", "content": "hi"}] * 3000
    long = [{"role": "user", "content": "long text " * 100_000}] * 3
    tools = [{"type": "function", "function": {"name": "f", "description": "x" * 100_000}}] * 10
    for messages in (many, long):
        assert sum(map(len, template(source).render(messages, tools=tools))) > 1_000_000


def test_an_account_is_charged_for_what_is_repeated() -> None:
    work = Work(1000)
    shared: Any = ["x" * 100]
    assert work.size([shared, shared]) > 2 * 100
    for _ in range(12):
        shared = [shared, shared]
    with pytest.raises(TooMuchWork):
        work.size(shared)
    with pytest.raises(TooMuchWork):
        work.check_product("x", (MAX_BITS,), "center")
