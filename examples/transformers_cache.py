"""KV that transformers has computed, kept in a store and used by the next request, here and elsewhere.

    python examples/transformers_cache.py [redis://HOST:PORT/0 | FOLDER]

A long system prompt is computed once: later requests load its keys and values into a `DynamicCache`.
"""

import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, DynamicCache

import phloem as ph

SYSTEM = list(range(300, 380))  # token ids, as a tokenizer would make them
QUESTIONS = [[*range(400, 410)], [*range(500, 512)], [*range(400, 410), 77, 78]]
NANO = Path(ph.__file__).parent / "runtime" / "assets" / "nano"  # the bundled model, in Hugging Face's layout

model = AutoModelForCausalLM.from_pretrained(NANO, dtype=torch.float32, local_files_only=True).eval()
shape = (model.config.num_hidden_layers, 2, model.config.num_key_value_heads, model.config.head_dim)
place = sys.argv[1] if len(sys.argv) > 1 else None  # None: memory of this process
store = ph.KVStore(place, model="nano", token_shape=shape, dtype=model.dtype, namespace="", max_bytes=1 << 28)


def as_rows(cache):
    """[tokens, layers, 2, heads, head size], as the store has it; a cache has [1, heads, tokens, head size]."""
    return torch.stack([torch.stack([layer.keys[0], layer.values[0]]) for layer in cache.layers]).movedim(3, 0)


def as_cache(kv):
    cache = DynamicCache()
    for number, (keys, values) in enumerate(kv.movedim(0, 3)):
        cache.update(keys[None], values[None], number)
    return cache


@torch.no_grad()
def answer(prompt, num_tokens=12):
    """The likeliest next tokens, and how many tokens of the prompt were computed for them."""
    num_found, kv = store.get_closest(prompt[:-1])  # the last one is computed: its logits are needed
    cache = as_cache(kv) if num_found else DynamicCache()
    computed, said = prompt[num_found:], []
    logits = model(torch.tensor([computed]), None, None, cache).logits  # by place: releases differ in its name
    store.put(prompt, as_rows(cache))
    for _ in range(num_tokens):
        said.append(int(logits[0, -1].argmax()))
        logits = model(torch.tensor([said[-1:]]), None, None, cache).logits
    return said, len(computed)


for question in QUESTIONS:
    tokens, num_computed = answer(SYSTEM + question)
    print(f"{num_computed:3} of {len(SYSTEM + question)} prompt tokens computed; said {tokens}")
