"""Reader: a checkpoint's tensors under the names and in the shapes that the configuration implies, laid out to be used.

Knows no architecture: which tensors there are, the decoder's parts say.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...errors import ModelError
from ...kernels import LinearWeight, LinearWeights, keep_mxfp4, pack_linear, pack_linears, pack_mxfp4s
from .config import ModelConfig
from .weights import Checkpoint


class Reader:
    """Reads each tensor once.

    Args:
        prefix: of all names but the output projection's.
        row_tile, int8: as in `pack_linear`.
    """

    def __init__(
        self,
        config: ModelConfig,
        checkpoint: Checkpoint,
        prefix: str,
        device: torch.device,
        row_tile: int,
        int8: bool,
    ) -> None:
        self.config = config
        self.prefix = prefix
        self.device = device
        self._checkpoint = checkpoint
        self._row_tile = row_tile
        self._int8 = int8

    def matrix(self, name: str, num_rows: int, num_columns: int) -> LinearWeight:
        return self.packed(self.tensor([name], [num_rows], [num_columns]))

    def norm(self, name: str, size: int) -> Tensor:
        """fp32, with Gemma's offset added."""
        return self.tensor([name], [size], []).float() + self.config.options.norm_offset

    def linear(
        self, base: str, names: Sequence[str], rows: Sequence[int], columns: int, has_bias: bool
    ) -> LinearWeight:
        """The projections `names` stacked into one."""
        weight = self.tensor([f"{base}{name}.weight" for name in names], rows, [columns])
        bias = self.tensor([f"{base}{name}.bias" for name in names], rows, []) if has_bias else None
        return self.packed(weight, bias)

    def tensor(self, names: Sequence[str], rows: Sequence[int], tail: Sequence[int]) -> Tensor:
        """Tensors of shape `[rows[i], *tail]` stacked along the first axis."""
        return self._checkpoint.read_stacked(names, rows, tail, device=self.device)

    def packed(self, weight: Tensor, bias: Tensor | None = None) -> LinearWeight:
        return pack_linear(weight, bias, row_tile=self._row_tile, int8=self._int8)

    def exact(self, base: str, names: Sequence[str], rows: Sequence[int], columns: int, has_bias: bool) -> LinearWeight:
        """As `linear`, but kept and computed in fp32, whatever becomes of the others."""
        weight = self.tensor([f"{base}{name}.weight" for name in names], rows, [columns]).float()
        bias = self.tensor([f"{base}{name}.bias" for name in names], rows, []).float() if has_bias else None
        return pack_linear(weight, bias, row_tile=self._row_tile)

    def packed_each(self, weight: Tensor, bias: Tensor | None = None) -> LinearWeights:
        return pack_linears(weight, bias, row_tile=self._row_tile, int8=self._int8)

    def bytes(self, name: str, shape: Sequence[int]) -> Tensor:
        """A tensor of plain bytes."""
        return self._checkpoint.read_bytes(name, shape, device=self.device)

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and activations."""
        return self._checkpoint.dtype

    @property
    def keeps_mxfp4(self) -> bool:
        """Whether weights in four bits stay so: a GPU's kernel takes rows of bf16, the CPU's of fp32."""
        return self.dtype is (torch.float32 if self.device.type == "cpu" else torch.bfloat16)

    def kept_mxfp4(self, blocks: Tensor, scales: Tensor, bias: Tensor | None) -> LinearWeights:
        if self.dtype is torch.float32:
            return pack_mxfp4s(blocks, scales, bias)
        return keep_mxfp4(blocks, scales, bias, row_tile=self._row_tile)

    def place(self, name: str) -> str:
        """Where a tensor is, for messages."""
        return self._checkpoint.place(name)

    def refuse_unread(self) -> None:
        """An overlooked tensor would make a model that runs and answers nonsense."""
        ignored = ["rotary_emb."] + (["lm_head.weight"] if self.config.tie_word_embeddings else [])
        unread = self._checkpoint.unread(ignored)
        if unread:
            raise ModelError(
                f"{self._checkpoint.place(unread[0])}: {len(unread)} tensors have no place in "
                f"{self.config.architecture} as config.json describes it; is config.json its own?"
            )
