"""What every configuration refuses: values of another kind, numbers out of range, broken rules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tilepipe as tp
from tilepipe.kernels.common.settings import Settings
from tilepipe.kernels.common.tiling import Sm90Tiling
from tilepipe.kernels.gemm.config import GemmConfig, StreamKConfig
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig
from tilepipe.kernels.gemm_gated.config import GatedGemmConfig
from tilepipe.kernels.gemm_grouped.config import GroupedGemmConfig
from tilepipe.kernels.gemm_k_grouped.config import KGroupedGemmConfig
from tilepipe.kernels.gemm_quantised.config import QuantisedGemmConfig


@dataclass(frozen=True)
class Pair(Settings):
    """Two numbers and a word."""

    rows: int = 8
    stages: int = 2
    order: str = "row"

    def _rules(self) -> dict[str, bool]:
        return {"rows must be even": self.rows % 2 == 0}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rows": 1.0}, "rows must be an integer, got 1.0"),
        ({"rows": True}, "rows must be an integer, got True"),
        ({"order": 3}, "order must be a string, got 3"),
        (
            {"rows": 0, "stages": -1},
            "rows must be at least 1; stages must be at least 1 (Pair(rows=0, stages=-1))",
        ),
        ({"stages": 129}, "stages must be at most 128 (Pair(stages=129))"),
        ({"rows": 7}, "rows must be even (Pair(rows=7))"),
        ({"rows": 7, "order": "col"}, "rows must be even (Pair(rows=7, order='col'))"),
    ],
)
def test_settings_that_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(tp.BindError, match=f"^{re.escape(message)}$"):
        Pair(**given)


def test_settings_that_are_taken() -> None:
    made = Pair(rows=np.int64(4))  # type: ignore[arg-type]
    assert type(made.rows) is int
    assert made.as_dict() == {"rows": 4, "stages": 2, "order": "row"}
    assert made.changed(order="col") == Pair(4, order="col")


@pytest.mark.parametrize(
    "config",
    [
        BlockwiseGemmConfig,
        GatedGemmConfig,
        GroupedGemmConfig,
        KGroupedGemmConfig,
        QuantisedGemmConfig,
        StreamKConfig,
    ],
)
def test_only_the_gemm_takes_192_rows_for_each_warpgroup(config: type[Sm90Tiling]) -> None:
    assert GemmConfig(bm=384, bn=64).rows == 192
    expected = "bm must be 64 or 128 rows for each"
    with pytest.raises(tp.BindError) as caught:
        config(bm=384, bn=64, consumers=2)
    assert str(caught.value).startswith(expected)
