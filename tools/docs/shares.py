"""Writes the table of docs/how-to/tune.md that says how many CTAs and warpgroups may share a tile,
or its K, by kernel: `python -m tools.docs.shares`. The values are those that configurations take.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tilepipe.errors import BindError
from tilepipe.registry.catalog import KERNELS
from tilepipe.registry.settings import Setting
from tilepipe.registry.spec import KernelSpec
from tools.docs.readme import ROOT

PAGE = ROOT / "docs" / "how-to" / "tune.md"
HEAD = "| kernel | `arch` | "
SHARES = "split_k", "cluster", "cluster_n", "cta_group", "consumers"
MOST = 10
# What is tried beside a value, which may ask for other columns or rows, or another schedule.
BESIDE: dict[str, tuple[Setting, ...]] = {
    "bn": (128, 64, 256, 96, 160, 224, 40, 56, 16),
    "bm": (128, 64, 192),
    "consumers": (2, 1, 3),
    "scheduler": ("clc", "static"),
    "cluster": (1, 2),
    "threads": (128, 32),
    "parts": (1, 4, 8, 16, 32),
}


def takes(spec: KernelSpec, arch: str, name: str, value: int) -> bool:
    """True if some configuration of a kernel has this value of a setting."""
    mine = spec.configs.of(arch)
    beside = {other: tried for other, tried in BESIDE.items() if other in mine and other != name}
    for tried in itertools.product(*beside.values()):
        given = dict(zip(beside, tried, strict=True)) | {"arch": arch, name: value}
        try:
            spec.config(spec.settings | given)
        except BindError:
            continue
        return True
    return False


def listed(values: Sequence[int]) -> str:
    """Numbers as the table has them: "1, 2, 4, 8", "1 to 8"; "" of none."""
    if len(values) > 3 and list(values) == list(range(values[0], values[-1] + 1)):
        return f"{values[0]} to {values[-1]}"
    return ", ".join(map(str, values))


def table() -> str:
    """The table: a row for each kernel and architecture that has such a setting."""
    rows = [f"{HEAD}{' | '.join(f'`{name}`' for name in SHARES)} |", "|---" * 7 + "|"]
    for spec in KERNELS.values():
        for arch in ("sm90", "sm100"):
            if not any(arch == name.replace("sm_", "sm").removesuffix("a") for name in spec.archs):
                continue
            mine = spec.configs.of(arch)
            cells = [
                listed([n for n in range(1, MOST + 1) if takes(spec, arch, name, n)])
                if name in mine
                else ""
                for name in SHARES
            ]
            if any(cells):
                rows.append(f"| `{spec.name}` | {arch} | {' | '.join(cells)} |")
    return "".join(f"{row}\n" for row in rows)


def on_page(text: str) -> str:
    """The table that a page has."""
    return HEAD + text.split(HEAD)[1].split("\n\n")[0] + "\n"


def main() -> None:
    """Writes the table anew."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(text.replace(on_page(text), table()), encoding="utf-8")


if __name__ == "__main__":
    main()
