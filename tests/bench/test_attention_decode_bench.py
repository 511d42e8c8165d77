"""What the benchmark of attention over a cache measures: problems from texts and settings. No GPU:
nothing is opened.
"""

from __future__ import annotations

import pytest

import tilepipe as tp

pytest.importorskip("torch")

from tilepipe.bench import attention_decode


def test_contests() -> None:
    found = attention_decode.contests({}, [], tp.H200, 0)
    assert [x.problem for x in found] == [
        "B=1 32/8 heads S=32768",
        "B=16 64/8 heads S=8192",
        "B=32 32/8 heads S=4096",
        "B=64 32/8 heads S=8192",
    ]
    assert found[2].moves == 2 * 32 * 4096 * 8 * 128 * 2
    given = {"batch": 8, "s": 1024, "page": 16, "d": 64, "tokens": 2, "heads": 8, "kv_heads": 8}
    (one,) = attention_decode.contests(given, [], tp.H200, 0)
    assert one.problem == "B=8 8/8 heads S=1024 D=64 tokens=2 pages of 16"
    assert one.flop == 4 * 8 * 2 * 8 * 1024 * 64
    narrow = {"batch": 2, "s": 1024, "cache": "float8_e4m3", "lengths": "100,7"}
    (one,) = attention_decode.contests(narrow, [], tp.H200, 0)
    assert one.problem == "B=2 4/1 heads S=1024 float8_e4m3 lengths=100,7"
    assert one.moves == 2 * 107 * 128
    random = [
        attention_decode.contests({"batch": 9, "s": 4096, "lengths": "random"}, [], tp.H200, seed)
        for seed in (0, 0, 1)
    ]
    first, same, other = (x[0].moves / (2 * 128 * 2) for x in random)
    assert first == same != other
    assert 9 <= first <= 9 * 4096


def test_what_has_no_peer_is_said() -> None:
    with pytest.raises(tp.BindError, match="has no peer with causal, left: it takes batch"):
        attention_decode.contests({"left": 5, "causal": False}, [], tp.H200, 0)
    with pytest.raises(tp.BindError, match="takes standard or quick, got 'large'"):
        attention_decode.contests({}, ["large"], tp.H200, 0)
    with pytest.raises(tp.BindError, match="s=1000 has no whole pages"):
        attention_decode.contests({"s": 1000, "page": 16}, [], tp.H200, 0)
