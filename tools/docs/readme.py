"""Blocks of Markdown pages, and the mistakes that the README and the tutorial plant in their
kernels.
"""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from tilepipe.errors import TilepipeError

ROOT = Path(__file__).parents[2]

# (old, new), made in the README's kernel: the loads move out of the `with` block of their stage.
_LOADS = """                for row in range(8):
                    ctx.store(out[8 * i + row, ctx.lane], 2 * ctx.load(tile[row, ctx.lane]))
"""
FREED = (_LOADS, _LOADS.replace("    " * 4, "    " * 3))
# (old, new), made in the CUDA C++ of the how-to: the slot is freed before it is read.
_READS = """            for (int j = lane; j < ROW; j += 32)
                out[row * ROW + j] = 2 * tiles[s][j];
"""
_ARRIVES = "            arrive(empty[s]);\n"
ARRIVES_FIRST = (_READS + _ARRIVES, _ARRIVES + _READS)
PAST_THE_GROUP = ("min(BLOCK_M, ends[group] - row)", "min(BLOCK_M, ends[groups - 1] - row)")
# (old, new), made in the kernels of the how-to on split K: the ticket is drawn before all threads
# have written, the flag is raised as relaxed, the shares are numbered as the blocks are.
UNMET = ("        ctx.sync_warpgroup()  # all 128 threads have written their part\n", "")
UNRELEASED = ('flags[share], 1, order="release"', 'flags[share], 1, order="relaxed"')
FORWARDS = ("shares - 1 - ctx.block_id", "ctx.block_id")
# every second giver is skipped, which shows only where a tile has two
SKIPPED = (
    "other.set(giver + 1)\n                    more.set(begin_of(giver + 1)",
    "other.set(giver + 2)\n                    more.set(begin_of(giver + 2)",
)

# (old, new): each is made in the tutorial's kernel, and the message shown for it must be the one
# that is raised, or what `tilepipe check` says of it (EARLY).
EARLY = 1
MISTAKES = [
    ("                        stage.expect_bytes(inputs.stage_bytes)\n", ""),
    (
        "                        ctx.mma_commit(stage.mbar(), mask=BOTH)\n",
        '                        with ctx.elect_one("warpgroup"):\n'
        "                            for cta in range(2):\n"
        "                                stage.mbar().arrive_cluster(cta)\n",
    ),
    ("            producer.drain()\n", ""),
]


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    return re.findall(
        rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def run(code: str, path: Path) -> dict[str, Any]:
    """Runs code as a file is run, so that messages can quote its lines."""
    path.write_text(code, encoding="utf-8")
    return runpy.run_path(str(path), run_name="__main__")


def message(code: str, path: Path) -> str:
    """The class and text of the error that code raises, without the folder it runs in."""
    with pytest.raises(TilepipeError) as caught:
        run(code, path)
    return f"{type(caught.value).__name__}: {caught.value}".replace(f"{path.parent}/", "")


def words(text: str) -> str:
    """Text without its line breaks and indents."""
    return " ".join(text.split())
