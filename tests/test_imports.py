"""What an import and the start of a command bring along: measured by what is loaded, not by the clock."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys

import pytest

# commands one after the other in one process; what each has loaded so far
RUN = """
import json, sys
from phloem.runtime.cli import run
for command in json.loads(sys.argv[1]):
    assert run(command) == 0, command
    sys.stderr.write(json.dumps([command, sorted(sys.modules)]) + "\\n")
"""


def _run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PHLOEM_")}
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    return subprocess.run(command, cwd="/", env=environment, check=False, capture_output=True, text=True, timeout=600)


def _loaded(commands: list[list[str]], modules: set[str]) -> dict[str, set[str]]:
    """Which of the modules are there after which command; commands that load none of them are left out."""
    done = _run(RUN, json.dumps(commands))
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("[[")]
    assert [command for command, _ in found] == commands
    return {" ".join(command): modules & {*names} for command, names in found if modules & {*names}}


def test_a_command_that_computes_nothing_loads_no_engine() -> None:
    commands = [
        ["--help"],
        ["--version"],
        *[
            [name, "--help"]
            for name in ("serve", "chat", "generate", "extract", "bench", "plan", "inspect", "top", "doctor")
        ],
        ["plan", "nano"],
        ["plan", "nano", "--memory", "24GiB", "--dtype", "bfloat16", "--kv-dtype", "fp8", "--json"],
        ["plan", "nano", "--device", "cpu", "--quantise", "int4"],
        ["inspect", "nano"],
    ]
    engine = {"torch", "triton", "transformers", "phloem.kernels", "phloem.fsm", "phloem.radix"}
    engine |= {"rich", "prompt_toolkit"}
    assert _loaded(commands, engine) == {}


def test_a_constraint_is_explained_without_torch() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}}
    commands = [
        ["inspect", "--regex", "a+", "--text", "aa"],
        ["inspect", "--schema", json.dumps(schema)],
        ["inspect", "--grammar", 'root ::= "a"'],
    ]
    assert _loaded(commands, {"torch", "triton", "transformers", "phloem.kernels", "phloem.radix"}) == {}


def test_a_plain_generation_loads_nothing_that_only_constraints_chats_or_servers_need() -> None:
    own = {
        *("fsm.json_schema", "fsm.grammars.ebnf", "fsm.grammars.lark", "fsm.tags", "fsm.explain"),
        *(
            "runtime.engine.async_engine",
            "runtime.explain",
            "runtime.program",
            "runtime.constrain.python_types",
            "runtime.server.app",
        ),
        *("runtime.tokenizer.gguf_vocabulary", "runtime.engine.warmup", "runtime.events.wire"),
    }
    own = {f"phloem.{name}" for name in own}
    assert all(importlib.util.find_spec(name) for name in own)
    others = {
        *(
            "fastapi",
            "starlette",
            "uvicorn",
            "prometheus_client",
            "email_validator",
            "rich",
            "prompt_toolkit",
            "jsonschema_specifications",
            "zmq",
            "msgpack",
        ),
        *("tokenizers", "transformers", "huggingface_hub", "torch._dynamo", "torch._inductor"),
    }
    assert _loaded([["generate", "hello", "--model", "nano", "--max-tokens", "2"]], own | others) == {}


@pytest.mark.parametrize(
    "module", ["phloem", "phloem.fsm", "phloem.runtime.cli", "phloem.runtime.config", "phloem.runtime.request"]
)
def test_an_import_brings_what_it_needs_only(module: str) -> None:
    """torch is for engines, the readers of schemas and grammars for constraints of that kind, pydantic for neither."""
    code = "import importlib, json, sys; importlib.import_module(sys.argv[1]); print(json.dumps(sorted(sys.modules)))"
    done = _run(code, module)
    assert done.returncode == 0, done.stderr
    unneeded = {
        "torch",
        "pydantic",
        "jinja2",
        "rich",
        "prompt_toolkit",
        "urllib.request",
        "asyncio",
        "phloem.fsm.json_schema",
    }
    unneeded |= {"phloem.fsm.grammars.ebnf", "phloem.fsm.grammars.lark", "phloem.kernels", "phloem.radix"}
    assert not unneeded & {*json.loads(done.stdout)}
