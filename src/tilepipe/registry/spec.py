"""A shipped kernel as the command line sees it: its name, its settings, random operands for them,
and the small instances that are checked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

import tilepipe as tp
from tilepipe.errors import BindError, Padding
from tilepipe.host_arguments import question
from tilepipe.ir.chip import CHIPS, generation
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.registry.instances import Instance, Size, Sizes, alone, clusters_of, small_chip
from tilepipe.registry.settings import Configs, Setting, compiler_name, pairs, typed
from tilepipe.registry.tuning import Tuning
from tilepipe.testing.numerics import Comparison


@dataclass(frozen=True, eq=False)
class Case:
    """One kernel with random operands. `verify()` compares the output with float64; `tiles` counts
    output tiles.
    """

    program: tp.Program
    output: npt.NDArray[Any]
    verify: Callable[[], Comparison]
    tiles: int


class Make(Protocol):
    """A case from all settings and a seed, on a chip."""

    def __call__(self, settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
        """Raises BindError for a setting that the kernel cannot have."""


@dataclass(frozen=True, eq=False)
class KernelSpec:
    """A shipped kernel.

    Attributes:
        configs: the configurations of each architecture.
        work: the settings that say what is computed, with their defaults. extents: those of them
            that say how large the problem is.
        make: a case. sizes: settings -> the extents of what is checked.
        choose: settings -> tile settings for a chip or the simulator (None), and where they come
            from.
        bench: the module whose `contests` `tilepipe bench` measures, or "module:kernel", whose
            `contests_of(kernel)`; "" where there is none. It is imported when it is asked for: it
            may need PyTorch.
        zero: tensors that hold zeros before the first launch and after each, where the kernel does
            not say so itself, and has them.
        tuning: what `tilepipe tune` searches; None where nothing is chosen for the problem.
    """

    name: str
    summary: str
    configs: Configs
    work: dict[str, Setting]
    extents: frozenset[str]
    make: Make
    choose: Callable[[Mapping[str, Any], tp.Chip | None], tuple[dict[str, Setting], str]]
    sizes: Callable[[Mapping[str, Any]], Sizes]
    bench: str = ""
    zero: tuple[str, ...] = ()
    tuning: Tuning[Any, Any] | None = None

    @functools.cached_property
    def settings(self) -> dict[str, Setting]:
        """All settings, with their defaults."""
        return self.work | {"arch": self.configs.arch} | self.configs.defaults

    @functools.cached_property
    def tiles(self) -> frozenset[str]:
        """The settings that decide how the work is done and not what is done."""
        return frozenset(self.configs.defaults) - self.work.keys()

    @property
    def archs(self) -> tuple[str, ...]:
        """The architectures that the kernel is written for, as a compiler names them."""
        return self.configs.archs

    def case(self, settings: Mapping[str, Any], seed: int, chip: tp.Chip | None = None) -> Case:
        """What `make` makes. Where operands are not padded as TMA wants them, the message says
        which settings to change: who types settings has no array.
        """
        try:
            return self.make(settings, seed, chip)
        except BindError as error:
            if error.padding is None:
                raise
            padded = self._padded(settings, seed, chip, error.padding)
            if not padded:
                raise
            said = " ".join(f"-s {name}={value}" for name, value in padded.items())
            raise BindError(f"{error.rule} With its operands padded: {said}") from None

    def _padded(
        self, settings: Mapping[str, Any], seed: int, chip: tp.Chip | None, wanted: Padding
    ) -> dict[str, int]:
        """Extents with which all operands are padded; none where none are found. An operand does
        not say which setting its contiguous dimension has: of those of its extent it is the one
        with which it is padded.
        """
        found: dict[str, int] = {}
        left: Padding | None = wanted
        while left is not None:
            known = {**settings, **found}
            for name in sorted(x for x in self.extents if known[x] == left.extent):
                after = self._wanted(known | {name: left.padded}, seed, chip)
                if after is None or after.operand != left.operand:
                    found[name], left = left.padded, after
                    break
            else:
                return {}
        return found

    def _wanted(
        self, settings: Mapping[str, Any], seed: int, chip: tp.Chip | None
    ) -> Padding | None:
        """The padding that an operand wants; None: none, or something else is wrong."""
        try:
            self.make(settings, seed, chip)
        except BindError as error:
            return error.padding
        except tp.TilepipeError:
            return None
        return None

    def config(self, settings: Mapping[str, Any]) -> Any:
        """The configuration that all settings make. Raises BindError: they make none."""
        return self.configs.config(settings)

    def configure(
        self, given: Mapping[str, Setting], chip: tp.Chip | None
    ) -> tuple[dict[str, Setting], str]:
        """All settings, and a few words on where the tile settings come from.

        Where none of those is given they are chosen for `chip`; for the simulator (None) they are
        the defaults for the dtype, as are the others where some are given.

        Raises:
            BindError: a value that the kernel cannot have, or a setting that is given, be it at its
                default, and of another architecture.
        """
        config = self.settings | dict(given)
        if chip is not None and "arch" not in given and generation(chip.arch) in self.archs:
            config["arch"] = _setting_of(chip.arch)
        self.configs.refuse_foreign(config, given)
        mine = [name for name in given if name in self.tiles]
        if mine:
            defaults, _ = self.choose(config, None)
            return (
                self._of_arch(config | defaults | dict(given)),
                f"{', '.join(mine)} as given, the others at their defaults",
            )
        chosen, origin = self.choose(config, chip)
        return self._of_arch(config | chosen), origin

    def _of_arch(self, config: dict[str, Setting]) -> dict[str, Setting]:
        """Without the settings of another architecture."""
        foreign = self.configs.foreign(config)
        return {name: value for name, value in config.items() if name not in foreign}

    def instances(self, given: Mapping[str, Setting]) -> tuple[dict[str, Setting], list[Instance]]:
        """The settings, but for extents that are not given, and what the kernel is checked on, on
        chips with few SMs.

        Where an extent is given, it is that one problem; otherwise those of `sizes`, which are
        small.

        Raises:
            BindError: a value that the kernel cannot have.
        """
        config, _ = self.configure(given, None)
        per_cluster = getattr(self.config(config), "cluster_size", 1)
        chip, at_once = CHIPS[self.target(given)], clusters_of(per_cluster)
        problem = ", ".join(
            f"{name}={value}" for name, value in config.items() if name in self.extents
        )
        one = {f"{problem}, on {at_once * per_cluster} SMs": Size({}, at_once)}
        sizes = one if self.extents & given.keys() else self.sizes(config)
        stated = {
            name: value
            for name, value in config.items()
            if name in given or name not in self.extents
        }
        return stated, [
            Instance(
                name,
                functools.partial(
                    self._program,
                    config | size.extents,
                    small_chip(chip, size.clusters * per_cluster),
                ),
            )
            for name, size in sizes.items()
        ]

    def _program(
        self, config: Mapping[str, Setting], chip: tp.Chip, **changed: Setting
    ) -> tp.Program:
        return alone(self.case({**config, **changed}, 0, chip).program)

    def target(self, given: Mapping[str, Setting], arch: str | None = None) -> str:
        """The architecture to compile for: `arch`, that of the setting, or the first.

        Raises:
            BindError: the kernel is not written for it, or the two contradict each other.
        """
        home = None if arch is None else generation(arch)
        if home is not None and home not in self.archs:
            raise BindError(f"kernel '{self.name}' exists for {', '.join(self.archs)}, not {arch}")
        if "arch" not in given:
            return arch or self.archs[0]
        self.configs.of(str(given["arch"]))
        chosen = compiler_name(str(given["arch"]))
        if home is not None and home != chosen:
            raise BindError(f"arch={given['arch']} of '{self.name}' is for {chosen}, not {arch}")
        return arch or chosen

    def parse(self, texts: list[str]) -> dict[str, Setting]:
        """Settings from `name=value` texts, each of its default's type.

        Raises:
            BindError: no '=', a name given twice or unknown, a value of the wrong type.
        """
        given: dict[str, Setting] = {}
        for name, value in pairs(texts).items():
            if name not in self.settings:
                raise BindError(
                    f"kernel '{self.name}' has no setting '{name}'; it has"
                    f" {', '.join(self.settings)}{question(name, self.settings)}"
                )
            given[name] = typed(name, value, type(self.settings[name]))
        return given


def _setting_of(arch: str) -> str:
    """The setting `arch` of what a compiler names."""
    return generation(arch).removesuffix("a").replace("_", "")


@dataclass(frozen=True, eq=False, kw_only=True)
class GemmSpec(KernelSpec):
    """A kernel that is one product, measured on Hopper beside cuBLAS or PyTorch's `scaled_mm` by
    `bench.gemm`.

    Attributes:
        problem: the product that settings state.
        shapes: the suite that is measured unless others are asked for.
    """

    problem: Callable[[Mapping[str, Any]], Problem]
    shapes: str = "standard"
