"""ops.grouped_matmul: NumPy arrays in the simulator; and of tensors what is bound, copied, written
and remembered, with launches emulated on the CPU.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels import grouped_gemm
from tilepipe.kernels import grouped_gemm_reference as reference
from tilepipe.kernels.grouped_gemm import GroupedGemmConfig
from tilepipe.kernels.grouped_gemm_arguments import check_arguments

grouped_matmul = tp.ops.grouped_matmul
ENDS = [5, 5, 40, 90]


def operands(
    m: int = 100, k: int = 40, n: int = 24, ends: list[int] | None = None, seed: int = 0
) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    offsets = np.array(ENDS if ends is None else ends, np.int32)
    return (
        rng.standard_normal((m, k)).astype(np.float16),
        rng.standard_normal((len(offsets), k, n)).astype(np.float16),
        offsets,
    )


def right(c: Any, before: Any, a: Any, b: Any, offsets: Any) -> bool:
    return reference.compare(c, before, a, b.swapaxes(1, 2), offsets).ok


@pytest.mark.parametrize("out_dtype", [None, "bfloat16", "float32"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"bm": 64, "consumers": 1, "bn": 32}, {"schedule": "pingpong", "cluster": 2}],
    ids=str,
)
def test_numpy(out_dtype: str | None, settings: dict[str, Any]) -> None:
    a, b, offsets = operands()
    c = grouped_matmul(a, b, offsets, out_dtype=out_dtype, seed=3, **settings)
    assert c.dtype == (np.float16 if out_dtype is None else tp.dtype(out_dtype).numpy)
    assert c.flags.c_contiguous
    assert right(c, np.zeros_like(c), a, b, offsets)


@pytest.mark.parametrize("k", [40, 37, 1, 0])
def test_numpy_layouts_and_rows_that_are_kept(k: int) -> None:
    a, b, offsets = operands(k=k, n=21)
    for left in (a, np.asfortranarray(a), np.repeat(a, 2, 0)[::2]):
        for weights in (b, np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)):
            before = np.full((100, 42), 7, np.float32)[:, ::2]
            out = before.copy()
            assert grouped_matmul(left, weights, offsets, out=out) is out
            assert right(out, before, a, b, offsets)
            assert (out[90:] == 7).all()


@pytest.mark.parametrize("shape", [(0, 40, 24), (100, 40, 0), (100, 0, 24)])
def test_numpy_without_anything(shape: tuple[int, int, int]) -> None:
    a, b, offsets = operands(*shape)
    assert grouped_matmul(a, b, offsets).shape == (shape[0], shape[2])
    none = grouped_matmul(*operands(ends=[]))
    assert none.shape == (100, 24)
    assert not none.any()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": np.zeros(3, np.float16)}, "a must be (m, k), it has shape (3,)"),
        ({"b": np.zeros((40, 24), np.float16)}, "b must be (groups, k, n), it has shape (40, 24)"),
        (
            {"b": np.zeros((4, 32, 24), np.float16)},
            "a is 100×40 and b 4 times 32×24; 40 columns against 32 rows",
        ),
        ({"offsets": np.zeros(3, np.int32)}, "b has 4 groups and offsets 3 elements"),
        ({"offsets": np.zeros((4, 1), np.int32)}, "offsets must be (groups,), it has shape (4, 1)"),
        ({"offsets": np.zeros(4, np.int64)}, "offsets must be int32, got int64"),
        ({"offsets": [1, 2, 3, 4]}, "offsets must be a NumPy array as a and b are, got list"),
        (
            {"a": np.zeros((100, 40), np.float32)},
            "takes bfloat16 or float16, the same for a and b; got float32 and float16",
        ),
        (
            {"out": np.zeros((100, 25), np.float16)},
            "out must have shape (100, 24), it has (100, 25)",
        ),
        (
            {"out": np.zeros((100, 24), np.float16), "out_dtype": "float32"},
            "out is float16 and out_dtype float32",
        ),
        ({"out_dtype": "int32"}, "grouped_matmul returns bfloat16, float16, float32, not int32"),
        ({"split_k": 2}, "does not know the setting split_k; it has bm, bn"),
        ({"bm": 100}, "bm must be 64 or 128 rows"),
        ({"a": [[1.0]]}, "a must be a NumPy array or a CUDA tensor of PyTorch, got list"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_arguments_that_do_not_fit(change: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError, match=re.escape(words)):
        grouped_matmul(**(dict(zip(("a", "b", "offsets"), operands(), strict=True)) | change))


torch = pytest.importorskip("torch")

from tests.ops.emulated import at, tma_takes  # noqa: E402
from tilepipe.ops.grouped import gpu as torch_grouped  # noqa: E402
from tilepipe.ops.torch import checks as torch_checks  # noqa: E402
from tilepipe.ops.torch import plans as torch_plans  # noqa: E402

_library = torch.library.Library("tilepipe", "IMPL")
_library.impl("grouped_matmul", torch_grouped.kernel, "CPU")


@dataclass
class Emulator:
    """What was bound and launched."""

    bound: list[dict[str, Any]] = field(default_factory=list)
    launches: int = 0

    def bind(self, a: Any, b: Any, c: Any, offsets: Any, cfg: GroupedGemmConfig) -> Emulator:
        check_arguments(a, b, c, offsets, None, None, cfg)
        tma_takes(a, "row")
        tma_takes(b)
        tma_takes(c, "row")
        self.bound.append({"a": a, "b": b, "c": c, "offsets": offsets, "cfg": cfg})
        return self

    def launcher(self) -> Any:
        views = {name: self.bound[-1][name] for name in self.tensors}

        def launch(addresses: tuple[int, ...], stream: int) -> None:
            assert stream == 7
            self.launches += 1
            x = {
                name: at(place, views[name])
                for name, place in zip(self.tensors, addresses, strict=True)
            }
            for group, (start, end) in enumerate(reference.bounds(x["offsets"], len(x["a"]))):
                z = x["a"][start:end].astype(np.float32) @ x["b"][group].astype(np.float32).T
                x["c"][start:end] = z.astype(x["c"].dtype)

        launch.tensors = self.tensors  # type: ignore[attr-defined]
        return launch

    tensors = ("a", "b", "c", "offsets")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """CPU tensors are taken for a GPU's."""
    emulator = Emulator()
    monkeypatch.setattr(grouped_gemm, "bind", emulator.bind)
    monkeypatch.setattr(torch_checks, "DEVICES", ["cuda", "cpu", "meta"])
    monkeypatch.setattr(torch_grouped, "hopper", lambda ordinal, who: tp.H200)
    monkeypatch.setattr(torch_grouped, "current", nullcontext)
    monkeypatch.setattr(torch_plans, "raw_stream", lambda index: 7)
    monkeypatch.setattr(torch_plans, "current_device", lambda: -1)
    torch_grouped.forget()
    return emulator


