"""Gemma 4 in the engine, next to transformers: random checkpoints of the published kinds.

    OMP_NUM_THREADS=1 python bench/studies/gemma4.py

Layers without a window have heads of twice the size, and half as many of keys and values where values are made of
keys. "small" is E2B's and E4B's kind: an input of each layer, and the last layers read the keys and values of earlier
ones. Ways and columns are those of `gemma3n.py`. Needs transformers.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from gemma3n import WAYS, Oracle, half_agreeing, prompts, row, save_confident_model

KINDS = ["sliding_attention", "sliding_attention", "full_attention"]
DENSE: dict[str, Any] = {
    "num_hidden_layers": 6,
    "layer_types": KINDS * 2,
    "num_key_value_heads": 2,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "global_head_dim": 32,
    "sliding_window": 48,
    "hidden_size_per_layer_input": 0,
    "final_logit_softcapping": 30.0,
}
SHAPES: dict[str, dict[str, Any]] = {
    "dense": DENSE,
    "experts": {
        **DENSE,
        "enable_moe_block": True,
        "num_experts": 8,
        "top_k_experts": 2,
        "moe_intermediate_size": 32,
    },
    "small": {
        **DENSE,
        "num_hidden_layers": 9,
        "layer_types": KINDS * 3,
        "num_kv_shared_layers": 4,
        "use_double_wide_mlp": True,
        "attention_k_eq_v": False,
        "hidden_size_per_layer_input": 32,
        "vocab_size_per_layer_input": 1280,
    },
}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for name, shape in SHAPES.items():
        print(f"\n{name:<32}{'agree':>12}{'hit = miss':>12}{'cached':>9}{'windows':>9}")
        with tempfile.TemporaryDirectory() as folder:
            oracle = Oracle(Path(folder), save_confident_model(Path(folder), "Gemma4ForCausalLM", shape))
            for way, options in {**WAYS, "itself as draft model": {"speculative_model": folder}}.items():
                print(row(oracle, way, options), flush=True)
            print(f"{'transformers in bf16':<32}{half_agreeing(oracle):>5} of {64 * len(prompts())}", flush=True)


if __name__ == "__main__":
    main()
