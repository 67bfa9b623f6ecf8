"""Order and fairness, seen from outside: which request is computed when, and how much of it."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phloem.errors import DeadlineExceeded, RequestError
from phloem.runtime.request import FinishReason, Phase, SamplingParams

from ..fakes import EOS, NEVER, BlankDecoder, expect_short_answers, fake_engine

ONE = SamplingParams(max_tokens=1, temperature=0.0)


@pytest.mark.parametrize("bound", [0, 5, 20, None])
def test_a_cold_request_is_overtaken_a_bounded_number_of_times(bound: int | None) -> None:
    engine = fake_engine(max_running_requests=1, max_overtakes=bound, num_blocks=128)
    bound = 256 if bound is None else bound  # where fewer wait
    hot = list(range(30))
    engine.generate([*hot, 1], ONE)
    for i in range(3):
        engine.add([*hot, i], ONE)
    cold = engine.add([255] * 30, ONE, request_id="cold")
    done = [delta.request_id for delta in engine.step() if delta.finish_reason]
    came_later: set[str] = set()
    while cold not in done:
        came_later.add(engine.add([*hot, len(came_later) % 250], ONE))  # endless hot traffic
        done += [delta.request_id for delta in engine.step() if delta.finish_reason]
        assert len(came_later & set(done)) <= bound


class Clock:
    """A clock that stands until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("bound", [0.0, 5.0, 40.0])
@pytest.mark.parametrize("priority", [0, 9])
def test_no_request_waits_longer_than_the_set_age(bound: float, priority: int) -> None:
    """Endless hot traffic, of a higher priority even, that could overtake one cold request for ever."""
    clock = Clock()
    engine = fake_engine(clock, max_running_requests=1, max_overtakes=10**9, max_wait_seconds=bound, num_blocks=128)
    hot = list(range(30))
    for i in range(3):
        engine.add([*hot, i], ONE, priority=priority)
    cold = engine.add([255] * 30, ONE)
    done: list[str] = []
    while cold not in done:
        engine.add([*hot, int(clock.now) % 250], ONE, priority=priority)
        done += [delta.request_id for delta in engine.step() if delta.finish_reason]
        clock.now += 1.0
        assert clock.now <= bound + 8  # a step each for the one that runs, those that are older, and its own prompt


def test_without_the_age_bound_the_hot_traffic_starves_it() -> None:
    """The counter-proof of the test above."""
    clock = Clock()
    engine = fake_engine(clock, max_running_requests=1, max_overtakes=10**9, max_wait_seconds=1e9, num_blocks=128)
    hot = list(range(30))
    engine.add([*hot, 1], ONE, priority=1)
    engine.add([255] * 30, ONE, request_id="cold")
    for i in range(200):
        engine.add([*hot, i], ONE, priority=1)
        clock.now += 1.0
        assert "cold" not in [delta.request_id for delta in engine.step()]


def test_a_request_past_its_deadline_ends_with_an_error_and_costs_no_other_request() -> None:
    clock = Clock()
    engine = fake_engine(clock, max_running_requests=1)
    long = engine.add([1] * 9, SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True))
    late = engine.add([2] * 9, ONE, deadline_seconds=3.0)
    patient = engine.add([3] * 9, ONE, deadline_seconds=1000.0)
    ends: dict[str, tuple[float, RequestError | None]] = {}
    tokens: dict[str, list[int]] = {long: [], late: [], patient: []}
    while engine.has_work:
        clock.now += 1.0
        for delta in engine.step():
            tokens[delta.request_id] += delta.token_ids
            if delta.finish_reason:
                ends[delta.request_id] = clock.now, delta.error
    assert ends[late][0] == 3.0 and isinstance(ends[late][1], DeadlineExceeded) and not tokens[late]
    assert ends[long][1] is ends[patient][1] is None
    alone = fake_engine(max_running_requests=1)
    params = SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True)
    assert tuple(tokens[long]) == alone.generate([1] * 9, params).token_ids
    assert tuple(tokens[patient]) == alone.generate([3] * 9, ONE).token_ids


def test_a_deadline_says_nothing_of_requests_that_run() -> None:
    clock = Clock()
    engine = fake_engine(clock, num_blocks=12, max_running_requests=4)
    params = SamplingParams(max_tokens=16, temperature=0.0, ignore_eos=True)
    for i in range(2):
        engine.add([i] * 5, params, deadline_seconds=2.0)
    reasons = []
    while engine.has_work:
        reasons += [delta.finish_reason for delta in engine.step() if delta.finish_reason]
        clock.now += 1.0
    assert reasons == [FinishReason.LENGTH] * 2


