"""The settings of an operation: fields of its kernel's configuration, given as keywords."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import TypeVar

from tilepipe.errors import BindError
from tilepipe.host_arguments import did_you_mean
from tilepipe.ops.types import Setting, Settings

ConfigT = TypeVar("ConfigT")


def configured(
    config: Callable[..., ConfigT], defaults: Mapping[str, Setting], settings: Settings
) -> ConfigT:
    """A kernel's configuration: these settings, then `defaults`, then the defaults of its fields."""
    return config(**{**defaults, **dict(settings)})


def setting_names(config: type, *fixed: str) -> tuple[str, ...]:
    """The fields of a kernel's configuration that are settings, all but `fixed`."""
    return tuple(f.name for f in fields(config) if f.name not in fixed)


def check_settings(
    operation: str, settings: Settings, known: Sequence[str], *, which: str = ""
) -> None:
    """Refuses settings that a kernel's configuration does not have.

    Args:
        which: for the message, which form of the operation the kernel computes.

    Raises:
        BindError: names that are not in `known`.
    """
    unknown = [name for name, _ in settings if name not in known]
    if not unknown:
        return
    import tilepipe.ops

    parameters = [
        p for p in inspect.signature(getattr(tilepipe.ops, operation)).parameters if p != "settings"
    ]
    meant = [other for name in unknown for other in did_you_mean(name, [*parameters, *known])]
    question = f" Did you mean {' or '.join(f'{name}=' for name in meant)}?" if meant else ""
    raise BindError(
        f"{operation}{which} does not know the setting {', '.join(unknown)}; it has"
        f" {', '.join(known)}.{question} {operation} takes {', '.join(parameters)}, and settings."
    )
