"""A whole GEMM: how it prints, and that ptxas makes of it what a hand-written kernel has."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.cuda.gemm import gemm
from tilepipe import cuda
from tilepipe.cuda.nvrtc import sass
from tilepipe.ir import dtypes

VARIANTS: list[dict[str, Any]] = [
    {},
    {"groups": 1, "bm": 64},
    {"cluster": 2},
    {"a_order": "col"},
    {"b_order": "col"},
    {"a_order": "col", "b_order": "col", "cluster": 2},
    {"dtype": dtypes.float16, "out": dtypes.float16},
    {"out": dtypes.float32, "out_cols": 32},
    {"bk": 128, "stages": 2},
    {"bn": 128, "out_cols": 32},
]


@pytest.mark.sampled(suite=6)
@pytest.mark.parametrize(
    "settings", VARIANTS, ids=lambda s: " ".join(f"{k}={v}" for k, v in s.items()) or "default"
)
@pytest.mark.slow
def test_machine_code(settings: dict[str, Any]) -> None:
    kernel = gemm(**settings)
    compiled = cuda.compile(kernel)
    assert compiled.spill_bytes == compiled.stack_bytes == 0
    assert "C75" not in compiled.log
    assert "warning" not in compiled.log
    code = sass.disassemble(compiled.data)
    whole = sass.count(code)
    assert {"UTMALDG", "UTMASTG", "SYNCS", "USETMAXREG", "ELECT"} <= set(whole)
    assert whole["USETMAXREG"] == 2
    assert not {"LDL", "STL"} & set(whole)

    loop = sass.loop_with(code, "HGMMA").count()
    assert loop["HGMMA"] == settings.get("bk", 64) // 16
    assert loop["SYNCS"] == 1 + settings.get("cluster", 1), "one wait, and an arrival at each CTA"
    assert not {"MEMBAR", "I2F", "MUFU", "R2UR", "CCTL", "ERRBAR"} & set(loop)
    assert sum(loop.values()) <= 81 + 20 * (settings.get("bk", 64) == 128), "no more than by hand"

    load = sass.loop_with(code, "UTMALDG").count()
    assert load["SYNCS"] == 2, "a wait and an expect_tx"
    assert not {"MEMBAR", "I2F", "MUFU", "VOTE"} & set(load)


def test_it_reads_like_a_kernel() -> None:
    text = cuda.source(gemm())
    assert text.startswith("// gemm (gemm.py:")
    assert 'extern "C" __global__ void __launch_bounds__(384, 1) gemm(' in text
    assert "#include" not in text
    roles = text[text.index("// ---- roles") :]
    assert re.search(
        r"void mma\(i32 warp, i32 a_shape_1, const TensorMap& c, i32 c_shape_0, i32 c_shape_1\) \{",
        roles,
    )
    assert "wait(inputs_full(cursor11_stage), cursor11_phase);  " in roles
    assert re.search(
        r"if \(\+\+cursor11_stage == 4\) \{ +// gemm.py:\d+\n +cursor11_stage = 0;\n "
        r"+cursor11_phase \^= 1;",
        roles,
    )
    launch = text[text.index('extern "C"') :]
    order = [
        "prefetch_tensor_map(a)",
        "mbarrier_init(inputs_full(i), 1)",
        "mbarrier_init(inputs_empty(i), 2)",
        "__syncthreads()",
    ]
    order += [
        "if (warp < 8) {",
        "setmaxnreg_inc<232>();",
        "mma(",
        "} else {",
        "setmaxnreg_dec<40>();",
        "if (warp == 8) {",
        "load(",
    ]
    places = [launch.index(x) for x in order]
    assert places == sorted(places)


def test_only_wrappers_in_use_are_printed_and_each_once() -> None:
    text = cuda.source(gemm())
    defined = re.findall(r"^__device__ __forceinline__ .*?(\w+)\(", text, re.MULTILINE)
    calls = {name: len(re.findall(rf"\b{name}[(<]", text)) for name in defined}
    assert all(n >= 2 for n in calls.values()), calls
    overloads = {"keep_register"}
    assert len(set(defined) - overloads) == len([d for d in defined if d not in overloads])


def test_cluster() -> None:
    text = cuda.source(gemm(cluster=2))
    assert "__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1) gemm(" in text
    assert "tma_load_multicast_2d(" in text
    assert "arrive_remote_relaxed(on_cta(inputs_empty(" in text
    assert "release.cluster.shared::cluster" not in text
    launch = text[text.index('extern "C"') :]
    assert (
        launch.index("fence_mbarrier_init();")
        < launch.index("cluster_arrive();")
        < launch.index("cluster_wait();")
    )
    assert "__syncthreads" not in text


def test_printing_is_deterministic() -> None:
    assert cuda.source(gemm(cluster=2)) == cuda.source(gemm(cluster=2))


def test_lineinfo_points_at_the_kernel() -> None:
    text = cuda.source(gemm(), lineinfo=True)
    assert re.search(r'#line \d+ ".*gemm\.py"', text)
    assert "  // gemm.py:" not in text
