"""The command line: what it prints, where, and with which exit code."""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from phloem.runtime.cli import run
from phloem.runtime.cli.options import size

PERSON = {
    "title": "Person",
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 40}, "age": {"type": "integer", "maximum": 999}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
DOCUMENT = "Tarvin Ledmo is 42 years old and lives in Quolsat. Tarvin is a baker."
COMMANDS = ("serve", "chat", "generate", "extract", "bench", "plan", "inspect", "doctor")
SMALL = ("--num-blocks", "256")


class Shell:
    """Runs commands in this process; `out` and `err` are what the last one printed."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture
        self.out = self.err = ""

    def __call__(self, *arguments: str) -> int:
        code = run(arguments)
        self.out, self.err = self._capture.readouterr()
        assert "Traceback" not in self.err
        return code


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    for name in list(os.environ):
        if name.startswith("PHLOEM_"):
            monkeypatch.delenv(name)
    return Shell(capsys)


@pytest.fixture
def schema(tmp_path: Path) -> str:
    file = tmp_path / "person.json"
    file.write_text(json.dumps(PERSON))
    return str(file)


@pytest.fixture
def document(tmp_path: Path) -> str:
    file = tmp_path / "document.txt"
    file.write_text(DOCUMENT)
    return str(file)


# -- help and mistakes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_every_command_is_explained(shell: Shell, command: str) -> None:
    assert shell(command, "--help") == 0
    entries = re.split(r"\n  (?=-)", shell.out.partition("Options:")[2])
    assert len(entries) > 1
    for entry in entries[1:]:
        names, _, text = re.sub(r"<[^>]*>", "", entry.replace("\n", " ")).strip().partition("  ")
        assert len(text.strip()) > 5, f"{command}: {names} has no help"


def test_the_root_lists_the_commands_and_the_version(shell: Shell) -> None:
    assert shell("--help") == 0
    assert all(f"\n  {command} " in shell.out for command in COMMANDS)
    assert shell("--version") == 0
    assert re.fullmatch(r"phloem \d+\.\d+\.\d+\n", shell.out)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["fly"], "No such command"),
        (["generate"], "prompt"),
        (["generate", "Hi", "--wings"], "--wings"),
        (["generate", "Hi", "--max-tokens", "many"], "--max-tokens"),
        (["generate", "Hi", "--max-tokens", "-1"], "max_tokens: -1"),
        (["generate", "Hi", "--temperature", "-2"], "temperature"),
        (["generate", "Hi", "--regex", "a", "--json"], "--regex and --json exclude each other"),
        (["generate", "Hi", "--regex", "["], "offset 0"),
        (["generate", "Hi", "--schema", "/nowhere/schema.json"], "--schema /nowhere/schema.json: no such file"),
        (["generate", "Hi", "--model", "/nowhere/model"], "/nowhere/model"),
        (["generate", "Hi", "--device", "abacus"], "abacus"),
        (["generate", "Hi", "--device", "cuda:99"], "cuda:99"),
        (["generate", "Hi", "--dtype", "int3"], "int3"),
        (["generate", "Hi", "--block-size", "3"], "block_size: 3"),
        (["generate", "Hi", "--block-size", "0"], "block_size"),
        (["generate", "Hi", "--jump", "high"], "high"),
        (["generate", "Hi", "--eviction-policy", "coin"], "coin"),
        (["generate", "Hi", "--kv-memory", "lots"], "'lots' is not a size"),
        (["generate", "Hi", "--kv-memory", "1"], "kv_memory_bytes: 1"),
        (["generate", "word " * 9000], "4096"),
        (["extract", "--schema", "/nowhere.json", "x.txt"], "/nowhere.json"),
        (["plan", "--memory", "big"], "big"),
        (["plan", "--memory", "1GiB", "--kv-memory", "1GiB"], "exclude"),
        (["plan", "--dtype", "int3"], "int3"),
        (["plan", "--context", "0"], "at least 1"),
        (["plan", "owner"], "owner"),
        (["inspect", "/nowhere"], "/nowhere"),
        (["inspect", "--cache", "ftp://x"], "give a URL"),
        (["inspect", "--cache", "http://127.0.0.1:9"], "cannot be reached"),
        (["serve", "--port", "99999"], "65535"),
        (["serve", "--host", "256.1.1.1", "--port", "0"], "--host 256.1.1.1"),
        (["serve", "--api-key", "a b"], "api_key"),
        (["serve", "--cache-isolation", "key", "--port", "0"], "API key"),
        (["serve", "--api-key-file", "/nowhere"], "/nowhere"),
        (["serve", "/nowhere", "--port", "0"], "/nowhere"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_exit_code_2(shell: Shell, arguments: Sequence[str], told: str) -> None:
    assert shell(*arguments) == 2
    assert shell.err.startswith("error: ") and shell.err.count("\n") == 1, shell.err
    assert told.lower() in shell.err.lower(), shell.err
    assert shell.out == ""


def test_an_unexpected_failure_is_one_line_too(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr(importlib.import_module("phloem.runtime.cli.inspect_cache"), "_get", fail)
    assert shell("inspect", "--cache", "http://127.0.0.1:9") == 1
    assert shell.err == "error: internal: ZeroDivisionError: by zero (PHLOEM_DEBUG=1 shows where)\n"
    monkeypatch.setenv("PHLOEM_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run(["inspect", "--cache", "http://127.0.0.1:9"])


def test_the_command_line_starts_without_torch() -> None:
    code = (
        "import sys, phloem.runtime.cli as c; c.command_line(); print({'torch', 'fastapi', 'numpy'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    assert found.stdout == "set()\n"


@pytest.mark.parametrize(
    ("text", "count"),
    [("1", 1), ("2GiB", 2 << 30), ("500M", 500_000_000), ("1.5k", 1500), ("1e9", 10**9), (" 3 mib ", 3 << 20)],
)
def test_sizes_have_units(text: str, count: int) -> None:
    assert size(text) == count


# -- generating ----------------------------------------------------------------------------------------------------


def test_generate_prints_the_answer_and_nothing_else(shell: Shell) -> None:
    assert shell("generate", "Hello", "--chat", "--max-tokens", "8", *SMALL) == 0
    greedy = shell.out
    assert greedy.strip() and shell.err == ""
    assert shell("generate", "Hello", "--system", "", "--max-tokens", "8", "--stats", *SMALL) == 0
    assert re.fullmatch(r"prompt \d+ tokens \(\d+ cached\), answer \d+ tokens.* tokens/s\n", shell.err)


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
    monkeypatch.setenv("PHLOEM_MAX_TOKENS", "many")
    assert shell("generate", "Hi") == 2
    assert "--max-tokens" in shell.err
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


def test_extract_refuses_before_it_loads(shell: Shell, schema: str, document: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    assert shell("extract", "--schema", str(broken), document) == 2
    assert shell("extract", "--schema", schema, str(tmp_path / "missing.txt")) == 2
    assert "missing.txt: no such file" in shell.err
    binary = tmp_path / "binary.txt"
    binary.write_bytes(b"\xff\xfe\x00")
    assert shell("extract", "--schema", schema, str(binary)) == 2
    assert "not UTF-8" in shell.err
    broken.write_text('{"type": "array", "uniqueItems": true}')
    assert shell("extract", "--schema", str(broken), document, *SMALL) == 2
    assert "/uniqueItems" in shell.err


# -- looking -------------------------------------------------------------------------------------------------------


def test_plan_answers_from_the_config_alone(shell: Shell) -> None:
    assert shell("plan", "--memory", "1GiB") == 0
    assert "KV per token" in shell.out and "4,096" in shell.out
    assert shell("plan", "--kv-memory", "1MiB", "--kv-dtype", "float32", "--context", "128", "--json") == 0
    capacity = json.loads(shell.out)
    per_token = 2 * 4 * 2 * 32 * 4
    assert capacity["kv_bytes_per_token"] == per_token
    assert capacity["num_blocks"] == (1 << 20) // (per_token * 16)
    assert [row["context_len"] for row in capacity["lengths"]] == [128]


def test_inspect_describes_a_checkpoint(shell: Shell) -> None:
    assert shell("inspect") == 0
    facts = {line[:15].strip(): line[15:] for line in shell.out.splitlines()}
    assert facts["architecture"] == "LlamaForCausalLM" and facts["layers"] == "4"


def test_doctor_finds_this_installation_healthy(shell: Shell) -> None:
    assert shell("doctor") == 0, shell.out
    assert shell.out.count("\nok ") == 4 and "FAIL" not in shell.out


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


# -- serving -------------------------------------------------------------------------------------------------------


class Process:
    """`phloem serve` in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-c", "from phloem.runtime.cli import main; main()", "serve", "--port", "0"]
        self._process = subprocess.Popen([*command, *arguments], stderr=subprocess.PIPE, text=True)
        self.log: list[str] = []
        self._url = ""
        self._told = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)
            found = re.search(r"http://\S+", line)
            if found and not self._url:
                self._url = found[0]
            if "startup complete" in line:
                self._told.set()
        self._told.set()

    @property
    def url(self) -> str:
        assert self._told.wait(60) and self._url, "".join(self.log)
        return self._url.removesuffix("/v1")

    def connect(self) -> HTTPConnection:
        address = urlsplit(self.url)
        return HTTPConnection(address.hostname or "", address.port, timeout=120)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        code = self._process.wait(40)
        self._reader.join(10)
        return code

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10)
        self._reader.join(10)
        assert self._process.stderr is not None
        self._process.stderr.close()


