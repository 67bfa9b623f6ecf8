"""Prefill and decode apart: two servers over one store, and a proxy between, as vLLM's examples have it.

The proxy is one of the test's own, and asks in the ways of vLLM's: with `kv_transfer_params`, and with no more than one
token. The truth is what an engine says that computes everything itself.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from typing import Any

import httpx
import pytest

from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.engine import Engine
from phloem.runtime.request import SamplingParams

from ..cli.serve_process import Process
from ..offload.store_process import Store, short_folder
from .smg_process import routing

ASK = {"do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


@dataclass
class Pair:
    """A prefill worker and a decode worker, by clients of them."""

    prefill: httpx.Client
    decode: httpx.Client

    def ask(self, path: str, body: dict[str, Any], *, with_params: bool = True) -> tuple[Any, Any]:
        """What the proxy does; both answers."""
        first: dict[str, Any] = {**body, "max_tokens": 1}
        if with_params:
            first |= {"stream": False, "kv_transfer_params": {**ASK, "remote_host": None, "remote_port": None}}
            first.pop("min_tokens", None)
        asked = self.prefill.post(path, json=first)
        assert asked.status_code == 200, asked.text
        params = asked.json().get("kv_transfer_params")
        answer = self.decode.post(path, json={**body, "kv_transfer_params": params} if with_params else body)
        assert answer.status_code == 200, answer.text
        return asked.json(), answer.json()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Over Redis where there is one, else over a folder."""
    with ExitStack() as stack:
        if shutil.which("redis-server") is None or importlib.util.find_spec("redis") is None:
            place = ["--disk-cache", str(tmp_path_factory.mktemp("blocks"))]
        else:
            store = Store(stack.enter_context(short_folder()))
            stack.callback(store.kill)
            place = ["--shared-cache", store.url]
        processes = []
        for role in ("prefill", "decode"):
            process = Process(
                "nano", "--num-blocks", "1024", "--no-warm-up", "--metric-names", "vllm", "--role", role, *place
            )
            stack.callback(process.close)
            processes.append(process)
        clients = [
            stack.enter_context(httpx.Client(base_url=process.url, timeout=120, trust_env=False))
            for process in processes
        ]
        yield Pair(*clients)


@pytest.fixture(scope="module")
def alone() -> Iterator[Engine]:
    with Engine("nano", device="cpu", num_blocks=1024, prefix_cache=False) as engine:
        yield engine


def loaded(answer: dict[str, Any]) -> int:
    return int(answer["usage"]["prompt_tokens_details"].get("loaded_tokens", 0))


def whole_blocks(num_tokens: int) -> int:
    """Tokens that a decode worker need not compute: whole blocks, and the last token has to be."""
    return (num_tokens - 1) // 16 * 16


def test_tokens_are_those_of_one_process_and_the_prompt_is_loaded(pair: Pair, alone: Engine) -> None:
    rng = Random(5)
    for number, with_params in enumerate((True, False, True)):
        prompt = [rng.randrange(300, 1000) for _ in range(500 + 37 * number)]
        truth = alone.generate(prompt, SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True))
        body = {"prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        first, answer = pair.ask("/v1/completions", body, with_params=with_params)
        assert answer["choices"][0]["token_ids"] == list(truth.token_ids)
        assert loaded(answer) == whole_blocks(len(prompt)), "all of the prompt that can be had"
        params = first["kv_transfer_params"]
        assert params["do_remote_prefill"] is True and params["do_remote_decode"] is False
        assert params["remote_engine_id"].startswith("phloem-")
        assert params["remote_block_ids"] == list(range(len(prompt) // 16))
        assert first["usage"]["completion_tokens"] == 1
        assert "kv_transfer_params" not in answer


def test_a_seed_a_salt_and_a_constraint_are_kept(pair: Pair, alone: Engine) -> None:
    messages = [{"role": "user", "content": "A number, please. " * 20}]
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    body = {"messages": messages, "max_tokens": 40, "seed": 3, "temperature": 1, "response_format": wanted}
    lone = pair.decode.post("/v1/chat/completions", json={**body, "cache_salt": "another"}).json()
    first, answer = pair.ask("/v1/chat/completions", {**body, "cache_salt": "one", "min_tokens": 2})
    said = answer["choices"][0]["message"]["content"]
    assert said == lone["choices"][0]["message"]["content"] and set(json.loads(said)) == {"n"}
    num_tokens = answer["usage"]["prompt_tokens"]
    assert loaded(answer) == whole_blocks(num_tokens) and len(first["kv_transfer_params"]["remote_block_ids"])
    crossed = pair.decode.post("/v1/chat/completions", json={**body, "cache_salt": "two"}).json()
    assert loaded(crossed) == 0, "of another salt"


def test_what_is_not_in_the_store_is_computed(pair: Pair, alone: Engine) -> None:
    """A proxy that lost the prefill worker, or one that makes up parameters."""
    prompt = [Random(6).randrange(300, 1000) for _ in range(300)]
    truth = alone.generate(prompt, SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True))
    body = {"prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    made_up = {"do_remote_prefill": True, "remote_engine_id": "x", "remote_block_ids": [[1], "y"], "more": {}}
    answer = pair.decode.post("/v1/completions", json={**body, "kv_transfer_params": made_up}).json()
    assert answer["choices"][0]["token_ids"] == list(truth.token_ids) and loaded(answer) == 0


def test_a_prefill_worker_answers_streams_too(pair: Pair) -> None:
    """Of a proxy that changes nothing but the length."""
    prompt = [Random(7).randrange(300, 1000) for _ in range(200)]
    with pair.prefill.stream(
        "POST", "/v1/completions", json={"prompt": prompt, "max_tokens": 9, "stream": True}
    ) as got:
        lines = [line for line in got.iter_lines() if line.startswith("data: {")]
    assert json.loads(lines[-1][6:])["choices"][0]["finish_reason"] == "length"
    answer = pair.decode.post("/v1/completions", json={"prompt": prompt, "max_tokens": 2}).json()
    assert loaded(answer) == whole_blocks(len(prompt))


@pytest.mark.skipif(importlib.util.find_spec("smg") is None, reason="needs SMG: pip install smg")
def test_smg_drives_them(pair: Pair, alone: Engine) -> None:
    """With text: it takes no token ids."""
    prompt = "A long story of a fox and a hen. " * 20
    truth = alone.generate(prompt, SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True))
    body = {"model": "nano", "prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": True}
    urls = [str(client.base_url).rstrip("/") for client in (pair.prefill, pair.decode)]
    with routing(["--pd-disaggregation", "--prefill", urls[0], "--decode", urls[1]], 2) as router:
        answer = router.post("/v1/completions", json=body).json()
    assert answer["choices"][0]["text"] == truth.text
    assert loaded(answer) == whole_blocks(truth.usage.prompt_tokens) > 0


def test_a_role_without_a_store_is_refused() -> None:
    for role in ("prefill", "decode"):
        with pytest.raises(Exception, match=f"role: '{role}' needs a store.*--shared-cache.*--disk-cache"):
            EngineConfig(role=role)  # type: ignore[arg-type]
    with pytest.raises(Exception, match=r'role: .cook. is not one of "both", "prefill", "decode"'):
        EngineConfig(role="cook", disk_cache="/tmp/x")  # type: ignore[arg-type]
