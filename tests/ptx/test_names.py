"""Names of kernels and parameters in messages."""

from __future__ import annotations

import numpy as np
import pytest

from tilepipe.errors import BindError, SimFault
from tilepipe.ptx import load
from tilepipe.ptx.names import named_kernel, parameter_name

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
        (f"{MANGLED}_param_3", "parameter 3 of deep_gemm::gemm"),
        ("_Z6kernelPf_param_12", "parameter 12 of kernel"),
        ("gemm_param_0", "gemm_param_0"),
        ("out", "out"),
    ],
)
def test_parameters_are_named_by_kernel_and_number(name: str, said: str) -> None:
    assert parameter_name(name) == said


def test_messages_do_not_show_mangled_names() -> None:
    kernel = load(TEXT).only()
    assert named_kernel(kernel.name) == "kernel 'deep_gemm::gemm'"
    with pytest.raises(SimFault) as fault:
        kernel.bind([np.zeros(4, np.uint32), 1], grid=1, block=1).run()
    assert "parameter 0 of deep_gemm::gemm" in str(fault.value)
    with pytest.raises(BindError) as refused:
        kernel.bind([np.zeros(4, np.uint32), "text"], grid=1, block=1)  # type: ignore[list-item]
    for said in (str(fault.value), str(refused.value)):
        assert "_ZN" not in said
