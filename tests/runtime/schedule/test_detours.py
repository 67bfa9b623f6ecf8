"""Detours against a list of all that were ever made."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.radix import pack
from phloem.runtime.request import Phase, Request
from phloem.runtime.schedule import detours
from phloem.runtime.schedule.detours import Detours

from .test_waiting_line import request

BLOCK_SIZE = 4


@pytest.mark.parametrize("many", [detours.MANY, 3])
def test_room_is_kept_for_what_is_there_and_needed_of_those_that_do_not_run(
    many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the tree has of a detour, and what a request needs of it, only gets less."""
    monkeypatch.setattr(detours, "MANY", many)

    @settings(max_examples=100, deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        made: list[Request] = []
        cached: dict[tuple[str, bytes], int] = {}
        needed: dict[tuple[str, bytes], int] = {}
        tree = SimpleNamespace(
            peek=lambda tokens, space: min(
                len(tokens) >> 2, max((n for (s, t), n in cached.items() if (s, t[: len(tokens)]) == (space, tokens)))
            )
        )
        found = Detours(
            SimpleNamespace(tree=tree, block_size=BLOCK_SIZE),  # type: ignore[arg-type]
            lambda namespace, tokens: needed[namespace, tokens],
        )
        for ticket in range(data.draw(st.integers(1, 8))):
            one = request(ticket, [ticket] * data.draw(st.integers(1, 30)), namespace=data.draw(st.sampled_from("ab")))
            one.phase = Phase.RUNNING
            key = one.namespace, pack(one.token_ids)
            made.append(one)
            cached[key] = needed[key] = one.num_tokens
            found.add(one, key[1])
            assert one in found
            for _ in range(data.draw(st.integers(0, 4))):
                other = data.draw(st.sampled_from(made))
                key = other.namespace, pack(other.token_ids)
                what = data.draw(st.sampled_from(["end", "evict", "serve"]))
                if what == "end":
                    other.phase = Phase.FINISHED
                else:
                    of = cached if what == "evict" else needed
                    of[key] = data.draw(st.integers(0, of[key]))
            num_blocks = data.draw(st.integers(0, 40))
            idle = [
                min(cached[key], needed[key])
                for other in made
                if other.phase is not Phase.RUNNING and (key := (other.namespace, pack(other.token_ids)))
            ]
            assert found.fit(num_blocks) == (num_blocks >= sum(-(-number // BLOCK_SIZE) for number in idle))
            found.fit(0)  # looks which of them are over
            assert all(other in found for other in made if other.phase is Phase.RUNNING)
            alive = [other for other in made if other in found and other.phase is not Phase.RUNNING]
            assert len(alive) == sum(number > 0 for number in idle)

    check()
