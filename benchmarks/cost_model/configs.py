"""The kernels that the cost model is fitted to and judged by: (name, settings) of each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

Config = tuple[str, str]

# problem -> the choices of tiles beside the one that is chosen for it
_GEMM = [
    "bm=128 bn=128",
    "bm=128 bn=256 cluster=2",
    "bm=128 bn=64 stages=6",
    "bm=64 bn=128 consumers=1",
]
_ATTENTION = ["bn=64", "bn=64 consumers=3", "bn=128 consumers=1", "bn=96"]
_GROUPED = ["bm=128 bn=128", "bm=128 bn=256", "bm=64 bn=128 consumers=1"]
_BLOCKWISE = ["bm=128 bn=64"]


def _all() -> Iterator[Config]:
    for problem, tiles in product(
        ("m=2048 n=2048 k=2048", "m=1024 n=4096 k=512", "m=512 n=1024 k=8192"), ["", *_GEMM]
    ):
        yield "gemm", f"{problem} {tiles}"
    for problem, tiles in product(
        (
            "heads=16 kv_heads=16 s_q=1024 s_kv=1024 d=128",
            "heads=8 kv_heads=2 s_q=2048 s_kv=2048 d=128 causal=true",
            "heads=16 kv_heads=16 s_q=1024 s_kv=2048 d=64",
        ),
        ["", *_ATTENTION],
    ):
        yield "attention", f"{problem} {tiles}"
    for problem, tiles in product(
        ("m=2048 n=2048 k=1024 experts=8", "m=4096 n=1024 k=1024 experts=16"), ["", *_GROUPED]
    ):
        yield "gemm_grouped", f"{problem} {tiles}"
    for problem, tiles in product(
        ("m=2048 n=2048 k=2048", "m=512 n=2048 k=4096"), ["", *_BLOCKWISE]
    ):
        yield "gemm_blockwise", f"{problem} {tiles}"
    for problem in ("m=1024 n=2048 k=1024", "m=2048 n=1024 k=2048", "m=4096 n=2048 k=512"):
        yield "gemm_gated", problem
    for name, problem in product(
        ("rms_norm", "layer_norm", "softmax", "cross_entropy"),
        ("m=2048 n=4096", "m=4096 n=1024", "m=8192 n=2048", "m=16384 n=1024", "m=1024 n=16384"),
    ):
        yield name, problem
    for problem in (
        "batch=8 heads=32 kv_heads=8 s=4096",
        "batch=32 heads=16 kv_heads=16 s=1024",
        "batch=4 heads=64 kv_heads=8 s=8192",
        "batch=16 heads=32 kv_heads=4 s=2048",
    ):
        yield "attention_decode", problem


CONFIGS = tuple((name, settings.strip()) for name, settings in _all())