@pytest.fixture
def server() -> Iterator[Process]:
    process = Process("--num-blocks", "1024", "--api-key", "sk-x", "--served-model-name", "mine", "--enable-admin")
    try:
        yield process
    finally:
        process.close()


def test_serve_finishes_what_runs_when_it_is_told_to_stop(server: Process, shell: Shell) -> None:
    assert shell("inspect", "--cache", server.url, "--api-key", "sk-x") == 0
    assert "pool of 1,024 blocks of 16 tokens" in shell.out
    assert shell("inspect", "--cache", server.url) == 2
    assert "--api-key" in shell.err
    body = {"model": "mine", "prompt": "Hi", "max_tokens": 400, "ignore_eos": True, "stream": True}
    headers = {"content-type": "application/json", "authorization": "Bearer sk-x"}
    stream, late = server.connect(), server.connect()
    try:
        stream.request("POST", "/v1/completions", json.dumps(body), headers)
        answer = stream.getresponse()
        assert answer.status == 200
        first = answer.readline()
        server.signal(signal.SIGTERM)
        late.request("POST", "/v1/completions", json.dumps(body), headers)
        refused = late.getresponse()
        assert refused.status == 503 and refused.getheader("Retry-After")
        refused.read()
        events = (first + answer.read()).decode().split("\n\n")
    finally:
        stream.close()
        late.close()
    assert events[-2] == "data: [DONE]"
    assert json.loads(events[-3].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
    assert server.wait() == 0, "".join(server.log)
    assert "Traceback" not in "".join(server.log)


def test_a_port_in_use_is_told_before_the_model_is_loaded(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert shell("serve", "--port", port) == 2
    assert f"--port {port}" in shell.err and "in use" in shell.err


def test_the_manual_names_only_options_that_exist(shell: Shell) -> None:
    manual = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")
    known = ""
    for command in COMMANDS:
        shell(command, "--help")
        known += shell.out
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", manual))
    assert len(named) > 15
    assert {name for name in named if not re.search(rf"{name}\b(?!-)", known)} == set()
