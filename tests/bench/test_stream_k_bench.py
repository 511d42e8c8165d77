"""What the benchmark of the stream-K GEMM measures: shapes from texts and settings. No GPU: nothing
is opened.
"""

from __future__ import annotations

import pytest

import tilepipe as tp

pytest.importorskip("torch")

from tilepipe.bench import stream_k


def test_contests() -> None:
    found = stream_k.contests({}, [], tp.H200, 0)
    assert [x.problem for x in found[:2]] == ["1536×1536×8192", "2304×1792×4096"]
    assert found[0].flop == 2.0 * 1536 * 1536 * 8192
    (one,) = stream_k.contests({"m": 512, "bn": 256}, [], tp.H200, 0)
    assert one.problem == "512×1024×1024"


@pytest.mark.parametrize(
    ("given", "text", "words"),
    [
        ({}, "16x4096", "--shapes of gemm_stream_k takes M,N,K, or standard; got '16x4096'"),
        ({"activation": "silu"}, "16,256,256", "measures products without an activation"),
    ],
)
def test_what_is_not_measured(given: dict[str, str], text: str, words: str) -> None:
    with pytest.raises(tp.BindError) as caught:
        stream_k.contests(given, [text], tp.H200, 0)
    assert words in str(caught.value)
