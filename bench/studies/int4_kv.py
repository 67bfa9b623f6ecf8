"""Which form keys and values of four bits should have: scales by token or by channel, with a middle or without.

    OMP_NUM_THREADS=1 python bench/studies/int4_kv.py [--documents 400]

The bundled model on documents it has never seen, as in `cpu_int8.py`. Keys and values are rounded on their way into a
cache of fp32. By channel means what KIVI (arXiv 2402.02750) does with keys: a scale for each channel of a block of 16
tokens, which can be known only once the block is whole; what is left over at the end stays exact, as it does there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from cpu_int8 import quality
from torch import Tensor

from phloem.kernels import INT4, ops
from phloem.kernels.plain.rounding import quantise_heads, widen_heads
from phloem.runtime.models import Decoder, resolve_model
from phloem.runtime.tokenizer.tokenizer import Tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

BLOCK = 16
Rounding = Callable[[Tensor], Tensor]


def exact(x: Tensor) -> Tensor:
    return x


def symmetric(x: Tensor) -> Tensor:
    """-7 … 7, without a middle."""
    scale = (x.abs().amax(-1, keepdim=True) / 7).clamp(min=1e-30)
    return (x / scale).round() * scale


def by_token(x: Tensor) -> Tensor:
    """As `kv_format` has it."""
    return widen_heads(*quantise_heads(x, INT4))


def by_channel(x: Tensor) -> Tensor:
    """`[T, H, D]`, the same along the tokens of each whole block."""
    whole = len(x) // BLOCK * BLOCK
    blocks = x[:whole].unflatten(0, (-1, BLOCK)).movedim(1, -1)
    return torch.cat([by_token(blocks).movedim(-1, 1).flatten(0, 1), x[whole:]])


FORMS: dict[str, tuple[Rounding, Rounding]] = {  # of keys, of values
    "by token, no middle": (symmetric, symmetric),
    "by token": (by_token, by_token),
    "keys by channel": (by_channel, by_token),
    "keys alone, by token": (by_token, exact),
    "keys alone, by channel": (by_channel, exact),
    "values alone, by token": (exact, by_token),
}


def main() -> None:
    from nano_text import documents

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=400)
    args = parser.parse_args()
    torch.set_num_threads(1)
    folder, write_kv = resolve_model("nano"), ops.write_kv
    tokenizer, decoder = Tokenizer.from_folder(folder), Decoder.from_folder(folder, dtype=torch.float32)
    texts = [tokenizer.encode(document.text) for document in documents(2026, args.documents)]
    plain, tops = quality(decoder, texts, torch.float32)
    print(f"nano on {args.documents} unseen documents, {sum(map(len, texts)):,} tokens; exact {plain:.4f}")
    print(f"{'':>24}{'perplexity':>12}{'change':>10}{'same best token':>17}")
    for name, (of_keys, of_values) in FORMS.items():

        def rounded(k: Tensor, v: Tensor, *rest: Any, keys: Rounding = of_keys, values: Rounding = of_values) -> None:
            write_kv(keys(k).contiguous(), values(v).contiguous(), *rest)

        ops.write_kv = rounded
        found, theirs = quality(decoder, texts, torch.float32)
        ops.write_kv = write_kv
        same = float((theirs == tops).float().mean())
        print(f"{name:>24}{found:>12.4f}{found / plain - 1:>+10.3%}{same:>17.2%}", flush=True)


if __name__ == "__main__":
    main()
