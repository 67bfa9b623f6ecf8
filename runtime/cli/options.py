"""Options that commands share, declared once, and the engine made from them.

Names are those of vLLM and SGLang where they have the option (`--max-num-seqs`, `--page-size` …).
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import ConfigError

if TYPE_CHECKING:
    from ..engine import Engine

PANEL = "Engine"
UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
BINARY_UNITS = {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}

Settings = dict[str, Any]


class Jump(StrEnum):
    verified = "verified"
    canonical = "canonical"
    off = "off"


class Quantise(StrEnum):
    none = "none"
    int8 = "int8"


class KVType(StrEnum):
    auto = "auto"
    fp8 = "fp8"
    int8 = "int8"


def option(*names: str, help: str, env: str, panel: str | None = None, **rest: Any) -> Any:
    """An option that can also be set as `PHLOEM_<env>`."""
    return typer.Option(*names, help=help, envvar=f"PHLOEM_{env}", show_envvar=False, rich_help_panel=panel, **rest)


def size(text: str) -> int:
    """`"2GiB"`, `"500M"`, `"1e9"` → bytes."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?)\s*([kmgt]i?)?b?\s*", text, re.IGNORECASE)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a size; write for example 2GiB, 500M or 1000000000")
    number, unit = float(match[1]), (match[2] or "").lower()
    return int(number * {**UNITS, **BINARY_UNITS}[unit])


ModelArgument = Annotated[
    str,
    typer.Argument(
        help='A checkpoint folder, a hub id (owner/name), or "nano" (the bundled model).',
        envvar="PHLOEM_MODEL",
        show_envvar=False,
    ),
]
ModelOption = Annotated[
    str,
    option("--model", "-m", help='A checkpoint folder, a hub id (owner/name), or "nano".', env="MODEL"),
]


