"""A checkpoint without a tokenizer serves token ids; what needs text is refused by its name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import phloem as ph
from phloem.errors import ModelError, RequestError
from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.warmup import warm_up
from phloem.runtime.execute.loading import load
from phloem.runtime.models import resolve_model
from phloem.runtime.tokenizer.tokenizer import Tokenizer

from .server.conftest import KEY, serving

GREEDY = ph.SamplingParams(max_tokens=8, temperature=0.0)
PROMPT = [5, 6, 7, 8]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare")
    for name in ("config.json", "generation_config.json", "model.safetensors"):
        shutil.copy(resolve_model("nano") / name, folder / name)
    return folder


def test_ids_go_in_and_come_out(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        ph.Engine(folder, device="cpu", num_blocks=64) as bare,
        ph.Engine("nano", device="cpu", num_blocks=64) as whole,
    ):
        assert "no tokenizer.json, tokenizer.model or tekken.json" in caplog.text
        warm_up(bare)
        found, expected = (engine.generate(PROMPT, GREEDY) for engine in (bare, whole))
        assert found.token_ids == expected.token_ids and found.text == ""
        assert set(bare.tokenizer.eos_ids) <= set(whole.tokenizer.eos_ids)


TEXTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a prompt": (lambda engine: engine.generate("hi", GREEDY), "prompt"),
    "stop strings": (lambda engine: engine.generate(PROMPT, ph.SamplingParams(stop=("x",))), "stop"),
    "bad words": (lambda engine: engine.generate(PROMPT, ph.SamplingParams(bad_words=("x",))), "bad_words"),
    "a constraint": (lambda engine: engine.generate(PROMPT, GREEDY, ph.regex("a+")), "constraint"),
    "a chat": (lambda engine: engine.chat([{"role": "user", "content": "hi"}]), "messages"),
    "a prediction": (lambda engine: engine.generate(PROMPT, GREEDY, prediction="hi"), "prediction"),
}


def test_texts_are_refused_by_name(folder: Path) -> None:
    with ph.Engine(folder, device="cpu", num_blocks=64) as engine:
        for case, (ask, param) in TEXTS.items():
            with pytest.raises(RequestError, match=f"^{param}: this checkpoint has no tokenizer") as caught:
                ask(engine)
            assert caught.value.param == param, case
        assert len(engine.generate(PROMPT, GREEDY).token_ids) == 8


CHAT = [{"role": "user", "content": "hi"}]
REFUSED_BY_THE_SERVER: list[tuple[str, str, dict[str, Any]]] = [
    ("/v1/completions", "prompt", {"prompt": "hi"}),
    ("/v1/completions", "stop", {"prompt": PROMPT, "stop": "x"}),
    ("/v1/completions", "echo", {"prompt": PROMPT, "echo": True}),
    ("/v1/completions", "echo", {"prompt": PROMPT, "echo": True, "stream": True}),
    ("/v1/completions", "regex", {"prompt": PROMPT, "regex": "a+"}),
    ("/v1/chat/completions", "messages", {"messages": CHAT}),
    ("/v1/responses", "input", {"input": "hi"}),
    ("/v1/responses/input_tokens", "input", {"input": "hi"}),
    ("/v1/messages", "messages", {"messages": CHAT, "max_tokens": 4}),
    ("/v1/messages/count_tokens", "messages", {"messages": CHAT}),
    ("/tokenize", "prompt", {"prompt": "hi"}),
    ("/tokenize", "prompt", {"prompt": ""}),
    ("/tokenize", "messages", {"messages": CHAT}),
    ("/detokenize", "tokens", {"tokens": PROMPT}),
    ("/detokenize", "tokens", {"tokens": []}),
]


def test_the_server_takes_ids_and_refuses_texts(folder: Path) -> None:
    loaded = load(EngineConfig(folder, device="cpu"))
    with serving(loaded, device="cpu", num_blocks=64) as running, httpx.Client(base_url=running.url) as http:

        def post(route: str, **body: Any) -> httpx.Response:
            return http.post(route, json=body, headers={"Authorization": f"Bearer {KEY}"}, timeout=60)

        asked = {"max_tokens": 4, "temperature": 0, "return_token_ids": True, "logprobs": 1}
        answer = post("/v1/completions", prompt=PROMPT, **asked).json()["choices"][0]
        assert answer["text"] == "" and len(answer["token_ids"]) == 4
        assert answer["logprobs"]["tokens"] == [f"token_id:{token_id}" for token_id in answer["token_ids"]]
        for route, param, body in REFUSED_BY_THE_SERVER:
            refused = post(route, **body)
            error = refused.json()["error"]
            assert (refused.status_code, error["param"]) == (400, param), (route, body)
            assert "this checkpoint has no tokenizer" in error["message"] and "; " in error["message"], (route, body)
        scored = post("/v1/completions", prompt=PROMPT, max_tokens=0, echo=True, logprobs=0).json()["choices"][0]
        assert scored["logprobs"]["tokens"] == [f"token_id:{token_id}" for token_id in PROMPT]
        assert [score is None for score in scored["logprobs"]["token_logprobs"]] == [True, False, False, False]


def test_without_a_number_of_tokens_there_is_nothing_to_serve(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"neither tokenizer.json nor tokenizer.model"):
        Tokenizer.from_folder(tmp_path)
