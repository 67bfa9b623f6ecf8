"""When an output ends, and of what it then consists, against the rules said one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phloem.errors import RequestError
from phloem.fsm import Compiler
from phloem.runtime.request import FinishReason, Request, SamplingParams
from phloem.runtime.sample.output_text import OutputText
from phloem.runtime.sample.stopping import append_decided

from ...fsm.vocabularies import BYTES
from ..fakes import EOS, ByteTokenizer
from ..schedule.test_waiting_line import request

A, B, C = b"abc"


def asked(sampling: SamplingParams, pattern: str | None = None) -> Request:
    one = request(0, [1, 2])
    one.sampling, one.max_tokens = sampling, sampling.max_tokens
    one.output = OutputText(ByteTokenizer().detokenizer(), sampling.stop)
    if pattern is not None:
        one.cursor = Compiler(BYTES).regex(pattern).cursor()
    return one


@given(
    st.lists(st.sampled_from([A, B, C, EOS]), max_size=9),
    st.booleans(),
    st.integers(1, 7),
    st.integers(0, 7),
    st.data(),
)
def test_it_ends_at_the_first_token_for_which_there_is_a_reason(
    token_ids: list[int], ignore_eos: bool, max_tokens: int, min_tokens: int, data: st.DataObject
) -> None:
    min_tokens = min(min_tokens, max_tokens)
    one = asked(SamplingParams(max_tokens, min_tokens=min_tokens, stop="b", stop_token_ids=(C,), ignore_eos=ignore_eos))
    end, truth, text = len(token_ids), None, ""
    for index, token_id in enumerate(token_ids):
        if index >= min_tokens and (token_id in (B, C) or (token_id == EOS and not ignore_eos)):
            end, truth = index + 1, FinishReason.STOP
            break
        text += chr(token_id) if token_id != EOS else ""
        if index + 1 == max_tokens:
            end, truth = index + 1, FinishReason.LENGTH
            break
    cut = data.draw(st.integers(0, end))  # tokens come in several steps
    reason = append_decided(one, token_ids[:cut], (EOS,)) if cut < end else None
    assert reason is None
    assert append_decided(one, token_ids[cut if cut < end else 0 :], (EOS,)) == truth
    assert list(one.token_ids) == [1, 2, *token_ids[:end]]
    assert one.usage.completion_tokens == end and one.output.text == text


@pytest.mark.parametrize(
    ("pattern", "token_ids", "max_tokens", "reason"),
    [
        ("ab?", [A], 1, FinishReason.STOP),  # complete, though it could go on
        ("ab?", [A], 2, None),
        ("ab?", [A, EOS], 3, FinishReason.STOP),
        ("ab?", [A, B], 3, FinishReason.STOP),  # nothing may follow
        ("ab", [A], 1, FinishReason.LENGTH),
        ("[ab]*", [A, B, A], 9, None),
    ],
)
def test_a_constraint_ends_where_it_is_complete(
    pattern: str, token_ids: list[int], max_tokens: int, reason: FinishReason | None
) -> None:
    one = asked(SamplingParams(max_tokens, ignore_eos=True), pattern)
    assert append_decided(one, token_ids, (EOS,)) == reason
    assert one.output.text == bytes(t for t in token_ids if t != EOS).decode()
    assert one.cursor is not None and one.cursor.num_consumed == len(token_ids)


def test_no_token_and_one_against_the_constraint_are_errors_and_nothing_is_generated_where_nothing_is_wanted() -> None:
    with pytest.raises(RequestError, match="not numbers"):
        append_decided(asked(SamplingParams(3)), [-1], (EOS,))
    with pytest.raises(RequestError, match="against the constraint"):
        append_decided(asked(SamplingParams(3), "a"), [B], (EOS,))
    one = asked(SamplingParams(0))
    assert append_decided(one, [A], (EOS,)) is FinishReason.LENGTH and one.num_output_tokens == 0


def test_a_constraint_that_allows_no_token_is_not_called_a_fault_of_the_model() -> None:
    with pytest.raises(RequestError, match="logits are not numbers"):
        append_decided(asked(SamplingParams(3), "abc"), [-1], (EOS,))
    with pytest.raises(RequestError, match="allows no token here, with 2 tokens left; this is an internal fault"):
        append_decided(asked(SamplingParams(2), "abc"), [-1], (EOS,))  # no budget for it is accepted
