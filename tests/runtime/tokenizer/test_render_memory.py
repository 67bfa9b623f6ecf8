"""Rendering with a memory gives what rendering without one gives, whatever the template is and was rendered before."""

from __future__ import annotations

import datetime
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import RequestError
from phloem.runtime.tokenizer import template_environment
from phloem.runtime.tokenizer.chat_template import ChatTemplate
from phloem.runtime.tokenizer.render_memory import RenderMemory
from phloem.runtime.tokenizer.resumable_template import ResumableTemplate

from .test_chat_template import SPECIALS, TEMPLATES, TOKENS, TOOLS
from .test_chat_template import template as make

template = cache(make)

# What a message becomes depends on nothing behind it.
LOCAL = {
    "chatml": TEMPLATES["chatml"],
    "reasoning": TEMPLATES["reasoning"],
    "a system message apart": """{%- if messages[0].role == 'system' %}
    {%- set system = messages[0].content | trim %}{% set turns = messages[1:] %}
{%- else %}{% set system = 'none' %}{% set turns = messages %}{% endif %}
{{- bos_token + system }}{% if tools %}{{ tools | tojson }}{% endif %}
{%- for m in turns %}{{ loop.index ~ m.role ~ m.content }}{% if loop.first %}first{% endif %}{% endfor %}""",
    "the neighbours": """{%- for m in messages %}
    {%- if loop.index0 == 0 or messages[loop.index0 - 1].role != m.role %}<{{ m.role }}>{% endif %}
    {{- m.content }}
    {%- if loop.last or messages[loop.index0 + 1].role != m.role %}</{{ m.role }}>{% endif %}
    {%- if loop.nextitem is defined %}{{ loop.nextitem.role }}{% endif %}
{%- endfor %}{{ add_generation_prompt }}""",
    "namespaces": """{%- set ns = namespace(seen='', count=0, last=none) %}{% set other = namespace() %}
{%- for m in messages %}{% set inner = namespace(x=1) %}{% set inner.x = loop.index %}
    {%- if m.role == 'user' %}{% set ns.count = ns.count + 1 %}{% set other.text = m.content %}{% endif %}
    {%- set ns.seen = (ns.seen + m.role)[-20:] %}{% set ns.last = m %}
    {{- ns.count ~ ns.seen ~ ns.last.content ~ other.text ~ inner.x }}
{%- endfor %}{{ ns.count ~ other.text }}""",
    "dates": "{% set day = strftime_now('%d') %}{{ day }}"
    "{% for m in messages %}{{ m.content ~ strftime_now('%m') ~ day }}{% endfor %}{{ day }}",
    "a macro": "{% macro show(m) %}[{{ m.role }}{{ caller is defined }}]{{ m.content }}{% endmacro %}"
    "{% for m in messages %}{{ show(m) }}{% if m.role == 'tool' %}{% continue %}{% endif %}.{% endfor %}",
    "an end before the end": "{% for m in messages %}"
    "{% if m.content == 'stop' %}{% break %}{% endif %}{{ m }}{% endfor %}",
    "roles checked": TEMPLATES["trimming"],
    "loops before and after": "{% for t in tools or [] %}{{ t }}{% endfor %}"
    "{% for m in messages %}{{ m.role }}{% endfor %}"
    "{% for m in messages %}{{ loop.index0 }}{{ m.content }}{% endfor %}{{ messages | length }}",
}
# It depends on what comes later, or something unseen goes on from message to message.
FAR = {
    "the length": "{% for m in messages %}{{ m.content }}{{ messages | length }}{% endfor %}",
    "the last one": "{% for m in messages %}{{ m.content }}{{ messages[-1].role }}{% endfor %}",
    "from behind": "{% set ns = namespace(at=0) %}{% for m in messages[::-1] %}{% if m.role == 'user' and not ns.at %}"
    "{% set ns.at = messages | length - 1 - loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% if loop.index0 > ns.at %}new{% endif %}{{ m.content }}{% endfor %}",
    "some of them": "{% for m in messages | selectattr('role', 'equalto', 'user') %}{{ m.content }}{% endfor %}",
    "all but the last": "{% for m in messages[:-1] %}{{ m.content }}{% endfor %}{{ messages[-1].content }}",
    "how many are left": "{% for m in messages %}{{ m.content }}{{ loop.revindex }}{{ loop.length }}{% endfor %}",
    "two ahead": "{% for m in messages %}{{ m.content }}{{ messages[loop.index0 + 2] is defined }}{% endfor %}",
    "the fourth one": "{% for m in messages %}{{ m.content }}{{ messages[3].role }}{% endfor %}",
    "the item before": "{% for m in messages %}{{ loop.previtem.role if loop.previtem else '' }}{% endfor %}",
    "what has changed": "{% for m in messages %}{% if loop.changed(m.role) %}{{ m.role }}{% endif %}{% endfor %}",
    "a cycler": "{% set c = cycler('a', 'b', 'c') %}{% for m in messages %}{{ c.next() }}{{ m.content }}{% endfor %}",
    "a joiner": "{% set j = joiner() %}{% for m in messages %}{{ j() }}{{ m.content }}{% endfor %}",
    "a generator": "{% set g = range(9) | map('string') %}{% for m in messages %}{{ m.content }}"
    "{% for x in g %}{{ x }}{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}{% endfor %}",
    "a namespace in one": "{% set ns = namespace() %}{% set ns.in = namespace(n=0) %}{% set n = ns.in %}"
    "{% for m in messages %}{% set n.n = n.n + 1 %}{{ n.n }}{{ ns.in.n }}{{ m.content }}{% endfor %}",
    "a loop kept": "{% for m in messages %}"
    "{% set outer = loop %}{% for x in [1] %}{{ outer.previtem }}{% endfor %}{% endfor %}",
    "as one value": "{{ messages | tojson }}{% for m in messages %}{{ m.content }}{% endfor %}",
    "as a list": "{{ messages.copy is defined }}"
    "{{ messages + [1] == messages }}{% for m in messages %}{{ m }}{% endfor %}",
    "in a list": "{% for m in [messages[0]] + messages[1:] %}{{ m.content }}{% endfor %}",
    "conditions": "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ m.content }}{% endfor %}",
    "no loop": "{{ messages[0].content }}",
}
ALL = LOCAL | FAR

