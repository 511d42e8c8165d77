"""A shipped kernel as the command line sees it: its name, its settings, and how to make a case from
settings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.ir.architecture import generation
from tilepipe.ir.chip import CHIPS
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.registry.instances import (
    Instance,
    Setting,
    Size,
    Sizes,
    alone,
    clusters_of,
    small_chip,
)
from tilepipe.testing.numerics import Comparison

if TYPE_CHECKING:
    from tilepipe.bench.beside import Contest

_BOOLS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


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
        settings: all of them, with their defaults. tiles: those that decide how the work is done
            and not what is done.
        make: a case. extents: the settings that say how large the problem is. sizes: settings ->
            the extents of what is checked.
        config: the configuration that settings make, which has a `cluster_size` where there are
            clusters.
        choose: settings -> tile settings for a chip or the simulator (None), and where they come
            from.
        forms: settings that another architecture than the first implies. of_forms: those that a
            form has and another does not.
        contests: what `tilepipe bench` measures of a kernel that is no GEMM: (settings given, texts
            of --shapes, chip, seed) -> the contests, with operands in the memory of device 0. It
            may import PyTorch. None: nothing stands beside this kernel.
    """

    name: str
    summary: str
    archs: tuple[str, ...]
    settings: dict[str, Setting]
    tiles: frozenset[str]
    make: Make
    choose: Callable[[Mapping[str, Any], tp.Chip | None], tuple[dict[str, Setting], str]]
    config: Callable[[Mapping[str, Any]], Any]
    extents: frozenset[str]
    sizes: Callable[[Mapping[str, Any]], Sizes]
    forms: Mapping[str, dict[str, Setting]] = field(default_factory=dict)
    of_forms: Forms | None = None
    contests: (
        Callable[[Mapping[str, Setting], Sequence[str], tp.Chip, int], Sequence[Contest]] | None
    ) = None

    def configure(
        self, given: Mapping[str, Setting], chip: tp.Chip | None
    ) -> tuple[dict[str, Setting], str]:
        """All settings, and a few words on where the tile settings come from.

        Where none of those is given they are chosen for `chip`; for the simulator (None) they are
        the defaults for the dtype, as are the others where some are given.

        Raises:
            BindError: a value that the kernel cannot have.
        """
        form = {} if chip is None else self.forms.get(generation(chip.arch), {})
        config = self.settings | form | dict(given)
        mine = [name for name in given if name in self.tiles]
        if mine:
            defaults, _ = self.choose(config, None)
            return self._of_form(
                config | defaults | dict(given)
            ), f"{', '.join(mine)} as given, the others at their defaults"
        chosen, origin = self.choose(config, chip)
        return self._of_form(config | chosen), origin

    def _of_form(self, config: dict[str, Setting]) -> dict[str, Setting]:
        """Without the settings that only another form has, but for those that somebody has set:
        `config` refuses them.
        """
        left_out = self.of_forms.foreign(config) if self.of_forms is not None else []
        return {
            name: value
            for name, value in config.items()
            if name not in left_out or value != self.settings[name]
        }

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
        return alone(self.make({**config, **changed}, 0, chip).program)

    def target(self, given: Mapping[str, Setting], arch: str | None = None) -> str:
        """The architecture that the settings are for; the first that can have them, unless one is
        asked for.

        Raises:
            BindError: there is no kernel for that architecture, or not with these settings.
        """
        home = None if arch is None else generation(arch)
        if home is not None and home not in self.archs:
            raise BindError(f"kernel '{self.name}' exists for {', '.join(self.archs)}, not {arch}")
        of_form = {name for form in self.forms.values() for name in form}
        chosen = {name: value for name, value in given.items() if name in of_form}
        fitting = [
            x
            for x in self.archs
            if chosen.items() <= (self.settings | self.forms.get(x, {})).items()
        ]
        if home is not None and fitting and home not in fitting:
            said = ", ".join(f"{name}={value}" for name, value in chosen.items())
            raise BindError(f"{said} of '{self.name}' is for {', '.join(fitting)}, not {arch}")
        return arch or (fitting or self.archs)[0]

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
                    f" {', '.join(self.settings)}"
                )
            given[name] = typed(name, value, type(self.settings[name]))
        return given


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """Names and values of `name=value` texts. Raises BindError: no '=', or a name twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not value:
            raise BindError(f"a setting is name=value, got {text!r}")
        if name in found:
            raise BindError(f"setting {name} is given twice: {name}={found[name]} and {text}")
        found[name] = value
    return found


def typed(name: str, text: str, kind: type[Any]) -> Any:
    """The value of a setting. `kind`: bool, int, float or str. Raises BindError: the text is no
    such value.
    """
    if kind is bool and text.lower() not in _BOOLS:
        raise BindError(f"setting {name}: {text!r} is neither true nor false")
    try:
        return _BOOLS[text.lower()] if kind is bool else kind(text)
    except ValueError:
        raise BindError(
            f"setting {name}: {text!r} is not {'an integer' if kind is int else 'a number'}"
        ) from None


@dataclass(frozen=True, eq=False, kw_only=True)
class GemmSpec(KernelSpec):
    """A kernel that is one product, measured beside cuBLAS or PyTorch's `scaled_mm` by
    `bench.gemm`.

    Attributes:
        problem: the product that settings state.
        shapes: the suite that is measured unless others are asked for. searched: `tilepipe tune`
            searches its configurations.
    """

    problem: Callable[[Mapping[str, Any]], Problem]
    shapes: str = "standard"
    searched: bool = False


class Forms:
    """Tile settings of a kernel that has a form, and a class of configurations, for each
    architecture; a setting `form` says which.

    Attributes:
        defaults: of all tile settings; where two forms have the same, those of the first.
    """

    def __init__(self, kinds: Mapping[str, type[Any]], fixed: tuple[str, ...] = ()) -> None:
        """`kinds`: the class of each form, the first the default. `fixed`: fields that are no
        settings: they have one value.
        """
        self._kinds = kinds
        self._fields = {
            form: {
                name: value
                for name, value in asdict(kind()).items()
                if form == next(iter(kinds)) or name not in fixed
            }
            for form, kind in kinds.items()
        }
        self.defaults: dict[str, Setting] = {}
        for own in self._fields.values():
            self.defaults |= {
                name: value for name, value in own.items() if name not in self.defaults
            }

    def of(self, form: str) -> dict[str, Setting]:
        """The tile settings of a form, with its own defaults.

        Raises:
            BindError: there is no such form.
        """
        if form not in self._kinds:
            raise BindError(f"setting form must be {' or '.join(self._kinds)}, got {form!r}")
        return self._fields[form]

    def foreign(self, settings: Mapping[str, Any]) -> list[str]:
        """Settings that only other forms have than the one that settings say. Raises BindError:
        there is no such form.
        """
        mine = self.of(settings["form"])
        return [name for name in self.defaults if name not in mine]

    def config(self, settings: Mapping[str, Any]) -> Any:
        """The configuration that all settings make.

        Raises:
            BindError: no such form, or a setting of another one that is not at its default.
        """
        mine = self.of(settings["form"])
        others = [
            name
            for name in self.foreign(settings)
            if settings.get(name, self.defaults[name]) != self.defaults[name]
        ]
        if others:
            raise BindError(
                f"form={settings['form']} has no setting {', '.join(others)}; it has"
                f" {', '.join(mine)}"
            )
        return self._kinds[settings["form"]](**{name: settings[name] for name in mine})


EXTENTS: dict[str, Setting] = {"m": 1024, "n": 1024, "k": 1024}
MNK = frozenset(EXTENTS)
MAX_ELEMENTS = 2**31  # of one operand: what a run and its reference can still hold in memory
BY_DEFAULT = "the defaults; --device cuda chooses them for the shape"


def check_extents(settings: Mapping[str, Any]) -> None:
    """Raises BindError for extents that no matrix has, or that a run cannot hold."""
    m, n, k = (settings[name] for name in "mnk")
    for name in "mnk":
        if settings[name] < 1:
            raise BindError(f"setting {name} must be at least 1, got {settings[name]}")
    if max(m * k, n * k, m * n) > MAX_ELEMENTS:
        raise BindError(
            f"a matrix of {max(m * k, n * k, m * n):,} elements is more than a run takes"
            f" ({MAX_ELEMENTS:,})"
        )


def random_matrix(
    rng: np.random.Generator, shape: tuple[int, int], dtype: tp.DType, order: str
) -> npt.NDArray[Any]:
    """Random normal numbers that tensor cores multiply exactly."""
    values = rng.standard_normal(shape, dtype=np.float32).astype(dtype.numpy)
    if dtype is tp.float32:  # what tf32 holds exactly: 10 bits of mantissa
        values = (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return np.asfortranarray(values) if order == "col" else values


def tiles_of(m: int, n: int, bm: int, bn: int) -> int:
    """Output tiles of a matrix."""
    return -(-m // bm) * -(-n // bn)
