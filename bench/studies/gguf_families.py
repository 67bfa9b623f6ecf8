"""Tiny GGUF files of the families in llama.cpp and in transformers: are the logits the same, so are the files right?

    python bench/studies/gguf_families.py

The tests write a file and its transformers model (`tests/runtime/models/gguf_cases.py`, and `test_gguf_recurrent.py`
for layers that keep a state) and compare phloem with the model. A fault that the writer shares with phloem would not
show there; here llama.cpp reads the same files, all in fp32. Where it cannot take a test's shape (it knows some of a
model by its number of layers), the shape differs.

Needs `llama_cpp_py_sync` for the declarations and `xllamacpp` for the library, of the same build of llama.cpp.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[2]
SHARED = {"expert_shared_count": 1, "rope_dimension_count": 8}


class LlamaCpp:
    """All logits of a short text, on one thread, without a flash kernel, keys and values in fp32."""

    def __init__(self) -> None:
        import xllamacpp
        from llama_cpp_py_sync._cffi_bindings import get_ffi

        self._ffi = get_ffi()
        (path,) = Path(xllamacpp.__path__[0]).glob("*.so")
        self._lib = self._ffi.dlopen(str(path))
        self._silent = self._ffi.callback("void(enum ggml_log_level, const char *, void *)", lambda *_: None)
        self._lib.llama_log_set(self._silent, self._ffi.NULL)
        self._lib.llama_backend_init()

    def logits(self, path: Path, token_ids: list[int], vocab_size: int) -> np.ndarray[Any, Any] | None:
        """`[T, vocab_size]`; None: it does not take the file."""
        lib, count = self._lib, len(token_ids)
        model = lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())
        if model == self._ffi.NULL:
            return None
        params = lib.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = 64
        params.n_threads = params.n_threads_batch = 1
        params.type_k = params.type_v = params.flash_attn_type = 0
        context, batch = lib.llama_init_from_model(model, params), lib.llama_batch_init(count, 0, 1)
        batch.n_tokens = count
        for index, token in enumerate(token_ids):
            batch.token[index], batch.pos[index], batch.logits[index] = token, index, 1
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, 0
        failed = lib.llama_decode(context, batch)
        rows = [lib.llama_get_logits_ith(context, index) for index in range(count)]
        found = [np.frombuffer(self._ffi.buffer(row, 4 * vocab_size), np.float32).copy() for row in rows]
        lib.llama_batch_free(batch)
        lib.llama_free(context)
        lib.llama_model_free(model)
        return None if failed else np.stack(found)


def changed(cases: dict[str, Any], keys: Any, yarn: dict[str, Any]) -> dict[str, Any]:
    """The tests' cases, in shapes that llama.cpp takes. keys: the module that adds them."""
    says, latent = keys.says, keys.latent
    cases = dict(cases)

    def change(name: str, **changes: Any) -> None:
        cases[name] = cases[name]._replace(**changes)

    change("glm4.5", keys=keys.grouped(8, 2, leading_dense_block_count=1, expert_weights_norm=True, **SHARED))
    own = keys.experts(8, 2, 24, leading_dense_block_count=1, expert_shared_count=2)
    change("deepseek-v2", differs={"q_lora_rank": 24}, keys=says(latent(24), own))
    own = says(expert_feed_forward_length=80, leading_dense_block_count=2, expert_shared_count=0)
    change("youtu", keys=says(latent(24), own))
    change("exaone4", differs={**cases["exaone4"].differs, "num_hidden_layers": 64})
    # it knows sizes, which layers are sparse or share keys, and how sparse they are
    layers = [*["sliding_attention"] * 4, "full_attention"] * 5
    options = {"num_hidden_layers": 25, "num_kv_shared_layers": 5, "laurel_rank": 64, "layer_types": layers}
    options |= {"activation_sparsity_pattern": [0.95] * 10 + [0.0] * 15, "vocab_size_per_layer_input": 131}
    options = {**cases["gemma3n"].differs, **options, "hidden_size_per_layer_input": 256}
    unused = [  # which no layer uses
        keys.tensor(f"blk.{index}.attn_{name}.weight", np.zeros(shape))
        for index in range(20, 25)
        for name, shape in (("k", (32, 64)), ("v", (32, 64)), ("k_norm", (16,)))
    ]
    own = says(
        keys.STREAMS,
        *unused,
        sliding_window_pattern=[index % 5 < 4 for index in range(25)],
        embedding_length_per_layer_input=256,
        shared_kv_layers=5,
        activation_sparsity_scale=[NormalDist().inv_cdf(0.95)] * 10 + [float("-inf")] * 15,
    )
    change("gemma3n", differs=options, keys=own)
    # its gate of BitNet is SiLU
    del cases["bitnet, relu2"]
    # Phi has no windows there, and PhiMoE biases everywhere; contexts have 256 tokens at least, and take the later
    # factors from the original length on
    change("phi3", differs={**cases["phi3"].differs, "sliding_window": None}, keys=None)
    change("phimoe", differs={**cases["phimoe"].differs, "sliding_window": None}, keys=keys.experts(6, 2))
    for name in ("phimoe, longrope", "phi3, longrope"):
        case = cases[name]
        parameters = {**case.differs["rope_parameters"], "original_max_position_embeddings": 256}
        options = {**case.differs, "rope_parameters": parameters, "original_max_position_embeddings": 256}
        own = {"rope_scaling_orig_ctx_len": 256}
        if name == "phi3, longrope":  # whose factor is made of the two lengths
            own["rope_scaling_attn_factors"] = 1.0
        else:
            options["lm_head_bias"] = True
        change(name, differs=options, keys=says(case.keys, **own))
    for name in ("phimoe", "phimoe, longrope"):
        cases[f"{name}, as there"] = cases[name]
    # it rounds YaRN's bounds to whole pairs, which the published models do not
    change("gpt-oss", differs={**cases["gpt-oss"].differs, "rope_parameters": {**yarn, "truncate": True}})
    return cases


