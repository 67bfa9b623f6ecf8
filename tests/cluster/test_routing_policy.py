"""Where requests go, by counts."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.cluster.prefix_index import PrefixIndex
from phloem.cluster.routing_policy import MISSING_WEIGHT, NUM_LOOKS, Choice, RoutingPolicy


def made(num_replicas: int, seed: int = 1) -> RoutingPolicy:
    routing = RoutingPolicy(PrefixIndex(), 16, Random(seed))
    for number in range(num_replicas):
        routing.add(f"r{number}")
    return routing


def family(number: int, length: int = 64) -> list[int]:
    return [number * 1000 + depth for depth in range(length)]


def test_a_family_of_prompts_stays_where_its_first_went() -> None:
    routing = made(8)
    places: dict[int, set[str]] = {}
    for _ in range(6):
        for number in range(20):
            chain = family(number)
            best = routing.rank(chain, 64 * 16 + 5)[0]
            places.setdefault(number, set()).add(best.replica)
            routing.sent(best, chain)
            routing.index.store(best.replica, "GPU", chain)  # as its events will say
            routing.answered(best, chain)
    assert all(len(names) == 1 for names in places.values())
    assert len(set.union(*places.values())) > 4


def test_a_burst_of_new_equal_prompts_goes_to_one_place_until_it_is_too_busy() -> None:
    routing = made(4)
    counts = Counter(_send(routing, family(1), 64 * 16 + 1) for _ in range(10))
    assert len(counts) == 1  # a token each is cheaper than the whole prompt elsewhere
    for _ in range(3000):
        counts[_send(routing, family(1), 64 * 16 + 1)] += 1
    assert len(counts) == 4 and max(counts.values()) < 1600


def test_a_prompt_that_all_begin_with_pins_none() -> None:
    """Requests with one system prompt and each its own question: load decides, since all replicas have the prompt."""
    routing, rng = made(4), Random(5)
    for number in range(4):
        routing.index.store(f"r{number}", "GPU", family(0))
    counts = Counter(
        _send(routing, [*family(0), *(rng.getrandbits(60) for _ in range(8))], 72 * 16) for _ in range(400)
    )
    assert max(counts.values()) <= 110 and min(counts.values()) >= 90


def test_what_a_replica_reports_takes_the_place_of_what_was_known() -> None:
    routing = made(2)
    choice = Choice("r0", 0, 500)
    routing.sent(choice, [])
    routing.report("r0", 2000)
    assert routing.queued("r0") == 2000
    routing.answered(choice, [])  # was in the report, so less is there now
    assert routing.queued("r0") == 1500
    routing.report("r0", 0)
    routing.answered(choice, [])
    assert routing.queued("r0") == 0
    routing.sent(choice, [])
    assert routing.queued("r0") == 500, "what is sent counts at once, whatever was answered before"
    routing.report("r9", 5)
    assert routing.queued("r9") == 0


def test_one_that_is_gone_is_not_chosen_and_its_requests_may_end() -> None:
    routing = made(2)
    choice = Choice("r0", 0, 1024)
    routing.sent(choice, family(1))
    routing.forget("r0")
    assert names(routing.rank(family(1), 1030)) == ["r1"]
    routing.answered(choice, family(1))
    routing.add("new")
    assert sorted(names(routing.rank([], 10))) == ["new", "r1"] and routing.queued("new") == 0
    assert names(routing.rank(family(1), 1030, except_for=["r0", "new"])) == ["r1"]
    assert made(0).rank(family(1), 1030) == []


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**40), st.integers(1, 40))
def test_the_best_that_was_looked_at_is_first_and_nothing_is_lost(seed: int, num_replicas: int) -> None:
    rng, routing = Random(seed), made(num_replicas, seed)
    under_way = []
    for _ in range(80):
        chain = family(rng.randrange(6), 12)[: rng.randint(0, 12)]
        num_tokens = len(chain) * 16 + rng.randint(1, 40)
        out = rng.sample(sorted(routing.index.numbers), rng.randrange(num_replicas))
        ranked = routing.rank(chain, num_tokens, out)
        asked = [name for name in routing.index.numbers if name not in out]
        assert ranked and len(set(names(ranked))) == len(ranked) and set(names(ranked)) <= set(asked)
        assert all(choice.num_missing == _missing(routing, choice.replica, chain, num_tokens) for choice in ranked)
        costs = [MISSING_WEIGHT * choice.num_missing + routing.queued(choice.replica) for choice in ranked]
        assert costs == sorted(costs)
        longest = min(_missing(routing, name, chain, num_tokens) for name in asked)
        assert longest in [choice.num_missing for choice in ranked]
        routing.sent(ranked[0], chain)
        under_way.append((ranked[0], chain))
        if rng.random() < 0.6:
            routing.answered(*under_way.pop(rng.randrange(len(under_way))))
    for choice, chain in under_way:
        routing.answered(choice, chain)
    assert all(routing.queued(name) == 0 for name in routing.index.numbers)


def names(ranked: list[Choice]) -> list[str]:
    return [choice.replica for choice in ranked]


def _missing(routing: RoutingPolicy, name: str, chain: list[int], num_tokens: int) -> int:
    ((depth, _),) = routing.index.matches(chain, 1 << routing.index.numbers[name])
    return num_tokens - depth * 16


def _send(routing: RoutingPolicy, chain: list[int], num_tokens: int) -> str:
    best = routing.rank(chain, num_tokens)[0]
    routing.sent(best, chain)
    return best.replica


@given(st.integers(0, 2**40), st.integers(1, 600), st.floats(0, 1))
def test_those_that_are_looked_at_are_of_the_mask_and_each_may_be(seed: int, size: int, share: float) -> None:
    rng, routing = Random(seed), made(0, seed)
    members = {number for number in range(size) if rng.random() < share} or {size - 1}
    mask = sum(1 << number for number in members)
    seen: set[int] = set()
    for _ in range(40 * len(members) if len(members) < 8 else 1):
        some = routing._some(mask)
        assert len(some) == len(set(some)) == min(len(members), NUM_LOOKS) and set(some) <= members
        seen.update(some)
    assert seen == members or len(members) >= 8
