"""Turn after turn nothing is computed twice, and remembered ids are only ever those of the very same text."""

from __future__ import annotations

import json

import pytest

import phloem as ph
from phloem.runtime.cache.reply_memory import ReplyMemory
from phloem.runtime.tokenizer.chat_template import ChatTemplate
from phloem.runtime.tokenizer.tokenizer import shows_marks

SAMPLED = ph.SamplingParams(max_tokens=24, temperature=1.5, seed=3)


@pytest.fixture(scope="module")
def engine() -> ph.Engine:
    return ph.Engine("nano")


def test_twenty_turns_hit_every_earlier_token_but_the_last(engine: ph.Engine) -> None:
    """Hot samples are spelled in ways the tokenizer would not choose: anew they would be other tokens."""
    messages: list[dict[str, str]] = []
    num_respelled = 0
    earlier = 0
    for turn in range(20):
        messages.append({"role": "user", "content": f"Question {turn}: which city?"})
        chat = engine.encode_chat(messages)
        num_respelled += list(chat.token_ids) != engine.tokenizer.apply_chat_template(messages)
        completion = engine.generate(chat.token_ids, SAMPLED, conversation=chat.text)
        assert completion.usage.cached_tokens >= earlier - 1
        ended = completion.token_ids[-1] in engine.tokenizer.eos_ids
        earlier = len(chat.token_ids) + len(completion.token_ids) - ended
        messages.append({"role": "assistant", "content": completion.text})
    assert num_respelled > 5


def test_a_chat_remembers_by_itself(engine: ph.Engine) -> None:
    messages = [{"role": "user", "content": "Tell me about blocks."}]
    first = engine.chat(messages, ph.SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True))
    messages += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "And trees?"}]
    second = engine.chat(messages, ph.SamplingParams(max_tokens=1))
    assert second.usage.cached_tokens >= first.usage.prompt_tokens + len(first.token_ids) - 1


def test_the_ids_say_the_text_whatever_is_remembered(engine: ph.Engine) -> None:
    tokenizer = engine.tokenizer
    memory = ReplyMemory()
    messages = [{"role": "user", "content": "Hi"}]
    pieces = tokenizer.chat_template.render(messages)
    opening = memory.encode(tokenizer, pieces, messages, "a")
    odd = [token for letter in "yes, yes" for token in tokenizer.encode(letter)]
    memory.remember(opening.text, "yes, yes", [*opening.token_ids, *odd], "a")
    for reply, namespace, is_known in [
        ("yes, yes", "a", True),
        ("yes, yes", "b", False),
        ("yes, yes!", "a", False),
        ("yes", "a", False),
        ("", "a", False),
    ]:
        longer = [*messages, {"role": "assistant", "content": reply}, {"role": "user", "content": "yes, yes"}]
        pieces = tokenizer.chat_template.render(longer)
        chat = memory.encode(tokenizer, pieces, longer, namespace)
        assert (chat.num_spliced_tokens > 0) == is_known
        assert tokenizer.decode(chat.token_ids) == tokenizer.decode(tokenizer.encode_pieces(pieces))
        if not is_known:
            assert list(chat.token_ids) == tokenizer.encode_pieces(pieces)


def test_an_earlier_turn_may_be_taken_up_again(engine: ph.Engine) -> None:
    tokenizer = engine.tokenizer
    memory = ReplyMemory()
    messages = [{"role": "user", "content": "one"}]
    for reply in ("two", "three"):
        chat = memory.encode(tokenizer, tokenizer.chat_template.render(messages), messages, "")
        memory.remember(chat.text, reply, [*chat.token_ids, *tokenizer.encode(reply)], "")
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": "more"}]
    branch = [*messages[:2], {"role": "user", "content": "other"}]
    chat = memory.encode(tokenizer, tokenizer.chat_template.render(branch), branch, "")
    assert chat.num_spliced_tokens > 0


def test_the_least_recently_used_reply_is_forgotten_first(engine: ph.Engine) -> None:
    tokenizer = engine.tokenizer
    memory = ReplyMemory(max_bytes=1000)
    prompts = [[{"role": "user", "content": f"number {index}"}] for index in range(3)]

    def recall(index: int) -> int:
        messages = [*prompts[index], {"role": "assistant", "content": "fine"}]
        return memory.encode(tokenizer, tokenizer.chat_template.render(messages), messages, "").num_spliced_tokens

    for messages in prompts:
        text = memory.encode(tokenizer, tokenizer.chat_template.render(messages), messages, "").text
        memory.remember(text, "fine", list(range(40)), "")
        assert recall(0) > 0
    assert [recall(index) > 0 for index in range(3)] == [True, False, True]


