"""How an engine is set up: one frozen value, validated once, before anything is loaded."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

from ..errors import ConfigError
from .event_settings import KVEventsConfig
from .number_types import RoundedKV
from .setting import check_choices, setting

JumpMode = Literal["verified", "canonical", "off"]
Quantisation = Literal["none", "int8", "int4"]
KVType = Literal["auto", RoundedKV]
Role = Literal["both", "prefill", "decode"]

MAX_RUNNING_REQUESTS = 256
MAX_BATCH_TOKENS = 2048
KV_MEMORY_SHARE = 0.8
CPU_POOL_BYTES = 256 << 20  # of a KV pool on the CPU, unless another size is given
MOST_BLOCKS = (1 << 31) - 2  # block ids are int32
MOST_THREADS = 4096
MOST_RANKS = 1024
LONGEST_TTL = 366 * 86_400.0  # seconds
MTP = "mtp"  # as a draft model: the model's own layers
TARGET_STEP_SECONDS = {"cpu": 0.1, "cuda": 0.05}


class EngineSettings(TypedDict, total=False):
    """The fields of `EngineConfig` but for the model, as `Engine` takes them by name."""

    adapters: Mapping[str, str]
    device: str
    tensor_parallel_size: int
    rank_timeout_seconds: float
    dtype: str
    quantise: Quantisation
    block_size: int
    kv_dtype: KVType
    num_blocks: int | None
    kv_memory_bytes: int | None
    kv_memory_share: float
    state_memory_bytes: int | None
    state_interval: int
    max_model_len: int | None
    max_batch_tokens: int
    target_step_seconds: float | None
    max_running_requests: int
    max_waiting_requests: int
    max_overtakes: int | None
    max_wait_seconds: float
    prefix_cache: bool
    eviction_policy: str
    explain_namespaces: bool
    max_pinned_blocks: int | None
    host_memory_bytes: int
    disk_cache: str | None
    disk_cache_bytes: int
    disk_cache_shared: bool
    shared_cache: str | None
    shared_cache_ttl: float | None
    role: Role
    kv_events_config: str | Mapping[str, Any] | None
    reply_memory_bytes: int
    jump: JumpMode
    lookup_drafts: bool
    speculative_model: str | None
    max_draft_tokens: int
    max_compile_seconds: float | None
    max_constraint_bytes: int
    cuda_graphs: bool
    run_ahead: bool | None
    deterministic: bool
    num_threads: int | None
    check_invariants: bool
    seed: int | None


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Settings of one engine.

    Attributes:
        model: a checkpoint folder, a GGUF file, a hub id, or "nano" (the bundled model).
        adapters: LoRA adapters by the names under which requests choose them; each is a folder as PEFT saves it. More
            may be loaded later.
        device: "auto" (CUDA when there is one), "cpu", "cuda", "cuda:1" …
        tensor_parallel_size: over how many processes (ranks) the model is cut, each with a part of its heads, widths
            and experts: on CPUs all on this machine, on CUDA a GPU each, from `device` on. Memory settings are for each
            rank.
        rank_timeout_seconds: a rank that has kept the others waiting for so long counts as lost, which ends the engine.
        dtype: "auto" (the checkpoint's on CUDA, float32 on the CPU), "float32", "bfloat16", "float16".
        quantise: "int8" rounds the weights to int8 while loading, one scale per output: a quarter of the memory and
            about two to four times the speed on the CPU, where alone it works; text may differ a little from "none".
            "int4" rounds them to four bits, one scale for 32 inputs of an output: an eighth of the memory, still more
            speed, and text that differs more. Weights that are published in few bits keep their own under both.
        block_size: tokens per KV block (1, 16, 64 …).
        kv_dtype: how keys and values are kept: "auto" (as `dtype`), or rounded to one byte each, "fp8" (e4m3; on a GPU
            from compute capability 8.9 on) or "int8", with a scale per token and head: a quarter of fp32's memory, half
            of bfloat16's. Text may differ a little from "auto". "int4" rounds to four bits each: half of that memory
            again, and text that differs more.
        num_blocks: size of the KV pool; None: from `kv_memory_bytes`.
        kv_memory_bytes: memory for the KV pool; None: `kv_memory_share` of a GPU, 256 MiB on the CPU.
        kv_memory_share: which part of what is free on a GPU, once the weights are there, becomes the KV pool; the rest
            is for activations, graphs and neighbours.
        state_memory_bytes: memory for the states of recurrent layers (LFM2, Qwen3-Next …): two for each running
            request (three with tiers below the pool), and those that are kept with the prefix cache; None: as for the
            pool, at most half of it on a GPU.
        state_interval: of a prompt, a state is kept every n tokens, besides its end and where prompts part; 0: no
            others.
        max_model_len: most tokens of prompt and output together; None: what the model was made for.
        max_batch_tokens: most tokens that one step computes; long prompts are cut into chunks of it.
        target_step_seconds: how long a step may take in which requests decode: so long they wait for their next tokens
            while prompts are computed, whose chunks are chosen by what they were measured to cost. Where decoding alone
            takes more than half of it, prompts take as long again. None: 0.1 on a CPU, 0.05 on a GPU; inf: no target.
        max_running_requests: most sequences in a step.
        max_waiting_requests: length of the queue beyond which `add` raises `QueueFull`.
        max_overtakes: how many requests that arrived later may be admitted before one that waits; those that arrive
            between the same two steps arrive together. 0: the order of arrival. None: 256, or the most that have waited
            at a time since the oldest of them came, whichever is more.
        max_wait_seconds: a request that has waited longer is served before any other that waits, whatever their
            priorities.
        prefix_cache: keep the KV of finished requests for those that share a prefix.
        eviction_policy: which cached prefix goes first when the pool is full ("lru", "lfu", "priority", "cost"). "cost"
            weighs blocks by the floating-point operations that this model would need to compute them again.
        explain_namespaces: whether `explain_cache` may say that another namespace has the prefix. For operators only:
            it tells a tenant what its neighbours have sent.
        max_pinned_blocks: how much of the pool pins may hold together; None: a quarter of it.
        host_memory_bytes: host memory for KV that the pool has evicted; 0: none. On the CPU a larger pool is the better
            use of memory.
        disk_cache: a folder in which KV is kept as files, also for the next start and for other processes; None: none.
            Files of other models, types or versions may lie there too, and are not read. Of one that cannot be written
            to what it holds is read. One that belongs to, or can be written to by, other users is refused.
        disk_cache_bytes: what all files in that folder may take together.
        disk_cache_shared: the folder may belong to another user, or be written to by others: all who can write to it or
            read its key are trusted with what the model reads.
        shared_cache: URL of a store in which machines share KV: `redis://[:password@]host:port/number`, `rediss://…`
            (TLS) or `unix://[:password@]/path`; None: none. All who can write to it are trusted with what the model
            reads. Needs `pip install 'phloem[shared]'`.
        shared_cache_ttl: seconds after which the store forgets a block that was not used; None: it decides itself.
        role: what the engine is for where prefill and decode are apart. "prefill": it computes prompts; a server
            answers every request with one token, once the KV is in the store. "decode": it reads the KV of prompts from
            the store, without weighing whether computing were faster. "both": all of it. The first two need
            `shared_cache` or `disk_cache`.
        kv_events_config: publishes what comes into the prefix cache and leaves it, for routers (KV events, as vLLM has
            them): a mapping, or its JSON text, with the fields of `KVEventsConfig`; None: nothing is published. Needs
            `pip install 'phloem[events]'`.
        reply_memory_bytes: memory for the token ids of replies, so that the next turn of a chat begins with the very
            tokens that were generated; 0: replies are tokenised anew.
        jump: what to do with text that the constraint forces. "verified": draft it, and likely text, and keep what the
            model would have chosen (output identical to "off"); "canonical": take it unseen; "off": sample every token.
        lookup_drafts: draft what followed the same tokens before, where that pays: in the prompt, in the output, in the
            prefix tree, in a request's `prediction`. The output is the same with and without.
        speculative_model: a smaller checkpoint of the same vocabulary (folder, GGUF file or hub id), or "mtp", the
            model's own layer for multi-token prediction. It drafts what constraint and look-ups leave open, where that
            pays; None: none. The output is the same with and without. Its keys and values lie in the same blocks, so
            the pool has fewer of them in the same memory.
        max_draft_tokens: longest draft in tokens.
        max_compile_seconds: CPU time that compiling one constraint may take; None: only its work is bounded, by
            counting it. Constraints are compiled on the thread that brings the request, never on the one that steps.
        max_constraint_bytes: memory of one constraint, with the states that all its requests have visited. A request
            that needs more ends with an error, and the next one finds the constraint compiled anew.
        cuda_graphs: on a GPU, capture steps of up to 256 tokens and replay them: one launch instead of hundreds.
        run_ahead: queue the next step's forward before the tokens of this one are read, so that a device need not wait
            for the host; None: on a GPU. Where requests may draft, what saves more is measured. On the CPU, which does
            both in turn, it only computes in vain what follows the last token of a request.
        deterministic: on a GPU, the same bits for a request, whatever shares its steps, however much of it was cached
            or computed in chunks: products and attention take one order of sums for all steps, which costs some speed.
            On the CPU in float32 it is always so.
        num_threads: CPU threads, set for the whole process; None: one for models so small that sharing a step costs
            more than it saves, else torch's own choice. In float32 torch itself is left with one. Of no effect on a
            GPU.
        check_invariants: audit the pool after every step (tests; costs time in proportion to the pool).
        seed: makes the seeds drawn for unseeded requests reproducible.
    """

    model: str = "nano"
    adapters: Mapping[str, str] = setting(
        {},
        "A LoRA adapter, NAME=FOLDER; requests choose it by its name (may be repeated).",
        "--lora-modules",
        "--lora-paths",
        flag="adapter",
    )
    device: str = setting("auto", "auto, cpu, cuda, cuda:1 …")
    tensor_parallel_size: int = setting(
        1, "Ranks (processes, on CUDA with a GPU each) that compute the model together, each a part of it.", "--tp-size"
    )
    rank_timeout_seconds: float = setting(
        60.0, "A rank that has kept the others waiting for so long counts as lost, which ends the engine."
    )
    dtype: str = setting("auto", "auto, float32, bfloat16 or float16.")
    quantise: Quantisation = setting(
        "none", "Round the weights while loading: int8 or int4 (CPU only).", "--quantization"
    )
    block_size: int = setting(16, "Tokens per KV block.", "--page-size")
    kv_dtype: KVType = setting(
        "auto", "How keys and values are kept: as --dtype, or rounded to fp8, int8 or int4.", "--kv-cache-dtype"
    )
    num_blocks: int | None = setting(None, "Size of the KV pool in blocks.", "--num-gpu-blocks-override")
    kv_memory_bytes: int | None = setting(
        None,
        "Memory for the KV pool (2GiB, 500M …), if --num-blocks is not given.",
        "--kv-cache-memory-bytes",
        flag="kv-memory",
        size=True,
    )
    kv_memory_share: float = setting(
        KV_MEMORY_SHARE, "Share of a GPU's memory left by the weights that the KV pool takes, without --kv-memory."
    )
    state_memory_bytes: int | None = setting(
        None, "Memory for the states of recurrent layers (2GiB, 500M …).", flag="state-memory", size=True
    )
    state_interval: int = setting(
        512, "Tokens of a prompt after which a state of recurrent layers is kept; 0: only at ends and branches."
    )
    max_model_len: int | None = setting(None, "Most tokens of prompt and output together.", "--context-length")
    max_batch_tokens: int = setting(MAX_BATCH_TOKENS, "Most tokens that one step computes.", "--max-num-batched-tokens")
    target_step_seconds: float | None = setting(
        None, "Seconds of a step while requests decode. Default: 0.1 on a CPU, 0.05 on a GPU; inf: no target."
    )
    max_running_requests: int = setting(MAX_RUNNING_REQUESTS, "Most sequences in a step.", "--max-num-seqs")
    max_waiting_requests: int = setting(
        4096, "Length of the queue; further requests are refused.", "--max-queued-requests"
    )
    max_overtakes: int | None = setting(
        None, "How many later requests may overtake one that waits; 0: none. Default: 256, or the number that wait."
    )
    max_wait_seconds: float = setting(
        30.0, "A request that has waited for so long is served before any other, whatever the priorities."
    )
    prefix_cache: bool = setting(
        True,
        "Keep the KV of finished requests for those that share a prefix.",
        "--enable-prefix-caching/--disable-radix-cache",
    )
    eviction_policy: str = setting(
        "lru", "What leaves a full cache first: lru, lfu, priority or cost.", "--radix-eviction-policy"
    )
    explain_namespaces: bool = setting(
        False, "Let explain_cache report that another namespace has a prefix (reveals to callers what others sent)."
    )
    max_pinned_blocks: int | None = setting(None, "How much of the KV pool pins may hold together. Default: a quarter.")
    host_memory_bytes: int = setting(
        0, "Host memory for KV that the pool has evicted (2GiB …); 0: none. For GPUs.", flag="host-memory", size=True
    )
    disk_cache: str | None = setting(
        None, "Folder in which KV is kept as files, for the next start and for other processes too."
    )
    disk_cache_bytes: int = setting(
        16 << 30, "What all files in the folder of --disk-cache may take together.", flag="disk-cache-size", size=True
    )
    disk_cache_shared: bool = setting(
        False, "Take a folder for --disk-cache that other users own or can write to: all of them are trusted."
    )
    shared_cache: str | None = setting(
        None, "Store in which machines share KV: redis://, rediss:// or unix:// (phloem[shared])."
    )
    shared_cache_ttl: float | None = setting(None, "Seconds after which the store forgets a block that was not used.")
    role: Role = setting(
        "both", "What it does where prefill and decode are apart, over --shared-cache or --disk-cache."
    )
    kv_events_config: str | Mapping[str, Any] | None = setting(
        None, 'Publish what the prefix cache holds, for routers: JSON such as {"endpoint": "tcp://127.0.0.1:5557"}.'
    )
    reply_memory_bytes: int = setting(
        64 << 20,
        "Memory for the tokens of replies, so that the next turn of a chat finds them in the cache; 0: none.",
        flag="reply-memory",
        size=True,
    )
    jump: JumpMode = setting(
        "verified", "Text that a constraint determines: verified, inserted unverified (canonical), or sampled (off)."
    )
    lookup_drafts: bool = setting(
        True, "Draft what followed the same tokens earlier in the prompt or the output, where that pays."
    )
    speculative_model: str | None = setting(
        None,
        "A smaller model of the same vocabulary that drafts, where that pays: folder, GGUF file or hub id; or mtp: the "
        "model's own layer for multi-token prediction.",
    )
    max_draft_tokens: int = setting(
        64, "Longest run of tokens that is drafted and verified in one step.", "--speculative-num-draft-tokens"
    )
    max_compile_seconds: float | None = setting(0.8, "CPU time that compiling one constraint may take.")
    max_constraint_bytes: int = setting(
        64 << 20, "Memory of one constraint, with the states that its requests have visited."
    )
    cuda_graphs: bool = setting(
        True, "On a GPU, capture small steps once and replay them.", " /--enforce-eager", " /--disable-cuda-graph"
    )
    run_ahead: bool | None = setting(
        None,
        "Queue the next step before this one's tokens are read. Default: on a GPU.",
        " /--disable-overlap-schedule",
    )
    deterministic: bool = setting(
        False,
        "On a GPU, the same bits for a request in any batch, at some cost in speed.",
        "--enable-deterministic-inference",
    )
    num_threads: int | None = setting(None, "CPU threads. Default: one for small models, otherwise torch's own choice.")
    check_invariants: bool = False
    seed: int | None = setting(None, "Makes unseeded requests reproducible.", flag="engine-seed")

    def __post_init__(self) -> None:
        for name in ("block_size", "max_batch_tokens", "max_running_requests", "max_waiting_requests"):
            _check_positive(name, getattr(self, name))
        _check_positive("max_constraint_bytes", self.max_constraint_bytes)
        _check_positive("tensor_parallel_size", self.tensor_parallel_size)
        if self.tensor_parallel_size > MOST_RANKS:
            raise ConfigError(
                f"tensor_parallel_size: {self.tensor_parallel_size} is out of range; it is at most {MOST_RANKS}"
            )
        if not 0 < self.rank_timeout_seconds <= LONGEST_TTL:
            raise ConfigError(f"rank_timeout_seconds: {self.rank_timeout_seconds} is out of range; it must be above 0")
        if self.max_compile_seconds is not None and not self.max_compile_seconds > 0:
            raise ConfigError(f"max_compile_seconds: {self.max_compile_seconds} is out of range; it must be above 0")
        for name in ("num_blocks", "kv_memory_bytes", "state_memory_bytes", "max_model_len", "num_threads"):
            if getattr(self, name) is not None:
                _check_positive(name, getattr(self, name))
        for name, most in (("num_blocks", MOST_BLOCKS), ("num_threads", MOST_THREADS)):
            if (getattr(self, name) or 0) > most:
                raise ConfigError(f"{name}: {getattr(self, name)} is out of range; it is at most {most}")
        not_negative = ("max_overtakes", "max_pinned_blocks", "max_draft_tokens", "reply_memory_bytes")
        for name in (*not_negative, "host_memory_bytes", "disk_cache_bytes", "state_interval"):
            if (getattr(self, name) or 0) < 0:
                raise ConfigError(f"{name}: {getattr(self, name)} is out of range; it must not be negative")
        if self.target_step_seconds is not None and not self.target_step_seconds > 0:
            raise ConfigError(f"target_step_seconds: {self.target_step_seconds} is out of range; it must be above 0")
        if not self.max_wait_seconds >= 0:
            raise ConfigError(f"max_wait_seconds: {self.max_wait_seconds} is out of range; it must not be negative")
        if not 0 < self.kv_memory_share <= 1:
            raise ConfigError(f"kv_memory_share: {self.kv_memory_share} is out of range; it must be in (0, 1]")
        if self.speculative_model is not None and self.max_draft_tokens == 0:
            raise ConfigError("speculative_model: it drafts, and max_draft_tokens is 0; leave out one of the two")
        if self.disk_cache == "":
            raise ConfigError("disk_cache: an empty name; give a folder, or None")
        if self.shared_cache_ttl is not None and not 0 < self.shared_cache_ttl <= LONGEST_TTL:
            raise ConfigError(
                f"shared_cache_ttl: {self.shared_cache_ttl} is out of range; it must be above 0, and a year at most"
            )
        keeps = ("disk_cache", "shared_cache", "host_memory_bytes")
        if not self.prefix_cache and any(getattr(self, name) for name in keeps):
            name = next(name for name in keeps if getattr(self, name))
            raise ConfigError(f"{name}: keeps prefixes, and prefix_cache is off; leave out one of the two")
        if self.role != "both" and self.shared_cache is None and self.disk_cache is None:
            raise ConfigError(
                f"role: {self.role!r} needs a store that the workers share; name it with shared_cache"
                " (--shared-cache redis://HOST:PORT/0), or disk_cache (--disk-cache FOLDER, on a disk of both)"
            )
        if self.kv_events_config is not None:
            publishes = KVEventsConfig.parse(self.kv_events_config).is_on
            if publishes and not self.prefix_cache:
                raise ConfigError(
                    "kv_events_config: tells of prefixes, and prefix_cache is off; leave out one of the two"
                )
        from ..radix import POLICIES  # brings the tree, which a plan does without

        if self.eviction_policy not in POLICIES:
            raise ConfigError(f"eviction_policy: {self.eviction_policy!r} is not one of {', '.join(POLICIES)}")
        check_choices(self)
        if self.block_size & (self.block_size - 1):
            raise ConfigError(f"block_size: {self.block_size} is not a power of two; use 1, 16, 32 or 64")

    @property
    def has_tiers(self) -> bool:
        """Whether anything keeps KV below the pool."""
        return self.host_memory_bytes > 0 or self.disk_cache is not None or self.shared_cache is not None

    @property
    def draft_model_name(self) -> str | None:
        """Name of the draft model, without the folders above it; "mtp": the model's own layer; None: there is none."""
        return None if self.speculative_model is None else Path(self.speculative_model).name

    @staticmethod
    def field_names() -> tuple[str, ...]:
        return tuple(field.name for field in dataclasses.fields(EngineConfig))


def _check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name}: expected a positive integer, got {value!r}")
