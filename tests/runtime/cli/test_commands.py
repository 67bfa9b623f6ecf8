"""What the commands print, where, and with which exit code."""

from __future__ import annotations

import datetime
import importlib
import json
import os
import re
from pathlib import Path

import pytest
import torch

from phloem.runtime.engine.engine import Engine
from phloem.runtime.request import Completion, FinishReason, Usage

from .shell import DOCUMENT, Shell

doctor = importlib.import_module("phloem.runtime.cli.doctor")
SMALL = ("--num-blocks", "256")


# -- generating ----------------------------------------------------------------------------------------------------


def test_generate_prints_the_answer_and_nothing_else(shell: Shell) -> None:
    assert shell("generate", "Hello", "--chat", "--max-tokens", "8", *SMALL) == 0
    greedy = shell.out
    assert greedy.strip() and shell.err == ""
    assert shell("generate", "Hello", "--system", "", "--max-tokens", "8", "--stats", *SMALL) == 0
    assert re.fullmatch(r"prompt \d+ tokens \(\d+ cached\), answer \d+ .*s, \d+ tokens/s\n", shell.err)


def test_generate_obeys_its_constraint(shell: Shell, schema: str) -> None:
    hot = ("--temperature", "2", "--max-tokens", "60", *SMALL)
    assert shell("generate", "Date:", "--regex", r"\d{4}-\d\d-\d\d", *hot) == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\d\n", shell.out)
    assert shell("generate", "Really?", "--choice", "yes", "--choice", "no", "--num-outputs", "3", *hot) == 0
    assert set(shell.out.split()) <= {"yes", "no"} and shell.out.count("\n") == 3
    assert shell("generate", DOCUMENT, "--schema", schema, *hot) == 0
    assert set(json.loads(shell.out)) == {"name", "age"}
    assert shell("generate", DOCUMENT, "--json", *hot) == 0
    assert isinstance(json.loads(shell.out), dict)


