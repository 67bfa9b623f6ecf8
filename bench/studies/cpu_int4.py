"""Weights of four bits on the CPU: what rounding to them costs in perplexity, and their speed compared with wider ones.

    OMP_NUM_THREADS=1 python bench/studies/cpu_int4.py [--batches 1,8] [--prompt 32] [--tokens 24] [--repeats 5]

* **quality**: as in `cpu_int8.py`, the bundled model on documents it has never seen, its weights rounded to the nearest
  of 16 levels in groups of 32 inputs. Every checkpoint that is published in four bits was rounded with more care.
* **speed**: random checkpoints of SmolLM-135M's shape, one thread, tokens per CPU-second, the columns taking turns,
  best of several repeats: fp32; bf16, as it is published; int8 and int4, rounded while loading; "kept", layers in four
  bits as GPTQ publishes them (groups of 64, the embedding in bf16), whose inputs stay in fp32, and "kept, 16" the same
  with inputs of 16 bits and the embedding in int8, as `quantise="int8"` has it. llama.cpp's Q4_0 if `llama_cpp` and
  `gguf` can be imported.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from pathlib import Path

import torch
from cpu_int8 import LlamaCpp, quality, report, write_gguf
from safetensors.torch import load_file, save_file

from phloem.kernels.linear_weight import Quantise
from phloem.runtime.models import Decoder, resolve_model
from phloem.runtime.tokenizer.tokenizer import Tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cpu_decode import SMOLLM_135M, run_phloem

SIZE = 64  # inputs of a group of the published checkpoint


def report_quality(num_documents: int) -> None:
    from nano_text import documents

    folder = resolve_model("nano")
    tokenizer = Tokenizer.from_folder(folder)
    texts = [tokenizer.encode(document.text) for document in documents(2026, num_documents)]
    print(f"nano on {num_documents} unseen documents, {sum(map(len, texts)):,} tokens")
    print(f"{'weights':>10}{'perplexity':>12}{'change':>10}{'same best token':>17}{'MB':>7}")
    roundings: tuple[Quantise, ...] = ("none", "int8", "int4")
    whole, tops = 0.0, torch.empty(0)
    for quantise in roundings:
        decoder = Decoder.from_folder(folder, dtype=torch.float32, quantise=quantise)
        found, theirs = quality(decoder, texts, torch.float32)
        size = f"{decoder.num_weight_bytes / 1e6:>7.2f}"
        if quantise == "none":
            whole, tops = found, theirs
            print(f"{'bf16':>10}{found:>12.4f}{'':27}{size}")
            continue
        same = float((theirs == tops).float().mean())
        print(f"{quantise:>10}{found:>12.4f}{found / whole - 1:>+10.3%}{same:>17.2%}{size}", flush=True)


def write_published(source: Path, folder: Path) -> None:
    """The checkpoint with random numbers of four bits in its layers, in GPTQ's form."""
    folder.mkdir()
    tensors = {name: tensor.bfloat16() for name, tensor in load_file(source / "model.safetensors").items()}
    for name in [name for name in tensors if name.endswith("proj.weight")]:
        num_outputs, num_inputs = tensors.pop(name).shape
        base, num_groups = name.removesuffix("weight"), num_inputs // SIZE
        words = torch.randint(-(2**31), 2**31, (num_inputs // 8, num_outputs)).int()
        tensors |= {
            f"{base}qweight": words,
            f"{base}qzeros": torch.full((num_groups, num_outputs // 8), 0x77777777, dtype=torch.int32),
            f"{base}scales": torch.full((num_groups, num_outputs), 0.004, dtype=torch.float16),
        }
    save_file(tensors, folder / "model.safetensors")
    values = json.loads((source / "config.json").read_text())
    values["quantization_config"] = {"quant_method": "gptq", "bits": 4, "group_size": SIZE, "desc_act": False}
    (folder / "config.json").write_text(json.dumps(values | {"dtype": "bfloat16"}))


def load_all(folder: Path) -> dict[str, Decoder]:
    """The decoders of the table."""
    import transformers

    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMOLLM_135M))
    model.save_pretrained(folder / "fp32")
    model.bfloat16().save_pretrained(folder / "bf16")
    write_published(folder / "fp32", folder / "kept")
    columns: dict[str, tuple[str, Quantise]] = {
        "fp32": ("fp32", "none"),
        "bf16": ("bf16", "none"),
        "int8": ("fp32", "int8"),
        "kept": ("kept", "none"),
        "kept, 16": ("kept", "int8"),
        "int4": ("fp32", "int4"),
    }
    return {
        label: Decoder.from_folder(folder / name, dtype=torch.float32, quantise=quantise)
        for label, (name, quantise) in columns.items()
    }


def report_speed(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        decoders = load_all(folder)
        has_peer = False
        with contextlib.suppress(ImportError):
            write_gguf(folder / "fp32", folder / "q4_0.gguf", "Q4_0")
            import llama_cpp

            print(f"llama_cpp {llama_cpp.__version__}")
            has_peer = True
        sizes = ", ".join(f"{label} {d.num_weight_bytes / 1e6:.0f} MB" for label, d in decoders.items())
        print(f"SmolLM-135M's shape: {sizes}\nprompt {args.prompt}, {args.tokens} tokens; tokens per CPU-second")
        print(f"{'batch':>6}  {'':10}{'prefill':>10}{'decode':>10}{'int4 / this':>13}")
        for batch in map(int, args.batches.split(",")):
            prompts = torch.randint(10, 49152, (batch, args.prompt), generator=torch.manual_seed(batch))
            runs = {label: lambda d=d, p=prompts: run_phloem(d, p, args.tokens) for label, d in decoders.items()}  # type: ignore[misc]  # defaults bind
            peer = LlamaCpp(folder / "q4_0.gguf", batch, args.prompt + args.tokens) if has_peer else None
            if peer is not None:
                runs["llama Q4_0"] = lambda m=peer, p=prompts: m.run(p, args.tokens)  # type: ignore[misc]
            best = {label: run()[:2] for label, run in runs.items()}  # compiles what is not yet compiled
            for _ in range(args.repeats):
                for label, run in runs.items():
                    prefill, decode = run()[:2]
                    best[label] = (min(best[label][0], prefill), min(best[label][1], decode))
            if peer is not None:
                peer.close()
            for label, (prefill, decode) in best.items():
                speeds = f"{batch * args.prompt / prefill:>10,.0f}{batch * (args.tokens - 1) / decode:>10,.1f}"
                print(f"{batch:>6}  {label:10}{speeds}{decode / best['int4'][1]:>13.2f}", flush=True)


if __name__ == "__main__":
    report(__doc__ or "", "1,8", 5, report_quality, report_speed)
