"""Adapters over HTTP: models of their own, that come and go only where the operator says so."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import torch

import phloem as ph
from phloem.errors import ConfigError, ModelError
from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.loading import load
from phloem.runtime.models import resolve_model
from phloem.runtime.request import SamplingParams
from phloem.runtime.server import ServerSettings, create_app

from ..models.saved_adapters import save_adapter
from .conftest import KEY, PATIENCE, Served, serving

TEXT = "Hello, who is there?"
GREEDY = SamplingParams(max_tokens=12, temperature=0.0)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import LlamaForCausalLM
    model = LlamaForCausalLM.from_pretrained(resolve_model("nano"), dtype=torch.float32)
    place = tmp_path_factory.mktemp("adapters")
    return {
        name: save_adapter(place / name, model, r".*(q|v)_proj", {}, seed=seed, size=0.2)
        for seed, name in enumerate(("sql", "law"))
    }


@pytest.fixture(scope="module")
def adapted(folders: dict[str, Path]) -> Iterator[Served]:
    loaded = load(EngineConfig(device="cpu", adapters={"sql": str(folders["sql"])}))
    with serving(loaded, num_blocks=4096, device="cpu", adapter_loading=True) as running:
        yield running


def post(served: Served, path: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{served.url}{path}", json=body, headers={"Authorization": f"Bearer {KEY}"}, timeout=PATIENCE)


def test_an_adapter_is_a_model_on_every_route(adapted: Served) -> None:
    engine = adapted.async_engine.engine
    said = {name: engine.generate(TEXT, GREEDY, adapter=name).text for name in (None, "sql")}
    assert said[None] != said["sql"]
    with adapted.client() as client:
        for model, name in (("nano", None), ("sql", "sql"), ("nano", None), ("sql", "sql")):
            found = client.completions.create(model=model, prompt=TEXT, max_tokens=12, temperature=0)
            assert (found.model, found.choices[0].text) == (model, said[name])

        messages: Any = [{"role": "user", "content": TEXT}]
        chats = {name: engine.chat(messages, GREEDY, adapter=name).text for name in (None, "sql")}
        assert chats[None] != chats["sql"]
        for model, name in (("nano", None), ("sql", "sql")):
            chat = client.chat.completions.create(model=model, messages=messages, max_tokens=12, temperature=0)
            assert (chat.model, chat.choices[0].message.content) == (model, chats[name])
            pieces = client.chat.completions.create(
                model=model, messages=messages, max_tokens=12, temperature=0, stream=True
            )
            assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == chats[name]
            answered = client.responses.create(model=model, input=TEXT, max_output_tokens=12, temperature=0)
            assert (answered.model, answered.output_text) == (model, chats[name])
            body = {"model": model, "messages": messages, "max_tokens": 12, "temperature": 0}
            assert post(adapted, "/v1/messages", **body).json()["content"][0]["text"] == chats[name]
            assert post(adapted, "/tokenize", model=model, messages=messages).json()["count"] > 0
    adapted.settle()


def test_models_are_listed_with_their_parent(adapted: Served) -> None:
    with adapted.client() as client:
        cards = {card.id: card.model_dump() for card in client.models.list().data}
        assert cards["nano"]["parent"] is None
        assert (cards["sql"]["root"], cards["sql"]["parent"]) == ("sql", "nano")
        assert client.models.retrieve("sql").model_dump() == cards["sql"]
        with pytest.raises(openai.NotFoundError, match="The model `law` does not exist"):
            client.models.retrieve("law")
        with pytest.raises(openai.NotFoundError, match="The model `law` does not exist"):
            client.completions.create(model="law", prompt=TEXT)


def test_adapters_come_and_go(adapted: Served, folders: dict[str, Path]) -> None:
    load, unload = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
    assert post(adapted, load, lora_name="law", lora_path=str(folders["law"])).status_code == 200
    with adapted.client() as client:
        found = client.completions.create(model="law", prompt=TEXT, max_tokens=12, temperature=0).choices[0].text
    assert found == adapted.async_engine.engine.generate(TEXT, GREEDY, adapter="law").text
    for body, message in (
        ({"lora_name": "law", "lora_path": str(folders["law"])}, "'law' is loaded already; unload it first"),
        ({"lora_name": "nano", "lora_path": str(folders["law"])}, "'nano' is a name of the served model"),
        ({"lora_name": "new", "lora_path": "/nowhere"}, "there is no such file"),
        ({"lora_name": "", "lora_path": "/nowhere"}, "lora_name"),
        ({"lora_name": "new"}, "lora_path"),
    ):
        refused = post(adapted, load, **body)
        assert refused.status_code == 400 and message in refused.json()["error"]["message"]
    assert post(adapted, unload, lora_name="law").status_code == 200
    assert post(adapted, unload, lora_name="law").json()["error"]["message"] == "adapters: 'law' is not loaded"
    assert post(adapted, "/v1/completions", model="law", prompt=TEXT).status_code == 404


def test_nobody_opens_a_folder_unless_the_operator_says_so(served: Served, folders: dict[str, Path]) -> None:
    for path in ("/v1/load_lora_adapter", "/v1/unload_lora_adapter"):
        assert post(served, path, lora_name="law", lora_path=str(folders["law"])).status_code == 404
    assert served.async_engine.engine.adapters.names == ()


def test_an_adapter_may_not_have_the_models_name(adapted: Served) -> None:
    with pytest.raises(ConfigError, match="'sql' is a name of the served model; give the adapter another one"):
        create_app(adapted.async_engine, ServerSettings(model_name="sql"))


def test_a_program_runs_through_an_adapter(adapted: Served) -> None:
    @ph.function
    def program(s: ph.ProgramState) -> None:
        s += TEXT + ph.gen("said", max_tokens=12, temperature=0.0)
        s += " " + ph.select("which", ["left", "right"])

    engine = adapted.async_engine.engine
    for name in (None, "sql"):
        state = program.run(backend=adapted.async_engine, adapter=name)
        assert state["said"] == engine.generate(TEXT, GREEDY, adapter=name).text
        assert state["which"] in ("left", "right")
    with pytest.raises(ph.ProgramError, match="adapter: 'law' is not loaded; there are: sql"):
        program.run(backend=adapted.async_engine, adapter="law")


HOSTILE_PATHS = [
    "\0",
    "a\0b",
    "x" * 10_000,
    "x/" * 5000,
    "~",
    "~nobody/x",
    "/dev/zero",
    "/dev/null",
    "/dev/tty",
    "/proc/self",
]


@pytest.mark.parametrize("path", HOSTILE_PATHS, ids=lambda path: ascii(path)[:12])
def test_a_path_that_is_no_adapters_is_refused_with_the_field(adapted: Served, path: str) -> None:
    answer = post(adapted, "/v1/load_lora_adapter", lora_name="new", lora_path=path)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "lora_path")
    with pytest.raises(ModelError):
        adapted.async_engine.engine.adapters.load("new", path)


def test_pipes_loops_and_half_characters_are_refused(adapted: Served, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    os.mkfifo(tmp_path / "adapter_config.json")  # reading it would wait for a writer
    for path in (tmp_path, tmp_path / "adapter_config.json", tmp_path / "loop"):
        answer = post(adapted, "/v1/load_lora_adapter", lora_name="new", lora_path=str(path))
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "lora_path")
    with pytest.raises(ModelError, match="no file can have this name"):
        adapted.async_engine.engine.adapters.load("new", "\ud800")
    body = b'{"lora_name": "new", "lora_path": "\\ud800"}'
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    answer = httpx.post(f"{adapted.url}/v1/load_lora_adapter", content=body, headers=headers, timeout=PATIENCE)
    assert answer.status_code == 400


@pytest.mark.parametrize("name", ["\0", "x" * 10_000, "../../x", "é\n", "~", " "], ids=lambda name: ascii(name)[:12])
def test_a_models_name_never_reaches_the_disk(adapted: Served, folders: dict[str, Path], name: str) -> None:
    assert post(adapted, "/v1/completions", model=name, prompt="a").status_code == 404
    assert post(adapted, "/v1/unload_lora_adapter", lora_name=name).status_code == 400
    loaded = post(adapted, "/v1/load_lora_adapter", lora_name=name, lora_path=str(folders["law"]))
    assert loaded.status_code == (400 if len(name) > 256 else 200)
    if loaded.status_code == 200:
        assert post(adapted, "/v1/completions", model=name, prompt="a", max_tokens=1).json()["model"] == name
        assert post(adapted, "/v1/unload_lora_adapter", lora_name=name).status_code == 200
