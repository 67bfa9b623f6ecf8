"""From a checked body to what the engine is asked: prompt ids, sampling, constraint, namespace.

Everything here may be slow (template, tokenisation, compilation) and runs on a worker thread, never on the event loop.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ...errors import ConstraintError, RequestError
from ..cache.reply_memory import ChatPrompt
from ..constrain.spec import ConstraintSpec, ExtraKeys
from ..request import RequestOptions, SamplingParams
from .constraints import Compilations, Wanted, constraint_of
from .errors import ApiError, api_error, invalid
from .formats.events import OutputReader, TextOnly
from .formats.output_format import CallPlan, OutputFormat, Reading
from .formats.thoughts import thought_limit
from .protocol import ChatRequest, CompletionRequest, Generation, TokenizeRequest
from .vectors_request import Read

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..tokenizer.tokenizer import Tokenizer

# sampling parameters that the body of every route has by the same name
OF_BODY = tuple(field.name for field in fields(SamplingParams) if field.name in Generation.model_fields)


@dataclass(frozen=True, slots=True)
class EngineCall:
    """One request to the engine.

    Attributes:
        is_for_prompt: what is asked for is that the KV of its prompt is in the store (see `prefill`).
        compiled: when each compilation of its constraint began and ended, on `time.monotonic`.
    """

    prompt_ids: Sequence[int]
    sampling: SamplingParams
    spec: ConstraintSpec | None
    options: RequestOptions
    is_for_prompt: bool = False
    compiled: Compilations = ()


@dataclass(frozen=True, slots=True)
class PreparedChat:
    """A request, its calls, and how its outputs are read; prompt_pieces: its prompt's tokens as texts, if wanted."""

    call: EngineCall
    plan: CallPlan | None
    reading: Reading
    prompt_pieces: Sequence[str] = ()


def namespace_of(salt: str | None, api_key: str | None) -> str:
    """A namespace that says nothing of salt or key; "" for callers without either."""
    if salt is None and api_key is None:
        return ""
    text = json.dumps([salt, api_key]).encode()
    return hashlib.sha256(text).hexdigest()[:32]


def request_options(body: Generation | Read, api_key: str | None, adapter: str | None) -> RequestOptions:
    """What any request may be given, answered or read; adapter: what its tokens go through."""
    return RequestOptions(
        adapter=adapter,
        namespace=namespace_of(body.cache_salt, api_key),
        priority=body.priority,
        deadline_seconds=body.deadline_seconds,
    )


def prepare_chat(
    engine: Engine,
    body: ChatRequest,
    api_key: str | None,
    output_format: OutputFormat,
    *,
    adapter: str | None = None,
    extra_keys: ExtraKeys = "never",
) -> PreparedChat:
    """output_format: the model's; adapter: what the tokens go through; extra_keys: see `ServerSettings`. Raises
    `ApiError` for whatever cannot be served."""
    wanted = constraint_of(body, extra_keys)
    # a request that describes the whole answer describes its thoughts and channels
    is_described = wanted is not None and wanted.spec.kind == "structural_tag"
    wanted = _compiled(engine, wanted)
    plan = _plan(body, wanted, output_format)
    if plan is not None:
        wanted = _compiled(engine, Wanted(plan.spec, "tools", wanted.compiled if wanted is not None else ()))
    chat = chat_prompt(engine, body, namespace_of(body.cache_salt, api_key), adapter)
    _check_rules(body, wanted)
    spec = wanted.spec if wanted is not None else None
    reading = Reading(spec) if is_described else output_format.reading(body, spec, plan, chat.token_ids)
    if wanted is not None and reading.spec is not None and reading.spec is not spec:
        wanted = _compiled(engine, replace(wanted, spec=reading.spec))
    budget = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    check_length(engine, len(chat.token_ids), budget, "messages", body)
    logprobs = (body.top_logprobs or 0) if body.logprobs else None
    sampling = _sampling(body, budget, logprobs, engine)
    call = _call(chat.token_ids, sampling, wanted, body, api_key, adapter)
    call.options["conversation"] = chat.text
    if body.thinking_token_budget is not None and reading.thought in ("open", "unsaid"):
        call.options["thought_limit"] = thought_limit(engine.tokenizer, body.thinking_token_budget, reading.thought)
    if body.stop and reading.new_reader is not OutputReader:
        call.options["stop_guard"] = lambda: TextOnly(reading.new_reader())
    if body.prediction is not None:
        call.options["prediction"] = body.prediction.content
    if wanted is None and reading.has_marks:
        call.options["shows_special"] = True
    if not body.explain_tokens:
        return PreparedChat(call, plan, reading)
    call.options["explain_tokens"] = True
    return PreparedChat(call, plan, reading, [engine.tokenizer.token_text(one) for one in chat.token_ids])


