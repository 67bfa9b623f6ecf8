"""Small vocabularies, trained here, in the forms that tokenizer files have."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import sentencepiece
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers


def byte_level(
    texts: Iterable[str], parts: list[Any], normaliser: Any = None, *, vocab_size: int = 600, **options: Any
) -> tokenizers.Tokenizer:
    """BPE of bytes, of texts that `parts` cut, the last of which spells bytes; options: of the model."""
    made = tokenizers.Tokenizer(models.BPE(**options))
    if normaliser is not None:
        made.normalizer = normaliser
    made.pre_tokenizer = pre_tokenizers.Sequence(parts)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(texts, trainer)
    return made


def cut_by(*patterns: str) -> list[Any]:
    """Parts that cut by patterns, one after the other, and spell bytes."""
    splits = [pre_tokenizers.Split(tokenizers.Regex(one), "isolated") for one in patterns]
    return [*splits, pre_tokenizers.ByteLevel(False, use_regex=False)]


def sentencepiece_model(texts: Iterable[str], **options: Any) -> bytes:
    """BPE of characters, with a piece for each byte."""
    target = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=target,
        model_type="bpe",
        byte_fallback=True,
        remove_extra_whitespaces=False,
        minloglevel=2,
        **options,
    )
    return target.getvalue()
