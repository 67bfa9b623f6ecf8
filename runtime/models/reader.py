"""Reader: a checkpoint's tensors under the names and in the shapes that the configuration implies, laid out to be used.

Knows no architecture: which tensors there are, its layers say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ...errors import ModelError
from ...kernels import Grouped, LinearWeight, LinearWeights, can_keep
from ...kernels.grouped import stack
from ...kernels.linear_weight import Quantise
from .architecture import LayerNames
from .cut import Cut
from .gguf.checkpoint import GgufCheckpoint
from .packing import Packing
from .part import Axis, Part, as_part, count
from .partial_linear import with_room
from .published import is_published, read_published
from .weights import STORED_DTYPES, Checkpoint

# most activations are left as they are, and keys and values are kept as the engine's settings say
ACTIVATION_SCALES = [*(f".{which}_scale" for which in ("input", "output", "q", "k", "v")), ".input_zero_point"]


class Reader:
    """Reads each tensor once, or of an axis that is a `Part` this rank's part of it.

    Args:
        cut: of the model, for this rank; `config` is that of the rank's part.
        prefix: of all names but the output projection's.
        row_tile, quantise: of the packing.

    Attributes:
        checkpoint: what is read.
        packing: how matrices are laid out.
    """

    def __init__(
        self,
        cut: Cut,
        checkpoint: Checkpoint | GgufCheckpoint,
        prefix: str,
        device: torch.device,
        row_tile: int,
        quantise: Quantise,
    ) -> None:
        self.cut = cut
        self.config = cut.config
        self.prefix = prefix
        self.device = device
        self.checkpoint = checkpoint
        self.packing = Packing(checkpoint.dtype, device.type, row_tile, quantise)

    def placed(self, base: str, names: LayerNames) -> LayerNames:
        """The names of a layer's MLP where they are: below `options.mlp_moved`, if they are not below "mlp."."""
        moved = self.config.options.mlp_moved
        if not moved or f"{base}{names.down}.weight" in self.checkpoint:
            return names
        first, down = (tuple(name.replace("mlp.", moved, 1) for name in each) for each in (names.gate_up, [names.down]))
        return replace(names, gate_up=first, down=down[0])

    def norm(self, name: str, size: Axis) -> Tensor:
        """fp32, with Gemma's offset added."""
        stored = self.checkpoint.read_stacked([name], [size], [], device=self.device, dtype=torch.float32)
        return stored + self.config.options.norm_offset

    def linear(
        self,
        base: str,
        names: Sequence[str],
        rows: Sequence[Axis],
        columns: Axis,
        has_bias: bool,
        order: Tensor | None = None,
    ) -> LinearWeight:
        """The projections `names` stacked into one; order: the rows in which it is used, by those that are stored."""
        weight = self.weight([f"{base}{name}" for name in names], rows, columns)
        bias = self.tensor([f"{base}{name}.bias" for name in names], rows, []) if has_bias else None
        if order is not None:
            weight, bias = weight[order], None if bias is None else bias[order]
        return self.packing.one(weight, bias)

    def summand(
        self, base: str, name: str, columns: Part, has_bias: bool, num_outputs: int | None = None
    ) -> LinearWeight:
        """A projection with a part of its inputs, for `partial_linear`; of the ranks' results one has the bias.
        num_outputs: None: it is one to hidden states."""
        size, ranks = num_outputs or self.config.hidden_size, self.cut.ranks
        if ranks.rank > 0:
            self.checkpoint.leave(f"{base}{name}.bias")
        weight = self.weight([f"{base}{name}"], [size], columns)
        bias = self.tensor([f"{base}{name}.bias"], [size], []) if has_bias and ranks.rank == 0 else None
        return self.packing.one(with_room(weight, ranks) if isinstance(weight, Grouped) else weight, bias)

    def weight(self, modules: Sequence[str], rows: Sequence[Axis], columns: Axis) -> Tensor | Grouped:
        """The matrices of linear maps, stacked: in few bits if all are and a kernel reads them, else as `numbers`."""
        if not any(self._is_published(module) for module in modules):
            names = [f"{module}.weight" for module in modules]
            if self.config.options.transposed and names[0].startswith(f"{self.prefix}{self.config.options.layers}."):
                turned = [self.numbers([name], [columns], [each]).T for name, each in zip(names, rows, strict=True)]
                return torch.cat(turned)
            return self.numbers(names, rows, [columns])
        read = [self._matrix(*each, columns) for each in zip(modules, rows, strict=True)]
        kept = [matrix for matrix in read if isinstance(matrix, Grouped)]
        whole = stack(kept) if len(kept) == len(read) else None
        if whole is not None and can_keep(whole, self.dtype):
            return whole
        return torch.cat([each.widen(self.dtype) if isinstance(each, Grouped) else each for each in read])

    def wide(self, modules: Sequence[str], rows: Sequence[Axis], columns: Axis) -> Tensor:
        """As `weight`, in plain numbers of `dtype`."""
        weight = self.weight(modules, rows, columns)
        return weight.widen(self.dtype) if isinstance(weight, Grouped) else weight.to(self.dtype)

    def _is_published(self, module: str) -> bool:
        return is_published(self.checkpoint, self.config.weight_format, module)

    def _matrix(self, module: str, rows: Axis, columns: Axis) -> Tensor | Grouped:
        form = self.config.weight_format
        if not self._is_published(module):
            return self.tensor([f"{module}.weight"], [rows], [columns])
        inputs = as_part(columns)
        found = stack(
            [
                read_published(self.checkpoint, form, module, outputs, inputs, self.device)
                for outputs in as_part(rows).singles
            ]
        )
        assert found is not None  # they are of one form
        if found.order is not None and inputs.count < inputs.size:  # the inputs of a group are on several ranks
            return inputs.of(found.widen(self.dtype), 1)
        return found

    def tensor(self, names: Sequence[str], rows: Sequence[Axis], tail: Sequence[Axis]) -> Tensor:
        """Tensors of shape `[rows[i], *tail]` stacked along the first axis."""
        return self.checkpoint.read_stacked(names, rows, tail, device=self.device)

    def scalar(self, name: str) -> Tensor:
        """A number, with an axis of one or without, in fp32 and without one."""
        if isinstance(self.checkpoint, GgufCheckpoint):
            return torch.tensor(self.checkpoint.scalar(name), device=self.device)
        shape = [1] if self.has_shape(name, [1]) else []
        return self.checkpoint.read_kept(name, shape, STORED_DTYPES, device=self.device).float().view(())

    def rates(self, name: str, *shape: Axis) -> Tensor:
        """By which states decay, fp32: stored as logarithms, or below 0 (`RecurrentOptions.has_rates`)."""
        assert self.config.recurrent is not None
        stored = self.tensor([name], shape[:1], shape[1:]).float()
        return -stored if self.config.recurrent.options.has_rates else stored.exp()

    def has_shape(self, name: str, shape: list[int]) -> bool:
        """Whether a tensor has this shape, unread; not if it is missing, or in a GGUF file."""
        found = self.checkpoint
        return isinstance(found, Checkpoint) and name in found and found.shape_of(name) == shape

    def numbers(self, names: Sequence[str], rows: Sequence[Axis], tail: Sequence[Axis]) -> Tensor:
        """As `tensor`, but bf16 stays bf16 where products of fp32 are packed, which takes it as it is."""
        if self.device.type == "cpu" and self.dtype is torch.float32 and self.checkpoint.are_bf16(names):
            return self.checkpoint.read_stored(names, rows, tail)
        return self.tensor(names, rows, tail)

    def exact(
        self, base: str, names: Sequence[str], rows: Sequence[Axis], columns: Axis, has_bias: bool
    ) -> LinearWeight:
        """As `linear`, but kept and computed in fp32, whatever becomes of the others."""
        weight = self.wide([f"{base}{name}" for name in names], rows, columns)
        bias = self.tensor([f"{base}{name}.bias" for name in names], rows, []) if has_bias else None
        return self.packing.exact(weight, bias)

    def weights(
        self, modules: Sequence[str], rows: Sequence[Axis], columns: Axis, num_maps: int, has_bias: bool
    ) -> LinearWeights:
        """Several linear maps of one shape, each the stack of as many of the modules."""
        each, bias = len(modules) // num_maps, None
        if has_bias:
            bias = self.tensor([f"{module}.bias" for module in modules], rows, []).view(num_maps, -1)
        if not any(self._is_published(module) for module in modules):
            stacked = self.numbers([f"{module}.weight" for module in modules], rows, [columns])
            return self.packing.each(stacked.view(num_maps, -1, count(columns)), bias)
        starts = range(0, len(modules), each)
        maps = [self.weight(modules[start : start + each], rows[start : start + each], columns) for start in starts]
        grouped = [matrix for matrix in maps if isinstance(matrix, Grouped)]
        if len(grouped) == num_maps:
            kept = self.packing.each_grouped(grouped, bias)
            if kept is not None:
                return kept
        wide = [matrix.widen(self.dtype) if isinstance(matrix, Grouped) else matrix for matrix in maps]
        return self.packing.each(torch.stack([matrix.to(self.dtype) for matrix in wide]), bias)

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and activations."""
        return self.checkpoint.dtype

    def refuse_unread(self, base: str = "") -> None:
        """An overlooked tensor would make a model that runs and answers nonsense. base: what its name begins with."""
        ignored = ["rotary_emb.", *self.config.left_aside]
        if self.config.tie_word_embeddings:
            ignored.append(f"{self.config.options.projection}.weight")
        if self.config.weight_format is not None:
            ignored += ACTIVATION_SCALES
        unread = [name for name in self.checkpoint.unread(ignored) if name.startswith(base)]
        if unread:
            raise ModelError(
                f"{self.checkpoint.place(unread[0])}: {len(unread)} tensors have no place in "
                f"{self.config.architecture} as config.json describes it; is config.json its own?"
            )
