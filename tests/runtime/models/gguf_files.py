"""GGUF files for tests, written with the `gguf` package: tiny models of transformers', as llama.cpp converts them.

Matrices in few bits are random blocks; what `gguf` makes of them becomes the model's weight, which is the oracle then.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

KIND = gguf.GGMLQuantizationType
# where a block's fp16 lie
_HALVES = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82), "Q3_K": (108,),
    "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,), "MXFP4": (),
    "TQ1_0": (52,), "TQ2_0": (64,),
}  # fmt: skip
# so that numbers are about as large as those of plain matrices
_SIZES = {
    "Q4_0": 0.02, "Q4_1": 0.02, "Q5_0": 0.01, "Q5_1": 0.01, "Q8_0": 2e-3, "Q2_K": 6e-3, "Q3_K": 4e-3, "Q4_K": 3e-4,
    "Q5_K": 2e-4, "Q6_K": 8e-5, "IQ4_NL": 2e-3, "IQ4_XS": 1e-4, "TQ1_0": 0.1, "TQ2_0": 0.1,
}  # fmt: skip
FEW_BITS = tuple(_HALVES)
PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}

_PUBLISHED = {
    "e_score_correction_bias$": "e_score_correction.bias", "sinks$": "sinks.weight",
    "block_sparse_moe.router.weight": "block_sparse_moe.router.layer.weight", "mlp.gate.moe_statics": "mlp.moe_statics",
    "self_attn.attn_sub_norm": "self_attn.inner_attn_ln", "mlp.ffn_sub_norm": "mlp.ffn_layernorm",
}  # fmt: skip


def random_blocks(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Bytes `[*shape[:-1], bytes of a row]` of random blocks, whose scales are numbers."""
    size, num_bytes = gguf.GGML_QUANT_SIZES[KIND[kind]]
    blocks = rng.integers(0, 256, (*shape[:-1], shape[-1] // size, num_bytes), dtype=np.uint8)
    for place in _HALVES[kind]:
        halves = (rng.standard_normal(blocks.shape[:-1]) * _SIZES[kind]).astype("<f2")
        blocks[..., place : place + 2] = halves[..., None].view(np.uint8)
    if kind == "MXFP4":
        blocks[..., 0] = rng.integers(122, 126, blocks.shape[:-1])
    flat: np.ndarray[Any, Any] = blocks.reshape(*shape[:-1], -1)
    return flat


def dequantised(raw: np.ndarray[Any, Any], kind: str) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = gguf.quants.dequantize(raw, KIND[kind])
    return found


def paired(rows: np.ndarray[Any, Any], num_heads: int) -> np.ndarray[Any, Any]:
    """Rows of queries or keys in the order in which llama.cpp turns them."""
    halves = rows.reshape(num_heads, 2, -1, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


def unpaired(rows: np.ndarray[Any, Any], num_heads: int) -> np.ndarray[Any, Any]:
    pairs = rows.reshape(num_heads, -1, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def write_model(
    path: Path, model: Any, arch: str, kind: str, *, others: dict[str, str] | None = None, keys: Any = None
) -> None:
    """The model as a file; its weights become what the file says.

    kind: of all matrices, but where a part of a name in `others` has one of its own; routers are F32. keys: adds what
    differs from the keys that every model has.
    """
    names = package_names(arch, model.config.num_hidden_layers)
    writer = gguf.GGUFWriter(path, arch)
    add_keys(writer, model.config, arch)
    if keys is not None:
        keys(writer)
    rng = np.random.default_rng(3)
    stored = ("e_score_correction_bias", "layer_scalar")
    biases = [(name, buffer) for name, buffer in model.named_buffers() if name.endswith(stored)]
    for name, parameter in [*model.named_parameters(), *biases]:
        if ".act_fn." in name:
            continue  # `keys` has them
        if name.endswith("kv_b_proj.weight") and arch == "deepseek2":
            _write_latents(writer, name.split(".")[2], parameter.detach(), model.config, kind)
            continue
        if re.search(r"altup_(unembed_)?projections", name):
            continue
        if name.endswith(("altup.correct_output_scale", "layer_scalar")):
            name += ".weight"
        if name.endswith(("router.scale", "per_expert_scale")):
            there = "ffn_gate_inp" if name.endswith("router.scale") else "ffn_down_exps"
            add_numbers(writer, f"blk.{name.split('.')[2]}.{there}.scale", parameter.detach().numpy(), "F32")
            continue
        if parameter.dim() == 3 or re.search(r"\.experts\.|\.shared_mlp\.(in|out)put_linear", name):
            _write_stack(
                writer,
                name,
                parameter,
                kind,
                others or {},
                rng,
                alternates=arch == "gpt-oss",
                inputs_first=arch in ("gpt-oss", "llama4"),
                has_experts=getattr(model.config, "num_local_experts", 0) > 0,
                is_joined=arch == "gemma4",
            )
            continue
        there = named_by_package(name, names)
        own = next((found for part, found in (others or {}).items() if part in there), kind)
        own = "F32" if re.search("altup_(router|predict|correct)", there) else own
        own = "F32" if parameter.dim() == 1 or "ffn_gate_inp" in there or "exp_probs_b" in there else own
        heads = _paired_heads(model.config, arch, there)
        if "ffn_gate_inp" in there or "altup_router.weight" in there:  # F32, but from checkpoints in bf16
            _set(parameter, parameter.detach().bfloat16().float().numpy())
        if arch == "gpt2" and parameter.dim() == 2 and ".h." in name:
            turned = parameter.detach().T.contiguous()
            _write(writer, there, turned, own, 0, rng, is_folded=False)
            _set(parameter, turned.T.numpy())
            continue
        if "query_key_value" in name:
            order = _parts_first(model.config, len(parameter))
            rows = parameter.detach()[order].contiguous()
            _write(writer, there, rows, own, 0, rng, is_folded=False)
            parameter[order] = rows
            continue
        is_folded = (("gemma" in arch and arch not in ("gemma3n", "gemma4")) or arch == "nemotron") and there.endswith(
            "norm.weight"
        )
        _write(writer, there, parameter, own, heads, rng, is_folded=is_folded)
    for there, ours in (("altup_proj", "altup_projections"), ("altup_unembd_proj", "altup_unembed_projections")):
        if parts := [linear.weight for linear in getattr(model.base_model, ours, ())]:
            stacked = torch.stack(parts)
            _write(writer, f"{there}.weight", stacked, kind, 0, rng, is_folded=False)
            for part, found in zip(parts, stacked, strict=True):
                part.copy_(found)
    finish(writer)
    model.tie_weights()


def _write(
    writer: Any, there: str, parameter: Any, kind: str, heads: int, rng: np.random.Generator, *, is_folded: bool
) -> None:
    if kind in FEW_BITS:
        raw = random_blocks(kind, tuple(parameter.shape), rng)
        writer.add_tensor(there, raw, raw_dtype=KIND[kind])
        found = dequantised(raw, kind)
        _set(parameter, unpaired(found, heads) if heads else found)
        return
    data = parameter.detach().to(PLAIN[kind])
    _set(parameter, data.float().numpy())
    rows = data.float().numpy() + np.float32(is_folded)
    if there.endswith("ffn_gate_inp_shexp.weight"):
        rows = rows[0]
    add_numbers(writer, there, paired(rows, heads) if heads else rows, kind)


def add_numbers(writer: Any, there: str, numbers: np.ndarray[Any, Any], kind: str) -> None:
    """A tensor, rounded to a type that the package can round to."""
    numbers = np.ascontiguousarray(numbers)
    if kind in ("F32", "F16"):
        writer.add_tensor(there, numbers.astype(np.float32 if kind == "F32" else np.float16))
    else:
        writer.add_tensor(there, gguf.quants.quantize(numbers, KIND[kind]), raw_dtype=KIND[kind])


def finish(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_latents(writer: Any, index: str, parameter: Any, config: Any, kind: str) -> None:
    """The projection from latents to keys, turned round, and that to values, head by head; kind: a plain one."""
    parameter.copy_(parameter.to(PLAIN[kind]))
    heads = parameter.view(config.num_attention_heads, -1, config.kv_lora_rank).numpy()
    keys, values = np.split(heads, [config.qk_nope_head_dim], axis=1)
    add_numbers(writer, f"blk.{index}.attn_k_b.weight", keys.swapaxes(1, 2), kind)
    add_numbers(writer, f"blk.{index}.attn_v_b.weight", values, kind)


def _write_stack(
    writer: Any,
    name: str,
    parameter: Any,
    kind: str,
    others: dict[str, str],
    rng: np.random.Generator,
    *,
    alternates: bool,
    inputs_first: bool,
    has_experts: bool,
    is_joined: bool,
) -> None:
    """All experts of a layer: transformers has gate and up in one tensor; alternates: their outputs do; is_joined: the
    file has them so."""
    index, is_bias, is_gate_up = name.split(".")[2], name.endswith("_bias"), "gate_up_proj" in name or "input_" in name
    names = ("ffn_gate_exps", "ffn_up_exps") if is_gate_up else ("ffn_down_exps",)
    if is_joined and is_gate_up:
        names = ("ffn_gate_up_exps",)
    if ".shared_mlp." in name:
        names = tuple(one.replace("_exps", "_shexp" if has_experts else "") for one in names)
    rows = parameter.detach() if is_bias or not inputs_first else parameter.detach().transpose(1, 2)
    parts = (rows[:, ::2], rows[:, 1::2]) if alternates and is_gate_up else rows.chunk(len(names), rows.dim() - 2)
    for there, part in zip(names, parts, strict=True):
        own = "F32" if is_bias else next((found for key, found in others.items() if key in there), kind)
        there = f"blk.{index}.{there}.{'bias' if is_bias else 'weight'}"
        rows = part.contiguous().clone()
        _write(writer, there, rows, own, 0, rng, is_folded=False)
        part.copy_(rows)


def _parts_first(config: Any, num_rows: int) -> torch.Tensor:
    """Where in a projection with the heads of each key together all queries' rows are, all keys' and all values'."""
    dim = config.hidden_size // config.num_attention_heads
    groups = (num_rows // dim - config.num_attention_heads) // 2
    heads = torch.arange(num_rows).view(groups, -1, dim)
    return torch.cat([part.flatten() for part in (heads[:, :-2], heads[:, -2], heads[:, -1])])


def _set(parameter: Any, found: np.ndarray[Any, Any]) -> None:
    with torch.no_grad():
        parameter.copy_(torch.from_numpy(np.array(found)).view(parameter.shape))


def package_names(arch: str, num_layers: int) -> gguf.TensorNameMap:
    """Made anew each time: the package's maps of some families spoil those of others."""
    return gguf.get_tensor_name_map(next(one for one, its in gguf.MODEL_ARCH_NAMES.items() if its == arch), num_layers)


def named_by_package(name: str, names: gguf.TensorNameMap) -> str:
    """What the converter calls a tensor that transformers has under this name."""
    for ours, theirs in _PUBLISHED.items():
        name = re.sub(ours, theirs, name)
    found = names.get_name(name, (".weight", ".bias"))
    assert found is not None, name
    return str(found)


def _paired_heads(config: Any, arch: str, there: str) -> int:
    """Heads of rows that llama.cpp turns in pairs; 0: it does not."""
    if arch not in ("llama", "smollm3", "granite", "granitemoe", "arcee", "mistral3"):
        return 0
    if ".attn_q." in there:
        return int(config.num_attention_heads)
    return int(config.num_key_value_heads) if ".attn_k." in there else 0


def add_keys(writer: Any, config: Any, arch: str) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    values = config.to_dict()  # Gemma 4 refuses to be asked for what differs by layer
    writer.add_head_count_kv(values.get("num_key_value_heads") or config.num_attention_heads)
    for name in ("rms_norm_eps", "norm_eps"):
        if hasattr(config, name):
            writer.add_layer_norm_rms_eps(getattr(config, name))
    for name in ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"):
        if hasattr(config, name):
            writer.add_layer_norm_eps(getattr(config, name))
    head_dim = values.get("head_dim") or config.hidden_size // config.num_attention_heads
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_vocab_size(config.vocab_size)
    parameters = getattr(config, "rope_parameters", None) or {}
    theta = parameters.get("rope_theta") or parameters.get("full_attention", {}).get("rope_theta")
    if theta is not None:
        writer.add_rope_freq_base(theta)


def add_pieces(writer: Any, model: Any) -> None:
    """A sentencepiece model's pieces, scores and types."""
    size = model.get_piece_size()
    tests = {2: model.is_unknown, 3: model.is_control, 5: model.is_unused, 6: model.is_byte}
    kinds = [next((kind for kind, test in tests.items() if test(index)), 1) for index in range(size)]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([model.id_to_piece(index) for index in range(size)])
    writer.add_token_scores([model.get_score(index) for index in range(size)])
    writer.add_token_types(kinds)
    writer.add_add_space_prefix(model.encode("a", out_type=str)[0] != "a")
    writer.add_bos_token_id(model.bos_id())
    writer.add_eos_token_id(model.eos_id())
    writer.add_unk_token_id(model.unk_id())
