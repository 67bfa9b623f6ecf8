"""One mutator for every file of a checkpoint, and the run of it in a process whose memory is bounded.

Run as a program: `hostile_files.py FOLDER FIRST COUNT` loads mutated copies of the checkpoint, the adapter and the GGUF
file in FOLDER (`model`, `adapter`, `a.gguf`) and prints what is neither loaded nor refused by a PhloemError.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import struct
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOM = 1 << 30  # bytes beyond what the process has before it loads anything
JSON_FILES = (
    "config.json", "generation_config.json", "tokenizer_config.json", "added_tokens.json", "tokenizer.json",
    "model.safetensors.index.json",
)  # fmt: skip


def _deep(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 3, 10**9, 2**40, 2**63, -(2**63), 10**400, 0.5, -0.5, 1e9, 1e308, 5e-324,
    float("nan"), float("inf"), float("-inf"), "", "x", "\0", "\ud800", "x" * 10_000, "9" * 30, "re:(",
    "([", [], {}, [[]],
    [None], [1, "x"], [1e9, -1], {"a": 1}, {"": None}, [{}],
    _deep(50), _deep(900),
    [10**9] * 50,
)  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container with each of its keys or indices, at any depth."""
    found: list[tuple[Any, Any]] = []
    todo = [value]
    for inner in todo:
        keys = list(inner) if isinstance(inner, dict) else range(min(len(inner), 20))
        found += [(inner, key) for key in keys]
        todo += [inner[key] for key in keys if isinstance(inner[key], dict | list)]
    return found


def mutate(value: dict[str, Any], rng: random.Random, keys: tuple[str, ...]) -> None:
    """Changes one to three entries: an odd value, none at all, or a key that the object did not have."""
    for _ in range(rng.randint(1, 3)):
        every = places(value)
        if not every or rng.random() < 0.3:
            value[rng.choice(keys)] = rng.choice(ODD)
            continue
        # those at the top are few compared with a vocabulary's
        top = [place for place in every if place[0] is value]
        container, key = rng.choice(top if rng.random() < 0.5 and top else every)
        if isinstance(container, dict) and rng.random() < 0.15:
            del container[key]
        elif isinstance(container[key], int) and rng.random() < 0.3:
            container[key] *= rng.choice((2, -1, 10**3, 10**6, 10**9, 10**15))
        else:
            container[key] = rng.choice(ODD)


def mutated_bytes(content: bytes, rng: random.Random, head: int) -> bytes:
    """Numbers of 1, 4 or 8 bytes in the first `head` bytes replaced, or the end cut off."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(min(head, len(changed) - 8))
        form, most = rng.choice((("<B", 2**8), ("<I", 2**32), ("<Q", 2**64)))
        number = rng.choice((0, 1, most - 1, most // 2, rng.randrange(most), 10**9 % most))
        struct.pack_into(form, changed, at, number)
    return bytes(changed[: rng.randrange(len(changed))]) if rng.random() < 0.1 else bytes(changed)


def cases(folder: Path) -> list[tuple[str, Callable[[random.Random], None], Callable[[], object]]]:
    """A name, what spoils a fresh copy, and what loads it."""
    import torch

    from phloem.errors import PhloemError
    from phloem.runtime.models import Decoder, ModelConfig, count_parameters, read_adapter
    from phloem.runtime.models.generation_config import sampling_defaults
    from phloem.runtime.tokenizer.tokenizer import Tokenizer

    model, adapter, file = folder / "copy" / "model", folder / "copy" / "adapter", folder / "copy" / "a.gguf"
    plain = ModelConfig.from_folder(folder / "model")
    known = tuple({key for name in JSON_FILES for key in _read(folder / "model" / name)} | {
        "rope_scaling", "quantization_config", "layer_types", "no_rope_layers", "sliding_window", "num_experts",
        "head_dim", "chat_template", "added_tokens_decoder", "add_bos_token", "eos_token_id", "architectures",
    })  # fmt: skip

    def spoil(path: Path) -> Callable[[random.Random], None]:
        def change(rng: random.Random) -> None:
            value = _read(path)
            mutate(value, rng, known)
            path.write_text(json.dumps(value))

        return change

    def spoil_bytes(path: Path, head: int) -> Callable[[random.Random], None]:
        return lambda rng: path.write_bytes(mutated_bytes(path.read_bytes(), rng, head)) and None

    def spoil_rope(rng: random.Random) -> None:
        value = _read(model / "config.json")
        scaling = {"rope_type": rng.choice(["linear", "dynamic", "llama3", "yarn", "longrope"]), "factor": 2.0}
        scaling |= {"original_max_position_embeddings": 32, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        scaling |= {"short_factor": [1.0] * (plain.head_dim // 2), "long_factor": [2.0] * (plain.head_dim // 2)}
        mutate(scaling, rng, tuple(scaling))
        (model / "config.json").write_text(json.dumps(value | {"rope_scaling": scaling}))

    def load(path: Path) -> None:
        refused = []
        for part in (sampling_defaults, load_decoder, load_tokenizer):
            try:
                part(path)
            except PhloemError as error:
                refused.append(error)
        if refused:
            raise refused[0]

    def load_decoder(path: Path) -> None:
        Decoder.from_folder(path, dtype=torch.float32)

    def load_tokenizer(path: Path) -> None:
        Tokenizer.from_folder(path).apply_chat_template([{"role": "user", "content": "a"}])

    def load_adapter() -> None:
        count_parameters(adapter, plain)
        read_adapter("a", adapter, plain, torch.device("cpu"), torch.float32)

    found = [(name, spoil(model / name), lambda: load(model)) for name in JSON_FILES]
    found += [("config.json", spoil(model / "config.json"), lambda: load(model))] * 3
    found.append(("config.json, rope", spoil_rope, lambda: load(model)))
    found.append(("model.safetensors", spoil_bytes(model / "model-1.safetensors", 400), lambda: load(model)))
    found.append(("adapter_config.json", spoil(adapter / "adapter_config.json"), load_adapter))
    found.append(("adapter.safetensors", spoil_bytes(adapter / "adapter_model.safetensors", 300), load_adapter))
    found += [("a.gguf", spoil_bytes(file, 1500), lambda: load(file))] * 3
    return found


def _read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return value


def main(folder: Path, first: int, count: int) -> None:
    every = cases(folder)
    from phloem.errors import PhloemError

    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))
    outcomes = {"loaded": 0, "refused": 0}
    for seed in range(first, first + count):
        rng = random.Random(seed)
        name, spoil, load = every[seed % len(every)]
        shutil.rmtree(folder / "copy", ignore_errors=True)
        (folder / "copy").mkdir()
        for part in ("model", "adapter"):
            shutil.copytree(folder / part, folder / "copy" / part)
        shutil.copy(folder / "a.gguf", folder / "copy" / "a.gguf")
        spoil(rng)
        try:
            load()
        except PhloemError as error:
            str(error).encode()
            outcomes["refused"] += 1
        except BaseException:
            print(f"seed {seed}: {name}:", traceback.format_exc(limit=-3).replace("\n", " | "), flush=True)
        else:
            outcomes["loaded"] += 1
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