CALLING = (
    "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>' + (m.content or '') }}"
    "{% for call in m.tool_calls or [] %}<|user|>{{ call.function | tojson }}<|system|>{% endfor %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def test_a_reply_with_calls_between_special_tokens_is_spliced_and_only_if_it_says_the_same(engine: ph.Engine) -> None:
    tokenizer = engine.tokenizer
    special = tokenizer.special_ids
    template = ChatTemplate(CALLING, "test", token_texts={"bos_token": "<s>"}, special_texts=special)
    memory = ReplyMemory()
    asked = [{"role": "user", "content": "Who?"}]
    opening = memory.encode(tokenizer, template.render(asked), asked, "a")
    call = {"name": "find", "arguments": {"who": "<|user|> Ada"}}
    written = json.dumps(call)
    begin, end = written.split("<|user|>")
    odd = [token for letter in begin for token in tokenizer.encode(letter)]
    said = [special["<|user|>"], *odd, *tokenizer.encode("<|user|>" + end), special["<|system|>"]]
    text = f"<|user|>{written}<|system|>"
    assert tokenizer.show(said) == text
    assert not shows_marks(tokenizer, said, text), "a mark that was spelled is not the mark"

    call = {"name": "find", "arguments": {"who": "Ada"}}
    written = json.dumps(call)
    odd = [token for letter in written for token in tokenizer.encode(letter)]
    said = [special["<|user|>"], *odd, special["<|system|>"]]
    text = f"<|user|>{written}<|system|>"
    assert shows_marks(tokenizer, said, text)
    memory.remember(opening.text, text, [*opening.token_ids, *said], "a", has_marks=True)

    def spliced(namespace: str, **message: object) -> int:
        messages = [*asked, {"role": "assistant", **message}, {"role": "user", "content": "And?"}]
        pieces = template.render(messages)
        chat = memory.encode(tokenizer, pieces, messages, namespace)
        assert tokenizer.show(chat.token_ids) == tokenizer.show(tokenizer.encode_pieces(pieces))
        if chat.num_spliced_tokens:
            assert list(chat.token_ids[: chat.num_spliced_tokens]) == [*opening.token_ids, *said]
        else:
            assert list(chat.token_ids) == tokenizer.encode_pieces(pieces)
        return chat.num_spliced_tokens

    calls = [{"type": "function", "function": call}]
    assert spliced("a", content=None, tool_calls=calls) == len(opening.token_ids) + len(said)
    assert spliced("b", content=None, tool_calls=calls) == 0, "another namespace"
    assert spliced("a", content=None, tool_calls=[{"function": {**call, "name": "lose"}}]) == 0, "another call"
    assert spliced("a", content=text) == 0, "marks in a text are text"


@pytest.mark.parametrize("seed", range(4))
def test_of_a_reply_that_was_cut_all_that_comes_back_is_a_hit(engine: ph.Engine, seed: int) -> None:
    """A client that leaves has a part of what was generated; hot samples are spelt in ways of their own."""
    messages = [{"role": "user", "content": f"Tell me about number {seed}."}]
    chat = engine.encode_chat(messages)
    sampling = ph.SamplingParams(max_tokens=200, temperature=1.5, seed=seed, ignore_eos=True)
    stream = engine.submit(chat.token_ids, sampling, conversation=chat.text)
    had = ""
    for number, delta in enumerate(stream):
        had += delta.text
        if number == 30 + seed:
            stream.abort()
    engine.generate([1], ph.SamplingParams(max_tokens=1))  # after the abort, on the step thread
    messages += [{"role": "assistant", "content": had}, {"role": "user", "content": "And then?"}]
    again = engine.encode_chat(messages)
    assert engine.tokenizer.decode(again.token_ids) == engine.tokenizer.decode(
        engine.tokenizer.apply_chat_template(messages)
    )
    assert again.num_spliced_tokens >= len(chat.token_ids) + 20
    usage = engine.generate(again.token_ids, ph.SamplingParams(max_tokens=1)).usage
    assert usage.cached_tokens >= again.num_spliced_tokens - 1


def test_every_beginning_of_a_cut_reply_is_said_by_its_ids(engine: ph.Engine) -> None:
    tokenizer = engine.tokenizer
    memory, messages = ReplyMemory(), [{"role": "user", "content": "Hi"}]
    opening = memory.encode(tokenizer, tokenizer.chat_template.render(messages), messages, "a")
    reply = "Häuser, 日本 and trees 🌳 of letters"
    odd = [token for letter in reply for token in tokenizer.encode(letter)]
    memory.remember_cut(opening.text, tokenizer.decode(odd), [*opening.token_ids, *odd], len(opening.token_ids), "a")
    for length in range(1, len(reply) + 1):
        turns = [*messages, {"role": "assistant", "content": reply[:length]}, {"role": "user", "content": "Go on"}]
        pieces = tokenizer.chat_template.render(turns)
        found = memory.encode(tokenizer, pieces, turns, "a")
        assert tokenizer.decode(found.token_ids) == tokenizer.decode(tokenizer.encode_pieces(pieces))
        assert memory.encode(tokenizer, pieces, turns, "b").num_spliced_tokens == 0
    other = [*messages, {"role": "assistant", "content": "Haus"}, {"role": "user", "content": "Go on"}]
    assert memory.encode(tokenizer, tokenizer.chat_template.render(other), other, "a").num_spliced_tokens == 0
