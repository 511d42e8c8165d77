"""Settings of kernels on the command line: `name=value` texts, and the fields of a kernel's
configurations.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from tilepipe.errors import BindError
from tilepipe.kernels.common.settings import Settings

Setting = int | str
_BOOLS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def pairs(texts: Sequence[str]) -> dict[str, str]:
    """The settings that `name=value` texts give.

    Raises:
        BindError: no '=', or a name given twice.
    """
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


class Configs:
    """The configuration class of each architecture that a kernel is written for. Their fields are
    settings; the setting `arch` chooses the class.

    Attributes:
        defaults: every field with its default; of a field that two classes have, the default of
            the first.
    """

    def __init__(
        self, classes: Mapping[str, type[Settings]], constant: tuple[str, ...] = ()
    ) -> None:
        """`classes`: by architecture, `sm90` or `sm100`; the first is the default. `constant`:
        fields that can have one value only, and are no settings.
        """
        self._classes = classes
        self._fields: dict[str, dict[str, Setting]] = {
            arch: {name: x for name, x in made().as_dict().items() if name not in constant}
            for arch, made in classes.items()
        }
        self.defaults: dict[str, Setting] = {}
        for fields in self._fields.values():
            self.defaults = self.defaults | fields | self.defaults

    @property
    def archs(self) -> tuple[str, ...]:
        """The architectures, as a compiler names them."""
        return tuple(map(compiler_name, self._classes))

    @property
    def arch(self) -> str:
        """The default of the setting `arch`."""
        return next(iter(self._classes))

    def of(self, arch: str) -> dict[str, Setting]:
        """The fields of an architecture's class, with their defaults.

        Raises:
            BindError: the kernel is not written for it.
        """
        if arch not in self._fields:
            raise BindError(f"setting arch must be {' or '.join(self._fields)}, got {arch!r}")
        return self._fields[arch]

    def foreign(self, settings: Mapping[str, Any]) -> list[str]:
        """Fields that the class of `settings["arch"]` does not have. Raises BindError: there is no
        such class.
        """
        mine = self.of(settings["arch"])
        return [name for name in self.defaults if name not in mine]

    def refuse_foreign(self, settings: Mapping[str, Any], given: Container[str]) -> None:
        """Raises BindError for names among `given` that are foreign to `settings`."""
        others = [name for name in self.foreign(settings) if name in given]
        if others:
            arch = settings["arch"]
            raise BindError(
                f"arch={arch} has no setting {', '.join(others)}; it has {', '.join(self.of(arch))}"
            )

    def config(self, settings: Mapping[str, Any]) -> Any:
        """The configuration that all settings make.

        Raises:
            BindError: no such architecture, or a setting of another one that is not at its default.
        """
        arch = settings["arch"]
        mine = self.of(arch)
        self.refuse_foreign(
            settings,
            [name for name, x in self.defaults.items() if settings.get(name, x) != x],
        )
        return self._classes[arch](**{name: settings[name] for name in mine})


def compiler_name(arch: str) -> str:
    """`sm_90a` of the architecture `sm90`."""
    return f"sm_{arch.removeprefix('sm')}a"