def tensors(**shape: Any) -> tuple[Any, Any, Any]:
    a, b, offsets = (torch.from_numpy(x) for x in operands(**shape))
    return a, b, offsets


def expected(a: Any, b: Any, offsets: Any, before: Any) -> Any:
    """`before`, and the products in the rows of the groups."""
    want = before.float().clone()
    for group, (start, end) in enumerate(reference.bounds(offsets.numpy(), a.shape[0])):
        want[start:end] = a[start:end].float() @ b[group].float()
    return want


@pytest.mark.parametrize("k", [40, 37, 1])
def test_tensors_of_any_layout(gpu: Emulator, k: int) -> None:
    a, b, offsets = tensors(k=k, n=32)
    weights = b.transpose(1, 2).contiguous().transpose(1, 2)
    for left in (a, a.t().contiguous().t(), a.repeat_interleave(2, 0)[::2]):
        for x in (b, weights):
            before = torch.full((100, 32), 7.0)
            out = before.clone()
            assert grouped_matmul(left, x, offsets.repeat_interleave(2)[::2], out=out) is out
            assert torch.allclose(out, expected(a, b, offsets, before), atol=1e-3)
    assert {bound["a"].stride()[1] for bound in gpu.bound} == {1}
    assert all(bound["cfg"] != GroupedGemmConfig() for bound in gpu.bound)


