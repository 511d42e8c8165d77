"""What is printed of every family of the shipped kernels, and of the examples, is right: its PTX
is run by the reader, which shares no code with the printer, and compared with NumPy.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.whole_numbers import whole_numbers as whole_numbers
from tilepipe.registry.catalog import find
from tools.snapshot.doors import KERNELS
from tools.snapshot.families import FAMILIES

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*.py"))
# Problems of a few tiles with a rest in each extent.
SMALL: dict[str, dict[str, Any]] = {
    "gemm": {"m": 264, "n": 296, "k": 136},
    "gemm_blockwise": {"m": 264, "n": 296, "k": 144},
    "gemm_block_scaled": {"m": 264, "n": 200, "k": 352},
    "gemm_gated": {"m": 264, "n": 200, "k": 208},
    "gemm_quantised": {"m": 40, "n": 200, "k": 392},
    "gemm_grouped": {"m": 420, "n": 136, "k": 136, "experts": 5},
    "gemm_grouped_blockwise": {"m": 420, "n": 136, "k": 144, "experts": 5},
    "gemm_k_grouped_blockwise": {"m": 136, "n": 200, "k": 624, "experts": 4},
    "gemm_k_grouped": {"m": 136, "n": 200, "k": 420, "experts": 5},
    "gemm_stream_k": {"m": 136, "n": 200, "k": 208},
    "rms_norm": {"m": 5, "n": 100},
    "layer_norm": {"m": 5, "n": 100},
    "softmax": {"m": 5, "n": 100},
    "cross_entropy": {"m": 5, "n": 100},
    "attention": {"s_q": 140, "s_kv": 200},
    "attention_backward": {"s_q": 140, "s_kv": 150},
    "attention_decode": {"s": 280, "lengths": "270,130,0"},
    "append_kv": {},  # these, too
}


@dataclass(frozen=True)
class Family:
    """A configuration of a shipped kernel.

    Attributes:
        key: of the kernel, with its architecture. settings: all that are given.
    """

    key: str
    name: str
    settings: dict[str, Any]

    @property
    def kernel(self) -> str:
        return KERNELS[self.key][0][0]

    @property
    def arch(self) -> str:
        return KERNELS[self.key][0][2]

    def case(self) -> Any:
        """The kernel with random operands, of a small problem."""
        _, chosen, _ = KERNELS[self.key][0]
        spec = find(self.kernel)
        config, _ = spec.configure({**chosen, **self.settings, **SMALL[self.kernel]}, None)
        return spec.make(config, 0)


FAMILY_LIST = [
    Family(key, name, settings)
    for key, found in FAMILIES.items()
    for name, settings in found.items()
]


# Kernels whose own tests, in tests/kernels, run what is printed of them.
ELSEWHERE = {"append_kv", "attention_backward", "gemm_gated", "gemm_quantised", "gemm_stream_k"}


def classes(family: Family, seed: int = 0) -> list[str]:
    """The kernels; of Blackwell's, those of CTA pairs; the kinds of scaled operands."""
    settings = family.settings
    if family.kernel in ELSEWHERE:
        return []
    return [family.key, f"{settings.get('cta_group', 1)} CTAs", str(settings.get("kind"))]


def exact(family: Family) -> bool:
    """Whether sums of whole numbers come out exactly: no scale and no function rounds them."""
    settings = family.settings
    return (
        family.kernel in ("gemm", "gemm_grouped", "gemm_block_scaled")
        and settings.get("kind") != "nvfp4"
        and settings.get("activation", "none") == "none"
    )


@pytest.mark.slow
@pytest.mark.sampled(suite=1000, classes=classes)
@pytest.mark.parametrize("seed", [0, 3, 7])
@pytest.mark.parametrize("family", FAMILY_LIST, ids=lambda f: f"{f.key} {f.name}")
def test_the_print_of_a_family_computes_what_numpy_computes(
    family: Family, seed: int, whole_numbers: None
) -> None:
    case = family.case()
    case.output[...] = np.nan
    case.program.ptx(family.arch).run(seed)
    found = case.verify()
    assert found.ok, found
    assert found.rel_error == 0 or not exact(family)


@pytest.mark.slow
@pytest.mark.sampled(suite=1000, classes=lambda family: ["gelu"] * (family.name == "gelu"))
@pytest.mark.parametrize("family", FAMILY_LIST, ids=lambda f: f"{f.key} {f.name}")
def test_fractions_are_within_the_bounds(family: Family) -> None:
    case = family.case()
    case.program.ptx(family.arch).run(1)
    found = case.verify()
    assert found.ok, found


@pytest.mark.slow
@pytest.mark.sampled(suite=4)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_print_of_an_example_computes_what_the_simulator_computes(path: Path) -> None:
    """The example itself compares the simulator's result with NumPy's."""
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    with contextlib.redirect_stdout(io.StringIO()):
        program = example.main(0)
    (*_, name) = program.launch_args.args
    output = program.launch_args.args[name].array
    want = output.copy()
    output[...] = 0
    program.ptx().run(3)
    # sums of a float32 accumulator that wgmma adds up in other groups, rounded to bfloat16
    np.testing.assert_allclose(
        output.astype(np.float64), want.astype(np.float64), rtol=2**-7, atol=1e-4
    )
