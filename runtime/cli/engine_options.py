"""The options of an engine, declared once for all commands that make one: a flag for every field of `EngineConfig`.

Names are those of vLLM and SGLang where they have the option (`--max-num-seqs`, `--page-size` …). What has no flag:
`check_invariants`, which is for tests.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import ConfigError
from .. import garbage
from .busy import busy
from .options import option, size

if TYPE_CHECKING:
    from ..engine import Engine

PANEL = "Engine"

Settings = dict[str, Any]


class Jump(StrEnum):
    verified = "verified"
    canonical = "canonical"
    off = "off"


class Quantise(StrEnum):
    none = "none"
    int8 = "int8"
    int4 = "int4"


class KVType(StrEnum):
    auto = "auto"
    fp8 = "fp8"
    int8 = "int8"


class Role(StrEnum):
    both = "both"
    prefill = "prefill"
    decode = "decode"


def _engine_options(
    adapter: Annotated[
        list[str] | None,
        option(
            "--adapter",
            "--lora-modules",
            "--lora-paths",
            help="A LoRA adapter, NAME=FOLDER; requests choose it by its name (may be repeated).",
            env="ADAPTER",
            panel=PANEL,
        ),
    ] = None,
    device: Annotated[str, option("--device", help="auto, cpu, cuda, cuda:1 …", env="DEVICE", panel=PANEL)] = "auto",
    dtype: Annotated[
        str, option("--dtype", help="auto, float32, bfloat16 or float16.", env="DTYPE", panel=PANEL)
    ] = "auto",
    quantise: Annotated[
        Quantise,
        option(
            "--quantise",
            "--quantization",
            help="Round the weights while loading: int8 or int4 (CPU only).",
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
    kv_memory_share: Annotated[
        float,
        option(
            "--kv-memory-share",
            help="Share of a GPU's memory left by the weights that the KV pool takes, without --kv-memory.",
            env="KV_MEMORY_SHARE",
            panel=PANEL,
        ),
    ] = 0.8,
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
    target_step_seconds: Annotated[
        float | None,
        option(
            "--target-step-seconds",
            help="Seconds of a step while requests decode. Default: 0.1 on a CPU, 0.05 on a GPU; inf: no target.",
            env="TARGET_STEP_SECONDS",
            panel=PANEL,
        ),
    ] = None,
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
            help="Length of the queue; further requests are refused.",
            env="MAX_WAITING_REQUESTS",
            panel=PANEL,
        ),
    ] = 4096,
    max_overtakes: Annotated[
        int | None,
        option(
            "--max-overtakes",
            help="How many later requests may overtake one that waits; 0: none. Default: 256, or as many as wait.",
            env="MAX_OVERTAKES",
            panel=PANEL,
        ),
    ] = None,
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
    ] = 0.8,
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
            help="Let explain_cache report that another namespace has a prefix (reveals to callers what others sent).",
            env="EXPLAIN_NAMESPACES",
            panel=PANEL,
        ),
    ] = False,
    max_pinned_blocks: Annotated[
        int | None,
        option(
            "--max-pinned-blocks",
            help="How much of the KV pool pins may hold together. Default: a quarter.",
            env="MAX_PINNED_BLOCKS",
            panel=PANEL,
        ),
    ] = None,
    host_memory: Annotated[
        str,
        option(
            "--host-memory",
            help="Host memory for KV that the pool has evicted (2GiB …); 0: none. For GPUs.",
            env="HOST_MEMORY",
            panel=PANEL,
        ),
    ] = "0",
    disk_cache: Annotated[
        str | None,
        option(
            "--disk-cache",
            help="Folder in which KV is kept as files, for the next start and for other processes too.",
            env="DISK_CACHE",
            panel=PANEL,
        ),
    ] = None,
    disk_cache_size: Annotated[
        str,
        option(
            "--disk-cache-size",
            help="What all files in the folder of --disk-cache may take together.",
            env="DISK_CACHE_SIZE",
            panel=PANEL,
        ),
    ] = "16GiB",
    disk_cache_shared: Annotated[
        bool,
        option(
            "--disk-cache-shared",
            help="Take a folder for --disk-cache that other users own or can write to: all of them are trusted.",
            env="DISK_CACHE_SHARED",
            panel=PANEL,
        ),
    ] = False,
    shared_cache: Annotated[
        str | None,
        option(
            "--shared-cache",
            help="Store in which machines share KV: redis://, rediss:// or unix:// (phloem[shared]).",
            env="SHARED_CACHE",
            panel=PANEL,
        ),
    ] = None,
    shared_cache_ttl: Annotated[
        float | None,
        option(
            "--shared-cache-ttl",
            help="Seconds after which the store forgets a block that was not used.",
            env="SHARED_CACHE_TTL",
            panel=PANEL,
        ),
    ] = None,
    role: Annotated[
        Role,
        option(
            "--role",
            help="What it does where prefill and decode are apart, over --shared-cache or --disk-cache.",
            env="ROLE",
            panel=PANEL,
        ),
    ] = Role.both,
    kv_events_config: Annotated[
        str | None,
        option(
            "--kv-events-config",
            help='Publish what the prefix cache holds, for routers: JSON such as {"endpoint": "tcp://127.0.0.1:5557"}.',
            env="KV_EVENTS_CONFIG",
            panel=PANEL,
        ),
    ] = None,
    reply_memory: Annotated[
        str,
        option(
            "--reply-memory",
            help="Memory for the tokens of replies, so that the next turn of a chat finds them in the cache; 0: none.",
            env="REPLY_MEMORY",
            panel=PANEL,
        ),
    ] = "64MiB",
    jump: Annotated[
        Jump,
        option(
            "--jump",
            help="Text that a constraint determines: verified, inserted unverified (canonical), or sampled (off).",
            env="JUMP",
            panel=PANEL,
        ),
    ] = Jump.verified,
    lookup_drafts: Annotated[
        bool,
        option(
            "--lookup-drafts/--no-lookup-drafts",
            help="Draft what followed the same tokens earlier in the prompt or the output, where that pays.",
            env="LOOKUP_DRAFTS",
            panel=PANEL,
        ),
    ] = True,
    max_draft_tokens: Annotated[
        int,
        option(
            "--max-draft-tokens",
            "--speculative-num-draft-tokens",
            help="Longest run of tokens that is drafted and verified in one step.",
            env="MAX_DRAFT_TOKENS",
            panel=PANEL,
        ),
    ] = 64,
    cuda_graphs: Annotated[
        bool,
        option(
            "--cuda-graphs/--no-cuda-graphs",
            " /--enforce-eager",
            " /--disable-cuda-graph",
            help="On a GPU, capture small steps once and replay them.",
            env="CUDA_GRAPHS",
            panel=PANEL,
        ),
    ] = True,
    run_ahead: Annotated[
        bool | None,
        option(
            "--run-ahead/--no-run-ahead",
            " /--disable-overlap-schedule",
            help="Queue the next step before this one's tokens are read. Default: on a GPU.",
            env="RUN_AHEAD",
            panel=PANEL,
        ),
    ] = None,
    deterministic: Annotated[
        bool,
        option(
            "--deterministic",
            "--enable-deterministic-inference",
            help="On a GPU, the same bits for a request in any batch, at some cost in speed.",
            env="DETERMINISTIC",
            panel=PANEL,
        ),
    ] = False,
    num_threads: Annotated[
        int | None,
        option(
            "--num-threads",
            help="CPU threads. Default: one for small models, otherwise torch's own choice.",
            env="NUM_THREADS",
            panel=PANEL,
        ),
    ] = None,
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
    settings["adapters"] = adapter_folders(settings.pop("adapter"))
    kv_memory = settings.pop("kv_memory")
    settings["kv_memory_bytes"] = size(kv_memory, "--kv-memory") if kv_memory is not None else None
    settings["host_memory_bytes"] = size(settings.pop("host_memory"), "--host-memory")
    settings["disk_cache_bytes"] = size(settings.pop("disk_cache_size"), "--disk-cache-size")
    settings["reply_memory_bytes"] = size(settings.pop("reply_memory"), "--reply-memory")
    settings["seed"] = settings.pop("engine_seed")
    settings["jump"] = str(settings["jump"])
    settings["role"] = str(settings["role"])
    return settings


def adapter_folders(given: list[str] | None) -> dict[str, str]:
    """Folders of adapters by name, out of NAME=FOLDER."""
    folders: dict[str, str] = {}
    for text in given or ():
        name, _, folder = text.partition("=")
        if not name or not folder:
            raise ConfigError(f"--adapter {text}: expected NAME=FOLDER")
        if name in folders:
            raise ConfigError(f"--adapter {text}: {name} is given twice")
        folders[name] = folder
    return folders


def load_engine(model: str, settings: Settings) -> Engine:
    """The engine; what takes long is shown. A model that a hub id names is fetched first."""
    source = fetched(model)
    with busy(f"loading {model}") as report:
        from ..config import EngineConfig
        from ..engine import Engine
        from ..loading import load

        config = EngineConfig(model=source, **settings)
        engine = Engine.from_loaded(config, load(config, report))
    garbage.release()
    return engine


def fetched(model: str, *, weights: bool = True) -> str:
    """The folder or file of a model that a hub id names, fetched now (see `resolve_model`); any other model as it is
    named."""
    from ..models.resolve import is_hub_id, resolve_model

    if not is_hub_id(model):
        return model
    typer.echo(f"{model}: from the Hugging Face hub, or its cache on this disk", err=True)
    if not sys.stderr.isatty():  # that line says it; huggingface_hub, which is not imported yet, would draw bars
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    return str(resolve_model(model, weights=weights))
