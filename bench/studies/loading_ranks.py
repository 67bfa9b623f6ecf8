"""How much memory does a rank take while it loads a checkpoint in few bits, besides what it keeps?

    python bench/studies/loading_ranks.py [--ranks 4]

Loads the part of rank 1 of a random Llama of one wide layer in each format, three times, each in a process of its own,
which looks at its anonymous memory (without the mapped files) every millisecond. Takes three minutes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

FORMS = ["gptq", "awq", "packed", "fp8, blocks", "int8, channels", "GGUF Q4_K", "GGUF Q8_0"]
SIZES = {"hidden_size": 1024, "intermediate_size": 8192, "num_attention_heads": 16, "num_hidden_layers": 1}
MODEL = {**SIZES, "num_key_value_heads": 4, "vocab_size": 512, "max_position_embeddings": 512}
MIB = 1 << 20


def write(folder: Path, form: str) -> Path:
    from runtime.models.oracle import save_random_model

    from runtime.models import gguf_files
    from runtime.models.published import FORMATS, publish

    if form in FORMATS:
        publish(folder, FORMATS[form], "LlamaForCausalLM", MODEL)
        return folder
    model = save_random_model(folder, "LlamaForCausalLM", MODEL)
    gguf_files.write_model(folder / "model.gguf", model, "llama", form.split()[1], others={}, keys=None)
    return folder / "model.gguf"


def anonymous() -> int:
    """Bytes of this process that no file holds."""
    _, resident, shared, *_ = Path("/proc/self/statm").read_text().split()
    return (int(resident) - int(shared)) * 4096


def load(path: str, num_ranks: int) -> None:
    """In a process of its own: prints the bytes that are kept, and the most that there were meanwhile."""
    import torch

    from phloem.runtime.models import Decoder
    from phloem.runtime.parallel.ranks import Ranks

    torch.set_num_threads(1)
    before = most = anonymous()
    is_done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not is_done.is_set():
            most = max(most, anonymous())
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    ranks = Ranks(1, num_ranks, group=object())  # with which nothing is said while loading
    decoder = Decoder.from_folder(Path(path), dtype=torch.float32, ranks=ranks)
    is_done.set()
    watcher.join()
    print(decoder.num_weight_bytes, most - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--load", metavar="PATH", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        load(options.load, options.ranks)
        return
    warnings.simplefilter("ignore")
    print(f"rank 1 of {options.ranks}          MiB: kept   most while loading", flush=True)
    for form in FORMS:
        with tempfile.TemporaryDirectory() as folder:
            path = write(Path(folder), form)
            command = [sys.executable, __file__, "--ranks", str(options.ranks), "--load", str(path)]
            said = [subprocess.check_output(command, cwd=folder, text=True).split() for _ in range(3)]
            kept, most = (max(int(each[place]) for each in said) for place in (0, 1))
            print(f"  {form:22} {kept / MIB:11.1f} {most / MIB:20.1f}", flush=True)


if __name__ == "__main__":
    main()
