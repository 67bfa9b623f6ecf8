"""What the cache says of itself: occupancy that adds up, and the caches that might have been."""

from __future__ import annotations

import random
import re
from html import escape

from phloem.radix import POLICIES
from phloem.runtime.cache.cache_report import CacheReport
from phloem.runtime.request import SamplingParams

from ..fakes import fake_engine

ONE = SamplingParams(max_tokens=1, temperature=0.0)


def busy_engine(**settings: object):  # type: ignore[no-untyped-def]
    engine = fake_engine(num_blocks=32, **settings)
    source = random.Random(0)
    for _ in range(60):
        family = source.randrange(6)
        engine.generate([family, *range(19), *source.choices(range(250), k=4)], ONE)
    return engine


def test_the_four_parts_add_up_to_the_pool_while_requests_run() -> None:
    engine = busy_engine()
    engine.pin(list(range(9)))
    for i in range(3):
        engine.add([i, *range(14)], SamplingParams(max_tokens=9, ignore_eos=True))
    while engine.has_work:
        engine.step()
        now = engine.cache_report(asks_what_if=False)
        parts = now.num_free_blocks + now.num_evictable_blocks + now.num_leased_blocks + now.num_held_blocks
        assert parts == now.num_blocks == 32
        assert now.num_pinned_blocks == 2 <= now.num_leased_blocks


def test_larger_pools_would_have_hit_more_and_nothing_beats_the_optimum() -> None:
    report = busy_engine().cache_report()
    rates = {(entry.policy, entry.share): entry.hit_rate for entry in report.what_if}
    assert set(rates) == {
        *((policy, share) for policy in ("lru", "optimum") for share in (0.5, 1, 2, 4)),
        *((policy, 1) for policy in POLICIES),
    }
    assert rates["lru", 0.5] < rates["lru", 1] < rates["lru", 4]
    assert all(rate <= rates["optimum", share] + 1e-9 for (_, share), rate in rates.items())
    assert report.regret == rates["optimum", 1] - rates["lru", 1] > 0


def test_asking_changes_nothing() -> None:
    engine = busy_engine()
    before = engine.statistics(), engine.prefix_cache.tree.statistics
    engine.cache_report()
    assert before == (engine.statistics(), engine.prefix_cache.tree.statistics)


def test_a_report_survives_json_and_prints_its_figures() -> None:
    report = busy_engine().cache_report()
    assert CacheReport.from_data(report.as_data()) == report
    text = str(report)
    assert "pool of 32 blocks of 4 tokens" in text and "optimum, 4x" in text and "regret of lru" in text
    assert len({line.index("%") for line in text.splitlines() if "█" in line}) == 1  # the bars stand in a column
    assert re.fullmatch(f"<pre[^>]*>{re.escape(escape(text))}</pre>", report._repr_html_())


def test_the_tree_is_shown_as_text_or_not_at_all() -> None:
    engine = fake_engine()
    engine.generate("a secret of another tenant", ONE)
    assert "a secret" in str(engine.cache_report())
    assert "secret" not in str(engine.cache_report(shows_tree=False).as_data())


def test_the_record_is_bounded_and_forgotten_at_the_end() -> None:
    engine = fake_engine(check_invariants=False)
    for i in range(2100):
        engine.add([i % 250], SamplingParams(max_tokens=0))
    while engine.has_work:
        engine.step()
    assert engine.cache_report(asks_what_if=False).num_recorded_requests == 2000
    engine.close()
    assert engine.core.monitor.cache_state()[0].num_recorded_requests == 0
