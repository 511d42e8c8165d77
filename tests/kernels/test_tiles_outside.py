"""Where C's tiles are no multiple of the cluster's, CTAs without a tile load rows that exist: TMA
takes longer to write rows of zeros than to load rows, and all of the cluster waits for them.
"""

from __future__ import annotations

from typing import Any

import pytest

from tilepipe.machine.memory.global_memory import GlobalTensor
from tilepipe.registry.catalog import find

SMALL = {"bm": 64, "consumers": 1, "stages": 2}
NARROW = SMALL | {"bn": 32, "bk": 32}
BLOCKWISE = SMALL | {"bn": 64, "k": 256}
CASES: list[tuple[str, dict[str, Any]]] = [
    # five tiles in clusters of four, or three in pairs
    ("gemm", NARROW | {"m": 320, "n": 32, "k": 96, "cluster": 4}),
    ("gemm", NARROW | {"m": 32, "n": 320, "k": 96, "cluster": 4, "swap": "ab"}),
    ("gemm", NARROW | {"m": 64, "n": 96, "k": 96, "cluster_n": 2}),
    (
        "gemm",
        NARROW
        | {"m": 64, "n": 160, "k": 96, "cluster_n": 4, "schedule": "pingpong", "consumers": 2},
    ),
    ("gemm", NARROW | {"m": 320, "n": 32, "k": 96, "cluster": 4, "early": "b"}),
    (
        "gemm",
        NARROW | {"m": 32, "n": 320, "k": 96, "cluster": 4, "early": "b", "swap": "ab"},
    ),
    ("gemm_gated", NARROW | {"m": 192, "n": 16, "k": 96, "cluster": 2}),
    ("gemm_gated", NARROW | {"m": 64, "n": 80, "k": 96, "cluster_n": 4}),
    ("gemm_blockwise", BLOCKWISE | {"m": 320, "n": 64, "cluster": 4}),
    ("gemm_blockwise", BLOCKWISE | {"m": 64, "n": 192, "cluster_n": 2}),
    ("gemm_grouped", NARROW | {"m": 128, "n": 96, "k": 96, "experts": 1, "cluster_n": 2}),
    ("gemm_grouped_blockwise", BLOCKWISE | {"m": 128, "n": 192, "experts": 1, "cluster_n": 2}),
    ("gemm_k_grouped", {"m": 384, "n": 128, "k": 192, "experts": 2, "cluster": 2}),
    ("gemm_k_grouped", {"m": 128, "n": 384, "k": 192, "experts": 2, "cluster_n": 2}),
    ("gemm_k_grouped_blockwise", BLOCKWISE | {"m": 192, "n": 64, "experts": 2, "cluster": 2}),
    ("gemm_k_grouped_blockwise", BLOCKWISE | {"m": 64, "n": 192, "experts": 2, "cluster_n": 2}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_rows_outside_are_loaded(
    case: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, settings = case
    spec = find(kernel)
    made = spec.case(spec.settings | settings, seed=1)
    rows: list[tuple[str, int, int]] = []
    read = GlobalTensor.read

    def noted(self: GlobalTensor, coords: Any, *extents: Any) -> Any:
        rows.append((self.param.name, coords[-2], self.shape[-2]))
        return read(self, coords, *extents)

    monkeypatch.setattr(GlobalTensor, "read", noted)
    made.program.run()
    assert made.verify().ok
    assert {name for name, *_ in rows} >= {"a"}
    assert [found for found in rows if found[1] >= found[2]] == []
