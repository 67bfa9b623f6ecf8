"""The README's Python blocks run, in order, as a newcomer would type them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import torch

import phloem as ph
from phloem.runtime.models import resolve_model

from .page_blocks import blocks, run_python

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_blocks_run() -> None:
    python = [block for block in blocks(ROOT / "README.md") if block.language == "python"]
    assert len(python) == 3
    names: dict[str, object] = {"__name__": "readme", **_in_transformers()}
    assert not any(run_python(block, ROOT / "README.md", names) for block in python)
    engine = names["engine"]
    assert isinstance(engine, ph.Engine)
    person = names["answer"].parsed  # type: ignore[attr-defined]
    assert f"# {person!r}\n" in README, "what it says next to `answer.parsed`"
    answer = names["answer"]
    assert answer.text == person.model_dump_json(), "and nothing else was made up"  # type: ignore[attr-defined]
    assert names["state"]["better"] in ("first", "second")  # type: ignore[index]
    written = names["output"][0, 1:].tolist()  # type: ignore[index]
    text = b"".join(names["vocabulary"].tokens[token] for token in written)  # type: ignore[attr-defined]
    type(person).model_validate_json(text)
    engine.close()


def _in_transformers() -> dict[str, object]:
    """The bundled model in transformers, and what it is given."""
    from transformers import LlamaForCausalLM

    folder = resolve_model("nano")
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    file = str(folder / "tokenizer.model")
    tokenizer = SimpleNamespace(vocab_file=file, eos_token_id=model.config.eos_token_id, added_tokens_decoder={})
    ids = torch.tensor([[1]])
    return {
        "model": model,
        "tokenizer": tokenizer,
        "inputs": {"input_ids": ids, "attention_mask": torch.ones_like(ids)},
    }
