"""The settings of the kernel that writes to a cache: there are none."""

from __future__ import annotations

from dataclasses import dataclass

from tilepipe.kernels.common.settings import Settings


@dataclass(frozen=True)
class AppendConfig(Settings):
    """Nothing is chosen: a CTA has as many heads as its threads hold, whatever the problem."""

    def _rules(self) -> dict[str, bool]:
        return {}
