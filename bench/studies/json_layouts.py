"""How white space changes what a model writes as JSON: the same extraction in each layout, greedy.

    python bench/studies/json_layouts.py CHECKPOINT [--documents 128] [--seed 2026]

The documents are those of `nano_quality.py`, which no published model has seen. The model is given the keys and asked
for the record as JSON; only the layout of the constraint differs between the rows. Fields: share of the record's leaves
that are right. Exact: the object equals the record. Tokens: of the answer, and steps that it took.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import get_args

import phloem as ph
from phloem.runtime.constrain.spec import Whitespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from nano_quality import judge, mean
from nano_text import Document, documents

MAX_TOKENS = 160


def ask(engine: ph.Engine, document: Document, whitespace: Whitespace) -> str:
    """The id of a request for the record of one document."""
    keys = ", ".join(document.record)
    asked = f"{document.text}\n\nExtract the {document.kind.name} as JSON with the keys {keys}."
    prompt = engine.tokenizer.apply_chat_template([{"role": "user", "content": asked}])
    constraint = ph.json_schema(document.kind.schema, whitespace=whitespace)
    return engine.core.add(prompt, ph.SamplingParams(max_tokens=MAX_TOKENS, temperature=0.0), constraint)


def measure(engine: ph.Engine, found: list[Document], whitespace: Whitespace) -> str:
    """One row: scores, tokens, seconds."""
    engine.flush_cache()
    started_at = time.perf_counter()
    order = [ask(engine, document, whitespace) for document in found]
    texts, usages = dict.fromkeys(order, ""), {}
    while engine.core.has_work:
        for delta in engine.core.step():
            texts[delta.request_id] += delta.text
            usages[delta.request_id] = delta.usage
    seconds = time.perf_counter() - started_at
    rows = [judge(document, texts[request_id]) for document, request_id in zip(found, order, strict=True)]
    fields, exact = (mean([row[name] for row in rows]) for name in ("fields", "exact"))
    tokens = mean([usage.completion_tokens for usage in usages.values()])
    sampled = mean([usage.sampled_tokens for usage in usages.values()])
    return f"{whitespace:12}{fields:9.1%}{exact:9.1%}{tokens:9.1f}{sampled:9.1f}{seconds:9.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--documents", type=int, default=128)
    parser.add_argument("--seed", type=int, default=2026)
    options = parser.parse_args()
    engine = ph.Engine(options.model, max_running_requests=16)
    found = list(documents(options.seed, options.documents))
    print(f"{len(found)} documents, seed {options.seed}; the model's layout is {engine.tokenizer.json_whitespace}\n")
    print(f"{'layout':12}{'fields':>9}{'exact':>9}{'tokens':>9}{'steps':>9}{'seconds':>9}")
    measure(engine, found[:16], "flexible")  # loads compiled loops
    for whitespace in get_args(Whitespace):
        print(measure(engine, found, whitespace), flush=True)


if __name__ == "__main__":
    main()
