"""Programs on PyTorch tensors: those on a GPU launched there, once compiled for what they depend
on; those on the CPU simulated in their own memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

import tilepipe as tp
from tilepipe.ir.host_tensors import host_memory
from tilepipe.ops.torch import device
from tilepipe.ops.torch.plan_cache import LIMIT, as_written, facts
from tilepipe.ops.torch.simulated import OPTIONS, announcing
from tilepipe.ops.torch.tensors import TensorView, check_tensors

if TYPE_CHECKING:
    from tilepipe.cuda.runtime.launching import Launcher

Named = Mapping[str, Any]  # arrays, or views of tensors, by the kernel's arguments

_launchers: dict[object, Launcher] = {}
_lock = threading.Lock()


def run(
    operation: str,
    key: tuple[object, ...],
    bind: Callable[[Named, tp.Chip | None], tp.Program],
    **given: torch.Tensor | None,
) -> None:
    """Runs the program that `bind` makes of tensors, by the names of the kernel's arguments, and of
    the chip that they are on (None: simulated), in the current stream of their device. `key`: what
    it depends on beside them.

    Raises:
        BindError, UnavailableError: as the operation.
    """
    tensors = {name: x for name, x in given.items() if x is not None}
    check_tensors(operation, tensors)
    first = next(iter(tensors.values()))
    if device.simulates(first):
        seed, progress = OPTIONS.get()
        arrays = {name: host_memory(x, f"{operation}: {name}") for name, x in tensors.items()}
        program = bind(arrays, None)
        program.run(seed=seed, progress=announcing(operation, progress))
        return
    ordinal = first.get_device()
    whole = operation, as_written(key), tuple((name, facts(x)) for name, x in tensors.items())
    launcher = _launchers.get(whole)
    if launcher is None:
        chip = device.hopper(ordinal, operation)
        views = {name: TensorView(x) for name, x in tensors.items()}
        with device.context(ordinal):
            launcher = bind(views, chip).launcher()
        with _lock:
            _launchers[whole] = launcher
            if len(_launchers) > LIMIT:
                del _launchers[next(iter(_launchers))]
    addresses = tuple(tensors[name].data_ptr() for name in launcher.tensors)
    with torch.cuda.device(ordinal):
        launcher(addresses, device.raw_stream(ordinal))
