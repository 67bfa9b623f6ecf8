"""The request body of `/v1/messages`, Anthropic's API, and the same request as the chat endpoint would have it.

::

    block of a message                              chat
    {"type": "text", "text": …}                     content
    {"type": "thinking", "thinking": …}             `reasoning_content` of the assistant's message
    {"type": "tool_use", "id", "name", "input"}     one of its `tool_calls`
    {"type": "tool_result", "tool_use_id", …}       a message of role "tool"

A last message of the assistant's is the beginning of the answer. Whatever only says how to cache is taken and has no
effect: every prefix is cached.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationInfo, field_validator, model_validator

from .fields import Content, Resources, Schema, StopStrings, check_one_answer, fault, refuse
from .protocol import Body, ChatRequest, FunctionCall, FunctionTool, Generation, Message, ResponseFormat, Tool, ToolCall
from .tool_choice import ToolChoice

# names of the chat endpoint's fields in error messages → the field that the caller sent
RENAMED = (
    ("response_format.json_schema", "output_config.format"),
    ("response_format", "output_config.format"),
    ("stop", "stop_sequences"),
)
REFUSED = {
    "container": "'container' is not supported; nothing is run here",
    "mcp_servers": "'mcp_servers' is not supported; send their tools as 'tools'",
    "stop": "Use 'stop_sequences' here",
    "response_format": "Use 'output_config' here",
}


class TextBlock(Body):
    type: Literal["text"]
    text: str


class ThinkingBlock(Body):
    type: Literal["thinking"]
    thinking: str


class ToolUseBlock(Body):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ToolResultBlock(Body):
    type: Literal["tool_result"]
    tool_use_id: str
    content: Content = ""


def _kind(block: object) -> str:
    """The tag of a block; in brackets, so that paths of errors leave it out (`errors.field_path`)."""
    return f"<{block.get('type') if isinstance(block, dict) else getattr(block, 'type', None)}>"


Block = Annotated[
    Annotated[TextBlock, Tag("<text>")]
    | Annotated[ThinkingBlock, Tag("<thinking>")]
    | Annotated[ToolUseBlock, Tag("<tool_use>")]
    | Annotated[ToolResultBlock, Tag("<tool_result>")],
    Discriminator(
        _kind,
        custom_error_type="content",
        custom_error_message="Blocks are text, thinking, tool_use and tool_result",
    ),
]


def _blocks(value: object) -> object:
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


class Turn(Body):
    """A message. What its blocks mean depends on its role."""

    role: Literal["user", "assistant"]
    content: Annotated[list[Block], BeforeValidator(_blocks, json_schema_input_type=str | list[Block])]

    @field_validator("content")
    @classmethod
    def _users_say_something(cls, blocks: list[Block], info: ValidationInfo) -> list[Block]:
        """An assistant may have said nothing."""
        if not blocks and info.data.get("role") == "user":
            raise fault("too_short", "A message with role 'user' must have at least one block")
        return blocks

    @model_validator(mode="after")
    def _blocks_are_the_roles(self) -> Turn:
        foreign = (ThinkingBlock, ToolUseBlock) if self.role == "user" else (ToolResultBlock,)
        for block in self.content:
            if isinstance(block, foreign):
                raise fault("content", f"A message with role {self.role!r} has no blocks of type {block.type!r}")
        return self


class MessagesTool(Body):
    type: Literal["custom"] = "custom"
    name: str = Field(pattern=r"^[a-zA-Z0-9_.-]{1,128}$")
    description: str = ""
    input_schema: dict[str, Any]

    def as_chat(self) -> Tool:
        own: dict[str, Any] = {"description": self.description} if self.description else {}
        function = FunctionTool.model_construct(name=self.name, parameters=self.input_schema, **own)
        return Tool.model_construct(type="function", function=function)


class MessagesToolChoice(Body):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False

    def as_chat(self) -> ToolChoice:
        if self.type == "tool":
            return ToolChoice("required", frozenset({self.name or ""}), is_named=True)
        return ToolChoice("required" if self.type == "any" else self.type)


class Thinking(Body):
    """Whether the model thinks, and for how many tokens at most."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(None, ge=0)


