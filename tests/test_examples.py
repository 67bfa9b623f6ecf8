"""Every example runs as it stands, is short, and says what its comments promise."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import phloem as ph

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SCRIPTS = EXAMPLES.parent / "scripts"
ALL = sorted(path.name for path in EXAMPLES.glob("*.py"))


def run(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *args: str) -> str:
    """Runs an example as a script would be run; returns what it printed."""
    monkeypatch.setattr(sys, "argv", [name, *args])
    try:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    finally:
        ph.set_default_backend(None)
    return capsys.readouterr().out


def load(path: Path) -> ModuleType:
    """A script as a module, without running it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def test_the_examples_are_these() -> None:
    assert ALL == [
        "batch_jsonl.py",
        "fork_and_join.py",
        "hello.py",
        "json_person.py",
        "regex_constraint.py",
        "shared_prompt_chat.py",
        "transformers_cache.py",
    ]


@pytest.mark.parametrize("name", ALL)
def test_an_example_is_short_and_says_how_to_run_it(name: str) -> None:
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert f"python examples/{name}" in text


def test_hello(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, cached = run("hello.py", capsys, monkeypatch).splitlines()
    assert first and second
    hits, total = map(int, re.findall(r"[0-9]+", cached))
    assert 16 <= hits < total


def test_json_person(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text, sentence, counts = run("json_person.py", capsys, monkeypatch).splitlines()
    person = json.loads(text)
    assert list(person) == ["name", "age", "job", "city", "remote"]
    assert person["name"] in sentence and str(person["age"]) in sentence
    tokens, jumped = map(int, re.findall(r"[0-9]+", counts))
    assert 0 < jumped < tokens


def test_regex_constraint(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [line.split("? ")[1].strip() for line in run("regex_constraint.py", capsys, monkeypatch).splitlines()]
    patterns = [r"[0-9]{4}", r"[1-9][0-9]* (EUR|USD|GBP)", r"EUR|USD|GBP", r"yes|no"]
    assert all(re.fullmatch(pattern, answer) for pattern, answer in zip(patterns, answers, strict=True))


def test_fork_and_join(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    *answers, hits = run("fork_and_join.py", capsys, monkeypatch).splitlines()
    assert [answer.split("?")[0] for answer in answers] == [
        "What is it called",
        "When is it",
        "Which city",
        "How many seats",
        "Where do we meet",
    ]
    assert answers[-1].endswith(" Hall")
    cached = [int(number) for number in re.findall(r"[0-9]+", hits)]
    assert len(cached) == 4 and sum(count >= 48 for count in cached) == 3


def test_batch_jsonl(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    lines = run("batch_jsonl.py", capsys, monkeypatch).splitlines()
    ticket = load(EXAMPLES / "batch_jsonl.py").Ticket
    assert len([ticket.model_validate_json(line) for line in lines]) == 5


def test_batch_jsonl_takes_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "two.jsonl"
    file.write_text('{"text": "Ticket 12 by gor."}\n{"text": "Ticket 13 by gor."}\n', encoding="utf-8")
    assert len(run("batch_jsonl.py", capsys, monkeypatch, str(file)).splitlines()) == 2


def test_shared_prompt_chat(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    out = run("shared_prompt_chat.py", capsys, monkeypatch)
    counts = [tuple(map(int, pair)) for pair in re.findall(r"\(cached: ([0-9]+) of ([0-9]+) prompt tokens\)", out)]
    assert len(counts) == 5
    assert counts[0][0] == 0 and all(96 <= cached < total for cached, total in counts[1:])


@pytest.mark.parametrize("is_kept", [False, True])
def test_transformers_cache(
    is_kept: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tokens are those of the model alone, and of each prompt only what is not in the store is computed."""
    folder = [str(tmp_path / "blocks")] if is_kept else []
    monkeypatch.setattr(sys, "argv", ["transformers_cache.py", *folder])
    for turn in range(1 + is_kept):
        scope = runpy.run_path(str(EXAMPLES / "transformers_cache.py"), run_name="__main__")
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == len(scope["QUESTIONS"]) == 3
        for number, (line, question) in enumerate(zip(lines, scope["QUESTIONS"], strict=True)):
            prompt = scope["SYSTEM"] + question
            computed, num_tokens, *said = map(int, re.findall("[0-9]+", line))
            assert num_tokens == len(prompt) and said == _greedy(scope["model"], prompt, 12)
            assert computed == (len(prompt) if number == turn == 0 else len(prompt) - 80)


def _greedy(model: Any, prompt: list[int], num_tokens: int) -> list[int]:
    """What a model says when everything is computed anew for each token."""
    import torch

    known = list(prompt)
    with torch.no_grad():
        for _ in range(num_tokens):
            known.append(int(model(torch.tensor([known])).logits[0, -1].argmax()))
    return known[len(prompt) :]


def test_the_page_on_programs_starts_with_one_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (EXAMPLES.parent / "docs" / "program.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None
    scope: dict[str, Any] = {}
    try:
        exec(code[1], scope)
    finally:
        ph.set_default_backend(None)
    assert len(scope["state"]["tip"]) == 2
    assert scope["state"]["better"] in ("first", "second")


def test_the_demo(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    demo = load(SCRIPTS / "demo.py")
    for name, value in {"NUM_CHATS": 8, "NUM_DOCUMENTS": 8, "NUM_REPEATS": 1}.items():
        monkeypatch.setattr(demo, name, value)
    demo.main()
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert len(lines) <= 36, "a screen and a half"
    assert lines[-1].split()[:2] == ["make", "demo"]
    rows = {
        name: [int(count.replace(",", "")) for count in line.removeprefix(f" {name}").split()]
        for name, _, _ in demo.MODES
        for line in lines
        if line.startswith(f" {name} ")
    }
    prompt, cached, jumped, sampled, _ = zip(*(rows[name] for name, _, _ in demo.MODES), strict=True)
    assert len(set(prompt)) == 1 and cached[0] > prompt[0] // 2 and cached[1] == cached[3] == 0
    assert jumped[0] > 0 and jumped[2] == jumped[3] == 0
    assert len({j + s for j, s in zip(jumped, sampled, strict=True)}) == 1
    assert any("16 of 16 answers are the same in all four ways; 8 of 8 are valid JSON" in line for line in lines)


def test_the_demo_says_in_a_line_that_there_is_no_such_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    monkeypatch.setenv("MODEL", "/nope")
    with pytest.raises(SystemExit, match=r"^error: '/nope': no such folder or file; give"):
        runpy.run_path(str(SCRIPTS / "demo.py"), run_name="__main__")


def test_the_demo_takes_another_model(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    demo = load(SCRIPTS / "demo.py")
    monkeypatch.setattr(demo, "NUM_OF_OTHERS", 2)
    folder = str(EXAMPLES.parent / "runtime" / "assets" / "nano")
    demo.main(folder)
    assert "4 of 4 answers are the same in all four ways; 2 of 2 are valid JSON" in capsys.readouterr().out
