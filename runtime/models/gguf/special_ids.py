"""Which tokens a GGUF file means by the beginning and the end of a text.

A file names one end (`eos_token_id`), or two or three, and chat models end their turns with others than that as often
as not. So control tokens that are known as ends count too, as in llama.cpp.
"""

from __future__ import annotations

from ....errors import ModelError
from .file import GgufFile

CONTROL = 3  # of the types of tokens
_NONE = 0xFFFFFFFF
_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_ENDS = frozenset(
    {
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>",
        "<EOT>", "<|return|>", "<|end_of_turn|>", "<|eos|>",
        "<turn|>",
    }
)  # fmt: skip

_SEEN_END, _ADDED = "<|tool_response>", 4  # after a call of Gemma 4, with the type of tokens that are text


def token_id(file: GgufFile, key: str) -> int:
    """The id under `tokenizer.ggml.<key>`; -1: there is none."""
    name = f"tokenizer.ggml.{key}"
    found = file.fields().integer(name, at_least=0) if name in file else _NONE
    return -1 if found == _NONE else found


def token_types(file: GgufFile, num_tokens: int) -> list[int]:
    """The type of every token; all are ordinary where the file names none."""
    if "tokenizer.ggml.token_type" not in file:
        return [1] * num_tokens
    found: list[int] = file.numbers("tokenizer.ggml.token_type", num_tokens).tolist()
    odd = next((kind for kind in found if kind not in range(1, 7)), None)
    if odd is not None:
        raise ModelError(f"{file.path}: tokenizer.ggml.token_type: expected 1 to 6 for each token, found {odd}")
    return found


def end_ids(file: GgufFile) -> tuple[int, ...]:
    """Tokens that end a generation; none where the file has no tokenizer.

    Raises:
        ModelError: one of them lies beyond the file's tokens.
    """
    if "tokenizer.ggml.tokens" not in file:
        return ()
    tokens = file.strings("tokenizer.ggml.tokens")
    named = {token_id(file, key) for key in _KEYS} - {-1}
    if named and max(named) >= len(tokens):
        raise ModelError(f"{file.path}: tokenizer.ggml: token {max(named)} is not among {len(tokens)} tokens")
    types = token_types(file, len(tokens))
    named |= {index for index, text in enumerate(tokens) if text in _ENDS and types[index] == CONTROL}
    named |= {index for index, text in enumerate(tokens) if text == _SEEN_END and types[index] in (CONTROL, _ADDED)}
    return tuple(sorted(named))
