"""int8 weights, KV of one byte and of four bits, on the CPU: what they cost in perplexity; and llama.cpp's Q8_0.

    OMP_NUM_THREADS=1 python bench/studies/cpu_int8.py [--batches 1,8,64] [--prompt 32] [--tokens 24] [--repeats 3]

* **quality**: the bundled model on documents it has never seen, every token predicted from those before it; how often
  the most likely token stays the same, and the perplexity per token.
* **speed**: a random checkpoint of SmolLM-135M's shape, one thread, tokens per CPU-second, all columns in one run, best
  of several repeats. llama.cpp takes part if `llama_cpp` and `gguf` can be imported: the same shape, Q8_0, its own
  greedy loop through the C interface.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import math
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from phloem.kernels import FP8, INT4
from phloem.runtime.models import Decoder, resolve_model
from phloem.runtime.tokenizer.tokenizer import Tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cpu_decode import SMOLLM_135M, Sequences, best_of, machine, run_phloem

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

KV_TYPES = {torch.int8: "int8", FP8: "fp8", INT4: "int4"}


def quality(decoder: Decoder, texts: list[list[int]], kv_dtype: torch.dtype) -> tuple[float, torch.Tensor]:
    """(Perplexity per token, the most likely token at every place)."""
    losses, tops = [], []
    for token_ids in texts:
        ids = torch.tensor([token_ids])
        logits = all_logits(decoder, ids, kv_dtype)
        losses.append(F.cross_entropy(logits[:-1], ids[0, 1:], reduction="none"))
        tops.append(logits.argmax(-1))
    return math.exp(float(torch.cat(losses).mean())), torch.cat(tops)


def all_logits(decoder: Decoder, ids: torch.Tensor, kv_dtype: torch.dtype) -> torch.Tensor:
    """Logits `[n, vocab]` of every position of `[1, n]` tokens."""
    found: list[torch.Tensor] = []
    forward = decoder.forward

    def keep(*arguments: Any) -> torch.Tensor:
        found.append(forward(*arguments[:-1], None))
        return found[0][-1:]

    sequences = Sequences(decoder, 1, ids.shape[1], kv_dtype)
    sequences.forward = keep
    sequences.extend(ids)
    return found[0]


def report_quality(num_documents: int) -> None:
    from nano_text import documents

    folder = resolve_model("nano")
    tokenizer = Tokenizer.from_folder(folder)
    texts = [tokenizer.encode(document.text) for document in documents(2026, num_documents)]
    print(f"nano on {num_documents} unseen documents, {sum(map(len, texts)):,} tokens")
    plain, rounded = (Decoder.from_folder(folder, dtype=torch.float32, quantise=q) for q in ("none", "int8"))
    whole, tops = quality(plain, texts, torch.float32)
    print(f"{'weights':>10}{'KV':>6}{'perplexity':>12}{'change':>10}{'same best token':>17}")
    print(f"{'fp32':>10}{'fp32':>6}{whole:>12.4f}")
    pairs = [(rounded, torch.float32), *((plain, kind) for kind in KV_TYPES), (rounded, torch.int8)]
    for decoder, kv_dtype in pairs:
        found, theirs = quality(decoder, texts, kv_dtype)
        names = ("fp32" if decoder is plain else "int8", KV_TYPES.get(kv_dtype, "fp32"))
        same = float((theirs == tops).float().mean())
        print(f"{names[0]:>10}{names[1]:>6}{found:>12.4f}{found / whole - 1:>+10.3%}{same:>17.2%}", flush=True)


def write_gguf(folder: Path, path: Path, form: str = "Q8_0") -> None:
    """The checkpoint in `form` (norms fp32), without a tokenizer. Query and key rows keep their order: same work."""
    import gguf
    from safetensors.torch import load_file

    tensors = load_file(folder / "model.safetensors")
    shape = SMOLLM_135M
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(shape["vocab_size"])
    writer.add_context_length(shape["max_position_embeddings"])
    writer.add_embedding_length(shape["hidden_size"])
    writer.add_block_count(shape["num_hidden_layers"])
    writer.add_feed_forward_length(shape["intermediate_size"])
    writer.add_head_count(shape["num_attention_heads"])
    writer.add_head_count_kv(shape["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(shape["hidden_size"] // shape["num_attention_heads"])
    writer.add_tokenizer_model("no_vocab")
    names = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    whole = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    for name, tensor in tensors.items():
        target = whole.get(name)
        if target is None and name.startswith("model.layers."):
            _, _, index, *rest, _ = name.split(".")
            target = f"blk.{index}.{names['.'.join(rest)]}.weight"
        if target is None:
            continue
        data = tensor.float().numpy()
        if data.ndim == 2:
            kind = gguf.GGMLQuantizationType[form]
            writer.add_tensor(target, gguf.quants.quantize(data, kind), raw_dtype=kind)
        else:
            writer.add_tensor(target, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class LlamaCpp:
    """llama.cpp's greedy loop on one thread through its C interface."""

    def __init__(self, path: Path, batch: int, num_keys: int, vocab_size: int = int(SMOLLM_135M["vocab_size"])) -> None:
        import llama_cpp

        self.api, self.batch, self.vocab_size = llama_cpp, batch, vocab_size
        self.log = llama_cpp.llama_log_callback(lambda *_: None)  # held, for the library calls it
        llama_cpp.llama_log_set(self.log, ctypes.c_void_p())
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = batch * num_keys, batch * num_keys, 512
        params.n_threads = params.n_threads_batch = 1
        params.n_seq_max = batch
        self.context = llama_cpp.llama_init_from_model(self.model, params)

    def extend(self, token_ids: torch.Tensor, start: int) -> torch.Tensor:
        """Appends `[batch, n]` tokens at position `start`; the greedy next token of each, `[batch, 1]`."""
        count = token_ids.shape[1]
        ends = [(row + 1) * count - 1 for row in range(self.batch)]
        return torch.tensor([int(row.argmax()) for row in self._decode(token_ids, start, ends)])[:, None]

    def all_logits(self, token_ids: list[int]) -> torch.Tensor:
        """Logits `[n, vocab]` of every position of a text."""
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)
        found = self._decode(torch.tensor([token_ids]), 0, list(range(len(token_ids))))
        return torch.from_numpy(np.stack(found))

    def _decode(self, token_ids: torch.Tensor, start: int, wanted: list[int]) -> list[np.ndarray[Any, Any]]:
        """Logits of the wanted ones of `[batch, n]` tokens."""
        count = token_ids.shape[1]
        tokens = self.api.llama_batch_init(token_ids.numel(), 0, 1)
        tokens.n_tokens = token_ids.numel()
        for i, token in enumerate(token_ids.flatten().tolist()):
            tokens.token[i], tokens.pos[i] = token, start + i % count
            tokens.n_seq_id[i], tokens.seq_id[i][0] = 1, i // count
            tokens.logits[i] = i in wanted
        if self.api.llama_decode(self.context, tokens):
            raise RuntimeError("llama_decode failed")
        rows = [self.api.llama_get_logits_ith(self.context, i) for i in wanted]
        found = [np.ctypeslib.as_array(row, (self.vocab_size,)).copy() for row in rows]
        self.api.llama_batch_free(tokens)
        return found

    def run(self, prompts: torch.Tensor, num_tokens: int) -> tuple[float, float, torch.Tensor]:
        """(CPU seconds of prefill, of decode, tokens `[batch, num_tokens]`)."""
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)
        start = time.process_time()
        token_ids = [self.extend(prompts, 0)]
        prefilled = time.process_time()
        while len(token_ids) < num_tokens:
            token_ids.append(self.extend(token_ids[-1], prompts.shape[1] + len(token_ids) - 1))
        return prefilled - start, time.process_time() - prefilled, torch.cat(token_ids, 1)

    def close(self) -> None:
        self.api.llama_free(self.context)
        self.api.llama_model_free(self.model)


