"""What 8-bit formats lose where they round the inputs of linear maps too: fp8 by fp8 and int8 by int8, on the CPU.

    OMP_NUM_THREADS=1 python bench/studies/rounded_inputs.py [--documents 400]

The bundled model on documents it has never seen, as in `cpu_int8.py`. Its weights are rounded as a format has them, and
inputs are left as they are or rounded by the format's own formula before every linear map but the last: int8 by the
largest of a row (compressed-tensors), e4m3 by the largest of a row, or of 128 neighbouring inputs (DeepSeek-V3).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from cpu_int8 import quality
from safetensors.torch import load_file, save_file
from torch import Tensor

from phloem.kernels import FP8, LinearWeight, ops
from phloem.runtime.models import Decoder, resolve_model
from phloem.runtime.tokenizer.tokenizer import Tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

SIZE = 128
Rounding = Callable[[Tensor], Tensor]


def by_row(dtype: torch.dtype, limit: float) -> Rounding:
    def rounded(x: Tensor) -> Tensor:
        step = (x.abs().amax(-1, keepdim=True) / limit).clamp(min=1e-30)
        whole = (x / step).round().clamp(-128, 127) if dtype is torch.int8 else (x / step).to(dtype)
        return whole.float() * step

    return rounded


def by_part(round_part: Rounding) -> Rounding:
    return lambda x: torch.cat([round_part(part) for part in x.split(SIZE, -1)], -1)


def by_block(matrix: Tensor) -> Tensor:
    """e4m3 in blocks of 128 by 128."""
    flat = by_row(FP8, 448.0)
    blocks = [
        [flat(block.reshape(1, -1)).view_as(block) for block in rows.split(SIZE, 1)] for rows in matrix.split(SIZE)
    ]
    return torch.cat([torch.cat(row, 1) for row in blocks])


FORMATS: dict[str, tuple[Rounding, Rounding]] = {  # of weights, of inputs
    "int8, channels": (by_row(torch.int8, 127.5), by_row(torch.int8, 127.5)),
    "fp8, channels": (by_row(FP8, 448.0), by_row(FP8, 448.0)),
    "fp8, blocks": (by_block, by_part(by_row(FP8, 448.0))),
}


def write_rounded(source: Path, folder: Path, rounding: Rounding) -> None:
    tensors = {name: tensor.float() for name, tensor in load_file(source / "model.safetensors").items()}
    for name in tensors:
        if name.endswith("proj.weight"):
            tensors[name] = rounding(tensors[name])
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text((source / "config.json").read_text())


def main() -> None:
    from nano_text import documents

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=400)
    args = parser.parse_args()
    torch.set_num_threads(1)
    source, product = resolve_model("nano"), ops.linear
    tokenizer = Tokenizer.from_folder(source)
    texts = [tokenizer.encode(document.text) for document in documents(2026, args.documents)]
    plain = Decoder.from_folder(source, dtype=torch.float32)
    whole, tops = quality(plain, texts, torch.float32)
    print(f"nano on {args.documents} unseen documents, {sum(map(len, texts)):,} tokens; as it is {whole:.4f}")
    print(f"{'weights':>16}{'inputs':>10}{'perplexity':>12}{'change':>10}{'same best token':>17}")
    for name, (of_weights, of_inputs) in FORMATS.items():
        with tempfile.TemporaryDirectory() as folder:
            write_rounded(source, Path(folder), of_weights)
            decoder = Decoder.from_folder(Path(folder), dtype=torch.float32)

        def rounded(x: Tensor, weight: LinearWeight, rounding: Rounding = of_inputs) -> Tensor:
            is_last = weight.num_outputs == plain.config.vocab_size
            return product(x if is_last else rounding(x), weight)

        for inputs, linear in (("as is", product), ("rounded", rounded)):
            ops.linear = linear
            found, theirs = quality(decoder, texts, torch.float32)
            ops.linear = product
            same = float((theirs == tops).float().mean())
            print(f"{name:>16}{inputs:>10}{found:>12.4f}{found / whole - 1:>+10.3%}{same:>17.2%}", flush=True)


if __name__ == "__main__":
    main()
