"""Large scores of an item that several CTAs share: what each has found is brought together as
exactly as one CTA would have found it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.kernels.attention.test_large_scores import run_contracted
from tests.kernels.attention_decode.large_scores import TILE, shared_item
from tilepipe.kernels.attention_decode.config import DecodeConfig
from tilepipe.kernels.attention_decode.sm90 import bind

pytestmark = pytest.mark.slow
FORMS: dict[str, dict[str, Any]] = {
    "columns": {"heads": 8},
    "rows": {"heads": 20},
    "columns of 8 bits": {"heads": 8, "cache": tp.float8_e4m3},
    "rows of 8 bits": {"heads": 20, "cache": tp.float8_e4m3},
}


@pytest.mark.sampled(suite=2, classes=lambda exponent, form: [form])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("exponent", [27, 24, 20, 10])
def test_parts_are_combined_by_their_totals(exponent: int, form: str) -> None:
    """Parts that have the same largest score, 40 and 13 times; then one more, which has none. In a
    logarithm of 2^20, log(40) and log(13) have two or three bits.
    """
    for counts in (40, 13), (40, 13, 0, 1):
        given, exact, logarithm = shared_item(2.0**exponent, counts, **FORMS[form])
        out, lse = tp.ops.attention_decode(**given, bn=TILE, return_lse=True)
        np.testing.assert_allclose(out.astype(np.float64), exact, rtol=2**-8)
        np.testing.assert_allclose(lse, logarithm, rtol=2**-23)


@pytest.mark.parametrize("heads", [8, 20], ids=["columns", "rows"])
def test_parts_are_combined_by_their_totals_on_a_gpu(heads: int) -> None:
    """With products joined to sums, as ptxas joins them."""
    given, exact, _ = shared_item(2.0**27, (40, 13), heads)
    q, k, v = given.values()
    out = np.zeros_like(q)
    run_contracted(bind(q, k, v, out, None, DecodeConfig(ctas=1)), 4)
    np.testing.assert_allclose(out.astype(np.float64), exact, rtol=2**-8)