TEXTS = st.sampled_from(["a", "stop", "  b\n", "<|im_end|>", "x</think>y", "", "\ufdd0", "zz"])
CALLS = [[{"function": {"name": "f", "arguments": text}}] for text in ('{"a": 1}', '{"a": true}', '{"a": 1.0}', "")]
NAMES = st.sampled_from([1, True, "1", "n", None])
MESSAGE = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "system", "tool"]), "content": TEXTS}),
    st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": st.none(), "tool_calls": st.sampled_from(CALLS)},
    ),
    st.fixed_dictionaries({"role": st.just("user"), "content": TEXTS, "name": NAMES}),
)
EDIT = st.one_of(
    st.tuples(st.just("go on"), st.lists(MESSAGE, min_size=1, max_size=3)),
    st.tuples(st.just("cut"), st.integers(1, 4)),
    st.tuples(st.just("replace"), st.tuples(st.integers(0, 9), MESSAGE)),
    st.tuples(st.just("who says it"), st.tuples(st.integers(0, 2), st.sampled_from(["user", "assistant"]))),
    st.tuples(
        st.just("settings"), st.tuples(st.booleans(), st.sampled_from([None, TOOLS]), st.sampled_from(["", "b"]))
    ),
)


def edited(messages: list[dict[str, Any]], edit: tuple[str, Any]) -> list[dict[str, Any]]:
    match edit:
        case "go on", more:
            return messages + more
        case "cut", count:
            return messages[:-count] or messages[:1]
        case "who says it", (position, role):
            return [other | {"role": role} if index == position else other for index, other in enumerate(messages)]
        case "replace", (position, message):
            return [message if index == position else other for index, other in enumerate(messages)]
    return messages


def outcome(render: Any, messages: list[dict[str, Any]], **options: Any) -> Any:
    try:
        return render(messages, **options)
    except RequestError as error:
        return str(error)