def prepare_completions(
    engine: Engine, body: CompletionRequest, api_key: str | None, adapter: str | None, extra_keys: ExtraKeys
) -> list[EngineCall]:
    """One call per prompt; extra_keys: see `ServerSettings`. Raises `ApiError` for whatever cannot be served."""
    if body.echo and body.logprobs is None and not engine.tokenizer.has_text:  # scores of a prompt need no text
        text = (
            "echo: this checkpoint has no tokenizer, so the prompt has no text; use return_token_ids, or add logprobs"
        )
        raise invalid(text, "echo")
    wanted = _compiled(engine, constraint_of(body, extra_keys))
    _check_rules(body, wanted)
    calls = []
    for prompt in body.prompt:
        prompt_ids = prompt_tokens(engine, body, prompt)
        check_length(engine, len(prompt_ids), body.max_tokens, "prompt", body)
        scored_from = max(1, body.logprob_start_len or 0) if body.scores_prompt and len(prompt_ids) > 1 else None
        sampling = _sampling(body, body.max_tokens, body.logprobs, engine, prompt_logprobs_from=scored_from)
        calls.append(_call(prompt_ids, sampling, wanted, body, api_key, adapter))
        if body.output_ids:
            calls[-1].options["output_ids"] = body.output_ids
    return calls


def prompt_tokens(
    engine: Engine, body: CompletionRequest | TokenizeRequest, prompt: str | Sequence[int]
) -> Sequence[int]:
    """The ids of a raw prompt. Special-token text is text, unless the request says that it is meant (`parse_special`).

    Raises:
        ApiError: ids out of the vocabulary, or text that is not Unicode.
    """
    tokenizer = engine.tokenizer
    try:
        if isinstance(prompt, str) and body.parse_special:
            prompt = tokenizer.encode_formatted(prompt, adds_start=body.add_special_tokens)
        elif isinstance(prompt, str) and not body.add_special_tokens:
            prompt = tokenizer.encode(prompt)
        ids: Sequence[int] = engine.request_factory.token_ids(prompt)
    except RequestError as error:
        raise api_error(error, param="prompt") from error
    return ids


def check_tokens(tokenizer: Tokenizer, token_ids: Sequence[int]) -> None:
    """Raises ApiError: one of the field `tokens` is not of the vocabulary."""
    for position, token_id in enumerate(token_ids):
        if not 0 <= token_id < tokenizer.vocab_size:
            raise invalid(f"{token_id} is not a token id in [0, {tokenizer.vocab_size}).", f"tokens[{position}]")


def chat_prompt(
    engine: Engine, body: ChatRequest | TokenizeRequest, namespace: str = "", adapter: str | None = None
) -> ChatPrompt:
    """The messages through the chat template; raises `ApiError` if the template refuses them."""
    messages = [message.as_sent() for message in body.messages or []]
    tools = None
    options = body.chat_template_kwargs
    if isinstance(body, ChatRequest) and body.reasoning_effort is not None:
        options = {"reasoning_effort": body.reasoning_effort, **options}
    if isinstance(body, ChatRequest) and body.tools and body.tool_choice.mode != "none":
        tools = [tool.model_dump(exclude_unset=True) for tool in body.tools]
    try:
        return engine.encode_chat(
            messages,
            namespace=namespace,
            adapter=adapter,
            add_generation_prompt=body.add_generation_prompt,
            continue_final=body.continue_final_message,
            tools=tools,
            options=_template_options(engine, options),
        )
    except RequestError as error:
        raise api_error(error, param="messages") from error


def _template_options(engine: Engine, wanted: dict[str, Any]) -> dict[str, Any]:
    """Only what the model's template reads (`enable_thinking` …); clients send more than a model knows."""
    known = engine.tokenizer.chat_template.option_names
    return {name: value for name, value in wanted.items() if name in known}


def _plan(body: ChatRequest, wanted: Wanted | None, output_format: OutputFormat) -> CallPlan | None:
    """The plan of calls, with the response format, if there is one, in it: that is the content's. Other constraints are
    those of the whole output, in which there is no room for a call."""
    is_contents = wanted is not None and wanted.param.startswith("response_format")
    answer = wanted.spec if wanted is not None and is_contents and wanted.spec.kind != "structural_tag" else None
    try:
        plan = output_format.plan(body, answer)
    except RequestError as error:
        raise api_error(error, param="tools") from error
    if plan is None or wanted is None or answer is not None:
        return plan
    if plan.is_forced:
        text = f"A required tool call and '{wanted.param}' exclude each other; send one of them."
        raise invalid(text, "tool_choice", "conflicting_constraints")
    return None


