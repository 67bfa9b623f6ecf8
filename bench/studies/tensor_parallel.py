"""Tensor parallelism on the CPU: is it right everywhere, what is said between ranks, and what becomes of lost ones?

    python bench/studies/tensor_parallel.py [models] [formats] [order] [traffic] [kills] [--kills 20]

models    every architecture of the tests' table, with 2 and with 4 ranks: the largest difference of a log-probability
          from one rank's, the greedy tokens, and whether a token has the same bits in one chunk and token by token
formats   the same of weights in few bits, GGUF files, MXFP4, and of rounding while loading
order     whether a row's bits depend on its neighbours, with gloo's all-reduce and with sums in the order of ranks
traffic   operations and bytes of a step, next to Megatron-LM's arithmetic (arXiv 1909.08053, section 3)
kills     ranks that are killed at random moments: how long until callers know, and is any process left

Ranks are threads of this process in the first three, and processes in the others; `fuzz_ranks.py` runs random traffic.
Takes a quarter of an hour.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from runtime.models.decoder_cases import CASES
from runtime.models.oracle import PagedRun, random_ids, save_random_model

import phloem as ph
from phloem.errors import ConfigError
from phloem.runtime.models import Decoder
from phloem.runtime.parallel.process_group import join
from phloem.runtime.parallel.ranks import Ranks
from runtime.models import test_gguf_models as gguf_models
from runtime.models import test_int8_inputs as int8_inputs
from runtime.models import test_mxfp4_models as mxfp4_models
from runtime.models import test_published_models as published_models
from runtime.models.published import FORMATS, publish

CPU = torch.device("cpu")
NUM_TOKENS, NUM_GREEDY = 40, 64
PARTS = ("models", "formats", "order", "traffic", "kills")


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


def compare(name: str, path: Path, groups: dict[int, Group], **options: Any) -> None:
    alone, _, tokens = computed(Decoder.from_folder(path, dtype=torch.float32, **options))
    for size, group in groups.items():

        def work(rank: int, group: Group = group) -> Any:
            return computed(Decoder.from_folder(path, dtype=torch.float32, ranks=group.ranks(rank), **options))

        try:
            parts, whole, said = group.run(work)[0]
        except ConfigError as error:
            print(f"  {name:45} {size}  refused: {str(error).partition(': ')[2][:90]}", flush=True)
            continue
        apart = float((parts.log_softmax(-1) - alone.log_softmax(-1)).abs().max())
        first = next((at for at, pair in enumerate(zip(said, tokens, strict=True)) if pair[0] != pair[1]), NUM_GREEDY)
        bits = "same bits" if torch.equal(parts, whole) else "OTHER BITS"
        print(f"  {name:45} {size}  {apart:9.1e}  {first:3} of {NUM_GREEDY}  {bits}", flush=True)


def of_eight(options: dict[str, Any]) -> dict[str, Any]:
    """The same model with heads and widths that four divides."""
    changed: dict[str, Any] = {"num_attention_heads": 8, "hidden_size": 64, **options}
    if changed.get("num_key_value_heads") == 6:
        changed["num_key_value_heads"] = 8
    if "mamba_n_heads" in changed:
        changed |= {"mamba_n_heads": 8, "mamba_n_groups": 4 if "mamba_n_groups" in changed else 1}
    if changed["hidden_size"] == 96:
        changed["hidden_size"] = 128
    if "linear_num_key_heads" in changed:
        changed |= {"linear_num_key_heads": 4, "linear_num_value_heads": 8}
    return changed


def models() -> None:
    print("model                                         ranks  log-prob.  greedy     one chunk, or token by token")
    two, four = {2: Group(2)}, {4: Group(4)}
    for name, (kind, options) in CASES.items():
        for groups, changed in ((two, options), (four, of_eight(options))):
            with tempfile.TemporaryDirectory() as folder:
                save_random_model(Path(folder), kind, changed)
                try:
                    compare(name, Path(folder), groups)
                except ph.ModelError as error:
                    print(f"  {name:45} 4  no such model: {str(error)[-60:]}")


def formats() -> None:
    print("weights                                       ranks  log-prob.  greedy     one chunk, or token by token")
    groups = {2: Group(2)}
    for name, options in written():
        with tempfile.TemporaryDirectory() as folder:
            path, more = options(Path(folder))
            compare(name, path, groups, **more)


Written = Callable[[Path], tuple[Path, dict[str, Any]]]


def written() -> Iterator[tuple[str, Written]]:
    for model, form in published_models.CASES:
        kind, options, _ = published_models.MODELS[model]

        def few(folder: Path, form: str = form, kind: str = kind, options: Any = options) -> Any:
            publish(folder, FORMATS[form], kind, options)
            return folder, {}

        yield f"{model}, {form}", few
    for name in gguf_models.MODELS:
        yield f"GGUF, {name}", lambda folder, name=name: (gguf_models._written(folder, name)[0], {})
    for steps, activations in (("own steps", int8_inputs.OWN_STEPS), ("one step", int8_inputs.ONE_STEP)):

        def rounding(folder: Path, activations: Any = activations) -> Any:
            publish(folder, int8_inputs.int8_format(activations), "LlamaForCausalLM", int8_inputs.LLAMA)
            if not activations["dynamic"]:
                int8_inputs.add_steps(folder)
            return folder, {}

        yield f"llama, W8A8, {steps}", rounding
    yield "gpt-oss, MXFP4", lambda folder: (mxfp4_models.publish(folder), (folder, {}))[1]
    for quantise in ("int8", "int4"):

        def rounded(folder: Path, quantise: str = quantise) -> Any:
            save_random_model(folder, *CASES["llama-gqa"])
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
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for part in options.parts or PARTS:
        print(f"\n{part}")
        if part == "kills":
            kills(options.kills)
        else:
            {"models": models, "formats": formats, "order": order, "traffic": traffic}[part]()


if __name__ == "__main__":
    main()
