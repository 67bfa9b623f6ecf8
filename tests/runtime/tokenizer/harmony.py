"""Tokenizer files as gpt-oss has them, small: the pattern of o200k, the special tokens of harmony, a template.

The vocabulary is trained here; ids differ, what they mean does not. The template is our own and says less than theirs.
"""

from __future__ import annotations

import json
from pathlib import Path

import tokenizers

from .trained import byte_level, cut_by

# as published with tiktoken (MIT licence), `o200k_base`
PATTERN = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
SPECIALS = [
    "<|startoftext|>",
    "<|endoftext|>",
    "<|return|>",
    "<|constrain|>",
    "<|channel|>",
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|call|>",
    *(f"<|reserved_{index}|>" for index in range(7)),
]
CORPUS = [
    "We'll see what they've done: HTTPServer, camelCase and 1234567 things, isn't it?",
    "    def f(x):\n        return x // 2\r\n\r\n\t# don't\n",
    "Grüße aus Köln, naïve café — 東京タワー 🙂 Привет Ελλάδα हिन्दी ǅ ʰ",
    '{"name": "Tavo", "tags": ["a/b", "c"]}\n\n\n',
] * 30
TEMPLATE = """\
{{- "<|start|>system<|message|>You help people.\\nToday: " ~ strftime_now("%Y-%m-%d") }}
{{- "\\nReasoning: " ~ (reasoning_effort if reasoning_effort is defined else "medium") ~ "<|end|>" }}
{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {{- "<|start|>assistant<|channel|>final<|message|>" ~ message.content ~ "<|end|>" }}
    {%- elif message.role == "system" %}
        {{- "<|start|>developer<|message|># Instructions\\n\\n" ~ message.content ~ "<|end|>" }}
    {%- else %}
        {{- "<|start|>" ~ message.role ~ "<|message|>" ~ message.content ~ "<|end|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|start|>assistant" }}{% endif %}
"""


def harmony_folder(folder: Path) -> Path:
    """Writes `tokenizer.json`, `tokenizer_config.json`, `generation_config.json` and the template."""
    tokenizer = byte_level(CORPUS, cut_by(PATTERN))
    tokenizer.add_special_tokens([tokenizers.AddedToken(text, special=True, normalized=False) for text in SPECIALS])
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"bos_token": "<|startoftext|>", "eos_token": "<|return|>", "pad_token": "<|endoftext|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    ends = [tokenizer.token_to_id(text) for text in ("<|return|>", "<|endoftext|>", "<|call|>")]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    return folder
