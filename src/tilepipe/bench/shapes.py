"""What `tilepipe bench gemm` measures: shapes, in suites, what is aimed at for each suite, and how
configurations are picked.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tilepipe as tp
from tilepipe.errors import BindError
from tilepipe.kernels.gemm.config import GemmConfig
from tilepipe.kernels.gemm.heuristics import Problem
from tilepipe.kernels.gemm_blockwise.config import BlockwiseGemmConfig

STANDARD = (
    (8192, 8192, 8192),
    (4096, 4096, 4096),
    (2048, 2048, 2048),
    (16384, 4096, 4096),
    (4096, 14336, 4096),
    (8192, 8192, 512),
    (128, 4096, 4096),
    (1000, 3000, 1024),
)
FP8 = ((4096, 4096, 4096), (8192, 8192, 8192), (4096, 7168, 2048))
# of DeepGEMM's tests: the layers of DeepSeek-V3 in training and prefill, and with few tokens
DEEPGEMM = tuple(
    (m, n, k)
    for m in (128, 4096)
    for n, k in (
        (2112, 7168),
        (24576, 1536),
        (32768, 512),
        (7168, 16384),
        (4096, 7168),
        (7168, 2048),
    )
)
NAMES = ("standard", "random", "fp8", "deepgemm")
RANDOM_COUNT = 30
LOWEST, HIGHEST, MULTIPLE = 64, 8192, 8  # of the random extents


@dataclass(frozen=True)
class Target:
    """Aims for ratios peer time / our time: their geometric mean, and the worst of them; None: no
    aim.
    """

    mean: float | None = None
    worst: float | None = None


@dataclass(frozen=True)
class Suite:
    """Problems that are reported together."""

    title: str
    problems: tuple[Problem, ...]
    target: Target = Target()


@dataclass(frozen=True)
class Choice:
    """How configurations are picked: "chosen", by the heuristic alone; "tuned", what tuning
    remembers, else the heuristic's; "best", the fastest of the heuristic's first `count`; "given",
    `config`.
    """

    how: str = "chosen"
    count: int = 0
    config: GemmConfig | BlockwiseGemmConfig | None = None

    @classmethod
    def parse(cls, text: str) -> Choice:
        """From "chosen", "tuned" or "best-of-N".

        Raises:
            BindError: it is none of these.
        """
        if text in ("chosen", "tuned"):
            return cls(text)
        found = re.fullmatch(r"best-of[-: ]?(\d{1,4})", text)
        if found is None or int(found[1]) < 1:
            raise BindError(
                f"--config takes chosen, tuned or best-of-N, for example best-of-8; got {text!r}"
            )
        return cls("best", int(found[1]))


def suites(texts: Sequence[str], base: Problem, seed: int) -> list[Suite]:
    """The suites that texts name: "standard", "random", "fp8", "deepgemm", or M,N,K.

    `base`: dtypes and orders of all but fp8 and deepgemm, whose problems are e4m3 with a scale for
    each row, or for each block as `base` has.
    `seed`: of the random shapes. Shapes given as M,N,K make one suite.

    Raises:
        BindError: a text that is none of these.
    """
    given = tuple(_given(text, base) for text in texts if text not in NAMES)
    blocks = base.scales == "block"
    fp8 = Problem(1, 1, 1, dtype=tp.float8_e4m3, scales="block" if blocks else "row")
    of = "scales of 1×128 and 128×128 blocks" if blocks else "a scale for each row"
    known = {
        "standard": ("standard shapes", base, STANDARD, Target(1.01, 0.96)),
        "random": (
            f"{RANDOM_COUNT} random shapes, seed {seed}",
            base,
            random_shapes(seed, RANDOM_COUNT),
            Target(0.98, 0.85),
        ),
        "deepgemm": (f"shapes of DeepGEMM's tests, {of}", fp8, DEEPGEMM, Target()),
        "fp8": (f"fp8 e4m3, {of}", fp8, FP8, Target(1.09, 1.0) if blocks else Target(worst=0.97)),
    }
    chosen = (known[name] for name in dict.fromkeys(text for text in texts if text in NAMES))
    return ([Suite("the shapes given", given)] if given else []) + [
        Suite(title, tuple(replace(problem, m=m, n=n, k=k) for m, n, k in shapes), target)
        for title, problem, shapes, target in chosen
    ]


def random_shapes(seed: int, count: int) -> list[tuple[int, int, int]]:
    """`count` triples (m, n, k), each extent log-uniform in 64..8192 and a multiple of 8."""
    rng = random.Random(seed)

    def extent() -> int:
        drawn = math.exp(rng.uniform(math.log(LOWEST), math.log(HIGHEST)))
        return min(max(round(drawn / MULTIPLE) * MULTIPLE, LOWEST), HIGHEST)

    return [(extent(), extent(), extent()) for _ in range(count)]


def _given(text: str, base: Problem) -> Problem:
    parts = text.replace("x", ",").replace("×", ",").split(",")
    try:
        m, n, k = map(int, parts)
    except ValueError:
        raise BindError(f"--shapes takes {', '.join(NAMES)} or M,N,K; got {text!r}") from None
    if min(m, n, k) < 1:
        raise BindError(f"--shapes {text}: extents must be at least 1")
    return replace(base, m=m, n=n, k=k)


def extents(kernel: str, text: str) -> tuple[int, int, int]:
    """(m, n, k) from "M,N,K". Raises BindError: another text."""
    parts = text.split(",")
    if len(parts) == 3 and all(x.isdigit() and int(x) for x in parts):
        m, n, k = map(int, parts)
        return m, n, k
    raise BindError(f"--shapes of {kernel} takes M,N,K, or standard; got {text!r}")


def wanted_extents(
    kernel: str,
    texts: Sequence[str],
    given: Mapping[str, Any],
    defaults: Mapping[str, Any],
    standard: Sequence[tuple[int, int, int]],
) -> list[tuple[int, int, int]]:
    """The shapes that texts name, and the one that settings state; of neither, the standard ones.

    Raises:
        BindError: a text that is no shape.
    """
    wanted = [
        x for text in texts for x in (standard if text == "standard" else (extents(kernel, text),))
    ]
    if {"m", "n", "k"} & given.keys():
        m, n, k = ({**defaults, **given}[name] for name in "mnk")
        wanted.append((m, n, k))
    return wanted or list(standard)
