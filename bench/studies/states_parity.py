"""Models whose layers keep a state, against transformers: logits, 64 greedy tokens, and bf16.

    OMP_NUM_THREADS=1 python bench/studies/states_parity.py [CASES]

Random checkpoints of the suite's cases, in chunks over shuffled blocks. "off" is how far logits are apart, at most,
"of rounding" the same as a share of what another order of fp32 sums explains; "bf16" how far logits in bf16 are from
those in fp32, divided by how far transformers' own are. Needs transformers.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import torch

from phloem.runtime.models import Decoder
from phloem.runtime.models.architectures import ARCHITECTURES

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "runtime"))

from models.decoder_cases import CASES
from models.oracle import Oracle, PagedRun, random_ids, save_random_model


def row(name: str, folder: Path) -> str:
    model, token_ids = save_random_model(folder, *CASES[name]), random_ids(60)
    oracle, decoder = Oracle(folder, model), Decoder.from_folder(folder)
    expected, bound = oracle.logits_and_bound(token_ids)
    run = PagedRun(decoder)
    chunks = (token_ids[:1], token_ids[1:20], token_ids[20:53], *([token] for token in token_ids[53:]))
    off = (torch.cat([run.extend({0: chunk}) for chunk in chunks]) - expected).abs()
    oracle.assert_greedy(token_ids[:30], PagedRun(decoder).greedy(token_ids[:30], 64))
    half = PagedRun(Decoder.from_folder(folder, dtype=torch.bfloat16)).extend({0: token_ids}).float()
    theirs = Oracle(folder, model.to(torch.bfloat16)).logits(token_ids).float()
    ratio = float((half - expected).norm() / (theirs - expected).norm())
    size = float(expected.abs().max())
    return f"{name:<40}{float(off.max()) / size:>10.1e}{float((off / bound).max()):>13.1%}{'64 of 64':>11}{ratio:>8.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help="of the suite; without any, all of models whose layers keep a state")
    asked = parser.parse_args().cases
    print(f"{'checkpoint':<40}{'off':>10}{'of rounding':>13}{'greedy':>11}{'bf16':>8}")
    for name, (architecture, _) in CASES.items():
        if name in asked or (not asked and ARCHITECTURES[architecture].recurrent is not None):
            with tempfile.TemporaryDirectory() as folder:
                print(row(name, Path(folder)), flush=True)
    print("off: as a share of the largest logit")


if __name__ == "__main__":
    main()
