"""What `tilepipe bench` measures of the kernels of rows, and how results are judged; the launches
need a GPU.
"""

from __future__ import annotations

import pytest

import tilepipe as tp
from tests.support.tracing import refused
from tilepipe.registry.catalog import KERNELS

rows = pytest.importorskip("tilepipe.bench.rows", exc_type=ImportError)
torch = pytest.importorskip("torch", exc_type=ImportError)


def test_contests() -> None:
    found = rows.contests_of("rms_norm")({}, [], tp.H200, 0)
    assert [x.problem for x in found[3:5]] == ["65536×1024, forward", "16384×4096, backward"]
    assert found[0].moves == 2 * 2 * 16384 * 4096
    (one,) = rows.contests_of("cross_entropy")({"backward": True}, ["8,300"], tp.H200, 0)
    assert (one.problem, one.moves) == ("8×300, backward", 2 * 2 * 8 * 300)
    with refused(tp.BindError, "--shapes of softmax takes M,N"):
        rows.contests_of("softmax")({}, ["8,300,5"], tp.H200, 0)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("kernel", rows.SPECS)
def test_a_result_of_pytorch_is_right_and_another_is_not(
    kernel: str, backward: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "DEVICE", "cpu")
    monkeypatch.setattr(rows.timing, "sets_for", lambda nbytes: 2)
    settings, _ = KERNELS[kernel].configure({"m": 8, "n": 300, "backward": backward}, None)
    operands = rows.RowOperands(kernel, settings, 0)
    dy = operands.dy[0] if operands.dy else None
    operands.results["PyTorch"] = [operands._function(operands.x[0], dy, *operands._more())]
    assert operands.check("PyTorch").right
    operands.wipe()
    assert not operands.check("PyTorch").right
