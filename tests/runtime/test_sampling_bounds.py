"""Numbers of sampling that float32 cannot divide by are refused at the border."""

from __future__ import annotations

import numpy as np
import pytest

from phloem import SamplingParams
from phloem.errors import RequestError


@pytest.mark.parametrize("name", ["top_p", "repetition_penalty"])
def test_what_is_accepted_has_an_inverse_in_float32(name: str) -> None:
    for exponent in range(-324, 1):
        value = float(f"1e{exponent}")
        try:
            SamplingParams(**{name: value})  # type: ignore[arg-type]
        except RequestError as error:
            assert error.param == name and exponent < -30
            continue
        assert np.float32(value) > 0 and np.isfinite(np.float32(1) / np.float32(value))
