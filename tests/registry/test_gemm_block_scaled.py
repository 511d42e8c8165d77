"""gemm_block_scaled on the command line."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.gemm_block_scaled.layout import KINDS
from tilepipe.registry.catalog import find

SPEC = find("gemm_block_scaled")


@pytest.mark.parametrize("kind", KINDS)
def test_a_case(kind: str) -> None:
    config, _ = SPEC.configure(
        {"m": 200, "n": 136, "k": 352, "kind": kind, "out_dtype": "float32"}, None
    )
    assert config["bk"] == (128 if kind == "mxfp8" else 256)
    case = SPEC.make(config, 3)
    case.program.run(seed=3)
    assert case.verify().ok
    assert case.tiles == 4
    case.output[:100] *= np.float32(1.02)
    assert not case.verify().ok
    assert SPEC.target({}) == "sm_100a"


def test_a_case_with_an_activation() -> None:
    config, _ = SPEC.configure({"m": 64, "n": 64, "k": 32, "activation": "gelu", "bn": 64}, None)
    case = SPEC.make(config, 1)
    case.program.run()
    assert case.verify().ok


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"k": 48},
            "setting k must be a multiple of 32, the elements of mxfp8 that share a scale, got 48",
        ),
        ({"kind": "nvfp4", "k": 40}, "setting k must be a multiple of 16, the elements of nvfp4"),
        ({"kind": "mxfp6"}, "kind must be one of mxfp8, mxfp4, nvfp4"),
        ({"m": 0}, "setting m must be at least 1, got 0"),
        (
            {"out_dtype": "int32"},
            "setting out_dtype must be one of bfloat16, float16, float32, got int32",
        ),
    ],
    ids=str,
)
def test_settings_that_no_case_has(given: dict[str, int | str], words: str) -> None:
    with pytest.raises(tp.BindError, match=re.escape(words)):
        SPEC.make(SPEC.configure(given, None)[0], 0)
