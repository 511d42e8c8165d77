"""ops.grouped_matmul of NumPy arrays, which run on the simulated GPU."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tests.cases.ops.grouped import dequantised, fp8_operands, fp8_operands_of_k, operands
from tilepipe.kernels.gemm_grouped import reference

grouped_matmul = tp.ops.grouped_matmul


def right(c: Any, before: Any, a: Any, b: Any, offsets: Any) -> bool:
    return reference.compare(c, before, a, b.swapaxes(1, 2), offsets).ok


@pytest.mark.slow
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


@pytest.mark.slow
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


def looped(a: Any, b: Any, offsets: Any) -> Any:
    """The product of each group by itself, in float64; zeros in no group."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    if a.ndim == b.ndim == 3:
        return np.stack([x @ y for x, y in zip(a, b, strict=True)])
    if b.ndim == 3:
        c = np.zeros((len(a), b.shape[2]))
        for g, (start, end) in enumerate(reference.bounds(offsets, len(a))):
            c[start:end] = a[start:end] @ b[g]
        return c
    bounds = reference.bounds(offsets, b.shape[0 if a.ndim == 2 else 1])
    if a.ndim == 2:
        return np.stack([a[:, start:end] @ b[start:end] for start, end in bounds])
    c = np.zeros((a.shape[1], b.shape[1]))
    for g, (start, end) in enumerate(bounds):
        c[:, start:end] = a[g] @ b[:, start:end]
    return c


FORMS = {
    "rows of a": ((100, 40), (4, 40, 24)),
    "k": ((40, 100), (100, 24)),
    "columns of b": ((4, 24, 40), (40, 100)),
    "nothing": ((4, 24, 40), (4, 40, 32)),
}
ENDS = ([5, 5, 40, 90], [0, 0, 0, 100], [60, 30, 61, 1000])


@pytest.mark.parametrize("ends", ENDS, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_numpy_forms(form: str, ends: list[int]) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in FORMS[form])
    offsets = None if form == "nothing" else np.array(ends, np.int32)
    want = looped(a, b, offsets)
    given: dict[str, Any] = {} if offsets is None else {"offs": offsets}
    np.testing.assert_allclose(grouped_matmul(a, b, out_dtype="float32", **given), want, atol=1e-4)
    out = np.full(want.shape, 7, np.float32)
    assert grouped_matmul(a, b, offsets, out=out) is out
    kept = {"rows of a": (slice(90, None),), "columns of b": (slice(None), slice(90, None))}
    if form in kept and ends[-1] == 90:
        assert (out[kept[form]] == 7).all()
        out[kept[form]] = 0
    np.testing.assert_allclose(out, want, atol=1e-4)


@pytest.mark.parametrize(("m", "k", "n"), [(0, 100, 24), (40, 0, 24), (40, 100, 0)])
def test_numpy_groups_of_k_without_anything(m: int, k: int, n: int) -> None:
    a, b, offsets = np.ones((m, k), np.float16), np.ones((k, n), np.float16), operands()[2]
    c = grouped_matmul(a, b, offsets)
    assert c.shape == (4, m, n)
    assert not c.any()


ROWS = np.array([5, 0, 100, 1000], np.int32)


@pytest.mark.slow
@pytest.mark.parametrize("k", [40, 37, 0])
def test_numpy_padded_groups(k: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((4, 30, k), (4, k, 24)))
    out = np.full((4, 30, 24), 7, np.float32)
    assert grouped_matmul(a, b, rows=ROWS, expected_rows=9, out=out) is out
    want = a.astype(np.float64) @ b.astype(np.float64)
    for group, count in enumerate(ROWS.tolist()):
        np.testing.assert_allclose(out[group, :count], want[group, :count], atol=1e-4)
        assert (out[group, count:] == 7).all()
    assert not grouped_matmul(a, b, rows=ROWS)[1].any()