def test_a_deadline_that_is_over_before_it_begins_is_refused() -> None:
    with pytest.raises(RequestError, match="deadline_seconds"):
        fake_engine().add([1], ONE, deadline_seconds=0.0)
    with pytest.raises(RequestError, match="deadline: a request has no such option; there are request_id, adapter"):
        fake_engine().add([1], ONE, deadline=1.0)  # type: ignore[call-arg]


def test_priority_goes_first() -> None:
    engine = fake_engine(max_running_requests=1)
    low = engine.add([1], ONE)
    high = engine.add([2], ONE, priority=5)
    assert [delta.request_id for _ in range(2) for delta in engine.step()] == [high, low]


def test_a_long_prompt_does_not_stop_others_from_decoding() -> None:
    engine = fake_engine(num_blocks=512, max_batch_tokens=8)
    quick = engine.add([1], SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True))
    engine.step()
    engine.add([7] * 400, ONE)
    for _ in range(10):
        assert quick in [delta.request_id for delta in engine.step()]


@pytest.mark.parametrize("ends", [{"ignore_eos": True}, {"ignore_eos": True, "stop_token_ids": (EOS,)}])
@pytest.mark.parametrize("num_blocks", [24, 40, 60])
def test_a_cold_engine_takes_in_no_more_than_it_can_bring_to_an_end(num_blocks: int, ends: dict[str, object]) -> None:
    """It has seen no request end yet: whether their length is known or not, none is preempted."""
    params = SamplingParams(max_tokens=30, temperature=0.0, logit_bias={EOS: -100.0}, **ends)  # type: ignore[arg-type]
    engine = fake_engine(num_blocks=num_blocks, lookup_drafts=False)
    for number in range(8):
        engine.add([number, *range(10)], params)
    most = 0
    while engine.has_work:
        engine.step()
        most = max(most, engine.statistics().num_running)
    now = engine.statistics()
    assert now.num_preemptions == 0 and now.num_computed_tokens == 8 * (11 + 29)
    assert most >= num_blocks // 11  # a request fills ten blocks


ASKED = st.tuples(st.integers(0, 2), st.integers(1, 20), st.integers(1, 30), st.integers(0, 20))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=3, max_size=3), st.lists(ASKED, min_size=2, max_size=12), st.integers(0, 40)
)
@example([7, 0, 0], [(0, 1, 1, 0), (0, 1, 1, 0), (0, 1, 2, 0), (0, 1, 2, 0)], 1)
def test_none_is_preempted_where_all_lengths_are_known(
    shared: list[int], asked: list[tuple[int, int, int, int]], room: int
) -> None:
    """Whatever prefixes they share, whenever they come: what one held alone is shared once another has leased it."""
    todo = [
        (comes_at, [family] * shared[family] + [100 + number] * own, max_tokens)
        for number, (family, own, max_tokens, comes_at) in enumerate(asked)
    ]
    least = max(-(-(len(prompt) + max_tokens) // 4) for _, prompt, max_tokens in todo)
    engine = fake_engine(decoder=BlankDecoder(), num_blocks=least + room, lookup_drafts=False)
    for step in range(2000):
        for comes_at, prompt, max_tokens in todo:
            if comes_at == step:
                engine.add(prompt, SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True))
        engine.step()
        if step > 20 and not engine.has_work:
            break
    assert engine.statistics().num_finished == len(asked)
    assert engine.statistics().num_preemptions == 0


def test_lengths_that_are_known_teach_nothing_about_those_that_are_not() -> None:
    """Prompts that are only scored, or outputs of a fixed length, do not make it expect long answers."""
    most = {}
    for teaches in (False, True):
        engine = fake_engine(num_blocks=120)
        expect_short_answers(engine)
        if teaches:
            engine.generate([[99, n] for n in range(100)], SamplingParams(max_tokens=0))
            engine.generate([[98, n] for n in range(100)], SamplingParams(max_tokens=3, ignore_eos=True))
        engine.flush_cache()
        for number in range(40):
            engine.add([number], SamplingParams(max_tokens=300, logit_bias={EOS: -100.0}))
        engine.step()
        most[teaches] = engine.statistics().num_running
    assert most[True] == most[False] > 3


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 40), st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 60), st.integers(1, 9))
def test_while_prompts_are_left_every_step_is_full(num_known: int, rests: list[int], budget: int, num_hot: int) -> None:
    """Whatever the tree has of them, and whichever requests decode in the same steps."""
    engine = fake_engine(num_blocks=1024, max_batch_tokens=budget, decoder=BlankDecoder(), lookup_drafts=False)
    known = list(range(num_known))
    engine.generate([*known, 255], ONE)
    hot = SamplingParams(max_tokens=400, temperature=0.0, ignore_eos=True)
    for number in range(min(num_hot, budget - 1)):
        engine.add([200 + number], hot)
    engine.step()
    for number, rest in enumerate(rests):
        engine.add([*known, *[100 + number] * rest], ONE)
    computed = []
    while engine.statistics().num_finished <= len(rests):
        before = engine.statistics().num_computed_tokens
        engine.step()
        computed.append(engine.statistics().num_computed_tokens - before)
    assert computed[:-1] == [budget] * (len(computed) - 1)
    assert sum(computed) == sum(rests) + len(computed) * min(num_hot, budget - 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.lists(st.integers(1, 9), min_size=1, max_size=5), st.sampled_from([1, 4, 16]))
