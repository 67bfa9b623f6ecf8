"""A sampling parameter comes everywhere, or is left out of a place on purpose: nowhere is it ignored without a word."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

from phloem.runtime.program import api
from phloem.runtime.program.backends.runtime_endpoint import SAID_OTHERWISE, SENT
from phloem.runtime.sampling_params import SamplingParams
from phloem.runtime.server.prepare import OF_BODY
from phloem.runtime.server.protocol import CompletionRequest

FIELDS = {field.name for field in fields(SamplingParams)}
OWN_BY_ROUTE = {"max_tokens", "logprobs"}  # each route has its own field, or its own default
ASKED_BY_ANOTHER_NAME = {"prompt_logprobs_from"}  # logprob_start_len
NOT_OF_A_PROGRAM = {  # those of `run` go for all of its `gen`
    *("include_stop_str_in_output", "repetition_penalty", "logit_bias", "allowed_token_ids", "bad_words"),
    *("kv_budget", "kv_policy", "beyond_context"),
}


def test_every_sampling_parameter_comes_over_http() -> None:
    assert {*OF_BODY} == FIELDS - OWN_BY_ROUTE - ASKED_BY_ANOTHER_NAME


def test_every_sampling_parameter_is_sent_to_a_server_that_reads_it() -> None:
    assert {*SENT} | {*SAID_OTHERWISE} == FIELDS and not {*SENT} & {*SAID_OTHERWISE}
    assert CompletionRequest.model_fields.keys() >= {*SENT}


def test_every_sampling_parameter_is_an_argument_of_gen() -> None:
    arguments = {*inspect.signature(api.gen).parameters}
    assert FIELDS - arguments == NOT_OF_A_PROGRAM | ASKED_BY_ANOTHER_NAME


def test_every_sampling_parameter_is_documented() -> None:
    docs = (Path(__file__).resolve().parents[3] / "docs" / "server.md").read_text(encoding="utf-8")
    text = SamplingParams.__doc__ or ""
    assert not [name for name in FIELDS - ASKED_BY_ANOTHER_NAME if f"`{name}`" not in docs]
    assert not [name for name in FIELDS if not re.search(rf"\b{name}\b", text)]
