"""The RMS norm on the GPU: every problem of the simulator's tests, and PyTorch tensors."""

from __future__ import annotations

import pytest

from tests.kernels.rms_norm.test_sm90 import PROBLEMS, problem
from tilepipe import ops

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # PyTorch's compiler warns of its own parts
]


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_norm_is_right_and_gives_the_same_bits(name: str) -> None:
    program, compare = problem(name)
    for perturb in (None, 1, 2):
        program.launch(perturb=perturb)
        assert compare().ok, compare()


@pytest.mark.parametrize("columns", [100, 1024, 4096, 8192, 16384])
def test_tensors(columns: int) -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    x = torch.randn(2, 100, columns + 8, device="cuda", dtype=torch.bfloat16)[..., :columns]
    w = torch.randn(columns, device="cuda", dtype=torch.bfloat16)
    want = torch.nn.functional.rms_norm(x.double(), (columns,), w.double(), 1e-6)
    y = ops.rms_norm(x, w)
    torch.testing.assert_close(y.double(), want, rtol=4e-3, atol=1e-6)
    compiled = torch.compile(lambda x: ops.rms_norm(x, w) + 1, fullgraph=True)
    torch.testing.assert_close(compiled(x), y + 1)
    assert ops.rms_norm(x, w, out=x) is x
    assert torch.equal(x, y)
