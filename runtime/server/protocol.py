"""The request bodies of `/v1/chat/completions` and `/v1/completions`, checked field by field.

OpenAI's names, SGLang's `regex` and `ebnf`, vLLM's `structured_outputs` and its older `guided_*`. `null` means "not
given" everywhere; unknown fields are ignored, but for those that would change the answer (`unsupported`); types are
strict (`"5"` is not a number). Whatever concerns the engine (vocabulary, context length, whether a schema can be
enforced) is checked later; this module knows no engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..kv_policies import DEFAULT_KV_POLICY, KV_POLICIES
from ..sampling_params import LEAST_ABOVE_ZERO, LEAST_KV_BUDGET, MAX_LOGPROBS
from ..tokenizer.chat_message import Role
from .fields import BadWord, Content, LogitBias, Prompts, Resources, Salt, Schema, SchemaOrText, StopStrings, fault
from .tool_choice import ToolChoice, ToolChoiceField
from .unsupported import refuse_unsupported

if TYPE_CHECKING:
    KVPolicyName = str
else:
    KVPolicyName = Literal[tuple(KV_POLICIES)]

MAX_N = 128
MAX_BAD_WORDS = 1024


class Body(BaseModel):
    """Strict in types, deaf to unknown fields; `null` is as good as leaving a field out."""

    model_config = ConfigDict(strict=True, extra="ignore", protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: object) -> object:
        return {key: value for key, value in data.items() if value is not None} if isinstance(data, dict) else data


class StreamOptions(Body):
    """`continuous_usage_stats` (vLLM, SGLang) puts usage on every chunk."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class JsonSchemaFormat(Body):
    name: str = Field("", max_length=64)
    description: str = ""
    strict: bool = False
    schema_: Schema | None = Field(None, alias="schema")
    resources: Any = None  # refused: its place is next to `json_schema`


class ResponseFormat(Body):
    """`schema` next to `type` is how some clients send it; OpenAI nests it under `json_schema`.

    Of `structural_tag` both forms are read: `structures` and `triggers`, or `format`. Ours are `key_order`,
    `extra_keys`, `whitespace` and `resources` (see `Generation.resources`).
    """

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchemaFormat | None = None
    schema_: Schema | None = Field(None, alias="schema")
    structures: list[Any] | None = None
    triggers: list[str] | None = None
    at_least_one: bool = False
    stop_after_first: bool = False
    format: dict[str, Any] | None = None
    key_order: Literal["schema", "any"] = "schema"
    extra_keys: Literal["schema", "never"] | None = None
    whitespace: Literal["compact", "spaced", "flexible"] | None = None
    resources: Resources | None = None


class StructuredOutputs(Body):
    """vLLM's field: exactly one of the kinds. `resources` is ours, and goes with `json`."""

    json_: SchemaOrText | None = Field(None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: dict[str, Any] | str | None = None
    whitespace_pattern: str | None = None
    resources: Resources | None = None


class FunctionCall(Body):
    name: str
    arguments: str = "{}"


class ToolCall(Body):
    id: str = ""
    type: Literal["function"] = "function"
    function: FunctionCall


class Prediction(Body):
    """What the answer will mostly be (OpenAI's predicted outputs)."""

    type: Literal["content"]
    content: Content


class Message(Body):
    role: Role
    content: Content | None = None
    name: str | None = None
    tool_calls: list[ToolCall] = []
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None

    @model_validator(mode="after")
    def _has_content(self) -> Message:
        """An assistant's may be missing: next to calls, reasoning or a refusal, or where nothing was said."""
        if self.content is None and self.role != "assistant":
            raise fault("content", f"The content of a message with role {self.role!r} must be given")
        return self

    def as_sent(self) -> dict[str, Any]:
        """As `Engine.encode_chat` takes it; without what other routes' messages have besides."""
        return self.model_dump(include=set(Message.model_fields), exclude_none=True)


class FunctionTool(Body):
    name: str = Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")
    description: str = ""
    parameters: dict[str, Any] | None = None
    strict: bool = False


class Tool(Body):
    type: Literal["function"]
    function: FunctionTool


class KVTransferParams(Body):
    """vLLM's field where prefill and decode are apart (see `prefill`); what else is in it is ignored."""

    do_remote_decode: bool = False


class Generation(Body):
    """The fields that both endpoints share."""

    model: str | None = None
    n: int = Field(1, ge=1, le=MAX_N)
    best_of: int | None = None
    temperature: float = Field(1.0, ge=0, le=2, allow_inf_nan=False)
    top_p: float = Field(1.0, ge=LEAST_ABOVE_ZERO, le=1, allow_inf_nan=False)
    top_k: int = Field(0, ge=-1, lt=2**31)
    min_p: float = Field(0.0, ge=0, le=1, allow_inf_nan=False)
    presence_penalty: float = Field(0.0, ge=-2, le=2, allow_inf_nan=False)
    frequency_penalty: float = Field(0.0, ge=-2, le=2, allow_inf_nan=False)
    repetition_penalty: float = Field(1.0, ge=LEAST_ABOVE_ZERO, le=10, allow_inf_nan=False)
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    stop: StopStrings = []
    include_stop_str_in_output: bool = False
    no_stop_trim: bool = False
    stop_token_ids: list[int] = Field([], max_length=64)
    min_tokens: int = Field(0, ge=0)
    ignore_eos: bool = False
    logit_bias: LogitBias = {}
    allowed_token_ids: list[int] | None = Field(None, min_length=1)
    bad_words: list[BadWord] = Field([], max_length=MAX_BAD_WORDS)
    kv_budget: int | None = Field(None, ge=LEAST_KV_BUDGET)
    kv_policy: KVPolicyName = DEFAULT_KV_POLICY
    beyond_context: bool = False
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool = False
    stream: bool = False
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    regex: str | None = None
    ebnf: str | None = None
    json_schema: SchemaOrText | None = None
    structural_tag: dict[str, Any] | str | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: SchemaOrText | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    guided_whitespace_pattern: str | None = None
    resources: Resources | None = None
    cache_salt: Salt | None = None
    explain_cache: bool = False
    pin_ttl: float = Field(0.0, ge=0, allow_inf_nan=False)
    deadline_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)
    priority: int = Field(0, ge=-(2**31), lt=2**31)
    kv_transfer_params: KVTransferParams = KVTransferParams()

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: object) -> object:
        if isinstance(data, dict):
            refuse_unsupported(data)
        return data

    @model_validator(mode="after")
    def _stream_options_need_stream(self) -> Generation:
        if self.stream_options is not None and not self.stream:
            raise fault("stream_options", "'stream_options' is only allowed when 'stream' is true")
        if self.best_of is not None and self.best_of != 1:
            raise fault("best_of", "'best_of' is not supported; use 'n' and choose among the outputs")
        return self


