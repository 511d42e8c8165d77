"""What the commands know of the kernels of rows: settings, random cases, checked instances. The
setting `backward` chooses the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.kernels.cross_entropy import sm90 as cross_entropy
from tilepipe.kernels.layer_norm import sm90 as layer_norm
from tilepipe.kernels.rms_norm import sm90 as rms_norm
from tilepipe.kernels.rows import reference
from tilepipe.kernels.rows.choice import TUNABLES, RowProblem
from tilepipe.kernels.rows.config import VECTOR, RowConfig
from tilepipe.kernels.rows.team import part_rows
from tilepipe.kernels.rows.validation import ELEMENTS
from tilepipe.kernels.softmax import sm90 as softmax
from tilepipe.registry.instances import Size, Sizes, clusters_of
from tilepipe.registry.products import check_sizes
from tilepipe.registry.settings import Configs, Setting
from tilepipe.registry.spec import Case, KernelSpec
from tilepipe.registry.tuning import Tuning, chosen

EPS = 1e-5
IGNORED = -100
_CONFIGS = Configs({"sm90": RowConfig})
_EXTENTS: dict[str, Setting] = {"m": 512, "n": 4096}
_WORK: dict[str, Setting] = _EXTENTS | {"dtype": "bfloat16", "backward": False}
_SMS = 132  # of the simulated GPU, unless a chip is given


class _Operands:
    """Random operands of a kernel: x, dy (m, n), weight, bias (n,), labels (m,), zeros alike."""

    def __init__(self, settings: Mapping[str, Any], seed: int, chip: tp.Chip | None) -> None:
        m, n = settings["m"], settings["n"]
        check_sizes(settings, "mn", m * n)
        dtype = tp.dtype(settings["dtype"])
        if dtype not in ELEMENTS:
            takes = ", ".join(t.name for t in ELEMENTS)
            raise BindError(f"setting dtype must be one of {takes}, got {dtype}")
        self.cfg: RowConfig = _CONFIGS.config(settings)
        self.chip, self._sms = chip, _SMS if chip is None else chip.sms
        self._rng = np.random.default_rng(seed)
        self.x, self.dy = (self._normal((m, n), dtype) for _ in range(2))
        self.weight, self.bias = (self._normal((n,), dtype) for _ in range(2))
        self.labels = self._rng.integers(0, n, m).astype(np.int64)
        self.labels[m // 2] = IGNORED if m > 1 else self.labels[0]
        self.y = np.zeros_like(self.x)

    def _normal(self, shape: tuple[int, ...], dtype: tp.DType) -> Any:
        return self._rng.standard_normal(shape, dtype=np.float32).astype(dtype.numpy)

    def rows(self) -> Any:
        """Zeros, one value a row."""
        return np.zeros(len(self.x), np.float32)

    def parts(self, count: int) -> Any:
        """Room for partial sums of columns."""
        rows = part_rows(len(self.x), self.cfg, self._sms)
        return np.zeros((count, rows, self.x.shape[1]), np.float32)


_Made = tuple[tp.Program, Callable[[], list[reference.Result]]]


def _rms_norm(o: _Operands, backward: bool) -> _Made:
    if not backward:
        program = rms_norm.bind(o.x, o.weight, o.y, o.cfg, eps=EPS, chip=o.chip)
        return program, lambda: reference.rms_norm(o.y, o.x, o.weight, EPS)
    parts = o.parts(1)
    program = rms_norm.bind_backward(o.x, o.weight, o.dy, o.y, parts, o.cfg, eps=EPS, chip=o.chip)
    return program, lambda: reference.norm_backward(
        o.y, parts, o.x, o.weight, o.dy, EPS, centred=False
    )


def _layer_norm(o: _Operands, backward: bool) -> _Made:
    if not backward:
        program = layer_norm.bind(o.x, o.weight, o.bias, o.y, o.cfg, eps=EPS, chip=o.chip)
        return program, lambda: reference.layer_norm(o.y, o.x, o.weight, o.bias, EPS)
    parts = o.parts(2)
    program = layer_norm.bind_backward(o.x, o.weight, o.dy, o.y, parts, o.cfg, eps=EPS, chip=o.chip)
    return program, lambda: reference.norm_backward(
        o.y, parts, o.x, o.weight, o.dy, EPS, centred=True
    )


def _softmax(o: _Operands, backward: bool) -> _Made:
    if not backward:
        program = softmax.bind(o.x, o.y, o.cfg, chip=o.chip)
        return program, lambda: reference.softmax(o.y, o.x)
    e = np.exp(o.x.astype(np.float64))
    p = (e / e.sum(1, keepdims=True)).astype(o.x.dtype)
    program = softmax.bind_backward(p, o.dy, o.y, o.cfg, chip=o.chip)
    return program, lambda: reference.softmax_backward(o.y, p, o.dy)


def _cross_entropy(o: _Operands, backward: bool) -> _Made:
    loss, lse = o.rows(), o.rows()
    if not backward:
        program = cross_entropy.bind(o.x, o.labels, loss, lse, o.cfg, chip=o.chip)
        return program, lambda: reference.cross_entropy(loss, lse, o.x, o.labels)
    x = o.x.astype(np.float64)
    lse[...] = np.log(np.exp(x).sum(1))
    dloss = o.dy[:, 0].astype(np.float32)
    program = cross_entropy.bind_backward(o.x, o.labels, lse, dloss, o.y, o.cfg, chip=o.chip)
    return program, lambda: reference.cross_entropy_backward(o.y, o.x, o.labels, dloss)


def _sizes(settings: Mapping[str, Any]) -> Sizes:
    """Rows and columns that are no multiple of what the threads hold; and rows of few columns, the
    last of them alone in a CTA. Where CTAs stay, each takes several rows.
    """
    cfg, found = _CONFIGS.config(settings), Sizes()
    clusters, step = clusters_of(cfg.cluster), VECTOR * cfg.threads * cfg.members
    turns = 3 * cfg.ctas if settings["backward"] else 1
    for m, n in (
        (clusters * turns * cfg.cta_rows + 1, max(step - 3, 1)),
        (cfg.cta_rows + 1, min(9, step)),
    ):
        found[f"{m} rows of {n} columns"] = Size({"m": m, "n": n}, clusters)
    return found


def problem(settings: Mapping[str, Any]) -> RowProblem:
    """What the configuration depends on, of what settings state.

    Raises:
        BindError: an extent below 1, or a dtype that there is not.
    """
    m, n = settings["m"], settings["n"]
    check_sizes(settings, "mn", m * n)
    return RowProblem(m, n, tp.dtype(settings["dtype"]), backward=settings["backward"])


def _spec(
    name: str,
    summary: str,
    made: Callable[[_Operands, bool], _Made],
) -> KernelSpec:
    def make(settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
        operands = _Operands(settings, seed, chip)
        program, results = made(operands, settings["backward"])
        first = results()[0][0]
        return Case(
            program,
            first,
            lambda: reference.compare(results()),
            -(-settings["m"] // operands.cfg.cta_rows),
        )

    def choose(settings: Mapping[str, Any], chip: tp.Chip | None) -> tuple[dict[str, Setting], str]:
        return chosen(TUNABLES[name], problem(settings), chip)

    return KernelSpec(
        name,
        summary,
        _CONFIGS,
        _WORK,
        frozenset(_EXTENTS),
        make,
        choose,
        _sizes,
        bench=f"tilepipe.bench.rows:{name}",
        tuning=Tuning(TUNABLES[name], problem, ("m", "n")),
    )


RMS_NORM = _spec(
    "rms_norm",
    "x / √(mean x² + eps) · weight of each row, or the gradients (backward=true)",
    _rms_norm,
)
LAYER_NORM = _spec(
    "layer_norm",
    "(x - mean) / √(variance + eps) · weight + bias of each row, or the gradients (backward=true)",
    _layer_norm,
)
SOFTMAX = _spec(
    "softmax",
    "exp(x - max) / Σ exp(x - max) of each row, or the gradient (backward=true)",
    _softmax,
)
CROSS_ENTROPY = _spec(
    "cross_entropy",
    "log Σ exp x - x[label] of each row of logits, or the gradient (backward=true)",
    _cross_entropy,
)
