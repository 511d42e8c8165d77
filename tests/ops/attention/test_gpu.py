"""ops.attention of PyTorch tensors: plans, layouts, the operator, with launches emulated on the
CPU.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cases.ops.attention_layouts import EMPTY, REFUSED, TAKEN

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from tests.support.ops.emulated_attention import Emulator, gpu  # noqa: E402
from tilepipe.kernels.attention.reference import compare_attention  # noqa: E402
from tilepipe.ops.attention import gpu as torch_attention  # noqa: E402
from tilepipe.ops.attention.inputs import Inputs  # noqa: E402
from tilepipe.ops.attention.plan import plans  # noqa: E402
from tilepipe.ops.torch import plan_cache  # noqa: E402

__all__ = ["gpu"]
pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's compiler warns of its own parts
BF16 = torch.bfloat16
attention = tp.ops.attention


def tensor(*shape: int, dtype: Any = BF16, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def operands(
    s_q: int = 24, s_kv: int = 40, heads: int = 4, kv_heads: int = 2, d: int = 64, dtype: Any = BF16
) -> list[Any]:
    return [
        tensor(2, *shape, d, dtype=dtype, seed=i)
        for i, shape in enumerate(((s_q, heads), (s_kv, kv_heads), (s_kv, kv_heads)))
    ]


def right(out: Any, q: Any, k: Any, v: Any, lse: Any = None, **options: Any) -> None:
    got, *given = (
        (x.view(torch.uint16).numpy().view(tp.bfloat16.numpy) if x.dtype == BF16 else x.numpy())
        for x in (x.contiguous() for x in (out, q, k, v))
    )
    found = compare_attention(got, *given, lse=None if lse is None else lse.numpy(), **options)
    assert found.ok, found


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
@pytest.mark.parametrize("dtype", [BF16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
def test_values(gpu: Emulator, causal: bool, dtype: Any, layout: str) -> None:
    q, k, v = operands(dtype=dtype)
    given = [x if layout == "bshd" else x.transpose(1, 2).contiguous() for x in (q, k, v)]
    for _ in range(2):
        out, lse = attention(*given, causal=causal, return_lse=True, layout=layout)
        assert out.is_contiguous()
        right(out if layout == "bshd" else out.transpose(1, 2), q, k, v, lse, causal=causal)
    alone = attention(*given, causal=causal, layout=layout, scale=0.3)
    right(alone if layout == "bshd" else alone.transpose(1, 2), q, k, v, causal=causal, scale=0.3)
    assert (gpu.launches, gpu.stream, len(gpu.bound)) == (3, 7, 2)
    assert gpu.bound[1]["lse"] is None


def test_arguments_of_the_operator_are_known_by_name() -> None:
    arguments = torch.ops.tilepipe.attention.default._schema.arguments
    assert tuple(x.name for x in arguments) == Inputs._fields
    assert {x.name: x.default_value for x in arguments[3:]} == Inputs._field_defaults


@pytest.mark.slow
def test_options_reach_the_kernel_and_the_operator(gpu: Emulator) -> None:
    q, k, _ = operands()
    v = tensor(2, 40, 2, 72, seed=5)
    slopes, sinks = torch.tensor([0.5, 0.25, 0.1, 0.0]), torch.tensor([1.0, -1.0, 0.0, 2.0])
    options: dict[str, Any] = {"window": (9, None), "causal": True, "softcap": 6.0}
    arrays = options | {"slopes": slopes.numpy(), "sinks": sinks.numpy()}

    def f(q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v, slopes=slopes, sinks=sinks, return_lse=True, **options)

    out, lse = f(q, k, v)
    assert tuple(out.shape) == (2, 24, 4, 72)
    right(out, q, k, v, lse, **arrays)
    compiled = torch.compile(f, backend="eager", fullgraph=True)(q, k, v)
    assert torch.equal(compiled[0], out)
    assert torch.equal(compiled[1], lse)


def test_a_score_function_is_for_calls_outside_of_the_compiler(gpu: Emulator) -> None:
    q, k, v = operands()

    def same(ctx: Any, x: Any, query: Any, key: Any, head: Any) -> Any:
        return ctx.select(query + key > 3, x, -np.inf)

    out = attention(q, k, v, score=same)
    right(out, q, k, v, score=lambda x, i, j, h: np.where(i + j > 3, x, -np.inf))
    with FakeTensorMode() as mode, pytest.raises(tp.BindError, match="call it outside of torch"):
        attention(*map(mode.from_tensor, (q, k, v)), score=same)


@pytest.mark.parametrize("layout", TAKEN)
def test_layouts_are_read_and_written_where_they_lie(gpu: Emulator, layout: str) -> None:
    q, k, v = operands(40, 40)
    given = TAKEN[layout](q, k, v)
    made = attention(*given)
    assert made.stride() == torch.empty_like(given[0]).stride()
    right(made, q, k, v)
    out = TAKEN[layout](torch.zeros_like(q), k, v)[0]
    assert attention(*given, out=out) is out
    right(out, q, k, v)
    assert gpu.bound[-1]["q"].data_ptr() == given[0].data_ptr()


@pytest.mark.parametrize("name", ["q", "k", "v", "out"])
@pytest.mark.parametrize("layout", REFUSED)
def test_layouts_that_tma_does_not_take_are_one_sentence(
    gpu: Emulator, layout: str, name: str
) -> None:
    given = dict(
        zip(("q", "k", "v", "out"), (*operands(), torch.zeros_like(operands()[0])), strict=True)
    )
    change, words = REFUSED[layout]
    given[name] = change(given[name])
    with pytest.raises(tp.BindError, match=f"attention: {name}: .*{words}"):
        attention(given["q"], given["k"], given["v"], out=given["out"])


@pytest.mark.parametrize(("batch", "s_q", "s_kv", "heads"), EMPTY)
def test_nothing_to_attend_to(gpu: Emulator, batch: int, s_q: int, s_kv: int, heads: int) -> None:
    q, k, v = (
        torch.zeros(batch, s_q, heads, 64, dtype=BF16),
        *(torch.zeros(batch, s_kv, heads, 64, dtype=BF16) for _ in range(2)),
    )
    out, lse = attention(q, k, v, return_lse=True, out=torch.full_like(q, 7))
    assert tuple(lse.shape) == (batch, heads, s_q)
    assert bool((out == 0).all())
    assert bool((lse == -torch.inf).all())
    assert gpu.launches == 0


def test_out_may_lie_beside_the_operands_and_not_on_them(gpu: Emulator) -> None:
    q, k, v = operands(40, 40, kv_heads=4)
    whole = torch.zeros(2, 40, 16, 64, dtype=BF16)
    parts = whole.split(4, dim=2)
    for part, x in zip(parts, (q, k, v), strict=False):
        part.copy_(x)
    attention(*parts[:3], out=parts[3])
    right(parts[3], q, k, v)
    for i, name in enumerate("qkv"):
        for _ in range(2):  # when the plan is made, and when it is found
            with pytest.raises(tp.BindError, match=f"out shares memory with {name}"):
                attention(*parts[:3], out=parts[i])
    with pytest.raises(tp.BindError, match="out shares memory with q"):
        attention(q[:1], k[:1], v[:1], out=q[:1])


def test_out_has_a_new_version(gpu: Emulator) -> None:
    q, k, v = operands()
    out = torch.zeros_like(q)
    before = out._version
    attention(q, k, v, out=out)
    assert out._version > before


@pytest.mark.slow
def test_plans_are_found_again_and_limited(gpu: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        attention(*operands())
        attention(*operands(), causal=True)
        attention(*operands(), consumers=1)
        attention(*operands(32, 40))
    assert (len(gpu.bound), gpu.launches) == (4, 12)
    monkeypatch.setattr(plan_cache, "LIMIT", 2)
    attention(*operands(8, 8))
    attention(*operands(16, 8))
    assert len(plans.plans) <= 4
    assert [bound["cfg"].consumers for bound in gpu.bound[:3]] == [3, 2, 1]


@pytest.mark.slow
def test_plans_keep_no_tensor_alive(gpu: Emulator) -> None:
    q, k, v = operands()
    attention(q, k, v)
    alive = weakref.ref(q)
    del q
    gc.collect()
    assert alive() is None


def test_settings(gpu: Emulator) -> None:
    attention(*operands(), bn=64, stages=3, order="free")
    assert (gpu.bound[0]["cfg"].bn, gpu.bound[0]["cfg"].stages, gpu.bound[0]["cfg"].order) == (
        64,
        3,
        "free",
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda q, k, v: ((q, [1], v), {}),
            "k must be a tensor of PyTorch as the others, got list",
        ),
        (lambda q, k, v: ((q.float(), k.float(), v.float()), {}), "takes bfloat16 or float16"),
        (lambda q, k, v: ((q, k, v[:, :5]), {}), "k and v must have the same batch, keys"),
        (lambda q, k, v: ((q.to_sparse(), k, v), {}), "must be a dense tensor"),
        (lambda q, k, v: ((q, k, v), {"seed": 3}), "belong to the simulator"),
        (lambda q, k, v: ((q, k, v), {"bm": 64}), "does not know the setting bm"),
        (lambda q, k, v: ((q, k, v), {"scale": 0.0}), "positive"),
        (lambda q, k, v: ((q, k, v), {"causal": 1}), "causal is True or False"),
        (lambda q, k, v: ((q, k, v), {"layout": "bhsd"}), "exchanges the middle two"),
        (
            lambda q, k, v: ((q, k, v), {"out": torch.zeros(2, 24, 4, 64)}),
            "the same for q, k, v, out",
        ),
        (lambda q, k, v: ((q, k.to("meta"), v), {}), "q is on cpu and k on meta"),
        (
            lambda q, k, v: ((q, k, v), {"out": torch.zeros_like(q).requires_grad_()}),
            "there is no gradient with out=",
        ),
        (
            lambda q, k, v: ((q, k, v), {"out": [1]}),
            "out must be a tensor of PyTorch as the others, got list",
        ),
    ],
)
def test_what_does_not_fit_is_one_sentence(gpu: Emulator, change: Any, words: str) -> None:
    arguments, options = change(*operands())
    with pytest.raises(tp.BindError, match=words):
        attention(*arguments, **options)


def test_the_operator_needs_its_logarithms_for_gradients(gpu: Emulator) -> None:
    q, k, v = operands()
    with torch.no_grad():
        right(attention(q.requires_grad_(), k, v), q.detach(), k, v)
    with pytest.raises(tp.BindError, match=r"tilepipe\.ops\.attention, or pass return_lse"):
        torch_attention.operator(q, k, v)
    with pytest.raises(tp.BindError, match=r"no gradient with softcap=.*torch\.no_grad\(\)"):
        torch_attention.operator(q, k, v, softcap=3.0, return_lse=True)


@pytest.mark.sampled(suite=2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": True, "return_lse": True},
        {"layout": "bhsd"},
        {"scale": 0.5, "settings": "(('bn', 64),)"},
    ],
)
def test_opcheck(gpu: Emulator, options: dict[str, Any]) -> None:
    q, k, v = operands()
    if options.get("layout") == "bhsd":
        q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
    torch.library.opcheck(
        torch_attention.operator, (q, k, v), options, test_utils=("test_schema", "test_faketensor")
    )


@pytest.mark.sampled(suite=2)
@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_compile(gpu: Emulator, layout: str, dynamic: bool) -> None:
    torch._dynamo.reset()

    def step(q: Any, k: Any, v: Any) -> Any:
        out, lse = attention(q, k, v, causal=True, return_lse=True, layout=layout)
        return out * 2, lse + 1

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for s in (24, 30):
        q, k, v = operands(s, 40)
        given = [x if layout == "bshd" else x.transpose(1, 2).contiguous() for x in (q, k, v)]
        out, lse = compiled(*given)
        out = out / 2
        right(out if layout == "bshd" else out.transpose(1, 2), q, k, v, lse - 1, causal=True)


@pytest.mark.slow
def test_compile_with_out(gpu: Emulator) -> None:
    torch._dynamo.reset()
    q, k, v = operands()
    out = torch.zeros_like(q)
    torch.compile(
        lambda q, k, v, out: attention(q, k, v, out=out), fullgraph=True, backend="aot_eager"
    )(q, k, v, out)
    right(out, q, k, v)


@pytest.mark.slow
def test_meta_and_fake_tensors_have_shapes(gpu: Emulator) -> None:
    q, k, v = (x.to("meta") for x in operands())
    out, lse = attention(q, k, v, return_lse=True)
    assert (tuple(out.shape), out.dtype, tuple(lse.shape), lse.dtype) == (
        (2, 24, 4, 64),
        BF16,
        (2, 4, 24),
        torch.float32,
    )
    with torch._subclasses.FakeTensorMode():
        turned = [torch.empty(2, 4, s, 64, dtype=BF16) for s in (24, 40, 40)]
        out, lse = attention(*turned, return_lse=True, layout="bhsd")
        assert (tuple(out.shape), tuple(lse.shape)) == ((2, 4, 24, 64), (2, 4, 24))
    assert gpu.launches == 0


def test_autocast(gpu: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device == "cpu")
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: BF16)
    q, k, v = operands(dtype=torch.float32)
    out = attention(q, k, v)
    assert out.dtype == BF16
    right(out, *(x.to(BF16) for x in (q, k, v)))
