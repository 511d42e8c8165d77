"""The operations on rows of NumPy arrays: the kernels on the simulated GPU."""

from __future__ import annotations

import numpy as np

from tilepipe.errors import BindError
from tilepipe.ops.arrays import require_arrays
from tilepipe.ops.calls import Array, Progress, Settings, check_shape
from tilepipe.ops.rows import programs


def layer_norm(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    eps: float,
    settings: Settings,
    seed: int,
    progress: Progress | None,
) -> Array:
    """`ops.layer_norm` of NumPy arrays."""
    name = "layer_norm"
    require_arrays(name, "x and weight", ("x", x), weight=weight, bias=bias)
    shape = programs.matrix_shape(name, x.shape)
    check_shape(name, "weight", weight, x.shape[-1:])
    check_shape(name, "bias", bias, x.shape[-1:])
    y = np.zeros(shape, x.dtype)
    named = {"x": np.ascontiguousarray(x).reshape(shape), "y": y}
    named |= {n: v for n, v in (("weight", weight), ("bias", bias)) if v is not None}
    bind, cfg = (
        programs.layer_norm(programs.checked_eps(name, eps)),
        programs.config(name, settings),
    )
    if y.size:
        bind(named, cfg).run(seed=seed, progress=progress)
    return y.reshape(x.shape)


def softmax(x: Array, settings: Settings, seed: int, progress: Progress | None) -> Array:
    """`ops.softmax` of NumPy arrays."""
    require_arrays("softmax", "x", ("x", x))
    shape = programs.matrix_shape("softmax", x.shape)
    y = np.zeros(shape, x.dtype)
    cfg = programs.config("softmax", settings)
    if y.size:
        named = {"x": np.ascontiguousarray(x).reshape(shape), "y": y}
        programs.softmax(named, cfg).run(seed=seed, progress=progress)
    return y.reshape(x.shape)


def cross_entropy(
    x: Array,
    labels: Array,
    ignore_index: int,
    settings: Settings,
    seed: int,
    progress: Progress | None,
) -> tuple[Array, Array]:
    """`ops.cross_entropy` of NumPy arrays."""
    name = "cross_entropy"
    require_arrays(name, "x", ("x", x), ("labels", labels))
    shape = programs.matrix_shape(name, x.shape)
    check_shape(name, "labels", labels, x.shape[:-1])
    cfg, ignored = programs.config(name, settings), programs.checked_label(name, ignore_index)
    if not shape[1]:
        raise BindError(f"{name}: x has no columns")
    loss, lse = (np.zeros(shape[0], np.float32) for _ in range(2))
    if shape[0]:
        named = {
            "x": np.ascontiguousarray(x).reshape(shape),
            "labels": np.ascontiguousarray(labels).reshape(shape[0]),
            "loss": loss,
            "lse": lse,
        }
        bind = programs.cross_entropy(ignored)
        bind(named, cfg).run(seed=seed, progress=progress)
    return loss.reshape(labels.shape), lse.reshape(labels.shape)
