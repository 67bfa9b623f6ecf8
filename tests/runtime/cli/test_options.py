"""Options: what is said of them, what is refused, and that nothing is left out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer

from phloem.runtime.cli import run
from phloem.runtime.cli.engine_options import Settings, with_engine_options
from phloem.runtime.cli.options import size
from phloem.runtime.cli.running_server import RunningServer
from phloem.runtime.config import EngineConfig

from .shell import Shell

COMMANDS = ("serve", "chat", "generate", "extract", "bench", "plan", "inspect", "doctor")
ROOT = Path(__file__).resolve().parents[3]


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
    listed = shell.out
    assert shell() == 2 and shell.out == listed
    assert shell("--version") == 0
    assert re.fullmatch(r"phloem \d+\.\d+\.\d+\n", shell.out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fly"], "No such command"),
        (["generate"], "prompt"),
        (["generate", "Hi", "--wings"], "--wings"),
        (["generate", "Hi", "--max-tokens", "many"], "--max-tokens"),
        (["generate", "Hi", "--max-tokens", "-1"], "max_tokens: -1"),
        (["generate", "Hi", "--temperature", "-2"], "temperature"),
        (["generate", "Hi", "--regex", "a", "--json"], "--regex and --json exclude each other"),
        (["generate", "Hi", "--regex", r"\d(\w["], r"offset 5 of the pattern '\d(\w['"),
        (["generate", "Hi", "--schema", "/nowhere/schema.json"], "--schema /nowhere/schema.json: no such file"),
        (["generate", "Hi", "--model", "/nowhere/model"], "/nowhere/model"),
        (["generate", "Hi", "--adapter", "sql"], "--adapter sql: expected NAME=FOLDER"),
        (["generate", "Hi", "--adapter", "a=b", "--adapter", "a=c"], "--adapter a=c: a is given twice"),
        (["generate", "Hi", "--adapter", "a=/nowhere"], "/nowhere/adapter_config.json: there is no such file"),
        (["generate", "Hi", "--use-adapter", "sql"], "adapter: 'sql' is not loaded; there are: none"),
        (["generate", "Hi", "--device", "abacus"], "abacus"),
        (["generate", "Hi", "--device", "cuda:99"], "cuda:99"),
        (["generate", "Hi", "--dtype", "int3"], "int3"),
        (["generate", "Hi", "--block-size", "3"], "block_size: 3"),
        (["generate", "Hi", "--block-size", "0"], "block_size"),
        (["generate", "Hi", "--max-model-len", "5000"], "max_model_len: 5000 is more than the 4096 tokens"),
        (["generate", "Hi", "--jump", "high"], "high"),
        (["generate", "Hi", "--eviction-policy", "coin"], "coin"),
        (["generate", "Hi", "--kv-memory", "lots"], "--kv-memory: 'lots' is not a size"),
        (["generate", "Hi", "--kv-memory", "1"], "kv_memory_bytes: 1"),
        (["generate", "Hi", "--kv-memory", "99999999TiB"], "are numbered"),
        (
            ["generate", "Hi", "--kv-memory", "999TiB", "--block-size", "512"],
            "(--kv-memory): a pool of 1,022,976.00 GiB",
        ),
        (["generate", "Hi", "--host-memory", "999TiB"], "(--host-memory): 1,022,976.00 GiB cannot be had on cpu; "),
        (["generate", "Hi", "--num-blocks", "99999999999"], "num_blocks: 99999999999 is out of range"),
        (["generate", "Hi", "--num-threads", "100000"], "num_threads: 100000 is out of range"),
        (["generate", "Hi", "--max-wait-seconds", "nan"], "max_wait_seconds: nan"),
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
        (["top", "ftp://x", "--once"], "URL ftp://x: give a URL"),
        (["top", "http://127.0.0.1:9", "--once"], "cannot be reached"),
        (["top", "--interval", "0"], "0.1"),
        (["top"], "--once"),
        (["serve", "--port", "99999"], "65535"),
        (["serve", "--host", "256.1.1.1", "--port", "0"], "--host 256.1.1.1"),
        (["serve", "--api-key", "a b"], "api_key"),
        (["serve", "--cache-isolation", "key", "--port", "0"], "API key"),
        (["serve", "--api-key-file", "/nowhere"], "/nowhere"),
        (["serve", "--port", "0", "--no-warm-up", "--reranker-template", "/nowhere"], "reranker_template: /nowhere"),
        (["serve", "/nowhere", "--port", "0"], "/nowhere"),
        (["serve", "--port", "0", "--role", "prefill"], "role: 'prefill' needs a store"),
        (["serve", "--port", "0", "--replicas", "2", "--role", "decode"], "--role: replicas have theirs"),
        (["serve", "--port", "0", "--kv-events-config", "{on}"], "kv_events_config: no JSON"),
        (["serve", "--port", "0", "--kv-events-config", '{"port": 1}'], "no field 'port'; there are enable_kv"),
        (["serve", "--port", "0", "--kv-events-config", '{"endpoint": "tcp://8.8.8.8:5557", "bind": true}'], "8.8.8.8"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_and_exit_code_2(shell: Shell, arguments: Sequence[str], message: str) -> None:
    assert shell(*arguments) == 2
    assert shell.err.startswith("error: ") and shell.err.count("\n") == 1, shell.err
    assert message.lower() in shell.err.lower(), shell.err
    assert shell.out == ""


def test_an_unexpected_failure_is_one_line_too(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr(RunningServer, "json", fail)
    assert shell("inspect", "--cache", "http://127.0.0.1:9") == 1
    assert shell.err == "error: internal: ZeroDivisionError: by zero (PHLOEM_DEBUG=1 shows where)\n"
    monkeypatch.setenv("PHLOEM_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run(["inspect", "--cache", "http://127.0.0.1:9"])


@pytest.mark.parametrize(
    ("text", "count"),
    [("1", 1), ("2GiB", 2 << 30), ("500M", 500_000_000), ("1.5k", 1500), ("1e9", 10**9), (" 3 mib ", 3 << 20)],
)
def test_sizes_have_units(text: str, count: int) -> None:
    assert size(text, "--memory") == count


def test_the_manual_names_only_options_that_exist(shell: Shell) -> None:
    manual = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
    known = ""
    for command in COMMANDS:
        shell(command, "--help")
        known += shell.out
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", manual))
    assert len(named) > 15
    assert {name for name in named if not re.search(rf"{name}\b(?!-)", known)} == set()


def test_every_setting_of_an_engine_has_an_option_and_a_line_in_the_manual(shell: Shell) -> None:
    manual = (ROOT / "docs" / "server.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `[^|]+\|[^|]*\| `(\w+)` \|", manual, re.MULTILINE)
    assert sorted(rows) == sorted(set(EngineConfig.field_names()) - {"check_invariants"})
    given: dict[str, object] = {}

    @with_engine_options
    def command(settings: Settings) -> None:
        given.update(settings)

    application = typer.Typer()
    application.command()(command)
    arguments = "--max-overtakes 3 --max-pinned-blocks 4 --reply-memory 1KiB --max-draft-tokens 5 --enforce-eager"
    application([*arguments.split(), "--num-threads", "2", "--engine-seed", "6"], standalone_mode=False)
    assert set(given) == set(EngineConfig.field_names()) - {"check_invariants", "model"}
    wanted = {"max_overtakes": 3, "max_pinned_blocks": 4, "reply_memory_bytes": 1024, "max_draft_tokens": 5}
    assert given.items() >= {**wanted, "cuda_graphs": False, "num_threads": 2, "seed": 6}.items()
    application([], standalone_mode=False)
    assert EngineConfig(**given) == EngineConfig()  # type: ignore[arg-type]  # the defaults are the same
