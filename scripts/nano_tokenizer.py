"""The bundled model's tokenizer: trained on its own language, written in Hugging Face layout.

A sentencepiece BPE (Kudo and Richardson 2018, arXiv:1808.06226; Sennrich et al. 2016, arXiv:1508.07909) with byte
fallback, identity normalisation and no dummy prefix. The space and the line feed are pieces of their own, digits are
split and letters never join punctuation, so a name is spelt with the same pieces after a space, after a quote and at
the start of a line: to copy it is to repeat the same token ids. Any Unicode text survives a round trip.

Turn markers are control symbols: text typed by a user can never become one.
"""

import io
import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from random import Random

import sentencepiece
from nano_chat import conversation

ROLES = ("system", "user", "assistant")
MARKERS = tuple(f"<|{role}|>" for role in ROLES)
END = "<|end|>"
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def corpus(seed: int, num_conversations: int) -> Iterable[str]:
    """Messages of fresh conversations."""
    rng = Random(seed)
    for _ in range(num_conversations):
        for _, text in islice(conversation(rng), 12):
            yield from text.split("\n")


def train_tokenizer(vocab_size: int, seed: int, num_conversations: int = 6000) -> bytes:
    """Trains on generated text; returns the content of ``tokenizer.model``."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus(seed, num_conversations)),
        model_writer=model,
        model_type="bpe",
        vocab_size=vocab_size,
        byte_fallback=True,
        split_digits=True,
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        user_defined_symbols=["\u2581", "\n"],
        control_symbols=[*MARKERS, END],
        unk_id=0,
        bos_id=1,
        eos_id=2,
        pad_id=-1,
        minloglevel=2,
    )
    return model.getvalue()


def write_tokenizer(folder: Path, model: bytes, max_length: int) -> None:
    """Writes ``tokenizer.model``, ``tokenizer_config.json`` and ``chat_template.jinja`` into the folder."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    specials = ("<unk>", "<s>", "</s>", *MARKERS, END)
    config = {
        "tokenizer_class": "LlamaTokenizer",
        "bos_token": "<s>",
        "eos_token": END,
        "unk_token": "<unk>",
        "pad_token": "</s>",
        "add_bos_token": True,
        "add_eos_token": False,
        "add_prefix_space": False,
        "legacy": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
        "added_tokens_decoder": {
            str(processor.piece_to_id(piece)): {
                "content": piece,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": True,
            }
            for piece in specials
        },
    }
    (folder / "tokenizer.model").write_bytes(model)
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)
