"""A part of one axis of a stored tensor: what one of several ranks reads of it. Opens no file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Part:
    """Entries `ranges` of an axis of `size`, one range after another.

    ::

        q₀ q₁ q₂ q₃ │ k₀ k₁ │ v₀ v₁       rank 1 of 2: (2, 4), (5, 6), (7, 8)
    """

    size: int
    ranges: tuple[tuple[int, int], ...]

    @property
    def count(self) -> int:
        return sum(end - begin for begin, end in self.ranges)

    @property
    def first(self) -> int:
        return self.ranges[0][0]

    @property
    def singles(self) -> list[Part]:
        """Its ranges, each by itself."""
        return [Part(self.size, (each,)) for each in self.ranges]

    def within(self, unit: int) -> Part:
        """Of one range, that of whole units which it lies in; the last unit of the axis may be a smaller one."""
        ((begin, end),) = self.ranges
        return Part(self.size, ((begin // unit * unit, min(-(-end // unit) * unit, self.size)),))

    def per(self, unit: int) -> Part:
        """Of one range of whole units, those units."""
        ((begin, end),) = self.ranges
        return Part(-(-self.size // unit), ((begin // unit, -(-end // unit)),))

    def of(self, tensor: Tensor, axis: int) -> Tensor:
        """These entries: a view where they are one range."""
        views = [tensor.narrow(axis, begin, end - begin) for begin, end in self.ranges]
        if len(views) == 1:
            return views[0]
        import torch

        return torch.cat(views, axis)


Axis = int | Part  # a number alone is all of an axis


def count(axis: Axis) -> int:
    """Entries that are read."""
    return axis.count if isinstance(axis, Part) else axis


def as_part(axis: Axis) -> Part:
    """The same, by its ranges."""
    return axis if isinstance(axis, Part) else Part(axis, ((0, axis),))


def stored(axis: Axis) -> int:
    """Entries that there are."""
    return axis.size if isinstance(axis, Part) else axis


def whole_ones(number: int, rank: int, size: int) -> Part:
    """Of n things, each of which is on one of several ranks, those of a rank: as many as of each other, or one more."""
    return Part(number, ((number * rank // size, number * (rank + 1) // size),))


def joined(parts: Sequence[Part]) -> Part:
    """Parts of axes that lie one after another in one."""
    ranges, before = [], 0
    for part in parts:
        ranges += [(before + begin, before + end) for begin, end in part.ranges]
        before += part.size
    return Part(before, tuple(ranges))


def taken(tensor: Tensor, axes: Sequence[Axis]) -> Tensor:
    """What is read of a whole tensor."""
    for index, axis in enumerate(axes):
        if isinstance(axis, Part):
            tensor = axis.of(tensor, index)
    return tensor
