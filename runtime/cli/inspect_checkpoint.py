"""What a checkpoint is, as text: its shape, its layers and its tokenizer. Reads no weights."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ..byte_text import bytes_text
from .engine_options import fetched

if TYPE_CHECKING:
    from ..models import ModelConfig
    from ..models.recurrent_config import RecurrentConfig
    from ..tokenizer.tokenizer import Tokenizer

RECURRENT = {
    "short_conv": "short convolutions",
    "delta": "Gated DeltaNet",
    "kimi_delta": "Kimi Delta Attention",
    "lightning": "lightning attention",
    "state_space": "Mamba 2",
    "selective_scan": "Mamba",
}


def checkpoint_of(model: str) -> str:
    """One fact a line.

    Raises:
        ModelError: the model is not found, or not supported.
    """
    from ..capacity.counts import count_parameters
    from ..models import ModelConfig, resolve_model
    from ..tokenizer.tokenizer import Tokenizer

    folder = resolve_model(fetched(model, weights=False))
    config = ModelConfig.from_folder(folder)
    tokenizer = Tokenizer.from_folder(folder)
    template = tokenizer.chat_template
    facts = [
        ("folder", str(folder)),
        ("files", _files(folder)),
        ("architecture", config.architecture),
        ("parameters", f"{sum(count_parameters(config)):,}"),
        *layer_facts(config),
        ("context", f"{config.max_position_embeddings:,} tokens"),
        ("stored as", config.dtype),
        ("KV per token", _kv_per_token(config)),
        _vocabulary(tokenizer),
        ("end tokens", ", ".join(f"{tokenizer.token_text(i)} ({i})" for i in tokenizer.eos_ids) or "none"),
    ]
    if tokenizer.has_text:
        facts.append(("chat template", template.place + (" (the folder has none)" if template.is_default else "")))
    return "\n".join(f"{name:<15}{value}" for name, value in facts)


def _vocabulary(tokenizer: Tokenizer) -> tuple[str, str]:
    size = f"{tokenizer.vocab_size:,} tokens"
    if not tokenizer.has_text:
        return "vocabulary", f"{size}; the folder has no tokenizer, so ids go in and come out, and no text"
    return "vocabulary", f"{size}, {len(tokenizer.special_ids)} special"


def layer_facts(config: ModelConfig) -> list[tuple[str, str]]:
    """Of layers, heads, windows, states, widths and experts, as far as there are any."""
    facts = [("layers", str(config.num_layers)), ("heads", _heads(config))]
    num_shared = sum(layer.kv_of >= 0 for layer in config.layers)
    if num_shared:
        facts.append(
            ("shared keys", f"{num_shared} of {config.num_layers} layers read keys and values of earlier ones")
        )
    num_reused = sum(layer.reuses_keys and layer.keeps_kv for layer in config.layers)
    if num_reused:
        facts.append(("values", f"made of the keys in {num_reused} of {config.num_layers} layers"))
    windows = Counter((layer.window, layer.in_chunks) for layer in config.layers if layer.window)
    for (window, in_chunks), number in windows.items():
        seen = f"chunks of {window:,} tokens" if in_chunks else f"the last {window:,} tokens"
        facts.append(("windows", f"{number} of {config.num_layers} layers see {seen}"))
    if config.recurrent is not None:
        facts.append(("states", _states(config.recurrent)))
    facts.append(("width", f"{config.hidden_size}{_inner_widths(config)}"))
    if config.layer_inputs is not None:
        inputs = config.layer_inputs
        facts.append(("layer inputs", f"{inputs.size} in each layer, of a table of {inputs.vocab_size:,} tokens"))
    if config.experts is not None:
        found = config.experts
        shared = f", a shared one of {found.shared_size}" if found.shared_size else ""
        where = f"in {_layers(sum(found.has_experts))}" + (", beside their MLPs" if found.options.is_beside else "")
        facts.append(("experts", f"{found.num_chosen} of {found.num_experts} of {found.inner_size}{shared}, {where}"))
    if config.num_mtp_layers:
        facts.append(("MTP layers", f"{config.num_mtp_layers}: config.json names them (--speculative-model mtp)"))
    return facts


def _heads(config: ModelConfig) -> str:
    number, latent = config.num_kv_layers, config.latent
    if not number:
        return "none: no layer attends"
    where = "" if number == config.num_layers else f", in {_layers(number)}"
    if latent is not None:
        return f"{config.num_heads}, over latents of {latent.rank} and rotary keys of {latent.rotary_dim}{where}"
    kept = Counter(config.kv_shapes())
    kinds = [
        f"{shape.num_heads} KV, head dim {shape.head_dim}" + (f" in {_layers(count)}" if len(kept) > 1 else "")
        for shape, count in kept.items()
    ]
    return f"{config.num_heads} query, {' and '.join(kinds)}{where if len(kept) == 1 else ''}"


def _inner_widths(config: ModelConfig) -> str:
    """Of MLPs that are no mixtures."""
    widths = Counter(config.inner_size(index) for index in range(config.num_layers) if config.has_dense(index))
    if len(widths) < 2:
        return "".join(f", inner {width}" for width in widths)
    return ", inner " + " and ".join(f"{width} in {_layers(count)}" for width, count in widths.items())


def _states(recurrent: RecurrentConfig) -> str:
    number, total, kind = sum(recurrent.layers), len(recurrent.layers), recurrent.options.kind
    where = f"{number} of {total} layers" + (", beside attention" if recurrent.options.is_beside else "")
    shape = f"{recurrent.channels:,} channels"
    if kind == "selective_scan":
        shape += f" of {recurrent.key_dim}"
    elif recurrent.heads:
        shape = f"{recurrent.heads} heads of {recurrent.key_dim} × {recurrent.value_dim}"
    return f"{RECURRENT[kind]} in {where}: {shape}, {bytes_text(recurrent.num_state_bytes)} for each request"


def _layers(number: int) -> str:
    return f"{number} layer{'s' * (number > 1)}"


def _kv_per_token(config: ModelConfig) -> str:
    from ..number_types import BYTES

    if not config.num_kv_layers:
        return "none"
    return f"{sum(math.prod(kept) for kept in config.kv_shapes()) * BYTES[config.dtype]:,} bytes as stored"


def _files(folder: Path) -> str:
    """Of a folder, or of the one that a GGUF file is."""
    files = [folder] if folder.is_file() else [file for file in sorted(folder.iterdir()) if file.is_file()]
    return f"{len(files)} file{'s' * (len(files) > 1)}, {sum(file.stat().st_size for file in files) / 1e6:,.1f} MB"
