"""On the GPU: planted hangs become errors, the context survives them, and random delays change no
result.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tests.examples.ladder import EXAMPLES, load
from tests.gpu import hangs
from tests.support.time_limit import time_limit
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.sm90 import bind
from tilepipe.testing import compare_matmul
from tools.docs import shown
from tools.docs.readme import ROOT, blocks, run, words

pytestmark = pytest.mark.gpu

# Seconds until the error of a hang, its compilation included: a launch that takes its timeout for
# another unit returns later, and one that has none never (faulthandler then ends the process).
HANGS = 10.0

RNG = np.random.default_rng(0)
A, B = (
    RNG.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((1000, 776), (520, 776))
)
CONFIGS = [
    GemmConfig(bn=128),
    GemmConfig(bn=256),
    GemmConfig(bn=256, cluster=2),
    GemmConfig(bm=64, bn=128, consumers=1, k_group_size=2, stages=2),
    GemmConfig(bm=64, bn=128, schedule="pingpong"),
    GemmConfig(bn=128, split_k=2),
]


def gemm(cfg: GemmConfig, **options: Any) -> Any:
    """The matrix C that a launch writes."""
    c = np.zeros((1000, 520), ml_dtypes.bfloat16)
    bind(A, B, c, cfg).launch(**options)
    return c


def good() -> None:
    """Kernels launch, normal and debug builds, and their results are right."""
    result = compare_matmul(gemm(CONFIGS[2]), A, B.T)
    assert result.ok, result
    out = np.zeros(256, np.int32)
    hangs.rounds.bind(out).launch(debug=True)
    np.testing.assert_array_equal(out, hangs.rounds_expected())


@pytest.mark.parametrize("name", hangs.HANGS)
def test_a_planted_hang_is_an_error_and_the_context_survives(name: str) -> None:
    make, words = hangs.HANGS[name]
    program = make()
    for _ in range(2):
        with time_limit(HANGS), pytest.raises(tp.HangError) as caught:
            program.launch(debug=True, timeout_ms=200)
        text = str(caught.value)
        for word in (*words, "a wait blocked for 200 ms"):
            if word in (
                "missing arrive",
                "bytes off",
                "never released",
                "wrong phase",
                "silent peer",
                "short of threads",
            ):
                word = hangs.line(name)
            assert word in text, f"{name}: the message lacks {word!r}:\n{text}"
        good()


def test_a_hang_with_copies_and_multicasts_in_flight(tmp_path: Path) -> None:
    program = hangs.gemm(tmp_path)
    for _ in range(5):
        with pytest.raises(tp.HangError) as caught:
            program.launch(debug=True, timeout_ms=100)
        text = str(caught.value)
        for phrase in (
            "role 'load', warp 0, of CTA ",
            "waits for phase parity",
            "inputs.empty[",
            "4 arrivals a phase",
            "mbar_arrive, role 'mma'",
        ):
            assert phrase in text, text
        good()


def test_a_hang_under_random_delays(tmp_path: Path) -> None:
    program = hangs.gemm(tmp_path)
    with pytest.raises(tp.HangError, match=r"inputs\.empty\["):
        program.launch(debug=True, perturb=5, timeout_ms=100)
    good()


def test_a_good_kernel_outlives_a_short_limit() -> None:
    """The limit applies to one wait, not to the launch."""
    want = gemm(CONFIGS[0])
    np.testing.assert_array_equal(gemm(CONFIGS[0], debug=True, timeout_ms=20), want)


@pytest.mark.parametrize(
    "options", [{"debug": True}, {"perturb": 1}, {"debug": True, "perturb": 2}], ids=str
)
@pytest.mark.parametrize("cfg", CONFIGS, ids=str)
def test_debug_and_perturbed_builds_compute_the_same_bits(
    cfg: GemmConfig, options: dict[str, Any]
) -> None:
    want = gemm(cfg)
    assert compare_matmul(want, A, B.T).ok
    np.testing.assert_array_equal(gemm(cfg, **options).view(np.uint16), want.view(np.uint16))


@pytest.mark.parametrize("name", ["02_ring", "05_warp_specialised_gemm", "07_cluster_multicast"])
def test_examples_run_as_debug_builds(name: str) -> None:
    # runs on the simulator: the arguments hold its results
    program = load(EXAMPLES / f"{name}.py")(0)
    arrays = [
        arg.array.copy() for arg in program.launch_args.args.values() if hasattr(arg, "array")
    ]
    program.launch(debug=True, perturb=3)
    for before, arg in zip(
        arrays, (x for x in program.launch_args.args.values() if hasattr(x, "array")), strict=True
    ):
        got, want = arg.array.astype(np.float64), before.astype(np.float64)
        np.testing.assert_allclose(got, want, rtol=2e-2, atol=0.3)


def test_seeds_change_the_times_and_not_the_bits() -> None:
    c = np.zeros((1000, 520), ml_dtypes.bfloat16)
    program = bind(A, B, c, CONFIGS[2])
    program.launch()
    want = c.copy()
    for seed in range(50):
        c[:] = 0
        program.launch(perturb=seed)
        np.testing.assert_array_equal(
            c.view(np.uint16), want.view(np.uint16), err_msg=f"seed {seed}"
        )


def test_the_hang_of_the_how_to_page(tmp_path: Path) -> None:
    page = ROOT / "docs" / "how-to" / "debug-a-hang.md"
    code = shown.files(page.read_text(encoding="utf-8"))["hang.py"]
    program = run(code, tmp_path / "hang.py")["program"]
    with pytest.raises(tp.HangError) as caught:
        program.launch(debug=True, timeout_ms=200)
    text = f"HangError: {caught.value}".replace(f"{tmp_path}/", "")
    assert words(text) == words(blocks(page, "text")[1])
