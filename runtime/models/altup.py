"""Alternating updates (AltUp) and learned residuals (LAuReL): several streams of hidden states, of which each layer
computes one and corrects the others by what it found.

::

    streams ── predict ──┬─ active one ─ norm ─┬─ attention ─ norm ─┐
      [S, T, C]          │        └────────────┼────────────────────┼─ + ─ · √½ ─ norm ─ MLP ─ norm ─ + ─┐
                         │                     └─ left ─ right ─ norm ─ + itself ──┘ └──────────────────┘  │
                         └───────────────────────────────────────────────────────────── correct ──────────┘

What mixes streams is made of the active one: `tanh` of a router, through small matrices. Numbers that mix are fp32.
Knows no attention and no MLP. In fp32 on the CPU a row's bits depend on that row alone.

Sources: arXiv 2301.13310 (AltUp), 2411.07501 (LAuReL). Cost: sums of S² streams a layer, and a product of C² for each
stream but one at the beginning and at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...kernels import LinearWeight, ops
from .altup_config import AltUpConfig
from .reader import Reader
from .sparse_gate import moments

LEAST_MAGNITUDE = 1e-5**0.5


@dataclass(frozen=True, slots=True)
class AltUpWeights:
    """Those of one layer; routers and norms are fp32."""

    router: LinearWeight  # hidden_size -> num_streams
    router_norm: Tensor  # [hidden_size], over hidden_size
    prediction: LinearWeight  # num_streams -> num_streams²
    correction: LinearWeight  # num_streams -> num_streams
    scale: Tensor | None  # [hidden_size], of the active stream before the layer's own input
    left: LinearWeight  # hidden_size -> rank
    right: LinearWeight  # rank -> hidden_size
    norm: Tensor  # [hidden_size]

    def predict(self, streams: Tensor, active: int, eps: float) -> Tensor:
        """What the layer is expected to make of all streams, `[S, T, C]`."""
        count, (mixes, wide) = len(streams), (ops.linear(self._routed(streams[active], eps), self.prediction), streams)
        shares = mixes.view(-1, count, count)  # [T, to, from]
        total = wide = wide.float()
        for source in range(count):
            total = total + shares[:, :, source].T[:, :, None] * wide[source]
        return total.to(streams.dtype)

    def correct(self, predicted: Tensor, found: Tensor, active: int, eps: float) -> Tensor:
        """All streams, after the active one was found to be `[T, C]`."""
        shares = ops.linear(self._routed(found, eps), self.correction) + 1
        change = found.float() - predicted[active].float()
        return (predicted.float() + shares.T[:, :, None] * change).to(found.dtype)

    def residual(self, normed: Tensor, eps: float) -> Tensor:
        """What is added to hidden states besides attention, `[T, C]`."""
        return normed + ops.rms_norm(ops.linear(ops.linear(normed, self.left), self.right), self.norm, eps)

    def _routed(self, x: Tensor, eps: float) -> Tensor:
        """`[T, S]`, tanh by `ops.sigmoid`, whose bits depend on the number alone."""
        return 2 * ops.sigmoid(2 * ops.linear(ops.rms_norm(x, self.router_norm, eps).float(), self.router)) - 1


@dataclass(frozen=True, slots=True)
class StreamWeights:
    """What makes streams of embeddings, and one hidden state of them: hidden_size -> hidden_size each."""

    begin: list[LinearWeight]
    end: list[LinearWeight]

    @property
    def parts(self) -> list[LinearWeight]:
        return [*self.begin, *self.end]

    def split(self, x: Tensor) -> Tensor:
        """`[T, C]` -> `[S, T, C]`."""
        return torch.stack([x, *(_as_large(ops.linear(x, each), x) for each in self.begin)])

    def join(self, streams: Tensor) -> Tensor:
        """`[S, T, C]` -> `[T, C]`."""
        total = streams[0].float()
        for stream, each in zip(streams[1:], self.end, strict=True):
            total = total + _as_large(ops.linear(stream, each), streams[0]).float()
        return (total / len(streams)).to(streams.dtype)


def _as_large(x: Tensor, other: Tensor) -> Tensor:
    """Rows as large as those of another tensor."""
    return (x.float() * (_magnitude(other) / _magnitude(x).clamp(min=LEAST_MAGNITUDE))).to(x.dtype)


def _magnitude(x: Tensor) -> Tensor:
    """Root of the mean square, `[T, 1]`."""
    mean, deviation = moments(x)
    return (mean * mean + deviation * deviation).sqrt()


def read_altup(reader: Reader, base: str) -> AltUpWeights | None:
    """Those of a layer below `base`; None: there is one stream. Raises ModelError: a tensor is missing or odd."""
    config, hidden = reader.config.altup, reader.config.hidden_size
    if config is None:
        return None
    count, of = config.num_streams, f"{base}altup."
    scale = f"{of}correct_output_scale"
    if not config.scales:
        reader.checkpoint.leave(scale)
    return AltUpWeights(
        router=reader.exact(of, ("modality_router",), [count], hidden, False),
        router_norm=reader.norm(f"{of}router_norm.weight", hidden) / hidden,
        prediction=reader.exact(of, ("prediction_coefs",), [count * count], count, False),
        correction=reader.exact(of, ("correction_coefs",), [count], count, False),
        scale=reader.norm(scale, hidden) if config.scales else None,
        left=reader.linear(base, ("laurel.linear_left",), [config.rank], hidden, False),
        right=reader.linear(base, ("laurel.linear_right",), [hidden], config.rank, False),
        norm=reader.norm(f"{base}laurel.post_laurel_norm.weight", hidden),
    )


def read_streams(reader: Reader, config: AltUpConfig) -> StreamWeights:
    """Raises ModelError as `read_altup` does."""
    hidden, numbers = reader.config.hidden_size, range(config.num_streams - 1)

    def read(name: str) -> list[LinearWeight]:
        return [reader.linear(reader.prefix, (f"{name}.{number}",), [hidden], hidden, False) for number in numbers]

    return StreamWeights(read("altup_projections"), read("altup_unembed_projections"))
