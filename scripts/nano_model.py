"""The bundled model as it is trained: a Llama-shaped decoder with Hugging Face's parameter names, and Muon.

Grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245), rotary embeddings in the half-rotated layout (Su et
al. 2021, arXiv:2104.09864), RMSNorm (Zhang and Sennrich 2019, arXiv:1910.07467), SwiGLU (Shazeer 2020,
arXiv:2002.05202), tied embeddings. Made for training only: whole sequences, no cache, float32.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a decoder."""

    vocab_size: int
    hidden_size: int = 192
    num_layers: int = 4
    num_heads: int = 6
    num_kv_heads: int = 2
    head_dim: int = 32
    intermediate_size: int = 192
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5
    max_positions: int = 4096

    def hugging_face(self, bos_id: int, eos_ids: list[int]) -> dict[str, object]:
        """The content of ``config.json``."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": self.max_positions,
            "rms_norm_eps": self.norm_eps,
            "rope_theta": self.rope_theta,
            "rope_scaling": None,
            "attention_bias": False,
            "attention_dropout": 0.0,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "initializer_range": 0.02,
            "bos_token_id": bos_id,
            "eos_token_id": eos_ids,
            "torch_dtype": "bfloat16",
        }


class Attention(nn.Module):
    """Causal grouped-query attention over whole sequences."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        inner, kv_inner = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, inner, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, kv_inner, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, kv_inner, bias=False)
        self.o_proj = nn.Linear(inner, shape.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """``x`` [B, T, C] to the same shape; ``cos`` and ``sin`` [T, D]."""
        batch, length, _ = x.shape
        heads = (batch, length, -1, self.shape.head_dim)
        q = rotate(self.q_proj(x).view(heads).transpose(1, 2), cos, sin)
        k = rotate(self.k_proj(x).view(heads).transpose(1, 2), cos, sin)
        v = self.v_proj(x).view(heads).transpose(1, 2)
        group = self.shape.num_heads // self.shape.num_kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))


class GatedMlp(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` [B, T, C] to the same shape."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = nn.RMSNorm(shape.hidden_size, eps=shape.norm_eps)
        self.mlp = GatedMlp(shape)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """``x`` [B, T, C] to the same shape."""
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Backbone(nn.Module):
    """Embedding, layers, last norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.num_layers))
        self.norm = nn.RMSNorm(shape.hidden_size, eps=shape.norm_eps)

    def forward(self, token_ids: Tensor) -> Tensor:
        """``token_ids`` [B, T] to hidden states [B, T, C]."""
        cos, sin = rope_table(token_ids.shape[1], self.shape)
        x = self.embed_tokens(token_ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.norm(x)


class Decoder(nn.Module):
    """The whole model; the output matrix is the embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = Backbone(shape)
        for name, weight in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(weight)  # every layer starts as the identity
            elif weight.ndim == 2:
                nn.init.normal_(weight, std=0.02 if "embed" in name else shape.hidden_size**-0.5)

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states [..., C] to logits [..., V]."""
        return functional.linear(hidden, self.model.embed_tokens.weight)

    def forward(self, token_ids: Tensor) -> Tensor:
        """``token_ids`` [B, T] to logits [B, T, V]."""
        return self.logits(self.model(token_ids))


def rope_table(length: int, shape: Shape) -> tuple[Tensor, Tensor]:
    """Cosines and sines [T, D], each half repeated (Hugging Face's layout)."""
    inverse = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2) / shape.head_dim)
    angles = torch.arange(length)[:, None] * inverse[None]
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the pairs (i, i + D/2) of [B, H, T, D]."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


def orthogonalised(matrices: Tensor, num_iterations: int = 5) -> Tensor:
    """The nearest semi-orthogonal matrices of a stack [N, R, C], roughly, by a quintic Newton-Schulz iteration.

    The coefficients are those of Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"
    (https://kellerjordan.github.io/posts/muon/): singular values end between about 0.7 and 1.2.
    """
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if is_tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(num_iterations):
        gram = x @ x.transpose(1, 2)
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.transpose(1, 2) if is_tall else x


class Muon:
    """Momentum, orthogonalised: for the matrices of the layers (Jordan et al. 2024, same page).

    Matrices of one shape are stacked and orthogonalised together. ``learning_rate`` is set by the caller each step.
    """

    def __init__(self, matrices: Iterable[nn.Parameter], momentum: float = 0.95) -> None:
        self.momentum = momentum
        self.learning_rate = 0.0
        self.groups: dict[tuple[int, ...], list[nn.Parameter]] = {}
        for matrix in matrices:
            self.groups.setdefault(tuple(matrix.shape), []).append(matrix)
        self.averages = {shape: torch.zeros(len(group), *shape) for shape, group in self.groups.items()}

    @torch.no_grad()
    def step(self) -> None:
        """One update from the gradients, with Nesterov momentum."""
        for shape, group in self.groups.items():
            gradient = torch.stack([matrix.grad for matrix in group if matrix.grad is not None])
            average = self.averages[shape]
            average.lerp_(gradient, 1 - self.momentum)
            update = orthogonalised(gradient.lerp(average, self.momentum))
            scale = max(1.0, shape[0] / shape[1]) ** 0.5
            for matrix, change in zip(group, update, strict=True):
                matrix.add_(change, alpha=-self.learning_rate * scale)
