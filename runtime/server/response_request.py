"""The request body of `/v1/responses`, and the same request as the chat endpoint would have it.

::

    input item                                            message
    {"role": …, "content": …}                             as it stands; a text is a user's
    {"type": "reasoning", "content": […]}                 `reasoning_content` of the assistant's message after it
    {"type": "function_call", "call_id", "name", …}       one of the `tool_calls` of an assistant's message
    {"type": "function_call_output", "call_id", "output"} a message of role "tool"

Nothing is stored, so whatever refers to an earlier response is refused; so are tools other than functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from .fields import Content, Resources, Schema, check_one_answer, fault, refuse
from .protocol import (
    Body,
    ChatRequest,
    FunctionCall,
    FunctionTool,
    Generation,
    Message,
    ResponseFormat,
    Tool,
    ToolCall,
)
from .tool_choice import ToolChoice, ToolChoiceField

# names of the chat endpoint's fields in error messages → the field that the caller sent
RENAMED = (
    ("response_format.json_schema", "text.format"),
    ("response_format", "text.format"),
    ("messages", "input"),
    ("max_tokens", "max_output_tokens"),
)
# Fields that would change the answer, and what to do instead.
REFUSED = {
    "previous_response_id": "Responses are not stored; send the whole conversation as 'input'",
    "conversation": "Conversations are not stored; send the whole conversation as 'input'",
    "prompt": "Prompts are not stored; send 'instructions' and 'input'",
    "background": "'background' is not supported",
    "continue_final_message": "'continue_final_message' is not supported here; use /v1/chat/completions",
    "top_logprobs": "Log-probabilities are not given here; use /v1/chat/completions",
    "max_tokens": "Use 'max_output_tokens' here",
    "max_completion_tokens": "Use 'max_output_tokens' here",
}


class MessageItem(Message):
    type: Literal["message"] = "message"


class CallItem(Body):
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str


class CallOutputItem(Body):
    type: Literal["function_call_output"]
    call_id: str
    output: Content


class ReasoningText(Body):
    type: Literal["reasoning_text"]
    text: str


class ReasoningItem(Body):
    """Of a model's own reasoning the text counts; a summary is for people."""

    type: Literal["reasoning"]
    content: list[ReasoningText] = Field(default_factory=list)
    encrypted_content: str | None = None

    @model_validator(mode="after")
    def _is_readable(self) -> ReasoningItem:
        if self.encrypted_content and not self.content:
            raise fault("encrypted_content", "Encrypted reasoning cannot be read here; send its 'content' or leave it")
        return self


def _kind(item: object) -> str | None:
    """The tag of an item; in brackets, so that paths of errors leave it out (`errors.field_path`)."""
    kind = item.get("type") or "message" if isinstance(item, dict) else getattr(item, "type", None)
    return f"<{kind}>"


def _input(value: object) -> object:
    """A text is a user's message."""
    items = [{"role": "user", "content": value}] if isinstance(value, str) else value
    if not isinstance(items, list):
        raise fault("input_type", "Expected a string or an array of messages")
    if not items:
        raise fault("input", "The array is empty; give at least one message")
    return items


Item = Annotated[
    Annotated[MessageItem, Tag("<message>")]
    | Annotated[CallItem, Tag("<function_call>")]
    | Annotated[CallOutputItem, Tag("<function_call_output>")]
    | Annotated[ReasoningItem, Tag("<reasoning>")],
    Discriminator(
        _kind,
        custom_error_type="input",
        custom_error_message="Input items are messages, function_call, function_call_output and reasoning",
    ),
]


class ResponseTool(FunctionTool):
    """A function; the chat endpoint has the same one level deeper."""

    type: Literal["function"]

    def as_chat(self) -> Tool:
        return Tool(
            type="function", function=FunctionTool.model_construct(self.model_fields_set - {"type"}, **dict(self))
        )


class TextFormat(Body):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = ""
    strict: bool = False
    schema_: Schema | None = Field(default=None, alias="schema")
    resources: Resources | None = None


class TextOptions(Body):
    format: TextFormat = TextFormat()
    verbosity: Literal["medium"] = "medium"


class ReasoningOptions(Body):
    effort: Annotated[str | None, Field(max_length=32)] = None


class ResponsesRequest(Generation):
    input: Annotated[list[Item], BeforeValidator(_input, json_schema_input_type=str | list[Item])]
    instructions: str | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    text: TextOptions = TextOptions()
    reasoning: ReasoningOptions = ReasoningOptions()
    tools: list[ResponseTool] = Field([], max_length=128)
    tool_choice: ToolChoiceField = ToolChoice()
    parallel_tool_calls: bool = True
    include: list[str] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    thinking_token_budget: int | None = Field(None, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _refuse_fields(cls, data: object) -> object:
        return refuse(data, REFUSED)

    @model_validator(mode="after")
    def _supported(self) -> ResponsesRequest:
        if "message.output_text.logprobs" in self.include:
            raise fault("include", "Log-probabilities are not given here; use /v1/chat/completions")
        names = [tool.name for tool in self.tools]
        check_one_answer(self.n, names)
        self.tool_choice.check(names)
        return self

    def as_chat(self) -> ChatRequest:
        """The same request to the chat endpoint."""
        instructions = [Message(role="system", content=self.instructions)] if self.instructions else []
        wanted = self.text.format
        chat = ChatRequest.model_construct(
            messages=[*instructions, *messages_of(self.input)],
            max_tokens=self.max_output_tokens,
            reasoning_effort=self.reasoning.effort,
            thinking_token_budget=self.thinking_token_budget,
            tools=[tool.as_chat() for tool in self.tools],
            tool_choice=self.tool_choice,
            parallel_tool_calls=self.parallel_tool_calls,
            chat_template_kwargs=self.chat_template_kwargs,
            **{name: getattr(self, name) for name in Generation.model_fields},
        )
        if wanted.type != "text" or wanted.resources:
            extra_keys = "never" if wanted.strict else None
            chat.response_format = ResponseFormat.model_construct(
                type=wanted.type, schema_=wanted.schema_, extra_keys=extra_keys, resources=wanted.resources
            )
        return chat


def messages_of(items: Sequence[MessageItem | CallItem | CallOutputItem | ReasoningItem]) -> list[Message]:
    """The items as messages. Consecutive calls are those of one message, as is the reasoning before it."""
    messages: list[Message] = []
    thought = ""  # of the assistant's message that is still to come
    for item in items:
        is_assistants = isinstance(item, CallItem) or (isinstance(item, MessageItem) and item.role == "assistant")
        if thought and not is_assistants and not isinstance(item, ReasoningItem):
            messages.append(Message(role="assistant", content="", reasoning_content=thought))
            thought = ""
        if isinstance(item, ReasoningItem):
            thought += "".join(part.text for part in item.content)
            continue
        if isinstance(item, CallOutputItem):
            messages.append(Message(role="tool", tool_call_id=item.call_id, content=item.output))
            continue
        if isinstance(item, CallItem):
            call = ToolCall(id=item.call_id, function=FunctionCall(name=item.name, arguments=item.arguments))
            if not thought and messages and messages[-1].role == "assistant":
                messages[-1] = messages[-1].model_copy(update={"tool_calls": [*messages[-1].tool_calls, call]})
                continue
            message = Message(role="assistant", tool_calls=[call])
        else:
            message = item
        if thought and is_assistants:
            message = message.model_copy(update={"reasoning_content": thought})
            thought = ""
        messages.append(message)
    if thought:
        messages.append(Message(role="assistant", content="", reasoning_content=thought))
    return messages
