"""What notebooks show of a state: all of its text, escaped, and where each token came from."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import phloem as ph
from phloem.runtime.program.chat_format import ChatFormat
from phloem.runtime.program.transcript import Transcript
from phloem.runtime.program.transcript_html import COLOURS, as_html, origins

from .fakes import FakeTokenizer
from .serving import engine, serving

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
DOCUMENT = "Meet <b>Ravel</b> Tamsen & é😀, 41 years old.\n\nExtract the person as JSON."
PIECES = st.tuples(st.sampled_from(["text", "written", "chosen"]), st.text('ab <&>"é😀', min_size=1, max_size=5))


def shown(page: str) -> str:
    """The text in the block, as a reader sees it."""
    block = re.match("<pre[^>]*>(.*?)</pre>", page, re.DOTALL)
    assert block is not None
    return html.unescape(re.sub("<[^>]*>", "", block[1]))


def counted(page: str) -> dict[str, int]:
    """The numbers in the legend."""
    return {kind: int(count) for kind, count in re.findall(r">(\w+)</span> (\d+)", page.partition("</pre>")[2])}


@given(st.lists(PIECES, max_size=8), st.data())
def test_the_text_is_whole_and_each_token_has_its_origin(pieces: list[tuple[str, str]], data: st.DataObject) -> None:
    tokenizer = FakeTokenizer()
    grown = Transcript(tokenizer, ChatFormat(tokenizer))
    wanted: list[str] = []
    for kind, text in pieces:
        if kind == "text":
            grown.append_text(text)
            continue
        size = len(grown.prompt())
        ids = tokenizer.encode(text)
        if kind == "chosen":
            grown.append_scored(grown.prompt(), ids, text)
            wanted += ["" for _ in range(len(wanted), size)] + ["chosen"] * len(ids)
            continue
        cached = data.draw(st.integers(0, size))
        jumped = data.draw(st.sets(st.integers(0, len(ids))))  # the end token, which is not kept, may be one
        grown.show(text)
        grown.append_generated(ids, cached, jumped)
        wanted += ["cached" if at < cached else "computed" for at in range(len(wanted), size)]
        wanted += ["jumped" if at in jumped else "sampled" for at in range(len(ids))]
    ids = grown.token_ids().tolist()
    wanted += [""] * (len(ids) - len(wanted))
    assert origins(grown, len(ids)) == wanted
    page = as_html(grown, tokenizer)
    assert shown(page) == grown.text if not ids or ids[0] != tokenizer.bos_id else shown(page) == "<s>" + grown.text
    assert counted(page) == {kind: wanted.count(kind) for kind in COLOURS if kind in wanted}


def person(s: ph.ProgramState) -> None:
    s += ph.user(DOCUMENT) + ph.assistant(ph.gen("person", json_schema=SCHEMA, max_tokens=60))
    s += ph.user("Which?") + ph.assistant(ph.select("which", ["Ravel", "<i>"]))


def test_counts_are_those_of_the_engine() -> None:
    with engine() as used:
        for turn in range(2):
            state = ph.function(person).run(backend=used, temperature=0.0)
            info = state.get_meta_info("person")
            counts = counted(state._repr_html_())
            assert shown(state._repr_html_()) == state.text()
            assert counts["jumped"] == info["jumped_tokens"] > 0
            assert counts.get("cached", 0) == info["cached_tokens"] and (info["cached_tokens"] > 0) == (turn > 0)
            assert counts.get("cached", 0) + counts["computed"] == info["prompt_tokens"]


def test_a_joined_fork_keeps_what_it_has_written() -> None:
    with engine() as used:

        def two(s: ph.ProgramState) -> None:
            s += ph.user("Hello")
            forks = s.fork(2)
            forks += ph.assistant("So: " + ph.gen("x", max_tokens=5, ignore_eos=True)) + ph.user("And?")
            forks.join("concate_and_append")

        state = ph.function(two).run(backend=used, temperature=0.0)
        counts = counted(state._repr_html_())
        assert counts["sampled"] + counts.get("jumped", 0) == 10
        assert shown(state._repr_html_()) == state.text()


def test_a_state_on_a_server_is_shown_too() -> None:
    with serving() as (url, _):
        state = ph.function(person).run(backend=ph.RuntimeEndpoint(url, "sk-loopback"), temperature=0.0)
        page = state._repr_html_()
        assert "&lt;b&gt;Ravel" in page and "jumped" not in counted(page) and counted(page)["sampled"] > 0


@pytest.mark.parametrize("jump", ["verified", "canonical", "off"])
def test_jumped_tokens_are_those_that_came_with_another(jump: Any) -> None:
    """A step decides one token by itself; the others of its delta were foreseen."""
    with ph.Engine(num_blocks=512, device="cpu", jump=jump, lookup_drafts=False) as used:
        prompt = used.encode_chat([{"role": "user", "content": DOCUMENT}]).token_ids
        sampling = ph.SamplingParams(temperature=0.0, max_tokens=60)
        deltas = list(used.submit(prompt, sampling, ph.json_schema(SCHEMA)))
        usage = deltas[-1].usage
        assert len(usage.jumped_at) == usage.jumped_tokens and (usage.jumped_tokens > 0) == (jump != "off")
        assert usage.jumped_at == sorted(set(usage.jumped_at))
        if jump == "verified":
            wanted, at = [], 0
            for delta in deltas:
                wanted += range(at, at + len(delta.token_ids) - 1)
                at += len(delta.token_ids)
            assert usage.jumped_at == wanted
        if jump == "canonical":  # the names of the keys are forced
            ids = [token_id for delta in deltas for token_id in delta.token_ids]
            assert "age" in used.tokenizer.decode([ids[at] for at in usage.jumped_at])