def _check_rules(body: Generation, wanted: Wanted | None) -> None:
    """Tokens that are ruled out may leave a constraint no way to its end."""
    name = "allowed_token_ids" if body.allowed_token_ids is not None else "bad_words" if body.bad_words else None
    if name is not None and wanted is not None:
        text = f"'{name}' and '{wanted.param}' exclude each other; send one of them."
        raise invalid(text, name, "conflicting_constraints")


def _compiled(engine: Engine, wanted: Wanted | None) -> Wanted | None:
    """The same, after it was compiled (the engine finds it in the compiler's cache)."""
    if wanted is None:
        return None
    began = time.monotonic()
    try:
        engine.request_factory.compile(wanted.spec)
    except RequestError as error:
        raise api_error(_placed(error, wanted), param=wanted.param) from error
    return replace(wanted, compiled=(*wanted.compiled, (began, time.monotonic())))


def _placed(error: RequestError, wanted: Wanted) -> RequestError:
    """The error; one in a document that the request has brought says so: `resources/URI#/pointer`.

    One about a document that it has not brought names the field for it.
    """
    if not isinstance(error, ConstraintError):
        return error
    pointer = error.pointer
    if not any(pointer.startswith(f"{uri}#") for uri in json.loads(wanted.spec.resources or "{}")):
        text = str(error)
        if not wanted.resources or " in resources," not in text:
            return error
        return type(error)(text.replace(" in resources,", f" in '{wanted.resources}',", 1), pointer=pointer)
    return type(error)(str(error).replace(pointer, f"resources/{pointer}", 1), pointer=f"resources/{pointer}")


def check_length(
    engine: Engine, prompt_len: int, max_tokens: int | None, param: str, body: Generation | None = None
) -> None:
    """OpenAI refuses a budget that the context, or here the pool, cannot hold; the engine itself would cut it.

    body: None: of vectors, which have no answer.
    """
    if body is not None and body.beyond_context:
        max_tokens = None
    limit = engine.request_factory.longest(prompt_len, body.kv_budget if body is not None else None)
    needed = 0 if body is None else 1 if max_tokens is None else max_tokens
    if prompt_len + needed <= limit:
        return
    held = f"This model's maximum context length is {limit} tokens"
    if limit < engine.max_model_len:
        held = f"This server's KV pool holds {limit} tokens (--kv-memory, --num-blocks)"
    asked = f" and {needed} for the answer" if needed else ""
    remedy = "Shorten the prompt or lower max_tokens." if max_tokens else "Shorten it."
    if max_tokens and body is not None and body.kv_budget is not None:
        remedy += " With a kv_budget an answer may go on past the context: see beyond_context."
    raise ApiError(
        400,
        f"{held}, but the request has {prompt_len} tokens in '{param}'{asked}. {remedy}",
        param=param,
        code="context_length_exceeded",
    )


def _sampling(
    body: Generation,
    max_tokens: int | None,
    logprobs: int | None,
    engine: Engine,
    *,
    prompt_logprobs_from: int | None = None,
) -> SamplingParams:
    vocab_size = engine.tokenizer.vocab_size
    named: dict[str, Iterable[int]] = {
        "logit_bias": body.logit_bias,
        "stop_token_ids": body.stop_token_ids,
        "allowed_token_ids": body.allowed_token_ids or (),
    }
    for param, token_ids in named.items():
        for token_id in token_ids:
            if not 0 <= token_id < vocab_size:
                raise invalid(f"Invalid '{param}': {token_id} is not a token id in [0, {vocab_size}).", param)
    try:
        return SamplingParams(
            **{name: getattr(body, name) for name in OF_BODY if name != "include_stop_str_in_output"},
            include_stop_str_in_output=body.include_stop_str_in_output or body.no_stop_trim,
            max_tokens=max_tokens,
            logprobs=logprobs,
            prompt_logprobs_from=prompt_logprobs_from,
        )
    except RequestError as error:
        raise api_error(error) from error


def _call(
    prompt_ids: Sequence[int],
    sampling: SamplingParams,
    wanted: Wanted | None,
    body: Generation,
    api_key: str | None,
    adapter: str | None,
) -> EngineCall:
    options = request_options(body, api_key, adapter)
    options["explain_cache"], options["pin_ttl"] = body.explain_cache, body.pin_ttl
    spec, compiled = (wanted.spec, wanted.compiled) if wanted is not None else (None, ())
    is_for_prompt = body.kv_transfer_params.do_remote_decode
    return EngineCall(prompt_ids, sampling, spec, options, is_for_prompt, compiled)
