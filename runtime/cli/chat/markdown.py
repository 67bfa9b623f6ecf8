"""Markdown in answers: how it looks, and which of its blocks can no longer change while it is being written.

Of the lines that are complete, everything before the last block is finished, since what comes next can only change
that one (a paragraph may yet become a heading, a list may get an item). Cost: one parse of what is not finished, so
keep only that.
"""

from __future__ import annotations

import re
from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Heading, Markdown

_PARSER = MarkdownIt().enable("strikethrough").enable("table")  # as rich reads it


def blocks(text: str) -> list[str]:
    """The blocks of a text, each with the blank lines after it; together they are the text."""
    lines = re.findall(".*\n|.+", text)  # as the parser counts them
    begins = [token.map[0] for token in _PARSER.parse(text) if token.level == 0 and token.nesting >= 0 and token.map]
    ends = [*begins[1:], len(lines)]
    return ["".join(lines[begin:end]) for begin, end in zip([0, *begins[1:]], ends, strict=True)] if text else []


def finished_blocks(text: str) -> list[str]:
    """Those at the beginning of a growing text that can no longer change."""
    return blocks(text[: text.rfind("\n") + 1])[:-1]


class LeftHeading(Heading):
    """A heading where the text begins."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class AnswerMarkdown(Markdown):
    """Markdown whose links are written out, since a model may have made them up."""

    elements: ClassVar = {**Markdown.elements, "heading_open": LeftHeading}

    def __init__(self, text: str) -> None:
        super().__init__(text, hyperlinks=False)