def report_speed(args: argparse.Namespace) -> None:
    import transformers

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch.manual_seed(0)
        transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMOLLM_135M)).save_pretrained(folder)
        decoders = {
            name: Decoder.from_folder(folder, dtype=torch.float32, quantise=quantise)
            for name, quantise in (("fp32", "none"), ("int8", "int8"))
        }
        sizes = ", ".join(f"{q} {d.num_weight_bytes / 1e6:.0f} MB" for q, d in decoders.items())
        has_peer = False
        with contextlib.suppress(ImportError):
            write_gguf(folder, folder / "q8_0.gguf")
            import llama_cpp

            print(f"llama_cpp {llama_cpp.__version__}")
            has_peer = True
        print(f"SmolLM-135M's shape: {sizes}; prompt {args.prompt}, {args.tokens} tokens; tokens per CPU-second")
        print(f"{'batch':>6}  {'':10}{'prefill':>10}{'decode':>10}{'int8 / this':>13}")
        for batch in map(int, args.batches.split(",")):
            prompts = torch.randint(10, 49152, (batch, args.prompt), generator=torch.manual_seed(batch))
            for decoder in decoders.values():
                run_phloem(decoder, prompts, 2)  # compiles what is not yet compiled
            rows = {
                q: best_of(lambda d=d, p=prompts: run_phloem(d, p, args.tokens), args.repeats)  # type: ignore[misc]  # a default binds
                for q, d in decoders.items()
            }
            if has_peer:
                peer = LlamaCpp(folder / "q8_0.gguf", batch, args.prompt + args.tokens)
                rows["llama Q8_0"] = best_of(lambda m=peer, p=prompts: m.run(p, args.tokens), args.repeats)  # type: ignore[misc]
                peer.close()
            for label, (prefill, decode, _) in rows.items():
                speeds = f"{batch * args.prompt / prefill:>10,.0f}{batch * (args.tokens - 1) / decode:>10,.1f}"
                print(f"{batch:>6}  {label:10}{speeds}{decode / rows['int8'][1]:>13.2f}", flush=True)


def report(
    purpose: str,
    batches: str,
    repeats: int,
    report_quality: Callable[[int], None],
    report_speed: Callable[[argparse.Namespace], None],
) -> None:
    """The reports that the command line asks for; batches and repeats: unless it says otherwise."""
    parser = argparse.ArgumentParser(description=purpose, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", default=batches)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=repeats)
    parser.add_argument("--documents", type=int, default=60, help="for the quality; 0: only the speed")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"{machine()}, one thread, torch {torch.__version__}")
    if args.documents:
        report_quality(args.documents)
    report_speed(args)


if __name__ == "__main__":
    report(__doc__ or "", "1,8,64", 3, report_quality, report_speed)
