"""Real texts that a model is taught to write: code, edited code, JSON, prose, and tokens of which none repeats.

Eight of each kind, in tokens of a byte-level BPE trained on the standard library and these docs.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "scripts")]

from cpu_decode import SMOLLM_135M  # noqa: E402
from nano_text import documents  # noqa: E402

MODULES = ("textwrap", "heapq", "shlex", "fnmatch", "csv", "contextlib", "argparse", "calendar")
PAGES = ("architecture", "bundled-model", "constraints", "kernels", "models", "prefix-cache", "program", "server")
NUM_TEXTS = 8
FIRST_ID, MAX_FIRST_ID = 1000, 1100  # prompts begin with a token of their own, by which the teacher knows them


@dataclass(frozen=True)
class Text:
    """What is given, and what is written then."""

    prompt: list[int]
    answer: list[int]


def source_of(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")


def train_tokenizer(folder: Path) -> Any:
    """Byte-level BPE of at most SmolLM's size, written to `folder`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=SMOLLM_135M["vocab_size"],
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    library = Path(argparse.__file__).parent
    corpus = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(library.glob("*.py"))]
    corpus += [page(name) for name in PAGES]
    corpus += [document.text + json.dumps(document.record) for document in documents(seed=9, count=300)]
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def edited(source: str) -> str:
    """The same with its two commonest longer names replaced."""
    names = Counter(re.findall(r"[a-z_]{4,}", source))
    for name in ("self", "return", "None"):
        names.pop(name, None)
    for index, (name, _) in enumerate(names.most_common(2)):
        source = re.sub(rf"\b{name}\b", f"{name}_{index}", source)
    return source


def make_texts(tokenizer: Any, prompt_len: int, num_tokens: int) -> dict[str, list[Text]]:
    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text).ids)

    kinds: dict[str, list[Text]] = {name: [] for name in ("edited code", "JSON", "code", "prose", "nothing repeats")}
    of_documents = iter(documents(seed=3, count=10_000))
    for index in range(NUM_TEXTS):
        code, prose = source_of(MODULES[index]), page(PAGES[index])
        ids = encode(code)
        piece = tokenizer.decode(ids[400 : 400 + prompt_len])
        kinds["edited code"].append(Text(encode(piece), encode(edited(piece))[:num_tokens]))
        kinds["code"].append(Text(ids[400 : 400 + prompt_len], ids[400 + prompt_len :][:num_tokens]))
        ids = encode(prose)
        kinds["prose"].append(Text(ids[100 : 100 + prompt_len], ids[100 + prompt_len :][:num_tokens]))
        texts, records = [], []
        while sum(len(encode(json.dumps(record, separators=(",", ":")))) for record in records) < num_tokens - 8:
            document = next(of_documents)
            texts.append(document.text)
            records.append(document.record)
        written = encode(json.dumps(records, separators=(",", ":")))
        kinds["JSON"].append(Text(encode("\n".join(texts) + "\n\nAs JSON: "), written))
        ids = Random(index).sample(range(MAX_FIRST_ID, tokenizer.get_vocab_size()), prompt_len + num_tokens)
        kinds["nothing repeats"].append(Text(ids[:prompt_len], ids[prompt_len:]))
    return {
        kind: [replace(text, prompt=[first + index, *text.prompt]) for index, text in enumerate(texts)]
        for first, (kind, texts) in zip(range(FIRST_ID, MAX_FIRST_ID, NUM_TEXTS), kinds.items(), strict=False)
    }
