"""Every bad input gets the status, shape and field that OpenAI's API would give, and leaves nothing behind."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest

from .bad_constraints import ENGINE_CASES
from .bad_inputs import PROTOCOL_CASES, Case
from .conftest import KEY, Served
from .fakes import FakeAsyncEngine
from .wire import Client, client


def check(case: Case, status: int, body: bytes) -> None:
    assert status == case.status, (case.name, status, body[:500])
    if status != 200:
        assert len(body) < 4000
        error = json.loads(body)["error"]
        assert {"message", "type", "param", "code"} <= set(error), case.name
        assert error["type"] == "invalid_request_error" and error["message"], case.name
        assert not re.search("array.* but got an array", error["message"]), error["message"]
        if case.param is not None:
            assert (error["param"] or "").startswith(case.param), (case.name, error)
        assert error["code"], case.name
        if case.code is not None:
            assert error["code"] == case.code, (case.name, error)


@pytest.fixture(scope="module")
def asked() -> Client:
    return client(FakeAsyncEngine())


@pytest.mark.parametrize("case", PROTOCOL_CASES, ids=lambda case: case.name)
def test_a_bad_input_never_reaches_the_engine(case: Case, asked: Client) -> None:
    asked.engine.calls.clear()
    answer = asked.request("POST", case.path, case.body, headers=case.headers)
    check(case, answer.status, answer.body)
    assert bool(asked.engine.calls) == (case.status == 200)
    assert asked.engine.num_open == 0


def post(served: Served, path: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
    address = urlsplit(served.url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=120)
    try:
        connection.request("POST", path, body, {**headers, "authorization": f"Bearer {KEY}"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize("case", ENGINE_CASES, ids=lambda case: case.name)
def test_a_constraint_is_enforced_or_refused(case: Case, served: Served) -> None:
    check(case, *post(served, case.path, case.body, case.headers))
    served.settle()


def test_all_bad_inputs_at_once_leave_the_pools_balanced(served: Served) -> None:
    cases = [case for case in PROTOCOL_CASES if "content-length" not in case.headers] + ENGINE_CASES

    def ask(case: Case) -> None:
        check(case, *post(served, case.path, case.body, case.headers))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, cases))
    served.settle()
    assert post(served, "/flush_cache", b"", {})[0] == 200
    statistics = served.settle()
    assert statistics.num_free_blocks == statistics.num_blocks
