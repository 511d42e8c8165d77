"""`tilepipe bench attention` of packed sequences: what is measured beside what, and that a wrong
result is noticed.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilepipe as tp

torch = pytest.importorskip("torch")

from tilepipe.bench import attention, attention_packed as packed  # noqa: E402
from tilepipe.kernels.attention.packed_reference import packed_attention  # noqa: E402
from tilepipe.registry.attention import ATTENTION, extents  # noqa: E402
from tilepipe.registry.lengths import parsed  # noqa: E402

LENGTHS = [(100, 100), (0, 20), (30, 150), (64, 64)]


def test_the_standard_problems_have_as_much_work_in_one_batch() -> None:
    found = attention.contests({}, ["packed"], tp.H200, 0)
    assert [x.problem for x in found] == [
        "D=128 full 16 of 1024..4096",
        "D=128 causal 16 of 1024..4096",
        "D=128 full 2 of 16384",
        "D=128 causal 2 of 16384",
    ]
    for contest in found:
        lengths = parsed(contest.settings["lengths"])
        batch = packed.same_work(extents(contest.settings), lengths)
        ratio = attention.flop(batch, contest.settings["causal"]) / contest.flop
        assert abs(ratio - 1) < 1e-3
        assert contest.settings["schedule"] == "dynamic"


def test_lengths_that_are_given() -> None:
    given = {"lengths": "100,0:20,30:150", "heads": 4, "kv_heads": 2, "causal": True, "d": 64}
    (contest,) = attention.contests(given, [], tp.H200, 0)
    assert contest.problem == "D=64 causal 3 of 20..150 heads=4"
    seen = sum(range(1, 101)) + sum(range(121, 151))
    assert contest.flop == 4 * 4 * 64 * seen
    with pytest.raises(tp.BindError, match="packed sequences has no batch, softcap"):
        attention.contests(given | {"batch": 2, "softcap": 3}, [], tp.H200, 0)
    with pytest.raises(tp.BindError, match="has no --shapes beside lengths"):
        attention.contests(given, ["packed"], tp.H200, 0)


@pytest.mark.parametrize("causal", [False, True])
def test_a_sample_of_rows_beside_float64(monkeypatch: pytest.MonkeyPatch, causal: bool) -> None:
    monkeypatch.setattr(attention, "DEVICE", "cpu")
    text = ",".join(f"{queries}:{keys}" for queries, keys in LENGTHS)
    settings = ATTENTION.settings | {"lengths": text, "d": 64, "causal": causal}
    operands = packed.PackedOperands(LENGTHS, extents(settings), causal, seed=1, sets=2)
    arrays = [x[1].double().numpy() for x in (operands.q, operands.k, operands.v)]
    out, _ = packed_attention(*arrays, *operands.host_bounds, causal=causal)
    made = torch.from_numpy(np.asarray(out)).bfloat16()
    operands.results["a"] = [made * torch.nan, made]
    assert operands.check("a", 1).right
    assert operands.check("a", 1).rel_error < 4e-3
    operands.results["a"][1] = made * 1.02
    assert not operands.check("a", 1).right
    operands.wipe()
    assert not operands.check("a", 1).right