class ContextEdit(Body):
    """Of the edits of a context only the one that leaves all as it is."""

    type: Literal["clear_thinking_20251015"]
    keep: Literal["all"]


class ContextManagement(Body):
    edits: list[ContextEdit] = Field(default_factory=list)


class OutputFormat(Body):
    type: Literal["json_schema"]
    schema_: Schema = Field(alias="schema")
    resources: Resources | None = None


class OutputConfig(Body):
    format: OutputFormat | None = None
    effort: Annotated[str | None, Field(max_length=32)] = None


class CountRequest(Generation):
    """The body of `/v1/messages/count_tokens`."""

    messages: list[Turn] = Field(min_length=1)
    system: Content | None = None
    tools: list[MessagesTool] = Field([], max_length=128)
    tool_choice: MessagesToolChoice | None = None
    thinking: Thinking | None = None
    context_management: ContextManagement | None = None
    output_config: OutputConfig = OutputConfig()
    output_format: OutputFormat | None = None
    stop_sequences: StopStrings = Field(default_factory=list)
    max_tokens: int | None = Field(None, ge=1)
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _refuse_fields(cls, data: object) -> object:
        return refuse(data, REFUSED)

    @model_validator(mode="after")
    def _fields_agree(self) -> CountRequest:
        names = [tool.name for tool in self.tools]
        check_one_answer(self.n, names)
        if self.tool_choice is not None:
            self.tool_choice.as_chat().check(names)
        return self

    def as_chat(self) -> ChatRequest:
        """The same request to the chat endpoint."""
        system = [Message(role="system", content=self.system)] if self.system else []
        continues = self.messages[-1].role == "assistant"
        choice = self.tool_choice
        own = {name: getattr(self, name) for name in Generation.model_fields}
        chat = ChatRequest.model_construct(
            messages=system + [message for turn in self.messages for message in messages_of(turn)],
            max_tokens=self.max_tokens,
            tools=[tool.as_chat() for tool in self.tools],
            tool_choice=choice.as_chat() if choice is not None else ToolChoice(),
            parallel_tool_calls=choice is None or not choice.disable_parallel_tool_use,
            add_generation_prompt=not continues,
            continue_final_message=continues,
            reasoning_effort=self.output_config.effort,
            thinking_token_budget=self.thinking.budget_tokens if self.thinking is not None else None,
            chat_template_kwargs=self._template_options(),
            **{**own, "stop": self.stop_sequences},
        )
        wanted = self.output_config.format or self.output_format
        if wanted is not None:
            chat.response_format = ResponseFormat.model_construct(
                type="json_schema", schema_=wanted.schema_, extra_keys="never", resources=wanted.resources
            )
        return chat

    def _template_options(self) -> dict[str, Any]:
        if self.thinking is None:
            return self.chat_template_kwargs
        return {"enable_thinking": self.thinking.type != "disabled", **self.chat_template_kwargs}


class MessagesRequest(CountRequest):
    max_tokens: int = Field(ge=1)


def messages_of(turn: Turn) -> list[Message]:
    """A turn as messages: an assistant's is one, a user's is the results of tools and the text between them."""
    if turn.role == "assistant":
        thoughts = [block.thinking for block in turn.content if isinstance(block, ThinkingBlock)]
        calls = [
            ToolCall(id=block.id, function=FunctionCall(name=block.name, arguments=json.dumps(block.input)))
            for block in turn.content
            if isinstance(block, ToolUseBlock)
        ]
        text = "".join(block.text for block in turn.content if isinstance(block, TextBlock))
        return [
            Message(
                role="assistant",
                content=text if text or not calls else None,
                tool_calls=calls,
                reasoning_content="".join(thoughts) or None,
            )
        ]
    messages: list[Message] = []
    for block in turn.content:
        if isinstance(block, ToolResultBlock):
            messages.append(Message(role="tool", tool_call_id=block.tool_use_id, content=block.content))
        elif isinstance(block, TextBlock):
            if messages and messages[-1].role == "user":
                messages[-1] = Message(role="user", content=(messages[-1].content or "") + block.text)
            else:
                messages.append(Message(role="user", content=block.text))
    return messages