def test_options_come_from_the_environment_too(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAX_TOKENS", "many"), ("KV_MEMORY", "lots"), ("JUMP", "high")):
        monkeypatch.setenv(f"PHLOEM_{name}", value)
        assert shell("generate", "Hi") == 2
        assert f"(from PHLOEM_{name})" in shell.err, shell.err
        monkeypatch.delenv(f"PHLOEM_{name}")
    monkeypatch.setenv("PHLOEM_MAX_TOKENS", "8")
    monkeypatch.setenv("PHLOEM_REGEX", "[ab]{4}")
    monkeypatch.setenv("PHLOEM_NUM_BLOCKS", "64")
    assert shell("generate", "Hi") == 0
    assert re.fullmatch(r"[ab]{4}\n", shell.out)


def test_chat_answers_line_by_line_and_survives_mistakes(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter(["Hello", "", "/help", "word " * 9000, "Hello", "/reset", "Hello", "/system Be brief.", "/exit", "x"])
    monkeypatch.setattr("builtins.input", lambda prompt="": next(lines))
    assert shell("chat", "--max-tokens", "8", *SMALL) == 0
    answers = shell.out.splitlines()
    assert len(answers) == 3 and answers[0] == answers[2]
    assert shell.err.count("error: ") == 1 and shell.err.count("tokens/s") == 3
    assert next(lines) == "x"


def test_chat_ends_with_its_input(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def end(prompt: str = "") -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", end)
    assert shell("chat", *SMALL) == 0


# -- extracting ----------------------------------------------------------------------------------------------------


def test_extract_prints_one_valid_object_per_document_in_order(
    shell: Shell, schema: str, document: str, tmp_path: Path
) -> None:
    other = tmp_path / "other.txt"
    other.write_text("Quila Marst is 7 years old.\nOdo Feringa is 8 years old.\n\n")
    assert shell("extract", "--schema", schema, document, str(other), "--names", *SMALL) == 0
    rows = [json.loads(line) for line in shell.out.splitlines()]
    assert [row["file"] for row in rows] == [document, str(other)]
    assert all(set(row["value"]) == {"name", "age"} for row in rows)
    assert shell("extract", "--schema", schema, str(other), "--lines", "--stats", *SMALL) == 0
    assert len(shell.out.splitlines()) == 2
    assert re.match(r"2 documents in .* prompt tokens \(\d+ cached\), \d+ output tokens \(\d+ jumped\)", shell.err)


def test_a_document_that_fails_leaves_null_and_exit_code_1(
    shell: Shell, schema: str, document: str, tmp_path: Path
) -> None:
    long = tmp_path / "long.txt"
    long.write_text("word " * 9000)
    assert shell("extract", "--schema", schema, str(long), document, *SMALL) == 1
    first, second = shell.out.splitlines()
    assert first == "null" and set(json.loads(second)) == {"name", "age"}
    assert shell.err.startswith(f"error: {long}: ")


def test_a_file_that_cannot_be_read_leaves_null_in_its_place(
    shell: Shell, schema: str, document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    binary, empty, pipe, odd = (tmp_path / name for name in ("binary", "empty", "pipe", "o\udcff"))
    binary.write_bytes(b"\xff\xfe\x00")
    empty.write_text(" \n")
    os.mkfifo(pipe)
    written, writer = os.pipe()  # as of `<(command)`: one that has ended, and one that is about to write
    os.write(writer, DOCUMENT.encode())
    os.close(writer)
    awaited, slow_writer = os.pipe()
    set_blocking = os.set_blocking

    def write_now(descriptor: int, blocking: bool) -> None:
        set_blocking(descriptor, blocking)
        if os.path.samestat(os.fstat(descriptor), os.fstat(awaited)):
            os.write(slow_writer, DOCUMENT.encode())
            os.close(slow_writer)

    monkeypatch.setattr(os, "set_blocking", write_now)
    odd.write_text(DOCUMENT)
    files = {
        document: None,
        str(tmp_path / "missing.txt"): "no such file or directory",
        str(tmp_path): "is a directory",
        str(binary): "not UTF-8 text (byte 0)",
        str(empty): "it is empty",
        str(pipe): "a pipe that no process writes to",
        "/dev/zero": "a device, not a file",
        "/proc/self/mem": "input/output error",
        "": "no such file or directory",
        "nul\0": "its name holds a null character",
        str(odd): None,
        f"/dev/fd/{written}": None,
        f"/dev/fd/{awaited}": None,
    }
    assert shell("extract", "--schema", schema, "--names", *files, *SMALL) == 1
    rows = [json.loads(line) for line in shell.out.splitlines()]
    assert [row["file"] for row in rows] == [os.fsencode(name).decode(errors="replace") for name in files]
    errors = dict(zip((name for name, why in files.items() if why), shell.err.splitlines(), strict=True))
    for row, (name, why) in zip(rows, files.items(), strict=True):
        if why is None:
            assert set(row["value"]) == {"name", "age"}
        else:
            assert row["value"] is None and errors[name] == f"error: file {name}: {why}"
    assert shell("extract", "--schema", schema, "--lines", str(tmp_path / "missing.txt"), document, *SMALL) == 1
    assert shell.out.splitlines()[0] == "null" and len(shell.out.splitlines()) == 2


def test_extract_refuses_before_it_loads(shell: Shell, schema: str, document: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    for command in (("extract", document), ("generate", "Hi"), ("inspect",)):
        assert shell(*command, "--schema", str(broken)) == 2 and f"--schema {broken}: " in shell.err
        assert "the text is not JSON" in shell.err
    broken.write_text('{"type": "strin"}')
    for command in (("extract", document), ("generate", "Hi")):
        assert shell(*command, "--schema", str(broken), "--model", "/none") == 2
        assert f"--schema {broken}: " in shell.err and "/type: 'strin' is no type" in shell.err
    assert shell("extract", "--schema", schema, str(tmp_path / "missing.txt")) == 2
    assert "missing.txt: no such file" in shell.err
    binary = tmp_path / "binary.txt"
    binary.write_bytes(b"\xff\xfe\x00")
    assert shell("extract", "--schema", schema, str(binary)) == 2
    assert "not UTF-8" in shell.err and not shell.out
    assert shell("extract", "--schema", schema, str(binary), str(tmp_path / "missing.txt")) == 2
    assert "the files hold no document" in shell.err and not shell.out
    broken.write_text('{"type": "array", "not": {"uniqueItems": true}}')
    assert shell("extract", "--schema", str(broken), document, *SMALL) == 2
    assert "/not/uniqueItems" in shell.err


# -- looking -------------------------------------------------------------------------------------------------------


def test_plan_answers_from_the_config_alone(shell: Shell) -> None:
    assert shell("plan", "--memory", "1GiB") == 0
    assert "KV per token" in shell.out and "4,096" in shell.out
    assert shell("plan", "--kv-memory", "1MiB", "--dtype", "float32", "--context", "128", "--json") == 0
    capacity = json.loads(shell.out)
    per_token = 2 * 4 * 2 * 32 * 4
    assert capacity["kv_bytes_per_token"] == per_token
    assert capacity["num_blocks"] == (1 << 20) // (per_token * 16)
    assert [(row["context_len"], row["num_sharing_requests"]) for row in capacity["lengths"]] == [(128, None)]
    assert shell("plan", "--device", "cpu", "--kv-dtype", "auto") == 0
    assert "one CPU, computing in float32, matrices published in bfloat16 kept so" in shell.out
    assert shell("plan", "--memory", "1GiB", "--quantise", "int4", "--kv-memory-share", "0.5") == 0
    assert "one CPU, computing in float32, matrices rounded to int4" in shell.out and "2 KiB (2 ×" in shell.out
    assert shell("plan", "--gpu", "H100", "--context", "256", "--json") == 0
    speed = json.loads(shell.out)["speed"]
    assert speed["device"] == "NVIDIA H100 SXM" and {step["context_len"] for step in speed["steps"]} == {256}
    assert shell("plan", "--memory", "8GiB", "--bandwidth", "300", "--tflops", "121") == 0
    assert "estimate for this device: 80% of 300 GB/s" in shell.out and "16,199" not in shell.out
    assert shell("plan", "--gpu", "h100", "--tensor-parallel-size", "2", "--host-memory", "2GiB") == 0
    assert "on each of 2; what they send each other is left out" in shell.out and "2.00 GiB of host" in shell.out
    assert shell("plan", "--kv-memory", "1MiB", "--speculative-model", "nano", "--json") == 0
    assert json.loads(shell.out)["num_blocks"] == capacity["num_blocks"]  # two models in half the bytes
    assert shell("plan", "--help") == 0
    assert "auto|fp8|int8|int4" in re.sub(r"\s", "", shell.out)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--device", "tpu", "--memory", "8GiB"], "'tpu' is not a device"),
        (["--memory", "8GiB", "--context", "100000"], "100,000 is more than the 4,096 tokens of the model"),
        (
            ["--memory", "8GiB", "--kv-dtype", "bfloat16"],
            "'--kv-dtype' / '--kv-cache-dtype': 'bfloat16' is not one of 'auto', 'fp8', 'int8', 'int4'",
        ),
        (["--memory", "80"], "'80' is 80 bytes; do you mean 80GiB?"),
        (["--gpu", "h1"], "'h1' is not one of a100,"),
        (["--gpu", "h100", "--quantise", "int4"], "--quantise int4: weights are rounded on a CPU only"),
        (["--memory", "8GiB", "--kv-memory-share", "1.5"], "kv_memory_share: 1.5 is out of range"),
        (["--memory", "8GiB", "--bandwidth", "300"], "--bandwidth and --tflops go together"),
        (["--gpu", "l4", "--bandwidth", "300", "--tflops", "1"], "exclude each other"),
        (["--memory", "8GiB", "--bandwidth", "nan", "--tflops", "1"], "must be positive"),
        (["--kv-memory", "2k"], "'2k' is 2000 bytes; do you mean 2GiB?"),
        (["--memory", "8GiB", "--speculative-model", "mtp"], "names no layers for multi-token prediction"),
    ],
)
def test_plan_refuses_by_name(shell: Shell, options: list[str], words: str) -> None:
    assert shell("plan", *options) == 2
    assert words in shell.err


def test_inspect_describes_a_checkpoint(shell: Shell) -> None:
    assert shell("inspect") == 0
    facts = {line[:15].strip(): line[15:] for line in shell.out.splitlines()}
    assert facts["architecture"] == "LlamaForCausalLM" and facts["layers"] == "4"


def test_doctor_finds_this_installation_healthy(shell: Shell) -> None:
    assert shell("doctor") == 0, shell.out
    assert shell.out.count("\nok ") == 4 and "FAIL" not in shell.out
    [text] = re.findall(r"a date is a date \((.*)\)", shell.out)
    assert datetime.date.fromisoformat(text).year >= 2000


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        ("constraint", '"2031-09-00"'),
        ("constraint", '"2031-02-29"'),
        ("constraint", "2031-09-01"),
        ("constraint", "20310901"),
        ("constraint", ""),
        ("model", ""),
        ("model", " \n"),
    ],
)
def test_doctor_says_ok_of_nothing_else(shell: Shell, monkeypatch: pytest.MonkeyPatch, check: str, answer: str) -> None:
    def say(*_: object, **__: object) -> Completion:
        return Completion("r", 0, answer, (), FinishReason.STOP, Usage(prompt_tokens=3, cached_tokens=2))

    monkeypatch.setattr(Engine, "generate", say)
    monkeypatch.setattr(Engine, "chat", say)
    monkeypatch.setattr(doctor, "_torch", lambda: "not asked")
    assert shell("doctor") == 1
    assert f"FAIL  {check}: Fault: " in shell.out and f"ok    {check}" not in shell.out


def test_doctor_finds_a_torch_that_cannot_multiply_and_a_cache_that_does_not_hit(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda one, other: one)
    monkeypatch.setattr(
        Engine, "chat", lambda *_: Completion("r", 0, "Hi", (), FinishReason.STOP, Usage(prompt_tokens=3))
    )
    monkeypatch.setattr(doctor, "_constraint", lambda: "not asked")
    assert shell("doctor") == 1
    assert "FAIL  torch: Fault: cpu:" in shell.out and "FAIL  model: Fault: the prompt was not found" in shell.out


def test_bench_shows_what_cache_and_jump_save(shell: Shell) -> None:
    small = ("--requests", "4", "--prefix", "80", "--max-tokens", "60", *SMALL)
    assert shell("bench", "--output-json", *small) == 0
    rows = {row["name"]: row for row in json.loads(shell.out)}
    assert "same 4 answers: yes" in shell.err
    assert len({row["completion_tokens"] for row in rows.values()}) == 1
    assert rows["cache and jump"]["cached_tokens"] > 0 and rows["cache and jump"]["jumped_tokens"] > 0
    assert rows["neither"]["cached_tokens"] == rows["neither"]["jumped_tokens"] == 0
    assert shell("bench", *small) == 0
    assert "speed-up" in shell.out and "cache and jump" in shell.out
