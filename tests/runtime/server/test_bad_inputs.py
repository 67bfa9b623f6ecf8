"""Every bad input gets the status, shape and field that OpenAI's API would give, and leaves nothing behind."""

from __future__ import annotations

import pytest

from .bad_inputs import PROTOCOL_CASES, Case
from .fakes import FakeAsyncEngine
from .wire import client


@pytest.mark.parametrize("case", PROTOCOL_CASES, ids=lambda case: case.name)
def test_a_bad_input_is_answered_with_its_own_status(case: Case) -> None:
    asked = client(FakeAsyncEngine())
    answer = asked.request("POST", case.path, case.body, headers=case.headers)
    assert answer.status == case.status, answer.body[:500]
    if case.status != 200:
        error = answer.error
        assert error["type"] == "invalid_request_error" and error["message"]
        assert len(answer.body) < 4000
        if case.param is not None:
            assert (error["param"] or "").startswith(case.param), error
        if case.code is not None:
            assert error["code"] == case.code, error
        assert asked.engine.calls == []
    assert asked.engine.num_open == 0
