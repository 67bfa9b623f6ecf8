"""The decoder against transformers: random checkpoints of every architecture, through chunks, pages and batches."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from phloem.runtime.models import Decoder, ModelConfig, resolve_model
from phloem.runtime.tokenizer.tokenizer import Tokenizer

from .decoder_cases import CASES
from .oracle import Oracle, PagedRun, random_ids, save_random_model


@pytest.fixture(scope="module", params=CASES)
def oracle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    class_name, options = CASES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield Oracle(folder, save_random_model(folder, class_name, options))
    torch.set_num_threads(threads)


def test_logits_and_greedy_text_equal_transformers(oracle: Oracle) -> None:
    oracle.assert_decoder(Decoder.from_folder(oracle.folder))


def test_a_tokens_logits_are_the_same_bits_however_it_was_computed(oracle: Oracle) -> None:
    """Alone or in a batch, one chunk or many, decode or prefill: not nearly equal, equal."""
    decoder = Decoder.from_folder(oracle.folder)
    token_ids = random_ids(40)
    run = PagedRun(decoder)
    expected = torch.cat([run.extend({0: [token]}) for token in token_ids])
    for cuts in ([40], [1, 40], [17, 23, 39, 40], [2, 5, 9, 14, 40]):
        run = PagedRun(decoder)
        chunks = [token_ids[begin:end] for begin, end in zip([0, *cuts], cuts, strict=False)]
        assert torch.equal(torch.cat([run.extend({0: chunk}) for chunk in chunks]), expected)
    others = {sequence: random_ids(3 * sequence, sequence) for sequence in range(1, 9)}
    run = PagedRun(decoder, num_sequences=11)
    first = run.extend({**others, 0: token_ids[:39], 9: token_ids[:20]}, rows=[3 * 36 + 38, 3 * 36 + 39])
    assert torch.equal(first, expected[[38, 0]])
    chunks = {3: [5, 6], 0: token_ids[39:], 9: token_ids[20:], 4: [7], 10: token_ids[:1]}
    found = run.extend(chunks, rows=[*range(2, 23), 24])
    assert torch.equal(found, expected[[39, *range(20, 40), 0]])


# LayerNorm, attention beside the MLP, MLPs without a gate, norms after rope, layers without positions, chunks, streams
BLOCKS = [
    "llama-gqa",
    "cohere2",
    "starcoder2",
    "exaone4",
    "hunyuan-dense",
    "apertus",
    "gpt-neox",
    "glm4.5",
    "gemma4-k-eq-v",
    "ministral3",
    "falcon-h1",
    "llama4",
    "gemma3n",
]


@pytest.mark.parametrize("case", BLOCKS)
def test_bf16_is_as_near_to_fp32_as_it_is_in_transformers(tmp_path: Path, case: str) -> None:
    model, token_ids = save_random_model(tmp_path, *CASES[case]), random_ids(40)
    expected = Oracle(tmp_path, model).logits(token_ids)
    found = PagedRun(Decoder.from_folder(tmp_path, dtype=torch.bfloat16)).extend({0: token_ids})
    theirs = Oracle(tmp_path, model.to(torch.bfloat16)).logits(token_ids)
    assert (found.float() - expected).norm() < 1.5 * (theirs.float() - expected).norm()


@pytest.mark.parametrize("prompt", ["Hello, who is there?", "12 <|end|> jackets", "Grüße 東京"])
def test_the_bundled_model_writes_the_same_text_in_transformers(prompt: str) -> None:
    folder = resolve_model("nano")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import LlamaForCausalLM
    oracle = Oracle(folder, LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval())
    token_ids = Tokenizer.from_folder(folder).apply_chat_template([{"role": "user", "content": prompt}])
    decoder = Decoder.from_folder(folder, dtype=torch.float32)
    oracle.assert_logits(PagedRun(decoder).extend({0: token_ids}), token_ids)
    oracle.assert_greedy(token_ids, PagedRun(decoder).greedy(token_ids, 64))


def test_the_configuration_is_read_as_transformers_means_it(oracle: Oracle) -> None:
    config, theirs = ModelConfig.from_folder(oracle.folder), oracle.model.config
    assert config.num_layers == theirs.num_hidden_layers
    latent = config.latent
    if config.options.full_shape is not None:
        for index in range(config.num_layers):
            own = theirs.per_layer_config[index]
            assert config.kv_shape(index) == (own.num_key_value_heads, own.head_dim, 2)
    elif latent is None:
        assert config.num_kv_heads == getattr(theirs, "num_key_value_heads", None) or theirs.num_attention_heads
        assert config.head_dim == getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads
    else:
        assert config.head_dim == theirs.kv_lora_rank + theirs.qk_rope_head_dim
        assert (latent.plain_dim, latent.value_dim) == (theirs.qk_nope_head_dim, theirs.v_head_dim)
        assert latent.query_rank == (theirs.q_lora_rank or 0)
    assert config.tie_word_embeddings == theirs.tie_word_embeddings
    assert config.eos_ids == tuple(theirs.eos_token_id or ())
