"""BitNet's linear maps in transformers and here: logits and greedy tokens of random checkpoints, in every form.

    python bench/studies/bitnet.py

transformers' own classes (`BitNetForCausalLM` and `LlamaForCausalLM` with `BitLinear` or `AutoBitLinear`, fp32) and
phloem read the same files. An input that lies on the edge between two whole numbers, within rounding, may fall either
way, and changes all that comes after it: "sure" are tokens before the first such one, of 120, and "farthest" is the
largest difference of a logit there and of all tokens; "greedy" counts tokens of 64 that are the same. One rank and two.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
NUM_TOKENS, NUM_GREEDY, NUM_SEEDS = 120, 64, 2


def greedy(run: Any, token_ids: list[int]) -> list[int]:
    logits, said = run.extend({0: token_ids}), list[int]()
    for _ in range(NUM_GREEDY):
        said.append(int(logits[-1].argmax()))
        logits = run.extend({0: said[-1:]})
    return said


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    torch.compile = lambda function: function  # type: ignore[assignment]  # it takes long and changes nothing
    with tempfile.TemporaryDirectory() as root:  # the checkout's own root must not be imported from
        for name in ("tests", "bench"):
            (Path(root) / name).symlink_to(ROOT / name)
        sys.path.insert(0, root)
        from bench.studies.tensor_parallel import Group
        from phloem.runtime.models import Decoder
        from tests.runtime.models import oracle, test_bitnet

        group = Group(2)
        print(f"{'':<36}{'seed':>5}{'sure':>6}{'farthest, sure':>16}{'farthest':>10}{'greedy':>8}{'by 2 ranks':>12}")
        sizes = {"hidden_size": 128, "intermediate_size": 192, "num_attention_heads": 4, "num_hidden_layers": 3}
        for name, act in (("BitNetForCausalLM", "relu2"), ("LlamaForCausalLM", "silu")):
            for form_name, form in test_bitnet.FORMS.items():
                for seed in range(NUM_SEEDS):
                    folder = Path(root) / f"{name} {form_name} {seed}"
                    folder.mkdir()
                    options = {**sizes, "hidden_act": act, "max_position_embeddings": 256 + seed}
                    model = test_bitnet.publish(folder, form, name, options)
                    decoder, token_ids = Decoder.from_folder(folder, dtype=torch.float32), oracle.random_ids(NUM_TOKENS)
                    watch = test_bitnet.Watch(model)
                    with torch.inference_mode():
                        expected = model(torch.tensor([token_ids])).logits[0]
                        sure = watch.num_sure
                        watch.close()
                        ids, theirs = token_ids[:8], list[int]()
                        for _ in range(NUM_GREEDY):
                            theirs.append(int(model(torch.tensor([ids + theirs])).logits[0, -1].argmax()))
                    off = (oracle.PagedRun(decoder).extend({0: token_ids}) - expected).abs().amax(1)
                    ours = greedy(oracle.PagedRun(decoder), token_ids[:8])
                    same = sum(a == b for a, b in zip(ours, theirs, strict=True))

                    def work(rank: int, folder: Path = folder, token_ids: list[int] = token_ids) -> torch.Tensor:
                        part = Decoder.from_folder(folder, dtype=torch.float32, ranks=group.ranks(rank))
                        return oracle.PagedRun(part).extend({0: token_ids})

                    cut = float((group.run(work)[0] - expected).abs().amax(1)[:sure].max()) if sure else 0.0
                    numbers = f"{float(off[:sure].max()):>16.1e}" if sure else f"{'':>16}"
                    label = f"{name.removesuffix('ForCausalLM')}, {form_name}"
                    print(
                        f"{label:<36}{seed:>5}{sure:>6}{numbers}{float(off.max()):>10.1e}{same:>8}{cut:>12.1e}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
