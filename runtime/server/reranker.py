"""A reranker that is a language model: how it is asked about a document, and which tokens are its answer.

The template is a whole prompt with `{query}` and `{document}`, and `{instruction}` where it has one. Its special tokens
count; in what callers send they are text. The query stands before the document, so all that comes before the document
is a prefix that the requests for the documents share. The score is the probability of "yes" among "yes" and "no".
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import ConfigError

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..readout import Rows
    from ..tokenizer.tokenizer import Tokenizer

QWEN3 = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: {instruction}\n'
    "<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
PLACES = re.compile(r"\{(instruction|query|document)\}")
MAX_TEMPLATE_BYTES = 1 << 16


class Reranker:
    """Writes prompts, and reads scores.

    Attributes:
        has_instruction: whether the template has a place for one.
        answers: the ids of "yes" and "no".
    """

    def __init__(self, template: str, tokenizer: Tokenizer, answers: tuple[int, int] | None = None) -> None:
        """
        Args:
            answers: None: the tokens of "yes" and "no".

        Raises:
            ConfigError: a place is missing in the template or comes twice, or an answer is not one token.
        """
        places = PLACES.findall(template)
        if [place for place in places if place != "instruction"] != ["query", "document"] or len(places) > 3:
            raise ConfigError(
                "reranker_template: it must have {query} and then {document}, once each, and at most one {instruction}"
            )
        if not tokenizer.has_text:
            raise ConfigError("reranker_template: this checkpoint has no tokenizer")
        self._tokenizer = tokenizer
        self.has_instruction = "instruction" in places
        found = answers or answers_of(tokenizer)
        if found is None:
            raise ConfigError('reranker_template: "yes" and "no" are not one token each for this tokenizer')
        self.answers = found
        self._pieces: list[int | str] = []
        end = 0
        for special in tokenizer.special_pattern.finditer(template):
            self._pieces += [template[end : special.start()], tokenizer.special_ids[special.group()]]
            end = special.end()
        self._pieces.append(template[end:])

    def tokens(self, query: str, document: str, instruction: str | None) -> list[int]:
        """The prompt about one document; instruction: None: to find passages that answer a query."""
        texts = {"query": query, "document": document, "instruction": instruction or INSTRUCTION}
        ids: list[int] = []
        for piece in self._pieces:
            if isinstance(piece, int):
                ids.append(piece)
            elif piece:
                ids += self._tokenizer.encode(PLACES.sub(lambda place: texts[place.group(1)], piece))
        return ids

    @staticmethod
    def score(logits: Rows) -> float:
        """The probability of "yes", of the logits of both answers."""
        yes, no = logits.tolist()
        return 0.5 + 0.5 * math.tanh((yes - no) / 2)  # softmax of two


def answers_of(tokenizer: Tokenizer) -> tuple[int, int] | None:
    """The ids of "yes" and "no"; None if they are not one token each."""
    yes, no = tokenizer.encode("yes"), tokenizer.encode("no")
    return (yes[0], no[0]) if len(yes) == len(no) == 1 else None


def reranker_of(engine: Engine, template: str | None) -> Reranker | None:
    """The model as a reranker, if it is one: by the setting, or by its own files.

    Args:
        template: "qwen3", a file, or None.

    Raises:
        ConfigError: the template cannot be read or used, or is not known and needed.
    """
    tokenizer, answers = engine.tokenizer, engine.vectors.rules.answers
    if template is not None:
        return Reranker(QWEN3 if template == "qwen3" else _read(template), tokenizer, answers)
    if answers is None:
        return None
    if tokenizer.has_text and "<|im_start|>" in tokenizer.special_ids and answers == answers_of(tokenizer):
        return Reranker(QWEN3, tokenizer, answers)
    raise ConfigError("reranker_template: this reranker's prompt is not known here; give its template in a file")


def _read(file: str) -> str:
    path = Path(file)
    try:
        with path.open("rb") as opened:
            content = opened.read(MAX_TEMPLATE_BYTES + 1)
        if len(content) > MAX_TEMPLATE_BYTES:
            raise ConfigError(f"reranker_template: {file} is larger than {MAX_TEMPLATE_BYTES} bytes; is it a template?")
        return content.decode("utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f'reranker_template: {file} cannot be read ({error}); give a file, or "qwen3"') from None
