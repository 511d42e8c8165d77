"""Arrays of CuPy, of JAX, and of any library with DLPack, on the GPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tests.gpu.small import numbers, step, stepped, transposed
from tests.gpu.tensors import N, child, pair
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA device"),
    pytest.mark.filterwarnings("ignore"),  # of frameworks that start up
]


class Capsule:
    """A tensor whose only interface is DLPack."""

    def __init__(self, x: Any) -> None:
        self._x, self.dtype, self.shape = x, x.dtype, tuple(x.shape)

    def __dlpack_device__(self) -> Any:
        return self._x.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self._x.__dlpack__(**options)


def test_dlpack_alone() -> None:
    pytest.importorskip("cuda.core")
    x, a, b = pair()
    step.bind(Capsule(a), Capsule(b)).launch()
    torch.cuda.synchronize()
    np.testing.assert_array_equal(b.cpu().numpy(), stepped(x))
    m = torch.randn(64, 96, device="cuda")
    out = torch.zeros(96, 64, device="cuda")
    transposed.bind(tp.tensor_map(Capsule(m), box=(64, 32)), Capsule(out)).launch()
    torch.cuda.synchronize()
    assert torch.equal(out, m.t())


def test_cupy() -> None:
    cupy = pytest.importorskip("cupy")
    a, b = (cupy.random.standard_normal((304, 264)).astype(cupy.float16) for _ in range(2))
    c = cupy.zeros((304, 304), cupy.float16)[:, :296]
    gemm.bind(a, b[:296], c, GemmConfig()).launch()
    want = a.astype(cupy.float32) @ b[:296].astype(cupy.float32).T
    assert float(cupy.abs(c.astype(cupy.float32) - want).max()) < 0.1
    transposing = cupy.asfortranarray(a)
    gemm.bind(transposing, b[:296], c, GemmConfig()).launch()
    assert float(cupy.abs(c.astype(cupy.float32) - want).max()) < 0.1
    x = numbers(N)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        y, z = cupy.asarray(x), cupy.zeros(N, cupy.int32)
        program = step.bind(y, z)
        y += 1
        program.launch()
        out = z.copy()
        stream.synchronize()
    np.testing.assert_array_equal(cupy.asnumpy(out), stepped(x + 1))
    moved = cupy.zeros(64 * 32 + 1, cupy.float32)[1:].reshape(64, 32)
    wrong = transposed.bind(tp.tensor_map(moved, box=(64, 32)), cupy.zeros((32, 64), cupy.float32))
    with pytest.raises(tp.BindError, match="multiple of 16 bytes"):
        wrong.launch()


JAX = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np
try:
    import jax
    import jax.numpy as jnp
    device = next(d for d in jax.devices() if d.platform == "gpu")
except (ImportError, StopIteration, RuntimeError) as error:
    print("no JAX on a GPU here:", repr(error))
    sys.exit()
from tests.gpu.small import numbers, step, stepped
from tilepipe.cuda.runtime import driver
from tilepipe.kernels.gemm import sm90 as gemm
from tilepipe.kernels.gemm.config import GemmConfig
def done():
    with driver.current(0):
        driver.call("cuCtxSynchronize")
x = numbers(1000)
a, b = jax.device_put(x, device), jax.device_put(np.zeros(1000, np.int32), device)
jax.block_until_ready((a, b))
step.bind(a, b).launch()
done()
np.testing.assert_array_equal(np.asarray(b), stepped(x))
for dtype in (jnp.float16, jnp.bfloat16):
    m, n, c = (jax.device_put(jnp.ones(shape, dtype), device) for shape in ((128, 64), (64, 64),
        (128, 64)))
    jax.block_until_ready((m, n, c))
    gemm.bind(m, n, c, GemmConfig(bn=64)).launch()
    done()
    assert (np.asarray(c).astype(np.float32) == 64).all(), dtype
print("right")
"""


def test_jax() -> None:
    said = child(JAX, XLA_PYTHON_CLIENT_PREALLOCATE="false").strip()
    if said.startswith("no JAX"):
        pytest.skip(said)
    assert said.endswith("right")


def test_bfloat16_of_numpy_and_torch_are_the_same_kernel() -> None:
    a = torch.randn(128, 64, device="cuda", dtype=torch.bfloat16)
    host = a.cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    on_device, on_host = (
        torch.zeros(128, 128, device="cuda", dtype=torch.bfloat16),
        np.zeros((128, 128), ml_dtypes.bfloat16),
    )
    gemm.bind(a, a.clone(), on_device, GemmConfig()).launch()
    gemm.bind(host, host.copy(), on_host, GemmConfig()).launch()
    assert on_device.cpu().view(torch.int16).numpy().tobytes() == on_host.tobytes()
