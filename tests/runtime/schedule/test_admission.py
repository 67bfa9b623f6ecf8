"""The forecast of the pool against a simulation of it, token by token."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from phloem.runtime.schedule.admission import Outlook, OutputForecast, peak_demand

BLOCK_SIZE = 4

requests = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 40), st.integers(0, 12), st.booleans()), min_size=1, max_size=8
)  # remaining tokens, tokens known, blocks held, whether it grows


def simulate(futures: list[tuple[int, int, int, bool]]) -> int:
    """Blocks needed beyond those held now, at the worst moment, if each computes a token a step and ends in time: all
    it knows in the first, its last but one in the last. One that does not grow needs room for what it knows, and no
    more."""
    worst = 0
    for step in range(61):
        needed = 0
        for remaining, known, held, grows in futures:
            if step < max(remaining, 1):
                needed += -(-(known + step * grows) // BLOCK_SIZE) - held
            else:
                needed -= held
        worst = max(worst, needed)
    return worst


@given(requests)
def test_the_forecast_peak_is_that_of_a_simulation(futures: list[tuple[int, int, int, bool]]) -> None:
    futures = [
        (remaining, max(known, held * BLOCK_SIZE - BLOCK_SIZE + 1), held, grows)
        for remaining, known, held, grows in futures
    ]
    outlooks = [Outlook(remaining, known - held * BLOCK_SIZE, held, grows) for remaining, known, held, grows in futures]
    assert peak_demand(outlooks, BLOCK_SIZE) == simulate(futures)


@given(st.lists(st.floats(0.01, 1), max_size=400), st.integers(0, 100), st.sampled_from([1, 30]))
def test_the_forecast_is_the_mean_of_those_that_came_further_and_of_four_that_used_what_is_likely(
    shares: list[float], num_tokens: int, scale: int
) -> None:
    forecast = OutputForecast()
    for share in shares:
        forecast.observe(round(share * 10_000), 10_000)
    recent = [round(share * 10_000) / 10_000 for share in shares[-256:]]
    max_tokens, num_tokens = 100 * scale, num_tokens * scale
    likely = max(min(1024, max_tokens), (max_tokens + num_tokens) / 2)
    lengths = [share * max_tokens for share in recent if share > num_tokens / max_tokens] + 4 * [likely]
    expected = min(max_tokens - num_tokens, round(max(1, sum(lengths) / len(lengths) - num_tokens)))
    assert abs(forecast.remaining(num_tokens, max_tokens) - expected) <= 1


def test_what_is_believed_of_the_first_requests_fades_with_each_that_ends() -> None:
    forecast = OutputForecast()
    forecasts = [forecast.remaining(0, 100)]
    for _ in range(60):
        forecast.observe(10, 100)
        forecasts.append(forecast.remaining(0, 100))
    assert forecasts[0] == 100 and forecasts[60] <= 16
    assert forecasts == sorted(forecasts, reverse=True)
    assert max(before - after for before, after in itertools.pairwise(forecasts)) <= 20


def test_a_preemption_makes_the_forecast_cautious_until_requests_end_in_peace() -> None:
    forecast = OutputForecast()
    for _ in range(300):
        forecast.observe(10, 100)
    peaceful = forecast.remaining(0, 100)
    assert 10 <= peaceful <= 12
    forecast.was_wrong()
    assert forecast.remaining(0, 100) > peaceful + 10
    for _ in range(4):
        forecast.was_wrong()
    assert forecast.remaining(0, 100) == 100
    for _ in range(300):
        forecast.observe(10, 100)
    assert forecast.remaining(0, 100) <= 12