@pytest.mark.slow
@pytest.mark.parametrize("padded", [False, True], ids=["rows", "padded"])
def test_numpy_fp8(padded: bool) -> None:
    a, b, scale_a, scale_b = fp8_operands(padded)
    ends = ROWS if padded else np.array(ENDS[0], np.int32)
    which: dict[str, Any] = {"rows": ends} if padded else {"offs": ends}
    c = grouped_matmul(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype="float32", **which)
    left, right = dequantised(a, b, scale_a, scale_b)
    if padded:
        want = left @ right
        for group, count in enumerate(ends.tolist()):
            want[group, count:] = 0
    else:
        want = looped(left, right, ends)
    np.testing.assert_allclose(c, want, atol=2e-4 * np.abs(want).max())
    contiguous = [np.ascontiguousarray(x) for x in (a, b, scale_a, scale_b)]
    again = grouped_matmul(
        *contiguous[:2], scale_a=contiguous[2], scale_b=contiguous[3], bm=64, consumers=1, **which
    )
    assert again.dtype == tp.bfloat16.numpy
    np.testing.assert_allclose(again.astype(np.float32), c, rtol=1e-2, atol=1e-2)


@pytest.mark.slow
def test_numpy_fp8_with_groups_of_k() -> None:
    """Offsets below k are rounded down to blocks."""
    a, b, scale_a, scale_b = fp8_operands_of_k()
    offs = np.array([128, 255, 300, 1000], np.int32)
    given: dict[str, Any] = {"offs": offs, "scale_a": scale_a, "scale_b": scale_b}
    c = grouped_matmul(a, b, out_dtype="float32", **given)
    want = looped(*dequantised(a, b, scale_a, scale_b), np.array([128, 128, 256, 400]))
    np.testing.assert_allclose(c, want, atol=2e-4 * np.abs(want).max())
    out = np.full(c.shape, 7, np.float32)
    again = grouped_matmul(
        np.ascontiguousarray(a),
        np.ascontiguousarray(b),
        offs,
        scale_a=np.ascontiguousarray(scale_a),
        scale_b=np.asfortranarray(scale_b),
        out=out,
        bm=64,
        consumers=1,
    )
    assert again is out
    np.testing.assert_array_equal(out, c)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scale_b": None}, "scale_b is not given"),
        (
            {"scale_a": None, "scale_b": None},
            "grouped_matmul of float8_e4m3 takes float32 scales of a and b, for each 1×128 of a"
            " (100, 3) and 128×128 of b (4, 3, 2); scale_a and scale_b is not given",
        ),
        ({"scale_b": np.ones((4, 2, 3), np.float32)}, "scale_b is float32 of shape (4, 2, 3)"),
        ({"scale_a": np.ones((100, 3), np.float16)}, "scale_a is float16 of shape (100, 3)"),
        ({"bk": 64}, "of float8_e4m3 does not know the setting bk; it has bm, bn"),
        ({"out_dtype": "float8_e4m3"}, "returns bfloat16, float16, float32, not float8_e4m3"),
        (
            {"b": np.zeros((272, 160), tp.float8_e4m3.numpy)},
            "for each 1×128 of a (100, 3) and 128×1 of b (3, 160); scale_b is float32 of shape (4,"
            " 3, 2)",
        ),
        (
            {
                "b": np.zeros((272, 160), tp.float8_e4m3.numpy),
                "scale_b": np.ones((3, 160), np.float32),
                "splits": 2,
            },
            "grouped_matmul of float8_e4m3 with groups of k does not know the setting splits",
        ),
        ({"rows": np.zeros(4, np.int32)}, "rows are those of padded groups, which have no offsets"),
        (
            {"offsets": None, "rows": np.zeros(4, np.int32)},
            "rows= says how many rows count of each matrix of a (groups, m, k), times b (groups,"
            " k, n); a has 2 dimensions and b 3",
        ),
        ({"expected_rows": 5}, "expected_rows goes with rows, which are not given"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_fp8_that_does_not_fit(change: dict[str, Any], words: str) -> None:
    given = dict(zip(("a", "b", "scale_a", "scale_b"), fp8_operands(False), strict=True))
    given["offsets"] = np.array(ENDS[0], np.int32)
    with pytest.raises(tp.BindError, match=re.escape(words)):
        grouped_matmul(**(given | change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"rows": np.zeros(3, np.int32)},
            "b has 4 groups and rows 3 elements; each group has one",
        ),
        ({"rows": np.zeros(4, np.int64)}, "rows must be int32, got int64"),
        ({"a": np.zeros((3, 30, 40), np.float16)}, "a has 3 groups and b 4"),
        ({"expected_rows": 0}, "expected_rows= is an integer of at least 1; got 0"),
        ({"rows": None, "scale_a": np.ones(1)}, "scale_b of a matrix for each group go with rows="),
        ({"rows": None, "scale_a": np.ones(2)}, "scale_b of a matrix for each group go with rows="),
        ({"scale_a": np.ones(1)}, "scale_a and scale_b are of float8_e4m3; a and b are float16"),
        (
            {"b": np.zeros((40, 24), np.float16), "rows": None, "offsets": ROWS, "scale_a": ROWS},
            "groups of columns of b have no scales",
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_padded_groups_that_do_not_fit(change: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {
        "a": np.zeros((4, 30, 40), np.float16),
        "b": np.zeros((4, 40, 24), np.float16),
        "rows": np.zeros(4, np.int32),
    }
    with pytest.raises(tp.BindError, match=re.escape(words)):
        grouped_matmul(**(given | change))


torch = pytest.importorskip("torch")


@pytest.mark.parametrize("padded", [False, True], ids=["rows", "padded"])
def test_what_has_no_gradient_says_so(padded: bool) -> None:
    a = torch.zeros((4, 30, 40) if padded else (100, 256)).half()
    b = torch.zeros((4, 40, 24) if padded else (4, 256, 24)).half()
    given = {"rows" if padded else "offsets": torch.tensor(ENDS[0], dtype=torch.int32)}
    if not padded:
        a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
        given["scale_a"] = torch.ones(100, 2, requires_grad=True)
        given["scale_b"] = torch.ones(4, 2, 1)
    with pytest.raises(tp.BindError, match="grouped_matmul of fp8, and of padded groups, has no"):
        grouped_matmul(a.requires_grad_() if padded else a, b, **given)


def differentiated(form: str, ends: list[int], product: Any) -> list[Any]:
    """The result of a product, both gradients, and those of the gradients' squares."""
    generator = torch.Generator().manual_seed(3)
    a, b = (
        torch.randn(shape, generator=generator).half().requires_grad_() for shape in FORMS[form]
    )
    c = product(a, b, ends)
    weights = torch.randn(c.shape, generator=generator)
    last = max(min(max(ends), 100), 0)
    if form == "rows of a":
        weights[last:] = 0
    if form == "columns of b":
        weights[:, last:] = 0
    first = torch.autograd.grad((c.float() * weights).sum(), (a, b), create_graph=True)
    second = torch.autograd.grad(sum((x.float() ** 2).sum() for x in first), (a, b))
    kept = torch.where(weights == 0, 0, c)
    return [x.detach().float() for x in (kept, *first, *second)]


def ours(a: Any, b: Any, ends: list[int]) -> Any:
    given = {} if a.dim() == b.dim() == 3 else {"offs": torch.tensor(ends, dtype=torch.int32)}
    return grouped_matmul(a, b, out_dtype=torch.float32, **given)


def of_torch(a: Any, b: Any, ends: list[int]) -> Any:
    """A loop of PyTorch's products in float32."""
    a, b = a.float(), b.float()
    if a.dim() == b.dim() == 3:
        return torch.bmm(a, b)
    bounds = reference.bounds(np.array(ends), 100)
    if b.dim() == 3:
        parts = [a[i:j] @ b[g] for g, (i, j) in enumerate(bounds)]
        return torch.cat([*parts, a[bounds[-1][1] :] @ b[0] * 0])
    if a.dim() == 2:
        return torch.stack([a[:, i:j] @ b[i:j] for i, j in bounds])
    parts = [a[g] @ b[:, i:j] for g, (i, j) in enumerate(bounds)]
    return torch.cat([*parts, a[0] @ b[:, bounds[-1][1] :] * 0], 1)


@pytest.mark.slow
@pytest.mark.parametrize("ends", ENDS, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_gradients_and_theirs(form: str, ends: list[int]) -> None:
    found, want = (differentiated(form, ends, product) for product in (ours, of_torch))
    for x, y in zip(found, want, strict=True):
        assert x.shape == y.shape
        torch.testing.assert_close(x, y, rtol=2e-2, atol=2e-2 * float(y.std()))


@pytest.mark.sampled(suite=2)
@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_forms_compile(form: str) -> None:
    """In one graph, with gradients, as without a compiler."""
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    found = []
    for product in (ours, compiled):
        generator = torch.Generator().manual_seed(3)
        a, b = (
            torch.randn(shape, generator=generator).half().requires_grad_() for shape in FORMS[form]
        )
        c = product(a, b, [5, 5, 40, 100])
        c.sum().backward()
        found.append([x.detach().float() for x in (c, a.grad, b.grad)])
    for x, y in zip(*found, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-2, atol=1e-2)


def test_the_gradient_of_a_transposed_weight_is_laid_out_as_it() -> None:
    weights = torch.randn(4, 24, 40).half().requires_grad_()
    a, offsets = torch.randn(100, 40).half(), torch.tensor(ENDS[0], dtype=torch.int32)
    grouped_matmul(a, weights.transpose(1, 2), offsets).sum().backward()
    assert weights.grad.is_contiguous()
    want = a[5:40].float().sum(0).expand(24, 40)
    torch.testing.assert_close(weights.grad[2].float(), want, rtol=1e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"a": np.zeros(3, np.float16)}, "a must be (m, k), it has shape (3,)"),
        ({"b": np.zeros(40, np.float16)}, "b must be (groups, k, n), it has shape (40,)"),
        (
            {"b": np.zeros((4, 4, 40, 24), np.float16)},
            "b must be (groups, k, n), it has shape (4, 4, 40, 24). It takes a (m, k) and b",
        ),
        (
            {"b": np.zeros((48, 24), np.float16)},
            "a is 100×40 and b 48×24; 40 columns against 48 rows",
        ),
        (
            {"b": np.zeros((40, 24), np.float16), "bn": 64, "schedule": "pingpong"},
            "grouped_matmul with groups of k does not know the setting schedule; it has bm, bn",
        ),
        (
            {"b": np.zeros((40, 24), np.float16), "out": np.zeros((100, 24), np.float16)},
            "out must have shape (4, 100, 24), it has (100, 24)",
        ),
        (
            {"a": np.zeros((4, 100, 48), np.float16), "b": np.zeros((40, 24), np.float16)},
            "a is 4 times 100×48 and b 40×24; 48 columns against 40 rows",
        ),
        (
            {"a": np.zeros((3, 100, 40), np.float16), "b": np.zeros((40, 24), np.float16)},
            "a has 3 groups and offsets shape (4,); each group has one element, the column of b",
        ),
        (
            {"a": np.zeros((4, 100, 40), np.float16)},
            "offsets would be of nothing, omit them,",
        ),
        (
            {"a": np.zeros((3, 100, 40), np.float16), "offsets": None},
            "a has 3 groups and b 4",
        ),
        (
            {"a": np.zeros((4, 100, 40), np.float16), "offsets": None, "activation": "relu"},
            "grouped_matmul of one matrix for each group does not know the setting activation",
        ),
        ({"offsets": None}, "offsets, the end of each group, are not given"),
        ({"offs": np.zeros(4, np.int32)}, "offs is another name of offsets; give one of them"),
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
            "takes bfloat16, float16 or float8_e4m3, the same for a and b; got float32 and float16",
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
        ({"a": [[1.0]]}, "a must be a NumPy array or a tensor of PyTorch, got list"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_arguments_that_do_not_fit(change: dict[str, Any], words: str) -> None:
    with pytest.raises(tp.BindError, match=re.escape(words)):
        grouped_matmul(**(dict(zip(("a", "b", "offsets"), operands(), strict=True)) | change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"b": np.zeros((2, 24, 16), np.float16)}, ": a is 2×16×32 and b is 2×24×16; 32 columns"),
        (
            {"b": np.zeros((2, 32, 16), np.float32)},
            " of one matrix for each group takes bfloat16 or float16, the same for a and b; got"
            " float16 and float32",
        ),
        ({"out": np.zeros((2, 16, 8), np.float16)}, ": out must have shape (2, 16, 16), it has"),
        ({"out_dtype": "int8"}, " returns bfloat16, float16, float32, not int8"),
    ],
    ids=["k", "dtypes", "out", "out_dtype"],
)
def test_groups_of_one_size_are_refused_in_the_name_that_was_called(
    change: dict[str, Any], words: str
) -> None:
    given = {"a": np.zeros((2, 16, 32), np.float16), "b": np.zeros((2, 32, 16), np.float16)}
    with pytest.raises(tp.BindError, match=re.escape(f"grouped_matmul{words}")) as caught:
        grouped_matmul(**(given | change))
    assert " matmul" not in f" {caught.value}"


def test_groups_of_one_size_keep_what_an_error_is() -> None:
    """Its type and where it was raised, also of PyTorch's tensors, under a mode and out= beside a
    gradient.
    """
    torch = pytest.importorskip("torch")
    given = [torch.zeros(2, 16, k).half() for k in (32, 16)]
    words = re.escape("grouped_matmul: a is 2×16×32 and b is 2×16×16; 32 columns against 16 rows")
    with pytest.raises(tp.BindError, match=words) as caught:
        grouped_matmul(*given)
    assert str(caught.traceback[-1].path).endswith("shapes.py")
    with torch.overrides.BaseTorchFunctionMode(), pytest.raises(tp.BindError, match=words):
        grouped_matmul(*given)
    a, b = torch.zeros(2, 16, 16).half(), given[1].requires_grad_()
    for left, right in ((a, b), (b, a)):
        with pytest.raises(tp.BindError, match=r"^grouped_matmul: out= has no gradient"):
            grouped_matmul(left, right, out=torch.zeros(2, 16, 16).half())
    with pytest.raises(tp.BindError, match=r"^grouped_matmul: seed and progress belong"):
        grouped_matmul(a.to("meta"), a.to("meta"), seed=1)


def test_groups_of_one_size_on_another_gpu_than_hopper(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from tilepipe.ops.torch import device

    monkeypatch.setattr(device, "simulates", lambda x: False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda ordinal: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda ordinal: "an A100")
    a = torch.zeros(2, 16, 16).half()
    for op, name in ((grouped_matmul, "grouped_matmul"), (tp.ops.matmul, "matmul")):
        for run in (op, torch.compile(op, backend="eager")):
            with pytest.raises(tp.UnavailableError, match=f"^{name} needs a Hopper GPU"):
                run(a, a)


def test_what_is_no_tensor_beside_one_is_named() -> None:
    torch = pytest.importorskip("torch")
    b, offsets = torch.zeros(2, 16, 16).half(), torch.tensor([8, 16], dtype=torch.int32)
    message = r"^grouped_matmul: a must be a tensor of PyTorch as the others, got str"
    with pytest.raises(tp.BindError, match=message):
        grouped_matmul("a", b, offsets)