class ChatRequest(Generation):
    messages: list[Message] = Field(min_length=1)
    explain_tokens: bool = False
    prediction: Prediction | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    tools: list[Tool] = Field([], max_length=128)
    tool_choice: ToolChoiceField = ToolChoice()
    parallel_tool_calls: bool | None = None
    functions: Any = None
    function_call: Any = None
    modalities: list[str] = []
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] = {}
    reasoning_effort: str | None = Field(None, max_length=32)
    thinking_token_budget: int | None = Field(None, ge=0)

    @model_validator(mode="after")
    def _fields_agree(self) -> ChatRequest:
        if self.top_logprobs is not None and not self.logprobs:
            raise fault("top_logprobs", "'top_logprobs' is only allowed when 'logprobs' is true")
        if self.max_tokens is not None and self.max_completion_tokens not in (None, self.max_tokens):
            raise fault("max_tokens", "'max_tokens' and 'max_completion_tokens' differ; send one of them")
        if self.functions is not None or self.function_call is not None:
            raise fault("functions", "'functions' and 'function_call' are not supported; use 'tools' and 'tool_choice'")
        if any(modality != "text" for modality in self.modalities):
            raise fault("modalities", "Only the modality 'text' is supported")
        names = [tool.function.name for tool in self.tools]
        if len(set(names)) < len(names):
            raise fault("tools", "Two tools have the same name")
        self.tool_choice.check(names)
        return self

    def as_chat(self) -> ChatRequest:
        """As other APIs' requests have it."""
        return self


class CompletionRequest(Generation):
    prompt: Prompts
    max_tokens: int | None = Field(16, ge=0)
    logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    logprob_start_len: int | None = Field(None, ge=0)
    output_ids: list[int] = []
    echo: bool = False
    suffix: str | None = None
    add_special_tokens: bool = True
    parse_special: bool = False

    @model_validator(mode="after")
    def _fields_agree(self) -> CompletionRequest:
        if self.suffix:
            raise fault("suffix", "'suffix' is not supported")
        if self.logprob_start_len is not None and self.logprobs is None:
            raise fault("logprob_start_len", "'logprob_start_len' is only allowed with 'logprobs'")
        if self.scores_prompt and self.stream:
            name = "echo" if self.echo else "logprob_start_len"
            raise fault(name, f"'{name}' with 'logprobs' is not supported on a stream")
        return self

    @property
    def scores_prompt(self) -> bool:
        """Whether the log-probabilities of the prompt are asked for."""
        return self.logprobs is not None and (self.echo or self.logprob_start_len is not None)


class TokenizeRequest(Body):
    """Text, or messages to which the chat template is applied."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = Field(None, min_length=1)
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] = {}
    add_special_tokens: bool = True
    parse_special: bool = False

    @model_validator(mode="after")
    def _one_of_both(self) -> TokenizeRequest:
        if (self.prompt is None) == (self.messages is None):
            raise fault("prompt", "Give either 'prompt' or 'messages'")
        return self


class LoadAdapterRequest(Body):
    lora_name: str = Field(min_length=1, max_length=256)
    lora_path: str = Field(min_length=1)


class UnloadAdapterRequest(Body):
    lora_name: str


class DetokenizeRequest(Body):
    model: str | None = None
    tokens: list[int] = Field(max_length=1 << 20)
