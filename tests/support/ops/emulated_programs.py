"""Programs of CPU tensors as if these were on a GPU: bound as ever, and launched by simulating them
in the memory at the addresses that a launch is given.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

import tilepipe as tp
from tests.support.ops.device import STREAM, take_cpu_for_gpu
from tests.support.ops.memory import at
from tilepipe.kernels.attention_backward.sm90_bind import Workspace
from tilepipe.ops.torch.tensors import TensorView

Names = Mapping[str, str | tuple[str, ...]]
SAME: Names = {}


@dataclass(frozen=True)
class Launched:
    """One launch: by which function its program was bound, and addresses by the kernel's names."""

    name: str
    addresses: dict[str, int]


@dataclass
class Emulator:
    """What was bound and launched.

    Attributes:
        bound: the functions that bound programs, by name. chips: what each was told.
    """

    bound: list[str] = field(default_factory=list)
    chips: list[tp.Chip | None] = field(default_factory=list)
    launched: list[Launched] = field(default_factory=list)

    def replace(
        self, monkeypatch: pytest.MonkeyPatch, module: Any, *functions: str, names: Names = SAME
    ) -> None:
        """Has programs that these functions of a module bind emulated.

        Args:
            names: of the tensors of the kernel by the parameters of the functions, where they are
                others; of a pair or more, those of its elements.
        """
        take_cpu_for_gpu(monkeypatch)
        for name in functions:
            monkeypatch.setattr(module, name, self._noting(name, getattr(module, name), names))

    def _noting(self, name: str, bind: Callable[..., tp.Program], names: Names) -> Any:
        def noted(*given: Any, chip: tp.Chip | None = None, **options: Any) -> Bound:
            bind(*given, chip=chip, **options)  # which checks them
            self.bound.append(name)
            self.chips.append(chip)
            arguments = inspect.signature(bind).bind(*given, **options).arguments
            return Bound(self, name, bind, arguments, names)

        return noted


class Bound:
    """A program, its launcher, and a launch. It takes addresses in an order of its own."""

    def __init__(
        self,
        emulator: Emulator,
        name: str,
        bind: Callable[..., tp.Program],
        arguments: dict[str, Any],
        names: Names,
    ) -> None:
        self._emulator, self._name, self._bind = emulator, name, bind
        self._arguments, self._names = arguments, names
        self._views: dict[str, TensorView] = {}
        self._each(lambda name, view: self._views.setdefault(name, view))
        self.tensors = tuple(sorted(self._views))

    def launcher(self) -> Bound:
        return self

    def __call__(self, addresses: tuple[int, ...], stream: int) -> None:
        assert stream == STREAM
        places = dict(zip(self.tensors, addresses, strict=True))
        self._emulator.launched.append(Launched(self._name, places))
        self._bind(**self._each(lambda name, view: at(places[name], view))).run()

    def _each(self, made: Callable[[str, TensorView], Any]) -> dict[str, Any]:
        """The arguments, with what is made of each tensor by the kernel's name for it."""

        def of(name: str | tuple[str, ...], x: Any) -> Any:
            if isinstance(x, TensorView):
                assert isinstance(name, str)
                return made(name, x)
            if isinstance(x, Workspace):
                return Workspace(**{part: of(part, y) for part, y in vars(x).items()})
            return tuple(map(of, name, x)) if isinstance(name, tuple) and x is not None else x

        return {name: of(self._names.get(name, name), x) for name, x in self._arguments.items()}