def test_what_prompts_that_come_together_share_is_computed_once(shared: int, rests: list[int], block_size: int) -> None:
    """If it is a block, or more than half of a prompt: for less none waits."""
    engine = fake_engine(num_blocks=512, block_size=block_size, decoder=BlankDecoder())
    prompts = [[*range(shared), *[100 + number] * rest] for number, rest in enumerate(rests)]
    engine.generate(prompts, ONE)
    if all(shared > min(block_size - 1, (len(prompt) - 1) // 2) for prompt in prompts):
        assert engine.statistics().num_computed_tokens == shared + sum(rests)


@pytest.mark.parametrize("settings_", [{}, {"prefix_cache": False}], ids=str)
def test_none_waits_for_what_is_never_shared(settings_: dict[str, bool]) -> None:
    """Of another namespace, or where nothing is."""
    engine = fake_engine(**settings_)
    for namespace in ("a", "b") if not settings_ else ("", ""):
        engine.add([7] * 30, ONE, namespace=namespace)
    assert len(engine.step()) == 2


@pytest.mark.parametrize("seed", range(6))
def test_who_is_preempted_is_of_the_lowest_priority_and_never_the_oldest(seed: int) -> None:
    """And in each step the oldest goes on."""
    engine = fake_engine(num_blocks=24)
    expect_short_answers(engine)
    params = SamplingParams(max_tokens=30, temperature=0.0, ignore_eos=True, stop=NEVER)
    source = random.Random(seed)
    for number in range(8):
        engine.add([number, *range(source.randrange(4, 12))], params, priority=source.randrange(3))
    scheduler, num_preempted = engine._scheduler, 0
    while engine.has_work:
        running = {request: request.usage.num_preemptions for request in scheduler.running}
        deltas = engine.step()
        victims = [request for request, number in running.items() if request.usage.num_preemptions > number]
        num_preempted += len(victims)
        if running:
            oldest, *others = running
            assert oldest not in victims
            assert oldest.request_id in [delta.request_id for delta in deltas]
            spared = [request for request in others if request not in victims and request.phase is Phase.RUNNING]
            assert max([0, *(victim.priority for victim in victims)]) <= min([9, *(one.priority for one in spared)])
    assert num_preempted > 0


def test_of_two_with_the_same_priority_the_one_with_fewer_blocks_goes() -> None:
    engine = fake_engine(num_blocks=20)
    expect_short_answers(engine)
    params = SamplingParams(max_tokens=30, temperature=0.0, ignore_eos=True, stop=NEVER)
    lengths = {engine.add([number] * length, params): length for number, length in enumerate((9, 20, 5, 14))}
    preempted: list[str] = []
    requests = {name: engine._requests[name][0] for name in lengths}
    while not preempted:
        engine.step()
        preempted = [name for name, request in requests.items() if request.usage.num_preemptions]
    assert [lengths[name] for name in preempted] == [5]


def test_a_draft_that_finds_no_room_is_given_up_before_a_request_is_preempted() -> None:
    """The one runs while the other, which drafts all the rest of its text in every step, has not its later length."""
    engine = fake_engine(num_blocks=12, jump="off")
    short = engine.add([1] * 4, SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True))
    long = engine.add([2] * 4, SamplingParams(max_tokens=40, temperature=0.0, ignore_eos=True))
    drafting = engine._requests[long][0]
    while engine.has_work:
        drafting.draft = [7] * 40
        deltas = engine.step()
        assert long in [delta.request_id for delta in deltas]
        assert engine.statistics().num_finished or short in [delta.request_id for delta in deltas]
    assert engine.statistics().num_preemptions == 0 and engine.statistics().drafted_tokens > 40


def test_preempted_requests_resume_from_the_tree() -> None:
    """What was computed before a preemption is found again, so little is computed twice."""
    engine = fake_engine(num_blocks=24)
    expect_short_answers(engine)
    before = engine.statistics().num_computed_tokens
    batch = [[i, *range(10)] for i in range(8)]
    params = SamplingParams(max_tokens=30, temperature=0.0, ignore_eos=True, stop=NEVER)
    completions = engine.generate(batch, params)
    now = engine.statistics()
    assert now.num_preemptions > 0
    needed = sum(completion.usage.prompt_tokens + 29 for completion in completions)
    assert now.num_computed_tokens - before < 1.5 * needed
