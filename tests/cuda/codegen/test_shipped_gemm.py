"""The GEMM as shipped, traced by the library: what ptxas makes of it, without a GPU."""

from __future__ import annotations

from typing import Any, Literal

import ml_dtypes
import numpy as np
import pytest

from tilepipe import cuda
from tilepipe.cuda.nvrtc import sass
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.sm90 import bind

BF16 = ml_dtypes.bfloat16
Order = Literal["C", "F"]
CASES: list[tuple[dict[str, Any], Order, Order, Any, Any]] = [
    ({"bn": 256}, "C", "C", BF16, BF16),
    ({"bn": 256, "cluster": 2}, "C", "C", BF16, BF16),
    ({"bn": 256, "cluster": 2}, "F", "F", BF16, np.float16),
    ({"bn": 128}, "F", "C", np.float16, np.float32),
    ({"bn": 256, "bm": 64, "consumers": 1}, "C", "F", np.float16, np.float16),
    ({"bn": 128, "bm": 128, "consumers": 1}, "C", "C", BF16, BF16),
    ({"bn": 128, "k_group_size": 2, "stages": 2}, "C", "C", BF16, BF16),
]


@pytest.mark.sampled(suite=5)
@pytest.mark.slow
@pytest.mark.parametrize(("settings", "a_order", "b_order", "dtype", "out"), CASES)
def test_machine_code(
    settings: dict[str, Any], a_order: Order, b_order: Order, dtype: Any, out: Any
) -> None:
    cfg = GemmConfig(**settings)
    a, b = (np.zeros((512, 512), dtype, order=order) for order in (a_order, b_order))
    program = bind(a, b, np.zeros((512, 512), out), cfg)
    compiled = cuda.compile(program.kernel)
    assert compiled.spill_bytes == compiled.stack_bytes == 0
    assert "C75" not in compiled.log
    assert "warning" not in compiled.log
    code = sass.disassemble(compiled.data)
    assert {"UTMALDG", "UTMASTG", "SYNCS", "USETMAXREG"} <= set(sass.count(code))
    loop = sass.loop_with(code, "HGMMA").count()
    assert loop["HGMMA"] == cfg.rows // 64 * cfg.bk // 16 * cfg.k_group_size
    assert not {"MEMBAR", "I2F", "MUFU", "R2UR", "LDL", "STL"} & set(loop)
    load = sass.loop_with(code, "UTMALDG").count()
    assert not {"MEMBAR", "I2F", "MUFU", "VOTE"} & set(load)
