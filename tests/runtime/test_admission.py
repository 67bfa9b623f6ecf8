"""The forecast of the pool against a simulation of it, token by token."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phloem.runtime.admission import Outlook, OutputForecast, peak_demand

BLOCK_SIZE = 4

requests = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 40), st.integers(0, 12)), min_size=1, max_size=8
)  # remaining tokens, tokens known, blocks held


def simulate(futures: list[tuple[int, int, int]]) -> int:
    """Blocks needed beyond those held now, at the worst moment, if each grows a token a step and ends in time."""
    worst = 0
    for step in range(61):
        needed = 0
        for remaining, known, held in futures:
            if remaining >= step:
                needed += max(-(-(known + step) // BLOCK_SIZE) - held, 0)
            else:
                needed -= held
        worst = max(worst, needed)
    return worst


@given(requests)
def test_the_forecast_peak_is_that_of_a_simulation_but_for_half_filled_blocks(
    futures: list[tuple[int, int, int]],
) -> None:
    futures = [(remaining, max(known, held * BLOCK_SIZE - BLOCK_SIZE + 1), held) for remaining, known, held in futures]
    outlooks = [Outlook(remaining, known - held * BLOCK_SIZE, held) for remaining, known, held in futures]
    assert abs(peak_demand(outlooks, BLOCK_SIZE) - simulate(futures)) <= 1 + len(futures) / 2


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=400), st.integers(0, 100))
def test_the_forecast_is_the_mean_of_those_that_came_further(shares: list[float], num_tokens: int) -> None:
    forecast = OutputForecast()
    for share in shares:
        forecast.observe(round(share * 10_000), 10_000)
    recent = [round(share * 10_000) / 10_000 for share in shares[-256:]]
    longer = [share for share in recent if share > num_tokens / 100]
    mean = sum(longer) / len(longer) if longer else (1 + num_tokens / 100) / 2
    expected = min(100 - num_tokens, round(max(1, mean * 100 - num_tokens)))
    assert abs(forecast.remaining(num_tokens, 100) - expected) <= 1


def test_a_preemption_makes_the_forecast_cautious_until_requests_end_in_peace() -> None:
    forecast = OutputForecast()
    for _ in range(300):
        forecast.observe(10, 100)
    assert forecast.remaining(0, 100) == 10
    forecast.was_wrong()
    assert forecast.remaining(0, 100) > 10
    for _ in range(4):
        forecast.was_wrong()
    assert forecast.remaining(0, 100) == 100
    for _ in range(300):
        forecast.observe(10, 100)
    assert forecast.remaining(0, 100) <= 11