@pytest.mark.parametrize("out_dtype", [None, torch.float32, "bfloat16"])
def test_new_results(gpu: Emulator, out_dtype: Any) -> None:
    a, b, offsets = tensors()
    c = grouped_matmul(a, b, offsets, out_dtype=out_dtype)
    assert c.dtype == {None: torch.float16, "bfloat16": torch.bfloat16}.get(out_dtype, out_dtype)
    assert torch.allclose(c[:90].float(), expected(a, b, offsets, c)[:90], rtol=2e-2, atol=2e-2)


def test_plans_are_remembered_and_settings_bound(gpu: Emulator) -> None:
    a, b, offsets = tensors()
    for _ in range(3):
        grouped_matmul(a, b, offsets)
    assert (len(gpu.bound), gpu.launches) == (1, 3)
    grouped_matmul(a, b, offsets, bm=64, consumers=1)
    assert gpu.bound[1]["cfg"] == GroupedGemmConfig(bm=64, consumers=1)


def test_out_that_the_kernel_cannot_write_keeps_its_rows(gpu: Emulator) -> None:
    a, b, offsets = tensors(k=24)
    for before in (torch.full((24, 100), 7.0).t(), torch.full((100, 25), 7.0)[:, 1:], a.clone()):
        out = (
            before
            if before.dtype is torch.float16
            else before.clone(memory_format=torch.preserve_format)
        )
        left = out if out.dtype is torch.float16 else a
        want = expected(left.clone(), b, offsets, before)
        assert grouped_matmul(left, b, offsets, out=out) is out
        assert torch.allclose(out.float(), want, rtol=1e-2, atol=1e-2)


def test_nothing_to_multiply(gpu: Emulator) -> None:
    a, b, offsets = tensors(k=0)
    assert not grouped_matmul(a, b, offsets).any()
    out = torch.full((100, 24), 7.0)
    grouped_matmul(a, b, offsets, out=out)
    assert not out[:90].any()
    assert (out[90:] == 7).all()
    assert grouped_matmul(*tensors(m=0)).shape == (0, 24)
    assert not grouped_matmul(*tensors(ends=[])).any()
    assert gpu.launches == 0


def test_meta_and_compiled(gpu: Emulator) -> None:
    a, b, offsets = tensors()
    c = grouped_matmul(a.to("meta"), b.to("meta"), offsets.to("meta"), out_dtype="float32")
    assert (c.shape, c.dtype, c.device.type) == ((100, 24), torch.float32, "meta")
    assert torch.library.opcheck(
        torch_grouped.operator, (a, b, offsets), test_utils=("test_schema", "test_faketensor")
    )
    traced = torch.fx.experimental.proxy_tensor.make_fx(lambda *x: grouped_matmul(*x))(
        a, b, offsets
    )
    assert torch_grouped.operator in {node.target for node in traced.graph.nodes}
    with torch.overrides.BaseTorchFunctionMode():
        before = torch.full((100, 24), 7.0)
        out = before.clone()
        grouped_matmul(a, b, offsets, out=out)
    assert torch.allclose(out, expected(a, b, offsets, before), atol=1e-3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"offsets": np.zeros(4, np.int32)},
            "offsets must be a CUDA tensor of PyTorch as the others, got ndarray",
        ),
        ({"b": None}, "b must be a CUDA tensor of PyTorch"),
        ({"offsets": torch.zeros(4)}, "offsets must be int32, got float32"),
        ({"out": torch.zeros(3, 3)}, "out must have shape (100, 24), it has (3, 3)"),
        (
            {"out": torch.zeros(100, 24), "out_dtype": torch.float16},
            "out is torch.float32 and out_dtype torch.float16",
        ),
        (
            {"a": torch.zeros(100, 40, dtype=torch.float16, requires_grad=True)},
            "grouped_matmul has no gradient, and an operand requires one",
        ),
        ({"seed": 1}, "seed and progress belong to the simulator"),
        ({"depth": 1}, "does not know the setting depth"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_tensors_that_do_not_fit(gpu: Emulator, change: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError, match=re.escape(words)):
        grouped_matmul(**(dict(zip(("a", "b", "offsets"), tensors(), strict=True)) | change))


def test_tensors_on_the_cpu_are_refused() -> None:
    with pytest.raises(
        tp.BindError, match="grouped_matmul runs tensors on CUDA devices; a is on cpu"
    ):
        grouped_matmul(*tensors())