@pytest.mark.parametrize("name", ALL)
@settings(deadline=None, max_examples=15)
@given(
    first=st.lists(MESSAGE, min_size=1, max_size=5), edits=st.lists(EDIT, max_size=8), max_bytes=st.integers(0, 40_000)
)
def test_it_gives_what_the_template_gives(
    name: str, first: list[dict[str, Any]], edits: list[tuple[str, Any]], max_bytes: int
) -> None:
    plain = template(ALL[name])
    memory = RenderMemory(plain, max_bytes)
    messages, generates, tools, namespace = first, True, None, ""
    for edit in [("", None), *edits]:
        if edit[0] == "settings":
            generates, tools, namespace = edit[1]
        messages = edited(messages, edit)
        options: dict[str, Any] = {"add_generation_prompt": generates, "tools": tools}
        expected = outcome(plain.render, messages, **options)
        for _ in range(2):
            assert outcome(memory.render, messages, namespace=namespace, **options) == expected
        assert memory.num_bytes <= max_bytes


def growing(num_turns: int) -> list[dict[str, Any]]:
    messages = [{"role": "user", "content": "q 0"}]
    for turn in range(1, num_turns):
        messages += [{"role": "assistant", "content": f"a {turn}"}, {"role": "user", "content": f"q {turn}"}]
    return messages


def num_rendered(name: str, num_turns: int) -> int:
    """Messages that the last turn of a conversation renders, seen by the checkpoints that it makes."""
    resumable = template(ALL[name]).resumable
    context = {**TOKENS, "tools": None, "add_generation_prompt": True}
    before, after = growing(num_turns - 1), growing(num_turns)
    if resumable is None:
        return len(after)
    try:
        _, known = resumable.render(context, before, 0, None, 1 << 20)
    except Exception:  # the template itself has to be asked
        return len(after)
    places = [place for place, point in known.items() if point.namespaces is not None]
    if not places:
        return len(after)
    resumable.render(context, after, places[-1], known[places[-1]], 1 << 20)
    return len(after) - places[-1]


@pytest.mark.parametrize("name", LOCAL)
def test_a_turn_renders_three_messages_however_long_the_conversation(name: str) -> None:
    assert [num_rendered(name, num_turns) for num_turns in (2, 5, 20)] == [3, 3, 3]


@pytest.mark.parametrize("name", LOCAL)
def test_the_memory_goes_on_where_the_last_turn_has_ended(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, render, rendered = RenderMemory(template(LOCAL[name])), ResumableTemplate.render, list[int]()

    def watched(
        self: ResumableTemplate, context: Any, messages: list[dict[str, Any]], start: int, *others: Any
    ) -> tuple[str, Any]:
        rendered.append(len(messages) - start)
        return render(self, context, messages, start, *others)

    monkeypatch.setattr(ResumableTemplate, "render", watched)
    for num_turns in (2, 3, 4, 20, 3):
        memory.render(growing(num_turns))
    assert rendered == [3, 3, 3, 33, 1]  # of what is known as a whole the last message


@pytest.mark.parametrize("name", FAR)
def test_a_template_that_looks_far_is_rendered_whole(name: str) -> None:
    assert num_rendered(name, 20) == 39


def test_another_day_is_another_text(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock(datetime.datetime):
        day = 1

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Clock:
            return cls(2026, 1, cls.day, tzinfo=tz)

    monkeypatch.setattr(template_environment.datetime, "datetime", Clock)
    plain = template(LOCAL["dates"])
    memory = RenderMemory(plain)
    for day, num_turns in [(1, 1), (1, 2), (2, 3), (2, 4), (1, 5)]:
        Clock.day = day
        assert memory.render(growing(num_turns)) == plain.render(growing(num_turns))
        assert f"{day:02}" in memory.render(growing(num_turns))[0]


def test_a_caller_may_change_what_it_gave() -> None:
    memory = RenderMemory(template(LOCAL["chatml"]))
    messages = growing(3)
    first = memory.render(messages)
    messages[0]["content"] = "changed"
    assert memory.render(messages) == template(LOCAL["chatml"]).render(messages) != first


def test_the_rendering_is_that_of_its_own_namespace_and_options() -> None:
    source = "{% for m in messages %}{{ m.content }}{{ mood }}{% endfor %}"
    plain = ChatTemplate(source, "t", token_texts=TOKENS, special_texts=SPECIALS)
    memory = RenderMemory(plain)
    for mood in ("calm", "wild", 1, True, "calm"):
        messages = growing(3)
        assert memory.render(messages, options={"mood": mood}) == plain.render(messages, options={"mood": mood})
    with pytest.raises(RequestError, match="no such option"):
        memory.render(messages, options={"moods": 1})
