"""Names of kernels, parameters and variables in messages."""

from __future__ import annotations

import numpy as np
import pytest

from tilepipe.errors import BindError, SimFault
from tilepipe.ptx import load
from tilepipe.ptx.names import named_kernel, parameter_name, variable_name, variable_names

MANGLED = "_ZN9deep_gemm4gemmILj64EEEvPjj"
TEXT = f"""
    .version 8.7
    .target sm_90a
    .address_size 64
    .visible .entry {MANGLED}(.param .u64 {MANGLED}_param_0, .param .u32 {MANGLED}_param_1) {{
    .reg .b64 %rd; .reg .b32 %r;
    ld.param.u64 %rd, [{MANGLED}_param_0];
    st.global.u32 [%rd+400], %r1;
    ret;
    }}
    """.replace("%r1", "7")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (f"{MANGLED}_param_3", "parameter 4"),
        ("_Z6kernelPf_param_12", "parameter 13"),
        ("gemm_param_0", "parameter 1"),
        ("out", "out"),
        ("_param_0", "_param_0"),
        ("new_param_x", "new_param_x"),
    ],
)
def test_parameters_without_a_name_of_their_own_are_counted_from_one(name: str, said: str) -> None:
    assert parameter_name(name) == said


def test_messages_do_not_show_mangled_names() -> None:
    kernel = load(TEXT).only()
    assert named_kernel(kernel.name) == "kernel 'deep_gemm::gemm'"
    with pytest.raises(SimFault) as fault:
        kernel.bind([np.zeros(4, np.uint32), 1], grid=1, block=1).run()
    assert "which is not all of 'parameter 1'" in str(fault.value)
    with pytest.raises(BindError) as refused:
        kernel.bind([np.zeros(4, np.uint32), "text"], grid=1, block=1)  # type: ignore[list-item]
    for said in (str(fault.value), str(refused.value)):
        assert "_ZN" not in said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("_ZZ6kernelPfE4tile", "tile"),
        ("_ZZ6kernelPfE4tile_0", "tile"),
        ("_ZZ6kernelPfE4tile__12_", "tile"),
        ("_ZZN7cutlass13device_kernelIN4gemm4GemmILi3EEEEEvNT_6ParamsEE4smem", "smem"),
        ("_ZZZN3f1fEvENKUlvE_clEvE3bar", "bar"),
        ("_ZN3foo4tileE", "tile"),
        ("_ZN4buf14tileE", "tile"),
        ("_ZL4tile", "tile"),
        ("global_smem", "global_smem"),
        ("_Zebra", "_Zebra"),
        ("_ZZ6kernelPfE9tile", "_ZZ6kernelPfE9tile"),
    ],
)
def test_a_variable_has_the_last_name_in_its_mangled_name(name: str, said: str) -> None:
    assert variable_name(name) == said


def test_variables_of_one_name_are_told_apart_by_their_functions() -> None:
    one, other, alone = "_ZZ6kernelPfE4tile", "_ZZN3foo4loadEPfE4tile", "_ZZ6kernelPfE3bar"
    assert variable_names([one, other, alone]) == {
        one: "kernel::tile",
        other: "foo::load::tile",
        alone: "bar",
    }


def test_variables_of_one_name_in_one_function_keep_their_own() -> None:
    names = ["_ZZ6kernelPfE4tile", "_ZZ6kernelPfE4tile_0"]
    assert variable_names(names) == {name: name for name in names}