def _engine_options(
    device: Annotated[str, option("--device", help="auto, cpu, cuda, cuda:1 …", env="DEVICE", panel=PANEL)] = "auto",
    dtype: Annotated[
        str, option("--dtype", help="auto, float32, bfloat16 or float16.", env="DTYPE", panel=PANEL)
    ] = "auto",
    quantise: Annotated[
        Quantise,
        option(
            "--quantise",
            "--quantization",
            help="Round the weights while loading: int8 (CPU only).",
            env="QUANTISE",
            panel=PANEL,
        ),
    ] = Quantise.none,
    block_size: Annotated[
        int, option("--block-size", "--page-size", help="Tokens per KV block.", env="BLOCK_SIZE", panel=PANEL)
    ] = 16,
    kv_dtype: Annotated[
        KVType,
        option(
            "--kv-dtype",
            "--kv-cache-dtype",
            help="How keys and values are kept: as --dtype, or rounded to fp8 or int8.",
            env="KV_DTYPE",
            panel=PANEL,
        ),
    ] = KVType.auto,
    num_blocks: Annotated[
        int | None,
        option(
            "--num-blocks",
            "--num-gpu-blocks-override",
            help="Size of the KV pool in blocks.",
            env="NUM_BLOCKS",
            panel=PANEL,
        ),
    ] = None,
    kv_memory: Annotated[
        str | None,
        option(
            "--kv-memory",
            "--kv-cache-memory-bytes",
            help="Memory for the KV pool (2GiB, 500M …), if --num-blocks is not given.",
            env="KV_MEMORY",
            panel=PANEL,
        ),
    ] = None,
    max_model_len: Annotated[
        int | None,
        option(
            "--max-model-len",
            "--context-length",
            help="Most tokens of prompt and output together.",
            env="MAX_MODEL_LEN",
            panel=PANEL,
        ),
    ] = None,
    max_batch_tokens: Annotated[
        int,
        option(
            "--max-batch-tokens",
            "--max-num-batched-tokens",
            help="Most tokens that one step computes.",
            env="MAX_BATCH_TOKENS",
            panel=PANEL,
        ),
    ] = 2048,
    max_running_requests: Annotated[
        int,
        option(
            "--max-running-requests",
            "--max-num-seqs",
            help="Most sequences in a step.",
            env="MAX_RUNNING_REQUESTS",
            panel=PANEL,
        ),
    ] = 256,
    max_waiting_requests: Annotated[
        int,
        option(
            "--max-waiting-requests",
            "--max-queued-requests",
            help="Length of the queue; what comes beyond is refused.",
            env="MAX_WAITING_REQUESTS",
            panel=PANEL,
        ),
    ] = 4096,
    max_wait_seconds: Annotated[
        float,
        option(
            "--max-wait-seconds",
            help="A request that has waited for so long is served before any other, whatever the priorities.",
            env="MAX_WAIT_SECONDS",
            panel=PANEL,
        ),
    ] = 30.0,
    max_compile_seconds: Annotated[
        float | None,
        option(
            "--max-compile-seconds",
            help="CPU time that compiling one constraint may take.",
            env="MAX_COMPILE_SECONDS",
            panel=PANEL,
        ),
    ] = 10.0,
    max_constraint_bytes: Annotated[
        int,
        option(
            "--max-constraint-bytes",
            help="Memory of one constraint, with the states that its requests have visited.",
            env="MAX_CONSTRAINT_BYTES",
            panel=PANEL,
        ),
    ] = 64 << 20,
    prefix_cache: Annotated[
        bool,
        option(
            "--prefix-cache/--no-prefix-cache",
            "--enable-prefix-caching/--disable-radix-cache",
            help="Keep the KV of finished requests for those that share a prefix.",
            env="PREFIX_CACHE",
            panel=PANEL,
        ),
    ] = True,
    eviction_policy: Annotated[
        str,
        option(
            "--eviction-policy",
            "--radix-eviction-policy",
            help="What leaves a full cache first: lru, lfu, priority or cost.",
            env="EVICTION_POLICY",
            panel=PANEL,
        ),
    ] = "lru",
    explain_namespaces: Annotated[
        bool,
        option(
            "--explain-namespaces",
            help="Let explain_cache say that another namespace has a prefix (tells callers what others sent).",
            env="EXPLAIN_NAMESPACES",
            panel=PANEL,
        ),
    ] = False,
    jump: Annotated[
        Jump,
        option(
            "--jump",
            help="Text that a constraint forces: drafted and verified, taken unseen (canonical), or sampled (off).",
            env="JUMP",
            panel=PANEL,
        ),
    ] = Jump.verified,
    engine_seed: Annotated[
        int | None,
        option("--engine-seed", help="Makes unseeded requests reproducible.", env="ENGINE_SEED", panel=PANEL),
    ] = None,
) -> None: ...


def with_engine_options(command: Callable[..., None]) -> Callable[..., None]:
    """Gives `command` the engine's options; it receives their values as `settings` (fields of `EngineConfig`)."""
    shared = inspect.signature(_engine_options, eval_str=True).parameters
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "settings"]

    def run(**values: Any) -> None:
        settings = {name: values.pop(name) for name in shared}
        command(settings=_config_fields(settings), **values)

    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*own, *shared.values())]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by typer
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _config_fields(settings: Settings) -> Settings:
    kv_memory = settings.pop("kv_memory")
    settings["kv_memory_bytes"] = size(kv_memory) if kv_memory is not None else None
    settings["seed"] = settings.pop("engine_seed")
    settings["jump"] = str(settings["jump"])
    return settings


def load_engine(model: str, settings: Settings) -> Engine:
    """The engine, with a word on a terminal while it loads."""
    with busy(f"loading {model}"):
        from ..engine import Engine

        return Engine(model, **settings)


def busy(text: str) -> AbstractContextManager[Any]:
    """A spinner on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(text)


def read_text(path: str, what: str) -> str:
    """A file's text; "-" is stdin. Raises `ConfigError` that names it."""
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{what} {path}: not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise ConfigError(f"{what} {path}: {(error.strerror or str(error)).lower()}") from error
