"""tilepipe::matmul under autograd, torch.compile, export, transforms and modes, with launches
emulated on the CPU.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import tilepipe as tp
from tests.support.ops.emulated_matmul import Emulator, gpu, torch
from tests.support.ops.torch_reference import activated, check
from tilepipe.ir import dtypes
from tilepipe.kernels.gemm.validation import OUTPUTS
from tilepipe.ops import calls
from tilepipe.ops.matmul import call as call_side, gpu as gpu_side, plan as torch_plan

__all__ = ["gpu"]
pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's compiler warns of its own parts
BF16 = torch.bfloat16
matmul = tp.ops.matmul


@pytest.fixture
def exact(gpu: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """float64 is taken for a dtype of the kernel, so that derivatives can be compared with
    differences.
    """
    monkeypatch.setattr(call_side, "INPUTS", (*call_side.INPUTS, dtypes.float64))
    monkeypatch.setattr(calls, "OUTPUTS", (*OUTPUTS, dtypes.float64))
    return gpu


def leaf(*shape: int, dtype: Any = torch.float64, seed: int = 0) -> Any:
    return (
        torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        .to(dtype)
        .requires_grad_()
    )


GRADIENTS = [
    ((3, 4), (4, 2)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (5, 4, 2)),
    ((4,), (4, 3)),
    ((3, 4), (4,)),
    ((3, 4), (2, 4, 5)),
]


@pytest.mark.parametrize(("left", "right"), GRADIENTS, ids=str)
def test_gradients(exact: Emulator, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = leaf(*left), leaf(*right, seed=1)
    torch.autograd.gradcheck(matmul, (a, b), fast_mode=True)
    torch.autograd.gradgradcheck(matmul, (a, b), fast_mode=True)


@pytest.mark.parametrize("activation", [None, "gelu", "silu"])
def test_gradients_of_the_epilogue(exact: Emulator, activation: str | None) -> None:
    a, b, bias, source = leaf(3, 4), leaf(4, 5, seed=1), leaf(5, seed=2), leaf(3, 1, seed=3)

    def run(a: Any, b: Any, bias: Any, source: Any) -> Any:
        return matmul(a, b, bias=bias, source=source, alpha=0.5, beta=-2.0, activation=activation)

    torch.autograd.gradcheck(run, (a, b, bias, source), fast_mode=True)


@pytest.mark.parametrize("case", ["recorded", "operator"])
@pytest.mark.parametrize("shapes", [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5))])
def test_gradients_of_a_bias_of_rows(
    exact: Emulator, monkeypatch: pytest.MonkeyPatch, shapes: Any, case: str
) -> None:
    if case == "operator":
        monkeypatch.setattr(gpu_side, "observed", lambda *_: True)
    operands = leaf(*shapes[0]), leaf(*shapes[1], seed=1), leaf(3, 1, seed=2)
    torch.autograd.gradcheck(lambda a, b, bias: matmul(a, b, bias=bias), operands, fast_mode=True)


def test_gradients_of_transposed_and_unfolded_batches(exact: Emulator) -> None:
    a, b = leaf(2, 4, 3), leaf(5, 4, seed=1)
    torch.autograd.gradcheck(lambda a, b: matmul(a.mT, b.T), (a, b), fast_mode=True)


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "silu", "gelu_erf"])
def test_training_gives_what_torch_gives(gpu: Emulator, activation: str | None) -> None:
    x, w, bias = (
        leaf(*shape, dtype=BF16, seed=i) for i, shape in enumerate([(6, 16), (8, 16), (8,)])
    )
    got = torch.autograd.grad(
        matmul(x, w.T, bias=bias, activation=activation).float().sum(), (x, w, bias)
    )
    want = torch.autograd.grad(activated(x @ w.T + bias, activation).float().sum(), (x, w, bias))
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == theirs.dtype
        torch.testing.assert_close(mine, theirs, rtol=3e-2, atol=3e-2)
    assert got[1].is_contiguous()  # of a transposed weight: in the weight's layout


def test_a_float32_result_of_bfloat16_operands_has_gradients(gpu: Emulator) -> None:
    x, w = leaf(6, 16, dtype=BF16), leaf(16, 8, dtype=BF16, seed=1)
    matmul(x, w, out_dtype="float32").sum().backward()
    assert x.grad.dtype == w.grad.dtype == BF16
    torch.testing.assert_close(x.grad, w.detach().sum(1).expand(6, 16), rtol=2e-2, atol=2e-2)


def test_tf32_is_differentiated_in_tf32(gpu: Emulator) -> None:
    x, w = leaf(6, 16, dtype=torch.float32), leaf(16, 8, dtype=torch.float32, seed=1)
    matmul(x, w, precision="tf32").sum().backward()
    torch.testing.assert_close(x.grad, w.detach().sum(1).expand(6, 16))


def test_without_a_gradient_the_dispatcher_is_not_asked(
    gpu: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = leaf(6, 16, dtype=BF16), leaf(16, 8, dtype=BF16)
    called: list[int] = []
    monkeypatch.setattr(gpu_side, "_dispatched", lambda *_: called.append(1))
    monkeypatch.setattr(gpu_side, "_recorded", lambda *_: called.append(2))
    with torch.no_grad():
        assert not matmul(x, w).requires_grad
    with torch.inference_mode():
        out = torch.empty(6, 8, dtype=BF16)
        assert matmul(x, w, out=out) is out
    assert called == []
    matmul(x, w)
    with torch._subclasses.FakeTensorMode():
        matmul(x, w)
    assert called == [2, 1]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["recorded", "operator"])
def test_both_ways_of_a_gradient_are_one_formula(
    exact: Emulator, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    if case == "operator":
        monkeypatch.setattr(gpu_side, "observed", lambda *_: True)
    a, b, bias, source = leaf(2, 3, 4), leaf(4, 5, seed=1), leaf(5, seed=2), leaf(3, 1, seed=3)
    torch.autograd.gradcheck(
        lambda *x: matmul(x[0], x[1], bias=x[2], source=x[3], alpha=2, activation="silu"),
        (a, b, bias, source),
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"activation": "tanh"}, "relu, gelu, silu"),
        ({"source": torch.ones(3, 8, dtype=BF16)}, "does not broadcast"),
        ({"bias": torch.ones(3, dtype=BF16)}, "bias must have shape"),
        ({"bias": torch.ones(3, 1, dtype=BF16)}, "bias must have shape"),
        ({"out_dtype": "int8"}, "not int8"),
        ({"bn": 100}, "bn must be a multiple of"),
        ({"beta": 1}, "source=out"),
    ],
)
def test_bad_input_with_a_gradient_is_the_same_error(
    gpu: Emulator, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(tp.BindError, match=words):
        matmul(leaf(6, 16, dtype=BF16), leaf(16, 8, dtype=BF16), **options)


def test_out_with_a_gradient_is_refused(gpu: Emulator) -> None:
    with pytest.raises(tp.BindError, match=r"out= has no gradient.*torch\.no_grad\(\)"):
        matmul(leaf(6, 16, dtype=BF16), leaf(16, 8, dtype=BF16), out=torch.empty(6, 8, dtype=BF16))


def test_the_operator_alone_has_no_gradient_of_an_activation(gpu: Emulator) -> None:
    with pytest.raises(
        tp.BindError, match=r'activation="gelu" has no gradient; tilepipe\.ops\.matmul has'
    ):
        gpu_side.operator(leaf(6, 16, dtype=BF16), leaf(16, 8, dtype=BF16), activation="gelu")


COMPILED = {
    "plain": {},
    "bias": {"bias": 16, "activation": "relu"},
    "scaled": {"alpha": 0.5, "out_dtype": torch.float32},
}


@pytest.mark.sampled(suite=3)
@pytest.mark.slow
@pytest.mark.parametrize("case", COMPILED)
@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(gpu: Emulator, case: str, dynamic: bool) -> None:
    torch._dynamo.reset()
    options = dict(COMPILED[case])
    bias = torch.ones(options.pop("bias"), dtype=BF16) if "bias" in options else None
    compiled = torch.compile(
        lambda a, b: matmul(a, b, bias=bias, **options) * 2,
        fullgraph=True,
        backend="aot_eager",
        dynamic=dynamic,
    )
    for rows in (3, 5):
        a, b = leaf(2, rows, 24, dtype=BF16), leaf(24, 16, dtype=BF16, seed=1)
        got = compiled(a, b)
        wanted = {n: v for n, v in options.items() if n in ("alpha", "activation")}
        check(got / 2, a.detach(), b.detach(), bias=bias, **wanted)
        got.sum().backward()
        assert a.grad.shape == a.shape
        assert b.grad.shape == b.shape


@pytest.mark.slow
def test_compile_with_settings(gpu: Emulator) -> None:
    torch._dynamo.reset()
    a, b = leaf(6, 16, dtype=BF16).detach(), leaf(16, 8, dtype=BF16).detach()
    check(
        torch.compile(
            lambda a, b: matmul(a, b, raster="rows", bn=64), fullgraph=True, backend="aot_eager"
        )(a, b),
        a,
        b,
    )
    assert (gpu.bound[-1]["cfg"].bn, gpu.bound[-1]["cfg"].raster) == (64, "rows")


@pytest.mark.slow
def test_compile_with_out(gpu: Emulator) -> None:
    torch._dynamo.reset()
    a, b, out = (
        leaf(6, 16, dtype=BF16).detach(),
        leaf(16, 8, dtype=BF16).detach(),
        torch.zeros(6, 8, dtype=BF16),
    )
    torch.compile(lambda a, b, out: matmul(a, b, out=out), fullgraph=True, backend="aot_eager")(
        a, b, out
    )
    check(out, a, b)


@pytest.mark.slow
def test_a_compiled_error_names_the_shapes(gpu: Emulator) -> None:
    torch._dynamo.reset()
    with pytest.raises(Exception, match="16 columns against 9 rows"):
        torch.compile(lambda a, b: matmul(a, b), backend="aot_eager")(
            leaf(6, 16, dtype=BF16), leaf(9, 8, dtype=BF16)
        )


@pytest.mark.slow
def test_export(gpu: Emulator) -> None:
    class Linear(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(leaf(8, 16, dtype=BF16).detach(), requires_grad=False)

        def forward(self, x: Any) -> Any:
            return matmul(x, self.weight.T, activation="silu")

    x = leaf(2, 6, 16, dtype=BF16).detach()
    rows = torch.export.Dim("rows", min=2, max=100)
    for strict in (False, True):
        exported = torch.export.export(Linear(), (x,), dynamic_shapes=({1: rows},), strict=strict)
        assert "tilepipe.matmul" in exported.graph_module.code
        longer = torch.cat([x, x], 1)
        check(exported.module()(longer), longer, Linear().weight.T, activation="silu")


def test_meta_and_fake_tensors_have_shapes(gpu: Emulator) -> None:
    a, b = (torch.empty(shape, dtype=BF16, device="meta") for shape in ((2, 3, 8), (8, 5)))
    c = matmul(a, b, out_dtype="float32")
    assert (tuple(c.shape), c.dtype, c.device.type) == ((2, 3, 5), torch.float32, "meta")
    with torch._subclasses.FakeTensorMode() as mode:
        fake = matmul(torch.empty(2, 3, 8, dtype=BF16), torch.empty(8, 5, dtype=BF16))
        assert fake.fake_mode is mode
        assert tuple(fake.shape) == (2, 3, 5)
    assert gpu.launches == 0


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        ((3, 8), (9, 5), "a has 8 columns and b 9 rows"),
        ((2, 3, 8), (4, 8, 5), "batches of 2 and 4"),
        ((3,), (3, 5), "got 1-D and 2-D"),
    ],
)
def test_the_operator_checks_shapes(
    left: tuple[int, ...], right: tuple[int, ...], words: str
) -> None:
    a, b = (torch.empty(shape, dtype=BF16, device="meta") for shape in (left, right))
    with pytest.raises((RuntimeError, tp.BindError), match=words):
        gpu_side.operator(a, b)


@pytest.mark.sampled(suite=8)
@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"alpha": 0.5}, {"out_dtype": torch.float32}, {"settings": "(('bn', 64),)"}],
    ids=str,
)
@pytest.mark.parametrize(
    "shapes",
    [((6, 16), (16, 8)), ((2, 6, 16), (16, 8)), ((2, 6, 16), (2, 16, 8)), ((6, 16), (2, 16, 8))],
    ids=str,
)
def test_opcheck(
    gpu: Emulator, options: dict[str, Any], shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    a, b = (leaf(*shape, dtype=BF16, seed=i) for i, shape in enumerate(shapes))
    torch.library.opcheck(gpu_side.operator, (a, b), options)
    epilogue = {
        "bias": leaf(8, dtype=BF16).detach(),
        "source": torch.ones((a @ b).shape, dtype=options.get("out_dtype", BF16)),
    }
    torch.library.opcheck(gpu_side.operator, (a, b), options | epilogue)
    torch.library.opcheck(
        gpu_side.operator,
        (a.detach(), b.detach()),
        options | epilogue | {"activation": "gelu", "beta": 2.0},
    )


def test_vmap(gpu: Emulator) -> None:
    a, b = leaf(5, 6, 16, dtype=BF16).detach(), leaf(16, 8, dtype=BF16).detach()
    check(torch.func.vmap(matmul, in_dims=(0, None))(a, b), a, b)


def test_functional_gradients_are_refused_by_torch(gpu: Emulator) -> None:
    a, b = leaf(6, 16, dtype=BF16).detach(), leaf(16, 8, dtype=BF16).detach()
    with pytest.raises(RuntimeError, match="functorch"):
        torch.func.grad(lambda a: matmul(a, b).sum())(a)


@pytest.mark.slow
def test_forward_mode_is_not_lost_in_silence(gpu: Emulator) -> None:
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        a = forward_ad.make_dual(leaf(6, 16, dtype=BF16).detach(), torch.ones(6, 16, dtype=BF16))
        with pytest.raises((NotImplementedError, RuntimeError)):
            forward_ad.unpack_dual(matmul(a, leaf(16, 8, dtype=BF16))).tangent.sum()


def test_autocast(gpu: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device == "cpu")
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: BF16)
    a, b = leaf(6, 16, dtype=torch.float32).detach(), leaf(16, 8, dtype=torch.float32).detach()
    c = matmul(a, b)
    assert c.dtype == BF16
    check(c, a.to(BF16), b.to(BF16))
    assert matmul(a, b, precision="tf32").dtype == torch.float32
    torch_plan.plans.plans.clear()
    for weights, early in ((b.to(BF16), "b"), (b, "none")):  # what is cast just now is not early
        check(matmul(a, weights, early="b"), a.to(BF16), b.to(BF16))
        assert gpu.bound[-1]["cfg"].early == early


def test_subclasses_and_modes_see_the_operator(gpu: Emulator) -> None:
    seen: list[str] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    with Watch():
        matmul(leaf(6, 16, dtype=BF16).detach(), leaf(16, 8, dtype=BF16).detach())
    assert "tilepipe.matmul.default" in seen


def test_negative_views(gpu: Emulator) -> None:
    a, b = leaf(16, 16, dtype=BF16).detach(), leaf(16, 16, dtype=BF16, seed=1).detach()
    matmul(a, b)
    check(matmul(torch._neg_view(a), b), -a, b)
    assert len(torch_plan.plans.plans) >= 1


@pytest.mark.slow
def test_the_first_call_of_a_process_may_be_traced() -> None:
    """torch.compile follows import statements, and no other import of the operators."""
    code = """
import torch
from tilepipe import ops
x = torch.randn(64, 64, dtype=torch.bfloat16)
compiled = torch.compile(
    lambda x: ops.matmul(x, x, bm=64, bn=32, bk=64, consumers=1), fullgraph=True, backend="eager"
)
print(tuple(compiled(x).shape))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "(64, 64)\n"), done.stderr[-2000:]


@pytest.mark.slow
def test_errors_of_a_traced_call() -> None:
    """A graph breaks at one, and the call raises it; of a whole graph PyTorch says that the code
    raised. Without the mend (an `__init__` of the errors that calls `super()`) it spoke of that.
    """

    def call(x: Any) -> Any:
        return tp.ops.attention(x, x, x, is_causal=True)

    x = torch.randn(1, 64, 1, 64, dtype=BF16)
    with pytest.raises(tp.BindError, match="write causal="):
        torch.compile(call, backend="eager")(x)
    torch._dynamo.reset()
    with pytest.raises((tp.BindError, torch._dynamo.exc.Unsupported)) as caught:
        torch.compile(call, backend="eager", fullgraph=True)(x)
    assert "super()" not in str(caught.value)
