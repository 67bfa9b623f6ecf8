"""The text of a state and its token ids, which grow together and never change.

Text is tokenised once, when it is first needed, and in runs: whatever was appended since the last special token or
generation becomes tokens together, as the chat template would tokenise it. What the model generated is appended as
the ids it was generated as. Nothing is ever tokenised again, so each prompt extends the prompt before it, id by id,
and every cached block of it is found::

    s += user("Why ") ; s += …    <|user|> | Why is the sky blue? | <|end|> <|assistant|> | generated ids | …
                                  special    one run                special                 as they are

A run ends at special tokens, at the content of an assistant message, where the model generates, and at a fork. Choices
are tokenised together with the run that leads to them, since most words have a space in their first token. The text of
a message never becomes a token that the chat template writes; only role markers do. Knows tokenizer and chat format; no
engine, and no threads: the interpreter that owns it takes care of those.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ...errors import ProgramError
from .chat_format import ChatFormat, TextTokenizer
from .expression import Role


@dataclass(frozen=True, slots=True)
class Written:
    """Tokens that a model wrote or chose, in a transcript.

    Attributes:
        start, end: their positions.
        num_cached: how many tokens from the beginning of the transcript were cached when the request was admitted;
            None if that is not known.
        jumped: positions of those that needed no sampling step of their own.
        is_chosen: they are one of the choices of a `select`.
    """

    start: int
    end: int
    num_cached: int | None = None
    jumped: frozenset[int] = frozenset()
    is_chosen: bool = False

    def moved(self, distance: int) -> Written:
        """The same in a transcript where these tokens stand that much later; no request was made of its beginning."""
        jumped = frozenset(position + distance for position in self.jumped)
        return replace(self, start=self.start + distance, end=self.end + distance, num_cached=None, jumped=jumped)


@dataclass(frozen=True, slots=True)
class Mark:
    """A position in a transcript."""

    num_tokens: int
    num_chunks: int
    num_messages: int
    open_role: Role | None


class Transcript:
    """What a state has said so far.

    Attributes:
        chunks: the text in the pieces in which it became visible, role markers included.
        written: which of the ids a model wrote, in order.
        open_role: the role of the message that is not closed yet.
    """

    def __init__(self, tokenizer: TextTokenizer, chat_format: ChatFormat) -> None:
        self._tokenizer = tokenizer
        self._format = chat_format
        self._token_ids: array[int] = array("i")
        self._run = ""  # text whose ids are not known yet
        self._messages: list[tuple[Role, str]] = []
        self._content_start = 0
        self.chunks: list[str] = []
        self.written: list[Written] = []
        self.open_role: Role | None = None

    @property
    def text(self) -> str:
        return "".join(self.chunks)

    @property
    def messages(self) -> list[dict[str, str]]:
        """The closed messages."""
        return [{"role": role, "content": content} for role, content in self._messages]

    # -- growing -----------------------------------------------------------------------------------------------

    def append_text(self, text: str) -> None:
        """Appends text to the current run."""
        if text:
            self._run += text
            self.chunks.append(text)

    def begin_role(self, role: Role) -> None:
        """Opens a message."""
        if self.open_role is not None:
            raise ProgramError(f"{role} begins inside {self.open_role}; end that message first")
        self._append_marker(self._format.begin([earlier for earlier, _ in self._messages], role))
        if role == "assistant":
            self._end_run()
        self.open_role = role
        self._content_start = len(self.chunks)

    def end_role(self, role: Role) -> None:
        """Closes the open message."""
        if self.open_role != role:
            raise ProgramError(f"{role} ends, but {self.open_role or 'no message'} is open")
        self._messages.append((role, "".join(self.chunks[self._content_start :])))
        self._append_marker(self._format.end([earlier for earlier, _ in self._messages]))
        self.open_role = None

    def show(self, text: str) -> None:
        """Makes generated text visible before its ids are final; `append_generated` follows."""
        self.chunks.append(text)

    def append_generated(self, token_ids: Sequence[int], num_cached: int = 0, jumped: Iterable[int] = ()) -> None:
        """Appends the ids of generated text that was shown, as `kept_ids` has them.

        num_cached: tokens of the prompt that were cached. jumped: those of the ids that were not sampled one by one.
        """
        self._token_ids = self.prompt()
        start, end = len(self._token_ids), len(self._token_ids) + len(token_ids)
        positions = frozenset(start + index for index in jumped if start + index < end)
        self.written.append(Written(start, end, num_cached, positions))
        self._token_ids.extend(token_ids)

    def append_scored(self, prompt: array[int], token_ids: Sequence[int], text: str) -> None:
        """Appends one of the choices, as the ids as which it was scored; see `branches`."""
        self._token_ids = prompt[:]
        self._token_ids.extend(token_ids)
        self.written.append(Written(len(prompt), len(self._token_ids), is_chosen=True))
        self._run = ""
        self.chunks.append(text)

    def append_from(self, other: Transcript, mark: Mark) -> None:
        """Appends what `other` has gained since `mark`, as the same ids.

        Raises:
            ProgramError: `other` closed a message that was open at the mark, or left one open.
        """
        if other.open_role != mark.open_role or (mark.open_role and len(other._messages) != mark.num_messages):
            raise ProgramError(
                f"a fork that is appended must leave roles as it found them: {mark.open_role or 'no message'} was"
                f" open when it began, {other.open_role or 'no message'} is open now"
            )
        self._end_run()
        other._end_run()
        gained = other._token_ids[mark.num_tokens :]
        distance = len(self._token_ids) - mark.num_tokens
        if self._token_ids and mark.num_tokens == 0 and gained and gained[0] == self._tokenizer.bos_id:
            gained = gained[1:]
            distance -= 1
        self._token_ids.extend(gained)
        self.written += [written.moved(distance) for written in other.written if written.start >= mark.num_tokens]
        self.chunks += other.chunks[mark.num_chunks :]
        self._messages += other._messages[mark.num_messages :]

    # -- reading -----------------------------------------------------------------------------------------------

    def token_ids(self) -> array[int]:
        """The ids of everything so far. Ends the run."""
        self._end_run()
        return array("i", self._token_ids)

    def prompt(self) -> array[int]:
        """The ids to generate from; an empty state generates from the beginning-of-text token. Ends the run.

        Raises:
            ProgramError: the state is empty and the model has no such token.
        """
        token_ids = self.token_ids()
        if not token_ids:
            if self._tokenizer.bos_id < 0:
                raise ProgramError("nothing to generate from: append some text first (this model has no BOS token)")
            token_ids.append(self._tokenizer.bos_id)
        return token_ids

    def branches(self, choices: Sequence[str]) -> tuple[array[int], list[list[int]]]:
        """The ids to score choices from, and the ids of each; then `append_scored`, before anything else is appended.

        A choice and the run before it become tokens together: after "a " the word is " word", one token. The
        prompt ends where the first of them goes its own way.

        Raises:
            ProgramError: as `prompt`.
        """
        run, encode = self._run, self._encode_run
        alone, together = encode(run) if run else [], [encode(run + choice) for choice in choices]
        size = min(_agreement(alone, ids) for ids in together)
        if not run or not (self._token_ids or size):  # nothing to go back over, or nothing would be left
            return self.prompt(), [self._encode_inside(choice) for choice in choices]
        return self._token_ids + array("i", alone[:size]), [ids[size:] for ids in together]

    def mark(self) -> Mark:
        """The position reached. Ends the run."""
        self._end_run()
        return Mark(len(self._token_ids), len(self.chunks), len(self._messages), self.open_role)

    def copy(self, num_chunks: int | None = None) -> Transcript:
        """An independent transcript with the same content: ids are copied, nothing is tokenised twice. Ends the run.

        With `num_chunks` it leaves out what has been shown after that many pieces, while the model still generates it.
        """
        self._end_run()
        twin = Transcript(self._tokenizer, self._format)
        twin._token_ids = array("i", self._token_ids)
        twin._messages = list(self._messages)
        twin._content_start = self._content_start
        twin.written = list(self.written)
        twin.chunks = self.chunks[:num_chunks]
        twin.open_role = self.open_role
        return twin

    # -- tokenising --------------------------------------------------------------------------------------------

    def _end_run(self) -> None:
        if self._run:
            self._token_ids.extend(self._encode_run(self._run))
            self._run = ""

    def _encode_run(self, text: str) -> list[int]:
        return self._encode_inside(text) if self._token_ids else self._tokenizer.encode_prompt(text)

    def _encode_inside(self, text: str) -> list[int]:
        is_message = self._messages or self.open_role is not None
        return self._tokenizer.encode_message(text) if is_message else self._tokenizer.encode(text)

    def _append_marker(self, text: str) -> None:
        """Special tokens as ids; plain text before and after them joins the runs on either side."""
        at_start = not self._token_ids and not self._run
        bos = self._bos_text
        if not at_start and not self._messages and bos:
            # The template begins a sequence, but there is text before its first message.
            text = text.removeprefix(bos)
        marker = self._format.marker(text, at_start=at_start)
        if text:
            self.chunks.append(text)
        self._run += marker.before
        if marker.token_ids:
            self._end_run()
            self._token_ids.extend(marker.token_ids)
        self._run += marker.after

    @property
    def _bos_text(self) -> str:
        return self._tokenizer.token_text(self._tokenizer.bos_id) if self._tokenizer.bos_id >= 0 else ""


def _agreement(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    size = min(len(one), len(other))
    return next((index for index in range(size) if one[index] != other[index]), size)


def kept_ids(tokenizer: TextTokenizer, token_ids: Sequence[int], text: str, *, ended: bool) -> list[int]:
    """The ids of generated text: as generated, without the end token, cut where a stop string cut the text.

    A stop string may begin inside a token. The tokens wholly inside the text stay as they are; what is left of the
    cut one is tokenised on its own. `ended`: the output ended by itself, so its last id may be an end token.
    """
    ids = list(token_ids)
    if ended and ids and not tokenizer.token_bytes(ids[-1]):
        ids.pop()
    if tokenizer.decode(ids) == text:
        return ids
    wanted = text.encode()
    end = count = 0
    for token_id in ids:
        piece = tokenizer.token_bytes(token_id)
        if wanted[end : end + len(piece)] != piece:
            break
        end += len(piece)
        count += 1
    # The last whole token may end inside a character: the rest of that character has no text of its own.
    while count and end < len(wanted) and wanted[end] & 0xC0 == 0x80:
        count -= 1
        end -= len(tokenizer.token_bytes(ids[count]))
    rest = wanted[end:].decode()
    return [*ids[:count], *(tokenizer.encode(rest) if rest else [])]
