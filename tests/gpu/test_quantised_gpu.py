"""The GEMM of quantised weights on the GPU: every family, and PyTorch tensors."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.gemm_quantised.families import FAMILIES
from tests.kernels.gemm_quantised.test_sm90 import made
from tilepipe import ops
from tilepipe.kernels.gemm_quantised import reference

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # PyTorch's compiler warns of its own parts
]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_product_is_right_and_gives_the_same_bits(family: str) -> None:
    case, results = made(family), []
    for perturb in (None, 1, 2):
        case.program.launch(perturb=perturb)
        assert case.verify().ok, case.verify()
        results.append(case.output.copy())
    assert all(np.array_equal(results[0], x) for x in results)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("m", [1, 16, 60, 200])
def test_tensors(m: int, bits: int) -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    n, k, rng = 4096, 1100, np.random.default_rng(0)
    weights, scales = reference.random_weights(rng, n, k, bits, 128)
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    packed = ops.prepare_weights(torch.from_numpy(weights).cuda(), bits=bits)
    factors = torch.from_numpy(scales).cuda()
    c = ops.quantised_matmul(a, packed, factors, out_dtype="float32")
    found = reference.compare(
        c.cpu().numpy(), a.cpu().float().numpy(), packed.cpu().numpy(), scales, 128
    )
    assert found.ok, found
    compiled = torch.compile(
        lambda a: ops.quantised_matmul(a, packed, factors, out_dtype="float32") + 1, fullgraph=True
    )
    torch.testing.assert_close(compiled(a), c + 1)
