"""The constants of `model.Model` for each chip, fitted to measurements on it.

They explain times, and are no properties of the chip. `benchmarks/gemm_model.py fit` wrote them in
its earlier form, before it came to be about `times` (see its history); nothing fits them today.
"""

from __future__ import annotations

# Fitted to 178 measurements of 162 shapes with 20 to 40 configurations each, in bursts on an H200
# (docs/decisions/0006); `extras` was set by hand against three shapes with scales.
H200: dict[str, float | tuple[float, ...]] = {
    "start": 1.114,
    "wave": 0.143,
    "tensor_mhz": 2090.0,
    "one": 1.290,
    "three": 1.441,
    "pingpong": 1.164,
    "fill": 115.9e3,
    "chip_loads": 20.77e6,
    "pair": 1.020,
    "quad": 0.976,
    "skew": (3.653, 2.650, 3.482),
    "latency": 1.134,
    "dram": 6.33e6,
    "idle": 1.313,
    "store": 3.467,
    "slice": 0.094,
    "skewed_store": 1.084,
    "hidden": 0.768,
    "extras": 2.6,
    "single": 0.970,
    "triple": 0.899,
    "join": 0.448,
    "split": (0.0, 2.113),
}
