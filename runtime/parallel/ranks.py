"""The processes that compute one model together (tensor parallelism), as a layer sees them: sums and gathers.

Each process is a *rank*. Rank 0 is the engine's own; the others compute what it plans (`execute/rank_process.py`). All
of them call the same operations in the same order, each with its own part::

    rank 0   x₀ ─┐             ┌─ x₀ + x₁ + x₂
    rank 1   x₁ ─┼─ gather ────┼─ x₀ + x₁ + x₂      the same bits on all of them
    rank 2   x₂ ─┘             └─ x₀ + x₁ + x₂

On the CPU, and on GPUs with `deterministic`, a sum is a gather and additions in the order of the ranks: so its bits
depend on no other row of the step. An all-reduce gives an element to a rank by its place in the tensor, and adds in
another order there. It is what GPUs take otherwise: it moves 2 (N - 1) / N of the tensor instead of N - 1 times all of
it.

Knows tensors and a process group, which is given; it knows no model and no default group of torch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class RankLost(BaseException):
    """A rank has died, does not answer, or has had a fault: nothing more can be computed.

    No `Exception`, since no request is to blame, and none can be computed again: it ends the engine.
    """


class Ranks:
    """One rank's view of all ranks.

    Args:
        group: torch's process group of them; None: there is one rank alone.
        in_order: whether a sum has the same bits whatever else is in the tensor.
        explain: makes the error of an operation that has failed.

    Attributes:
        rank, size: this one's number, from 0 on, and how many there are.
        group: as given; another one when the ranks have met again.
        num_operations, num_bytes: operations so far, and what this rank has put into them.
    """

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        group: Any = None,
        *,
        in_order: bool = True,
        explain: Callable[[Exception], BaseException] | None = None,
    ) -> None:
        self.rank = rank
        self.size = size
        self.group = group
        self._in_order = in_order
        self._explain = explain or (lambda error: RankLost(str(error)))
        self.num_operations = self.num_bytes = 0

    def sum(self, x: Tensor) -> Tensor:
        """The sum of all ranks' tensors, of one shape, on every rank; x may be changed."""
        if self.size == 1:
            return x
        if self._in_order:
            first, *others = self.gather(x)
            for other in others:
                first = first + other
            return first
        x = x.contiguous()
        self._run(x, lambda: self.group.allreduce([x]))
        return x

    def largest(self, x: Tensor) -> Tensor:
        """The largest of all ranks' numbers at each place of a tensor of one shape, on every rank."""
        first, *others = self.gather(x)
        for other in others:
            first = first.maximum(other)
        return first

    def gather(self, x: Tensor) -> list[Tensor]:
        """All ranks' tensors, of one shape, on every rank."""
        if self.size == 1:
            return [x]
        x = x.contiguous()
        parts = list(x.new_empty(self.size, *x.shape).unbind())
        self._run(x, lambda: self.group.allgather([parts], [x]))
        return parts

    def collect(self, x: Tensor) -> list[Tensor]:
        """As `gather`, on rank 0; the others get nothing."""
        if self.size == 1:
            return [x]
        x = x.contiguous()
        parts = list(x.new_empty(self.size, *x.shape).unbind()) if self.rank == 0 else []
        options = _options("GatherOptions")
        self._run(x, lambda: self.group.gather([parts] if self.rank == 0 else [], [x], options))
        return parts

    def hand_out(self, x: Tensor) -> Tensor:
        """Rank 0's `x[rank]` on every rank, of `[size, …]`; what the others give tells shape and type alone."""
        if self.size == 1:
            return x[0]
        own = x.new_empty(x.shape[1:])
        parts = [[part.contiguous() for part in x]] if self.rank == 0 else []
        options = _options("ScatterOptions")
        self._run(own, lambda: self.group.scatter([own], parts, options))
        return own

    def share(self, x: Tensor) -> Tensor:
        """Rank 0's tensor on every rank; what the others give is overwritten."""
        if self.size > 1:
            x = x.contiguous()
            self._run(x, lambda: self.group.broadcast([x], _options("BroadcastOptions")))
        return x

    def _run(self, x: Tensor, begin: Callable[[], Any]) -> None:
        self.num_operations += 1
        self.num_bytes += x.nbytes
        try:
            begin().wait()
        except RuntimeError as error:
            raise self._explain(error) from error


ALONE = Ranks()


def _options(kind: str) -> Any:
    """torch's options of that name, of rank 0."""
    import torch.distributed as distributed

    return getattr(distributed.distributed_c10d, kind)()