def phi_moe_as_there(model: Any) -> None:
    """Phi-3.5-MoE as llama.cpp computes it: RMSNorms with biases, and shares that are a softmax over the chosen."""

    def rms(norm: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x, x.shape[-1:], norm.weight, norm.eps) + norm.bias

    def choose(router: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        logits = x @ router.weight.T
        most, chosen = logits.topk(router.top_k, -1)
        return logits, most.softmax(-1), chosen

    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.forward = partial(rms, module)
        if type(module).__name__ == "PhimoeTopKRouter":
            module.forward = partial(choose, module)


def bamba_as_there(model: Any) -> None:
    """Bamba as llama.cpp computes it: the converter puts elements side by side that are half a head apart, and in the
    half of a head that turns these are the pairs; in the model they are a quarter of a head apart."""
    dim = model.config.hidden_size // model.config.num_attention_heads
    first = torch.arange(dim // 4)
    order = torch.cat([first, first + dim // 2, first + dim // 4, first + dim * 3 // 4])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "q_proj" in name or "k_proj" in name:
                heads = parameter.view(-1, dim, *parameter.shape[1:])
                heads.copy_(heads[:, order].clone())


def compare(name: str, case: Any, folder: Path, peer: LlamaCpp, modules: Any) -> str:
    model, path = modules.gguf_cases.save_case(folder, case), folder / "model.gguf"

    def all_keys(writer: Any) -> None:
        writer.add_tokenizer_model("no_vocab")
        if case.keys is not None:
            case.keys(writer)

    with torch.no_grad():
        modules.gguf_keys.set_xielu(model)
        modules.gguf_files.write_model(path, model, case.arch, "F32", keys=all_keys)
    if name.endswith("as there"):
        phi_moe_as_there(model)
    return row(name, case.arch, folder, model, peer, modules.oracle)


def compare_recurrent(name: str, case: Any, folder: Path, peer: LlamaCpp, oracle: Any, convert: Any) -> str:
    """Of models with recurrent layers, whose files are made of saved checkpoints."""
    import transformers

    arch, base, differs, add_keys = case
    class_name, options = base
    path = folder / "model.gguf"
    oracle.save_random_model(folder, class_name, {**options, **differs})

    def all_keys(writer: Any, config: dict[str, Any]) -> None:
        writer.add_tokenizer_model("no_vocab")
        add_keys(writer, config)

    convert(folder, path, arch, "F32", all_keys)
    model = getattr(transformers, class_name).from_pretrained(folder, dtype=torch.float32).eval()
    if name.endswith("as there"):
        bamba_as_there(model)
    return row(name, arch, folder, model, peer, oracle)


def row(name: str, arch: str, folder: Path, model: Any, peer: LlamaCpp, oracle: Any) -> str:
    token_ids = oracle.random_ids(40)
    expected, bound = (each.numpy() for each in oracle.Oracle(folder, model).logits_and_bound(token_ids))
    found = peer.logits(folder / "model.gguf", token_ids, expected.shape[1])
    if found is None:
        return f"{name:<28}{arch:<16}is not taken"
    off = np.abs(found - expected)
    same = (found.argmax(1) == expected.argmax(1)).mean()
    numbers = f"{off.max():>10.1e}{np.abs(expected).max():>10.1f}{(off / bound).max():>12.2g}{same:>10.0%}"
    return f"{name:<28}{arch:<16}{numbers}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("only", nargs="*", help="names of cases; none: all")
    only = parser.parse_args().only
    with tempfile.TemporaryDirectory() as root:  # the checkout's own root must not be imported from
        (Path(root) / "tests").symlink_to(ROOT / "tests")
        sys.path.insert(0, root)
        from tests.runtime import models
        from tests.runtime.models import decoder_cases, decoder_shapes, gguf_cases, gguf_keys, gguf_recurrent, oracle
        from tests.runtime.models import test_gguf_recurrent as recurrent

        peer = LlamaCpp()
        print(f"{'':<28}{'file':<16}{'farthest':>10}{'largest':>10}{'of rounding':>12}{'same top':>10}")
        for name, case in changed(gguf_cases.GGUF_CASES, gguf_keys, decoder_shapes.YARN).items():
            if only and name not in only:
                continue
            folder = Path(root) / name
            folder.mkdir()
            print(compare(name, case, folder, peer, models), flush=True)
        kept = {**recurrent.MODELS, "bamba, as there": recurrent.MODELS["bamba"]}
        for name, (arch, case, differs, _, add_keys) in kept.items():
            if only and name not in only:
                continue
            folder = Path(root) / name
            folder.mkdir()
            full = (arch, decoder_cases.CASES[case], differs, add_keys)
            print(compare_recurrent(name, full, folder, peer, oracle, gguf_recurrent.convert), flush=True)


if __name__ == "__main__":
    main()
