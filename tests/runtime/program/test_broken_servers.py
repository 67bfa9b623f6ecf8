"""Servers whose answers have no end, or are of the wrong kind: an error at the line of the program."""

from __future__ import annotations

import itertools
import json
from types import SimpleNamespace

import pytest

import phloem as ph
from phloem.runtime.program import ProgramState
from phloem.runtime.program.backends import http_call

from .scripted_server import Reply, Script


@ph.function
def plain(s: ProgramState) -> None:
    s += "Why?" + ph.gen("x")


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (b" " * 3000, "application/json", "more than 2,000 bytes"),
        (b"data: " + b"a" * 3000, "text/event-stream", "more than 2,000 bytes"),
        (b"data: aa\n" * 1200, "text/event-stream", "more than 2,000 bytes"),
        (b": still here\n" * 10, "text/event-stream", "no answer within 0.4 s"),
        (b"data: 1", "text/event-stream", "no answer within 0.4 s"),
    ],
    ids=["answer", "line", "event", "comments", "drip"],
)
def test_an_answer_without_end_is_left(
    body: bytes, kind: str, said: str, server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_call, "MAX_ANSWER", 2000)
    if "within" in said:  # no time at all may pass between two events
        ticks = itertools.count()
        monkeypatch.setattr(http_call, "time", SimpleNamespace(monotonic=lambda: 1000.0 * next(ticks)))
    server.replies = [Reply(body, headers={"Content-Type": kind})]
    with pytest.raises(ph.ProgramError, match=rf"{__file__}:\d+, .*{said}"):
        plain.run(backend=ph.OpenAI("m", base_url=f"{server.url}/v1", api_key="k", timeout=0.4))


FACTS = {"bos_id": 1, "bos_text": "", "control_ids": {}, "max_model_len": 64}


@pytest.mark.parametrize(
    "answers",
    [
        [{**FACTS, "bos_id": None}],
        [{**FACTS, "control_ids": []}],
        [FACTS, {"token_ids": [["x"]]}],
        [FACTS, {"token_ids": []}],
        [FACTS, {"token_ids": 5}],
        [FACTS, {"token_ids": [[True]]}],
    ],
    ids=str,
)
def test_an_answer_of_wrong_kinds_is_no_phloem_servers(server: Script, answers: list[object]) -> None:
    server.replies = [Reply(json.dumps(answer).encode()) for answer in answers]
    with pytest.raises(ph.ProgramError, match=rf"{__file__}:\d+, .*this is no phloem server"):
        plain.run(backend=server.url)


def test_an_answer_that_is_nested_too_deeply_is_none(server: Script) -> None:
    server.replies = [Reply(b"[" * 200_000)]
    with pytest.raises(ph.ProgramError, match=rf"{__file__}:\d+, .*the answer broke off or is none: RecursionError"):
        plain.run(backend=server.url)
    server.replies = [Reply(b"[" * 50_000 + b"]" * 50_000, status=404)]
    with pytest.raises(ph.ProgramError, match=rf"{__file__}:\d+, .*answered 404: \[\[\[\["):
        plain.run(backend=server.url)
