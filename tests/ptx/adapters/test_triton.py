"""Launches of kernels that Triton has compiled, from what the compiler notes of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import tilepipe as tp
from tilepipe import ptx
from tilepipe.machine.memory import tensor_map

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"


def compiled(signature: dict[str, Any], body: str, parameters: list[str], **metadata: Any) -> Any:
    """What `triton.compile` returns, as far as a launch looks at it."""
    declared = ", ".join(f".param .{kind} p{i}" for i, kind in enumerate(parameters))
    noted = {
        "name": "k", "num_warps": 1, "num_ctas": 1, "shared": 0, "global_scratch_size": 0,
        "profile_scratch_size": 0, "tensordesc_meta": None,
    }  # fmt: skip
    return SimpleNamespace(
        src=SimpleNamespace(signature=signature, constants={}),
        asm={"ptx": f"{HEAD}.visible .entry k({declared}) {{ {body} }}"},
        metadata=SimpleNamespace(**noted | metadata),
    )


ADD = compiled(
    {"x": "*i32", "BLOCK": "constexpr", "n": "i32", "out": "*i32"},
    """.reg .b64 %rd<3>; .reg .b32 %r<5>;
    ld.param.u64 %rd1, [p0]; ld.param.u32 %r1, [p1]; ld.param.u64 %rd2, [p2];
    mov.u32 %r2, %tid.x; mul.wide.u32 %rd0, %r2, 4;
    add.u64 %rd1, %rd1, %rd0; add.u64 %rd2, %rd2, %rd0;
    ld.global.u32 %r3, [%rd1]; add.u32 %r3, %r3, %r1; st.global.u32 [%rd2], %r3; ret;""",
    ["u64", "u32", "u64", "u64", "u64"],
    num_warps=2,
)


def test_arguments_are_those_that_are_no_constants() -> None:
    x = np.arange(64, dtype=np.int32)
    out = np.zeros_like(x)
    launch = ptx.from_triton(ADD, x, 5, out, grid=1)
    assert (launch.block, launch.grid, launch.cluster) == ((64, 1, 1), (1, 1, 1), (1, 1, 1))
    launch.run()
    np.testing.assert_array_equal(out, x + 5)
    ptx.from_triton(ADD, x, out=out, n=7, grid=(1,)).run()
    np.testing.assert_array_equal(out, x + 7)


def test_a_tensor_of_addresses_is_a_pointer() -> None:
    """As in the grouped GEMM of Triton's tutorials, which fills the tensor with `data_ptr()`."""
    groups = compiled(
        {"x": "*i64"},
        """.reg .b64 %rd<3>; .reg .b32 %r<3>; ld.param.u64 %rd1, [p0];
        ld.global.u64 %rd2, [%rd1+8]; mov.u32 %r1, 7; st.global.u32 [%rd2], %r1; ret;""",
        ["u64", "u64", "u64"],
    )
    first, second = torch.zeros(2, dtype=torch.int32)[:, None]
    ptx.from_triton(groups, ptx.Pointer([first, second]), grid=1).run()
    assert (int(first), int(second)) == (0, 7)


def test_a_tensor_on_the_cpu_is_written_in_place() -> None:
    held = torch.arange(128, dtype=torch.int32).reshape(2, 64)
    out = torch.zeros(64, dtype=torch.int32)
    ptx.from_triton(ADD, held[1], 1, out, grid=1).run()
    assert torch.equal(out, held[1] + 1)


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((1,), {}, r"'k' takes \(x, n, out\), without its constants; given: 1 in order"),
        ((1, 2, 3), {"n": 4}, "given: 3 in order, n"),
        ((1, 2), {"y": 4}, "given: 2 in order, y"),
        (("x", 2, 3), {}, r"argument 'x' is \*i32: expected an array"),
        ((0, "n", 0), {}, "argument 'n' is i32; got str"),
        (
            (torch.zeros(4, device="meta"), 2, 0),
            {},
            "'x': Tensor is in the memory of meta.*pass `x.cpu",
        ),
    ],
)
def test_other_arguments_are_refused(args: Any, kwargs: Any, said: str) -> None:
    with pytest.raises(tp.BindError, match=said):
        ptx.from_triton(ADD, *args, **kwargs, grid=1)


