"""Thoughts of a random model, through the real engine and the official client: its answers are valid all the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.server.formats.thoughts import BEGIN, END

from ..models.oracle import save_random_model
from .conftest import serving
from .samples import JSON_FORMAT
from .valid_answers import TOOL, check_answers, check_calls

TEMPLATE = """\
{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}
    {%- if thinking is defined %}{{ '<think>\\n' if thinking else '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}"""
CONTROLS = ["<|im_end|>", "<|im_start|>"]


def think_folder(folder: Path, *, marks: str) -> None:
    """Bytes as tokens and a random model. `marks`: "special" tokens, "added" ones as in Qwen 3, or mere "text"."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = tokenizers.Tokenizer(models.BPE({piece: index for index, piece in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([tokenizers.AddedToken(text, special=True, normalized=False) for text in CONTROLS])
    if marks != "text":
        is_special = marks == "special"
        added = [tokenizers.AddedToken(text, special=is_special, normalized=False) for text in (BEGIN, END)]
        (tokenizer.add_special_tokens if is_special else tokenizer.add_tokens)(added)
    save_random_model(folder, "LlamaForCausalLM", {"vocab_size": tokenizer.get_vocab_size()})
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    (folder / "generation_config.json").write_text("{}")
    (folder / "chat_template.jinja").write_text(TEMPLATE)


@pytest.fixture(scope="module", params=["special", "added", "text"])
def thinker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tmp_path_factory.mktemp(request.param)
    think_folder(folder, marks=request.param)
    return load(EngineConfig(model=str(folder), device="cpu", dtype="float32"))


def test_whatever_the_model_thinks_the_answer_is_valid(thinker: LoadedModel) -> None:
    with serving(thinker, num_blocks=256, tool_call_format="hermes") as served, served.client() as http:
        cases: list[tuple[int, dict[str, Any]]] = [(0, {"thinking": True}), (2, {"thinking": False}), (3, {})]
        thoughts = [check_answers(http, seed, 100, options) for seed, options in cases]
        assert any(thoughts), "a prompt that opens the thought is answered with one"


@pytest.mark.parametrize(("stream", "budgets"), [(False, (0, 2, 60)), (True, (1, 31))], ids=["whole", "stream"])
def test_thoughts_end_within_their_budget_and_answers_are_valid(
    thinker: LoadedModel, stream: bool, budgets: tuple[int, ...]
) -> None:
    """With a schema, with a call that is required, and with neither; as a field of chats, responses and messages."""
    asked: list[dict[str, Any]] = [{"response_format": JSON_FORMAT}, {"tools": [TOOL], "tool_choice": "required"}, {}]
    with serving(thinker, num_blocks=256, tool_call_format="hermes") as served, served.client() as http:
        model = http.models.list().data[0].id
        for budget in budgets:
            for number, options in enumerate(asked):
                body = {"thinking_token_budget": budget, "chat_template_kwargs": {"thinking": True}, "seed": budget}
                common: dict[str, Any] = {"model": model, "max_tokens": 120, "extra_body": body, **options}
                common["messages"] = [{"role": "user", "content": "Hi"}]
                if stream:
                    chunks = list(
                        http.chat.completions.create(**common, stream=True, stream_options={"include_usage": True})
                    )
                    usage = chunks[-1].usage
                    content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
                else:
                    answer = http.chat.completions.create(**common)
                    usage, content = answer.usage, answer.choices[0].message.content
                    if number == 1:
                        assert check_calls(answer.choices[0].message) == 1
                assert usage.completion_tokens_details.reasoning_tokens <= budget + 3 + len(
                    END
                )  # a character in bytes, the mark
                if number == 0:
                    assert isinstance(json.loads(content)["a"], int)
