"""Tensor parallelism on the CPU: is it right everywhere, what is said between ranks, and what becomes of lost ones?

    python bench/studies/tensor_parallel.py [models] [formats] [order] [traffic] [kills] [--only TEXT]

models    every architecture of the product's tables, with 2 and with 4 ranks: the largest difference of a
          log-probability from one rank's, the greedy tokens, whether a token has the same bits in one chunk and alone,
          and how far what `phloem plan` says is from the weights of the rank that holds most. Architectures that no
          model of the tests has, or that were refused, are named at the end, and the exit code is 1
formats   the same of weights in few bits, GGUF files, MXFP4, and of rounding while loading
order     whether a row's bits depend on its neighbours, with gloo's all-reduce and with sums in the order of ranks
traffic   operations and bytes of a step, next to Megatron-LM's arithmetic (arXiv 1909.08053, section 3)
kills     ranks that are killed at random moments: how long until callers know, and is any process left

Ranks are threads of this process in the first three, and processes in the others. `fuzz_ranks.py` runs random traffic,
`rounding_of_ranks.py` computes Gated DeltaNet in float64. Takes half an hour.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from runtime.models.decoder_cases import CASES
from runtime.models.gguf_cases import GGUF_CASES, write_case
from runtime.models.oracle import PagedRun, random_ids, save_random_model

import phloem as ph
from phloem.errors import ConfigError
from phloem.runtime.capacity.planner import plan
from phloem.runtime.models import Decoder, ModelConfig
from phloem.runtime.models.architectures import ARCHITECTURES
from phloem.runtime.models.named_architecture import WITH_IMAGES
from phloem.runtime.parallel.process_group import join
from phloem.runtime.parallel.ranks import Ranks
from runtime.models import test_int8_inputs as int8_inputs
from runtime.models import test_language_parts as language_parts
from runtime.models import test_mxfp4_models as mxfp4_models
from runtime.models import test_published_models as published_models
from runtime.models.published import FORMATS, publish

CPU = torch.device("cpu")
NUM_TOKENS, NUM_GREEDY = 40, 64
PARTS = ("models", "formats", "order", "traffic", "kills")
COLUMNS = "one chunk, or token by token; plan"


class Group:
    """Ranks that are threads."""

    def __init__(self, size: int) -> None:
        self.size = size
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "meeting")
            self.groups = self.run(lambda rank: join(path, rank, size, CPU, 20.0))

    def run(self, work: Callable[[int], Any]) -> list[Any]:
        """What each rank's `work` returns; raises what the first that failed raised."""
        results: list[Any] = [None] * self.size
        faults: list[BaseException] = []

        def go(rank: int) -> None:
            try:
                results[rank] = work(rank)
            except BaseException as error:
                faults.append(error)

        threads = [threading.Thread(target=go, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]
        return results

    def ranks(self, rank: int) -> Ranks:
        return Ranks(rank, self.size, self.groups[rank])


def computed(decoder: Decoder) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Log-probabilities token by token after a chunk, those of one chunk, and greedy tokens."""
    ids = random_ids(NUM_TOKENS)
    run = PagedRun(decoder)
    parts = [run.extend({0: ids[:1]}), run.extend({0: ids[1:33]}), *(run.extend({0: [token]}) for token in ids[33:])]
    whole = PagedRun(decoder).extend({0: ids})
    run, said = PagedRun(decoder), list[int]()
    rank, group = decoder.cut.ranks.rank, decoder.cut.ranks
    logits = run.extend({0: ids[:20]}, rows=[19])
    for _ in range(NUM_GREEDY):
        token = group.share(torch.tensor([int(logits[0].argmax()) if rank == 0 else 0]))
        said.append(int(token[0]))
        logits = run.extend({0: said[-1:]})
    return torch.cat(parts), whole, said


def compare(name: str, path: Path, groups: dict[int, Group], **options: Any) -> set[int]:
    """Prints a row for each number of ranks; returns those that ran."""
    alone, _, tokens = computed(Decoder.from_folder(path, dtype=torch.float32, **options))
    ran = set()
    for size, group in groups.items():

        def work(rank: int, group: Group = group) -> Any:
            decoder = Decoder.from_folder(path, dtype=torch.float32, ranks=group.ranks(rank), **options)
            return *computed(decoder), decoder.num_weight_bytes

        try:
            found = group.run(work)
        except ConfigError as error:
            print(f"  {name:45} {size}  refused: {str(error).partition(': ')[2][:90]}", flush=True)
            continue
        parts, whole, said, _ = found[0]
        planned = plan(
            ModelConfig.from_folder(path), pool_bytes=1, weight_dtype="float32", on_cpu=True, num_ranks=size, **options
        ).weight_bytes
        off = planned / max(held for *_, held in found) - 1
        apart = float((parts.log_softmax(-1) - alone.log_softmax(-1)).abs().max())
        first = next((at for at, pair in enumerate(zip(said, tokens, strict=True)) if pair[0] != pair[1]), NUM_GREEDY)
        bits = "same bits" if torch.equal(parts, whole) else "OTHER BITS"
        print(f"  {name:45} {size}  {apart:9.1e}  {first:3} of {NUM_GREEDY}  {bits}  {off:+.1%}", flush=True)
        ran.add(size)
    return ran


EIGHT = {  # numbers of heads, and groups of them where there are several
    "num_attention_heads": (8, 8),
    "num_key_value_heads": (8, 6),
    "num_global_key_value_heads": (4, 3),
    "mamba_n_heads": (8, 1),
    "mamba_num_heads": (8, 1),
    "num_heads": (8, 1),
    "linear_num_value_heads": (8, 1),
    "linear_num_key_heads": (4, 1),
    "linear_num_heads": (8, 1),
    "mamba_n_groups": (4, 2),
    "n_groups": (4, 2),
}


def of_eight(options: dict[str, Any]) -> dict[str, Any]:
    """The same model with heads and widths that four divides."""
    changed: dict[str, Any] = {"num_attention_heads": 8, "hidden_size": 64, **options}
    for name, (number, least) in EIGHT.items():
        if name in changed and changed[name] is not None and changed[name] >= least:
            changed[name] = number
    if changed.get("num_kv_heads") == 3:
        changed |= {"num_kv_heads": 4, "num_key_value_heads": 4}
    if changed["hidden_size"] == 96:
        changed["hidden_size"] = 128
    if "mamba_d_ssm" in changed:
        changed["mamba_d_ssm"] = changed["mamba_n_heads"] * changed["mamba_d_head"]
    return changed


Saved = Callable[[Path, dict[str, Any]], Any]


def tables() -> Iterator[tuple[str, str, dict[str, Any], Saved]]:
    """(Name, architecture, options, what saves a model of them) of all models of the tests."""
    for name, (kind, options) in CASES.items():
        yield name, kind, options, lambda folder, options, kind=kind: save_random_model(folder, kind, options)
    for name, (kind, text, vision) in language_parts.CASES.items():

        def save(folder: Path, options: dict[str, Any], kind: str = kind, vision: dict[str, Any] = vision) -> Any:
            width = options.get("hidden_size", language_parts.TEXT["hidden_size"])
            language_parts.save_with_images(folder, kind, options, {"out_hidden_size": width, **vision})

        yield f"{name}, beside images", kind, text, save


def models(only: str) -> int:
    """How many architectures of the tables have not been run with 2 and with 4 ranks."""
    print(f"model                                         ranks  log-prob.  greedy     {COLUMNS}")
    two, four = {2: Group(2)}, {4: Group(4)}
    ran: dict[str, set[int]] = {name: set() for name in (*ARCHITECTURES, *WITH_IMAGES)}
    for name, kind, options, save in tables():
        if only not in name:
            continue

        def run(groups: dict[int, Group], options: dict[str, Any], name: str = name, save: Saved = save) -> set[int]:
            with tempfile.TemporaryDirectory() as folder:
                save(Path(folder), options)
                try:
                    return compare(name, Path(folder), groups)
                except ph.ModelError as error:  # these sizes do not go together
                    print(f"  {name:45} {min(groups)}  no such model: {str(error)[-60:]}", flush=True)
                    return set()

        ran[kind] |= run(two, options) or run(two, of_eight(options))
        ran[kind] |= run(four, of_eight(options))
    missing = [f"{name} ({size} ranks)" for name, sizes in ran.items() for size in (2, 4) if size not in sizes]
    print(f"  {len(ran)} architectures in the tables; not run: {', '.join(missing) or 'none'}", flush=True)
    return len(missing)


def formats(only: str) -> None:
    print(f"weights                                       ranks  log-prob.  greedy     {COLUMNS}")
    groups = {size: Group(size) for size in (2, 4)}
    for name, options in written():
        for size, group in groups.items():
            if only in name:
                with tempfile.TemporaryDirectory() as folder:
                    path, more = options(Path(folder), size)
                    compare(name, path, {size: group}, **more)


Written = Callable[[Path, int], tuple[Path, dict[str, Any]]]


def written() -> Iterator[tuple[str, Written]]:
    """(Name, what writes it for a number of ranks and returns its path, with further options of loading)."""
    for model, form in published_models.CASES:
        kind, options, _ = published_models.MODELS[model]

        def few(folder: Path, size: int, form: str = form, kind: str = kind, options: Any = options) -> Any:
            publish(folder, FORMATS[form], kind, options if size == 2 else of_eight(options))
            return folder, {}

        yield f"{model}, {form}", few
    for name in GGUF_CASES:
        yield f"GGUF, {name}", lambda folder, _, name=name: (write_case(folder, name)[0], {})

    for steps, activations in (("own steps", int8_inputs.OWN_STEPS), ("one step", int8_inputs.ONE_STEP)):

        def rounding(folder: Path, _: int, activations: Any = activations) -> Any:
            publish(folder, int8_inputs.int8_format(activations), "LlamaForCausalLM", int8_inputs.LLAMA)
            if not activations["dynamic"]:
                int8_inputs.add_steps(folder)
            return folder, {}

        yield f"llama, W8A8, {steps}", rounding

    def mxfp4(folder: Path, size: int) -> Any:
        mxfp4_models.publish(folder, **({} if size == 2 else {"num_attention_heads": 8}))
        tensors = load_file(folder / "model.safetensors")  # config.json names no type, which means bf16
        wide = {name: tensor.bfloat16() for name, tensor in tensors.items() if tensor.is_floating_point()}
        save_file(tensors | wide, folder / "model.safetensors")
        return folder, {}

    yield "gpt-oss, MXFP4", mxfp4
    for quantise in ("int8", "int4"):

        def rounded(folder: Path, _: int, quantise: str = quantise) -> Any:
            kind, options = CASES["llama-gqa"]
            save_random_model(folder, kind, of_eight(options))
            return folder, {"quantise": quantise}

        yield f"llama, rounded to {quantise}", rounded


def order() -> None:
    """Rows alone and in a batch."""
    for size in (2, 3, 4):
        group = Group(size)
        sums = {"all-reduce": False, "in order": True}
        found = {}
        for name, in_order in sums.items():

            def work(rank: int, group: Group = group, in_order: bool = in_order) -> tuple[torch.Tensor, torch.Tensor]:
                ranks = Ranks(rank, group.size, group.groups[rank], in_order=in_order)
                rows = torch.randn(64, 512, generator=torch.Generator().manual_seed(rank))
                return ranks.sum(rows.clone()), torch.cat([ranks.sum(row.clone()[None]) for row in rows])

            batch, alone = group.run(work)[0]
            found[name] = int((batch != alone).sum())
        said = ", ".join(f"{name} {number}" for name, number in found.items())
        print(f"  {size} ranks: numbers of 64 · 512 that differ alone and in a batch: {said}", flush=True)


def traffic() -> None:
    """One request that decodes: the bundled model on two ranks, a random one of eight heads on four."""
    folder = eight_heads()
    for size, name in ((2, "nano"), (4, folder.name)):
        with ph.Engine(name, device="cpu", tensor_parallel_size=size, lookup_drafts=False) as engine:
            params = ph.SamplingParams(max_tokens=65, temperature=0.0, ignore_eos=True)
            engine.generate([1, 2, 3], params)
            processes, model = engine.core.processes, engine.model_config
            assert processes is not None
            before = (processes.num_messages, processes.num_message_bytes, processes.ranks.num_operations)
            num_bytes = processes.ranks.num_bytes
            engine.generate([4, 5, 6], params)
            steps = processes.num_messages - before[0]
            message = (processes.num_message_bytes - before[1]) / steps / (size - 1)
            operations = (processes.ranks.num_operations - before[2]) / steps
            own = (processes.ranks.num_bytes - num_bytes) / (steps + 2)  # three tokens in the first step
            layers = 2 * model.num_layers * model.hidden_size * 4
            label = "nano" if size == 2 else "random"
            print(
                f"  {label}, {size} ranks: {message:.0f} bytes in the message of a step, {operations:.2f} operations\n"
                f"    put in by a rank for a token: {own:.0f} bytes\n"
                f"    Megatron-LM: 2 sums a layer of {model.num_layers} layers, {layers} bytes; the embedding's "
                f"{model.hidden_size * 4}; logits {-(-model.vocab_size // size) * 4}",
                flush=True,
            )
    folder.cleanup()


def eight_heads() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory()
    save_random_model(Path(folder.name), "LlamaForCausalLM", of_eight({"num_hidden_layers": 4}))
    return folder


def is_running(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def kills(number: int) -> None:
    source, waits, folder = random.Random(1), list[float](), eight_heads()
    for attempt in range(number):
        size, name = ((2, "nano"), (4, folder.name))[attempt % 2]
        settings: dict[str, Any] = {"tensor_parallel_size": size, "rank_timeout_seconds": 5.0, "max_model_len": 256}
        engine = ph.Engine(name, device="cpu", **settings)
        assert engine.core.processes is not None
        process_ids = engine.core.processes.process_ids
        streams = [
            engine.submit([1, 2, index], ph.SamplingParams(max_tokens=250, temperature=1.0, ignore_eos=True))
            for index in range(source.choice([0, 1, 4]))
        ]
        time.sleep(source.random() * 0.3)
        victim = source.choice(process_ids)
        os.kill(victim, signal.SIGKILL)
        begin = time.monotonic()
        said = ""
        for stream in streams:
            try:
                for _ in stream:
                    pass
            except ph.EngineStopped as error:
                said = str(error)
        while engine.step_thread.is_alive and not streams and time.monotonic() < begin + 10:
            try:
                engine.generate([1, 2], ph.SamplingParams(max_tokens=1))
            except ph.EngineStopped as error:
                said = str(error)
        waits.append(time.monotonic() - begin)
        engine.close()
        left = [one for one in process_ids if is_running(one)]
        assert not left, f"left: {left}"
        assert f"(process {victim}) was ended by SIGKILL" in said, said
    print(f"  {number} ranks killed: callers knew after {max(waits):.2f} s at most, each was named, no process is left")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--only", default="", help="models and weights whose names have this text")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    num_missing = 0
    for part in options.parts or PARTS:
        print(f"\n{part}")
        if part == "models":
            num_missing = models(options.only)
        elif part == "formats":
            formats(options.only)
        elif part == "kills":
            kills(options.kills)
        else:
            {"order": order, "traffic": traffic}[part]()
    sys.exit(1 if num_missing else 0)


if __name__ == "__main__":
    main()
