"""Text that was shown is never taken back, and stop strings are found wherever tokens cut them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.runtime.sample.output_text import OutputText

WORDS = ["", "a", "b", "ab", "ba", "aabb", "\N{REPLACEMENT CHARACTER}"]
STOPS = st.lists(st.text("ab", min_size=1, max_size=4), max_size=3).map(tuple)


class Words:
    """Every token id is a word; an "a" is left over."""

    def push(self, token_id: int) -> str:
        return WORDS[token_id]

    def flush(self) -> str:
        return "a"

    def fork(self) -> Words:
        return self


def cut(text: str, num_before: int, stop: tuple[str, ...], includes_stop: bool) -> str | None:
    """The text up to the first stop string of those that end after its first characters; None if there is none."""
    found = [
        (at, end)
        for at in range(len(text))
        for end in range(max(at, num_before) + 1, len(text) + 1)
        if text[at:end] in stop
    ]
    return text[: min(found)[includes_stop]] if found else None


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_the_text_ends_at_the_first_stop_string_and_nothing_shown_is_taken_back(data: st.DataObject) -> None:
    """Whatever the words are, however often it is looked at; a fork goes on from there with stop strings of its own."""
    output, text, is_over = OutputText(Words(), stop := data.draw(STOPS)), "", False
    includes_stop, shown = False, ""
    for _ in range(data.draw(st.integers(0, 12))):
        what = data.draw(st.sampled_from(["push", "push", "push", "take", "fork"]))
        if what == "push":
            word, checks = data.draw(st.integers(0, len(WORDS) - 1)), data.draw(st.booleans())
            whole = text + WORDS[word]
            end = cut(whole, len(text), stop, includes_stop) if checks else None
            assert output.push(word, check_stop=checks) == output.stopped == (end is not None)
            text = whole if end is None else end
            if is_over := end is not None:
                break
        elif what == "fork":
            stop, includes_stop, shown = data.draw(STOPS), data.draw(st.booleans()), ""
            output = output.fork(stop, includes_stop=includes_stop)
        else:
            shown += output.take()
            assert text.startswith(shown)
            held = text[len(shown) :]
            assert any(one.startswith(held) for one in (*stop, "")), "nothing is held back without a reason"
    if not is_over:
        end = cut(text + "a", len(text), stop, includes_stop)
        text = text + "a" if end is None else end
    output.finish()
    assert shown + output.take() == text == output.text


class Letters(Words):
    """Every token id is one character."""

    def push(self, token_id: int) -> str:
        return chr(token_id)

    def flush(self) -> str:
        return ""


class Capitals:
    """Stop strings count where they begin with a capital."""

    def push(self, text: str) -> bytes:
        return bytes(character.isupper() for character in text)


@given(st.text("abAB", max_size=30), st.lists(st.text("abAB", min_size=1, max_size=4), max_size=3))
def test_a_stop_string_ends_the_text_only_where_it_counts(text: str, stop: list[str]) -> None:
    output = OutputText(Letters(), tuple(stop), guard=Capitals())
    shown = ""
    for character in text:
        ended = output.push(ord(character))
        shown += output.take()
        if ended:
            break
    output.finish()
    shown += output.take()
    found = [
        (at + len(s), at) for s in stop for at in range(len(text)) if text[at].isupper() and text.startswith(s, at)
    ]
    first = min(found, default=(0, len(text)))[0]
    expected = min((at for end, at in found if end == first), default=len(text))
    assert shown == output.text == text[:expected]


def test_what_follows_a_stop_string_within_its_token_is_cut() -> None:
    class Two(Words):
        def push(self, token_id: int) -> str:
            return ["one, ", "two; three"][token_id]

    output = OutputText(Two(), (";", "two; t"), includes_stop=True)
    assert not output.push(0) and output.push(1)
    assert output.text == "one, two; t", "the one that begins first"
