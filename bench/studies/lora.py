"""What adapters cost a decode step on the CPU: none, one for all rows, and one for each; transformers and PEFT.

SmolLM-135M's shape with random weights as they are published, in bf16, and random adapters in fp32 on all projections
of attention and MLP. No engine, no cache, no sampling, as in `cpu_decode`: prefill once, then greedy decode steps, all
sides in fp32 on one thread, in turns; medians per CPU-second. PEFT serves one adapter, for all rows of a batch; its
greedy tokens must be ours, or the script says so. Where `peft` is not installed its columns are left out.

    OMP_NUM_THREADS=1 python bench/studies/lora.py [--ranks 16,64] [--batches 1,8] [--prompt 128] [--tokens 17]
        [--repeats 5]
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from phloem.kernels import LoraLayers, LoraSegment, narrow_segments, plan_lora
from phloem.runtime.models import AdaptedRows, Decoder, ModelConfig, read_adapter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from cpu_decode import SMOLLM_135M, Sequences, machine, run_transformers

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CPU = torch.device("cpu")
Run = tuple[float, float, torch.Tensor]  # CPU seconds of prefill, of decode, tokens


def save_adapter(folder: Path, model: Any, rank: int, seed: int) -> Path:
    folder.mkdir()
    generator, tensors = torch.Generator().manual_seed(seed), {}
    for name, module in model.named_modules():
        if name.rpartition(".")[2] in TARGETS:
            outputs, inputs = module.weight.shape
            for part, shape in (("A", (rank, inputs)), ("B", (outputs, rank))):
                key = f"base_model.model.{name}.lora_{part}.weight"
                tensors[key] = torch.randn(shape, generator=generator) * 0.05
    save_file(tensors, folder / "adapter_model.safetensors")
    said = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": rank, "target_modules": TARGETS}
    (folder / "adapter_config.json").write_text(json.dumps(said))
    return folder


def run_phloem(decoder: Decoder, prompts: torch.Tensor, num_tokens: int, adapters: list[LoraLayers]) -> Run:
    """adapters: one for each sequence; none: the model alone."""
    sequences = Sequences(decoder, prompts.shape[0], prompts.shape[1] + num_tokens)

    def forward(*arguments: Any) -> torch.Tensor:
        """As the engine's runner calls it: rows of one adapter are contiguous."""
        each = len(arguments[0]) // len(adapters)
        segments: list[LoraSegment] = []
        for index, layers in enumerate(adapters):
            begin = index * each
            if segments and segments[-1].layers is layers:
                begin = segments.pop().begin
            segments.append(LoraSegment(begin, (index + 1) * each, layers))
        wanted = plan_lora(narrow_segments(segments, arguments[-1].numpy()), CPU)
        return decoder.forward(*arguments, AdaptedRows(plan_lora(segments, CPU), wanted))

    if adapters:
        sequences.forward = forward
    start = time.process_time()
    token_ids = [sequences.extend(prompts)]
    prefilled = time.process_time()
    while len(token_ids) < num_tokens:
        token_ids.append(sequences.extend(token_ids[-1]))
    return prefilled - start, time.process_time() - prefilled, torch.cat(token_ids, 1)


def sides(folder: Path, rank: int, base: Any, decoder: Decoder) -> dict[str, Any]:
    """What is compared, by name: a function of prompts and number of tokens."""
    folders = [save_adapter(folder / f"{rank}-{i}", base, rank, i) for i in range(8)]
    config = ModelConfig.from_folder(folder / "base")
    layers = [read_adapter(str(i), one, config, CPU, torch.float32).layers for i, one in enumerate(folders)]
    found: dict[str, Any] = {
        "base": lambda prompts, n: run_phloem(decoder, prompts, n, []),
        "one": lambda prompts, n: run_phloem(decoder, prompts, n, layers[:1] * len(prompts)),
        "eight": lambda prompts, n: run_phloem(decoder, prompts, n, layers[: len(prompts)]),
        "theirs": lambda prompts, n: run_transformers(base, prompts, n),
    }
    try:
        from peft import PeftModel
    except ImportError:
        print("peft is not installed: its columns are left out (pip install peft)")
        return found
    from transformers import AutoModelForCausalLM

    plain = AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32)  # PEFT changes it in place
    adapted = PeftModel.from_pretrained(plain, folders[0]).eval()
    found["peft"] = lambda prompts, n: run_transformers(adapted, prompts, n)
    return found


def compare(folder: Path, rank: int, base: Any, decoder: Decoder, args: argparse.Namespace) -> None:
    compared = sides(folder, rank, base, decoder)
    for batch in map(int, args.batches.split(",")):
        prompts = torch.randint(10, decoder.config.vocab_size, (batch, args.prompt), generator=torch.manual_seed(batch))
        runs: dict[str, list[Run]] = defaultdict(list)
        for run in compared.values():
            run(prompts, 2)  # compiles what is not yet compiled
        for _ in range(args.repeats):
            for name, run in compared.items():
                if name != "eight" or batch > 1:
                    runs[name].append(run(prompts, args.tokens))
        for part, which, count in (("prefill", 0, args.prompt), ("decode", 1, args.tokens - 1)):
            rates = {
                name: batch * count / statistics.median(run[which] for run in found) for name, found in runs.items()
            }
            cells = "".join(f"{rates[name]:>10,.1f}" if name in rates else f"{'-':>10}" for name in COLUMNS)
            share = f"{rates['one'] / rates['base']:>8.2f}"
            share += f"{rates['eight'] / rates['base']:>8.2f}" if "eight" in rates else f"{'-':>8}"
            share += f"{rates['peft'] / rates['theirs']:>8.2f}" if "peft" in rates else f"{'-':>8}"
            print(f"{rank:>6}{batch:>6}{part:>9}{cells}{share}", flush=True)
        if "peft" in runs and not torch.equal(runs["one"][0][2], runs["peft"][0][2]):
            same = (runs["one"][0][2] == runs["peft"][0][2]).float().mean()
            print(f"  greedy tokens of one adapter: {same:.1%} are PEFT's")


COLUMNS = ("base", "one", "eight", "theirs", "peft")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="16,64")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=17)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("transformers").setLevel(logging.ERROR)
    import transformers

    transformers.logging.disable_progress_bar()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    print(
        f"{machine()}, {torch.get_num_threads()} thread(s), torch {torch.__version__}, transformers "
        f"{transformers.__version__}, commit {commit.stdout.strip() or 'unknown'}, {time.strftime('%Y-%m-%d')}; "
        "tokens per CPU-second, fp32"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMOLLM_135M))
        model.to(torch.bfloat16).save_pretrained(folder / "base")
        base = transformers.AutoModelForCausalLM.from_pretrained(folder / "base", dtype=torch.float32).eval()
        decoder = Decoder.from_folder(folder / "base", dtype=torch.float32)
        print(f"{'':>21}{'phloem: rows through':>30}{'transformers':>20}{'as fast as without':>24}")
        print(f"{'rank':>6}{'batch':>6}{'':>9}{'none':>10}{'one':>10}{'eight':>10}{'alone':>10}{'+ PEFT':>10}", end="")
        print(f"{'one':>8}{'eight':>8}{'PEFT':>8}")
        for rank in map(int, args.ranks.split(",")):
            compare(folder, rank, base, decoder, args)


if __name__ == "__main__":
    main()
