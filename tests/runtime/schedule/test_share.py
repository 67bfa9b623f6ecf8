"""A request's share of a step: as much as there is room for and no more; and what follows it while it is under way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phloem.runtime.request import Request, SamplingParams, TokenLogprob
from phloem.runtime.schedule.share import MOST_SCORED, scores_prompt, share, share_after

from .test_waiting_line import request


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Anywhere in its prompt or its output; some want their prompts scored, some have drafts."""
    prompt_len, max_tokens = draw(st.sampled_from([1, 2, 9, 700])), draw(st.integers(1, 6))
    one = request(0, [7] * prompt_len)
    one.max_tokens = max_tokens
    one.token_ids.extend([8] * draw(st.integers(0, max_tokens - 1)))
    one.num_computed_tokens = draw(st.integers(0, one.num_tokens - 1))
    one.draft = [9] * draw(st.integers(0, 8))
    wanted = draw(st.none() | st.integers(1, prompt_len))
    one.sampling = SamplingParams(prompt_logprobs_from=wanted)
    if wanted is not None:
        num_scored = min(max(0, one.num_computed_tokens - wanted + 1), prompt_len - wanted)
        one.prompt_logprobs = [TokenLogprob(7, 0.0)] * num_scored
    return one


@given(requests(), st.integers(0, 20) | st.just(2000))
def test_a_share_is_what_there_is_room_for(one: Request, budget: int) -> None:
    extend, wanted = share(one, budget), one.sampling.prompt_logprobs_from
    if budget == 0:
        assert extend is None
        return
    assert extend is not None and extend.start == one.num_computed_tokens and extend.unread == -1
    num_left = one.num_tokens - extend.start
    is_scored = wanted is not None and len(one.prompt_logprobs) < one.num_prompt_tokens - wanted
    assert scores_prompt(one) == is_scored
    assert extend.num_tokens == min(num_left, budget, MOST_SCORED if is_scored else num_left)
    room = min(budget - num_left, one.max_tokens - one.num_output_tokens - 1) if extend.reaches_end else 0
    assert extend.draft == one.draft[: max(0, room)]
    first = extend.end if not extend.reaches_end else one.num_tokens - 1  # whose next token is wanted
    if is_scored:
        assert wanted is not None
        first = min(first, wanted + len(one.prompt_logprobs) - 1)
    assert extend.num_wanted == max(0, extend.end - max(extend.start, first))


@given(requests(), st.integers(1, 20) | st.just(2000), st.integers(0, 20))
def test_what_follows_is_what_would_be_the_share_then(one: Request, budget: int, next_budget: int) -> None:
    one.draft, one.sampling = [], SamplingParams()
    extend = share(one, budget)
    assert extend is not None
    decides = extend.reaches_end
    found = share_after(extend, slice(3, 4) if decides else slice(3, 3), next_budget)
    one.num_computed_tokens = extend.end
    if decides:
        one.token_ids.append(8)
    truth = share(one, next_budget) if one.remaining_tokens > 0 else None
    assert (found is None) == (truth is None)
    if found is not None and truth is not None:
        assert (found.start, found.end, found.draft) == (truth.start, truth.end, [])
        assert found.num_wanted == truth.num_wanted
        assert found.unread == (3 if decides else -1)