MAP = {"swizzle": 1, "block_size": [4, 16], "fp4_padded": False, "elem_size": 2, "elem_type": 2}
DESCRIBED = compiled(
    {"x": ("tensordesc<bf16[4,16]>", "constexpr"), "out": "*i64"},
    """.reg .b64 %rd<9>; .reg .b32 %r<9>;
    ld.param.u32 %r0, [p1]; ld.param.u32 %r1, [p2]; ld.param.u64 %rd1, [p3];
    ld.param.u64 %rd2, [p4]; ld.param.u64 %rd3, [p5]; cvt.u64.u32 %rd4, %r0;
    .reg .pred %q; mov.u32 %r2, %ctaid.x; setp.ne.u32 %q, %r2, 0; @%q ret;
    cvt.u64.u32 %rd5, %r1; ld.param.u64 %rd6, [p6];
    st.global.u64 [%rd3], %rd4; st.global.u64 [%rd3+8], %rd5; st.global.u64 [%rd3+16], %rd1;
    st.global.u64 [%rd3+24], %rd2; st.global.u64 [%rd6+16], %rd1; ret;""",
    ["align 64 .b8", "u32", "u32", "u64", "u64", "u64", "u64", "u64"],
    tensordesc_meta=[MAP],
    global_scratch_size=24,
    num_ctas=2,
)
DESCRIBED.asm["ptx"] = DESCRIBED.asm["ptx"].replace(" p0,", " p0[128],")


def test_a_descriptor_becomes_a_map_extents_and_strides() -> None:
    x = torch.zeros(8, 96, dtype=torch.bfloat16)[:, :80]
    out = np.zeros(4, np.int64)
    descriptor = SimpleNamespace(
        base=x, shape=[8, 64], strides=[96, 1], block_shape=[4, 16], padding="nan",
        round_f32_to_tf32=False,
    )  # fmt: skip
    launch = ptx.from_triton(DESCRIBED, (descriptor, None), out, grid=(1, 1))
    launch.run()
    assert out.tolist() == [8, 64, 96, 1]
    assert (launch.grid, launch.cluster) == ((2, 1, 1), (2, 1, 1))
    found = tensor_map.decode(launch.parameters[:128])
    assert (found.shape, found.strides, found.box) == ((64, 8), (192,), (16, 4))
    assert (found.swizzle, found.nan, found.bits) == (1, True, 16)
    scratch = launch.args[-2]
    assert isinstance(scratch, np.ndarray)
    assert scratch.nbytes == 48  # of two CTAs
    by_array = ptx.from_triton(DESCRIBED, (np.zeros((8, 80), np.int16), None), out, grid=1)
    by_array.run()
    assert out.tolist() == [8, 80, 80, 1]


def test_descriptors_that_cannot_be_made_are_refused() -> None:
    x = np.zeros((8, 80), np.int16)
    for meta, said in (([], "without tensor maps"), ([MAP | {"is_im2col": True}], "im2col")):
        noted = SimpleNamespace(**vars(DESCRIBED.metadata) | {"tensordesc_meta": meta})
        other = SimpleNamespace(**vars(DESCRIBED) | {"metadata": noted})
        with pytest.raises(tp.BindError, match=said):
            ptx.from_triton(other, (x, None), x, grid=1)
    with pytest.raises(tp.BindError, match=r"'x' is a tensor descriptor.*got int"):
        ptx.from_triton(DESCRIBED, (3, None), x, grid=1)
    with pytest.raises(tp.BindError, match="argument 'x' is a tuple of 2"):
        ptx.from_triton(DESCRIBED, 3, x, grid=1)


@pytest.mark.parametrize("wrong", [None, "text", ADD.asm["ptx"], print])
def test_what_is_no_compiled_kernel(wrong: object) -> None:
    with pytest.raises(tp.BindError, match="from_triton takes what"):
        ptx.from_triton(wrong, 1, grid=1)  # type: ignore[arg-type]
    with pytest.raises(tp.BindError, match="expected what cute"):
        ptx.from_cute(wrong, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("grid", [lambda meta: (3,), "3", None, (1, 2, 3, 4), 1.5])
def test_a_grid_that_is_none(grid: object) -> None:
    x = np.arange(64, dtype=np.int32)
    with pytest.raises(tp.BindError, match=r"^grid is one to three integers"):
        ptx.from_triton(ADD, x, 5, x.copy(), grid=grid)  # type: ignore[arg-type]
