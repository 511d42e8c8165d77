"""What the benchmark of the gated GEMM measures: shapes from texts and settings. No GPU: nothing is
opened.
"""

from __future__ import annotations

import pytest

import tilepipe as tp

pytest.importorskip("torch")

from tilepipe.bench import gated


@pytest.mark.slow
def test_contests() -> None:
    found = gated.contests({}, [], tp.H200, 0)
    assert len(found) == len(gated.STANDARD)
    assert found[0].problem == "4096×14336×4096, silu"
    assert found[0].flop == 4.0 * 4096 * 14336 * 4096
    (one,) = gated.contests({"m": 512, "activation": "gelu"}, [], tp.H200, 0)
    assert one.problem == "512×1024×1024, gelu"
    with pytest.raises(tp.BindError, match="--shapes of gemm_gated takes M,N,K, or standard"):
        gated.contests({}, ["512,256"], tp.H200, 0)
