"""What llama.cpp's converter writes into a file besides what `gguf_files.add_keys` does, of each family of models.

A `Keys` is given the writer before the tensors are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import gguf
import numpy as np
import torch

from .decoder_shapes import LATENT

Keys = Callable[[Any], None]
XIELU = {"alpha_p": [0.4, -0.3, 0.1], "alpha_n": [0.2, 0.7, -0.5], "beta": [0.5] * 3, "eps": [-1e-6] * 3}


def says(*others: Keys, **values: Any) -> Keys:
    """What the others add, and then values by the names of the writer's methods without "add_"."""

    def add(writer: Any) -> None:
        for other in others:
            other(writer)
        for name, value in values.items():
            getattr(writer, f"add_{name}")(value)

    return add


def said(key: str, text: str) -> Keys:
    """A text that the writer has no method for."""
    return lambda writer: writer.add_string(f"{writer.arch}.{key}", text)


def tensor(name: str, numbers: Any) -> Keys:
    return lambda writer: writer.add_tensor(name, np.array(numbers, np.float32))


def experts(count: int, used: int, inner: int = 32, **more: Any) -> Keys:
    """inner: their width, 0: it is not said."""
    width = {"expert_feed_forward_length": inner} if inner else {}
    return says(expert_count=count, expert_used_count=used, **width, **more)


def grouped(count: int, used: int, inner: int = 32, **more: Any) -> Keys:
    return experts(count, used, inner, expert_gating_func=gguf.ExpertGatingFuncType.SIGMOID, **more)


def latent(query_rank: int) -> Keys:
    """One head, as wide as the latents; those of queries and values are said apart."""
    rank, rotary = LATENT["kv_lora_rank"], LATENT["qk_rope_head_dim"]
    return says(
        head_count_kv=1,
        **({"q_lora_rank": query_rank} if query_rank else {}),
        kv_lora_rank=rank,
        key_length=rank + rotary,
        value_length=rank,
        key_length_mla=LATENT["qk_nope_head_dim"] + rotary,
        value_length_mla=LATENT["v_head_dim"],
        rope_dimension_count=rotary,
    )


def minicpm3(turned: int) -> Keys:
    """Neither how wide value heads are nor the factors."""
    key_length = LATENT["qk_nope_head_dim"] + turned
    own = says(q_lora_rank=32, kv_lora_rank=LATENT["kv_lora_rank"], key_length=key_length, rope_dimension_count=turned)

    def add(writer: Any) -> None:
        own(writer)
        del writer.kv_data[0]["minicpm3.attention.value_length"]

    return add


def long_and_short(long: Any, short: Any) -> Keys:
    return says(tensor("rope_factors_long.weight", long), tensor("rope_factors_short.weight", short))


def longrope(attention: float) -> Keys:
    """attention: the factor on queries and keys."""
    return says(
        long_and_short(np.linspace(1.5, 2.5, 8), np.linspace(1, 2, 8)),
        rope_dimension_count=16,
        rope_scaling_orig_ctx_len=128,
        rope_scaling_attn_factors=attention,
    )


def llama3() -> Keys:
    """The divisors that the converter works out of Llama 3's rule."""
    plain = 1.0 / 10000.0 ** (np.arange(0, 16, 2, dtype=np.float64) / 16)
    turns = 64 * plain / (2 * np.pi)
    smooth = np.clip((turns - 1.0) / (4.0 - 1.0), 0, 1)
    return tensor("rope_freqs.weight", 1 / ((1 - smooth) / 8.0 + smooth))


def kinds(slides: list[bool], turned: int, **more: Any) -> Keys:
    """Gemma 4: layers with a window have heads of 16, and others of 32, half of which turn in `turned` pairs."""
    dims = {
        f"{name}{end}": dim
        for end, dim in (("", 32), ("_swa", 16))
        for name in ("key_length", "value_length", "rope_dimension_count")
    }
    return says(
        tensor("rope_freqs.weight", [1.0] * turned + [1e30] * (16 - turned)),
        sliding_window=9,
        sliding_window_pattern=slides,
        final_logit_softcapping=3.0,
        rope_freq_base_swa=1e4,
        **{**dims, "shared_kv_layers": 0, "embedding_length_per_layer_input": 0, **more},
    )


YARN_KEYS = says(
    rope_scaling_type=gguf.RopeScalingType.YARN, rope_scaling_factor=4.0, rope_scaling_orig_ctx_len=64
)  # fmt: skip
GRANITE_KEYS = says(embedding_scale=3.0, attention_scale=0.2, residual_scale=0.4, logit_scale=6.0)
# a layer more, which predicts the token after the next
NEXTN = says(tensor("blk.2.nextn.eh_proj.weight", np.zeros((64, 128))), block_count=3, nextn_predict_layers=1)
# of Gemma 3n all but logits' caps, which llama.cpp knows
STREAMS = says(
    sliding_window=9, sliding_window_pattern=[True, False] * 2, altup_active_idx=0, altup_num_inputs=4,
    embedding_length_per_layer_input=32, shared_kv_layers=2,
    activation_sparsity_scale=torch.distributions.Normal(0, 1).icdf(torch.tensor([0.9, 0.4, 0.0, 0.2])).tolist(),
)  # fmt: skip
SECTIONS = says(rope_dimension_sections=[3, 3, 2, 0], num_deepstack_layers=3)


def set_xielu(model: torch.nn.Module) -> None:
    """The numbers of all layers, which a file has in its keys."""
    for name, numbers in [*model.named_parameters(), *model.named_buffers()]:
        if ".act_fn." in name:
            numbers.fill_(XIELU[name.rpartition(".")[2]][int(name.split(".")[2])])


def joins(pattern: str, joined: str, count: int, axis: int) -> Keys:
    """From now on tensors of a layer whose names match are held until there are so many, and added as one."""

    def change(writer: Any) -> None:
        add, held = writer.add_tensor, {}

        def add_tensor(name: str, data: np.ndarray[Any, Any], **kinds: Any) -> None:
            match = re.fullmatch(rf"(blk\.\d+\.)({pattern})", name)
            if match is None:
                add(name, data, **kinds)
                return
            whole = match[1] + re.sub(pattern, joined, match[2])
            held.setdefault(whole, []).append(data)
            if len(held[whole]) == count:
                add(whole, np.concatenate(held[whole], axis), **kinds)

        writer.add_tensor = add_tensor

    return change


# as in ChatGLM's own checkpoints, and as the converter joins experts where it is asked to
JOINED_QKV = joins(r"(attn_)[qkv](\.\w+)", r"\1qkv\2", 3, 0)
JOINED_EXPERTS = joins(r"(ffn_)(?:gate|up)(_exps\.\w+)", r"\1gate_up\2", 2, 1)


def separate_experts(writer: Any) -> None:
    """From now on gates and up projections of experts become two tensors."""
    add = writer.add_tensor

    def add_tensor(name: str, data: np.ndarray[Any, Any], **kinds: Any) -> None:
        if "gate_up_exps" not in name:
            add(name, data, **kinds)
            return
        for part, rows in zip(("gate", "up"), np.split(data, 2, 1), strict=True):
            add(name.replace("gate_up", part), np.ascontiguousarray(rows), **kinds)

    writer.add_tensor = add_tensor
