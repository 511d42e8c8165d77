"""What the scenario tests share: seeds, where a marked line is, and the assertion of a fault's
message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tilepipe as tp
from tilepipe.check import Bounds, Verdict

SEEDS = (0, 1, 2, 3)
BOUNDS = Bounds(traces=2000, seconds=30.0)
Array = npt.NDArray[Any]


def at(file: str, mark: str) -> str:
    """`test_x.py:41`, the line of `file` that ends in the comment `# <mark>`."""
    lines = [
        n
        for n, text in enumerate(Path(file).read_text().splitlines(), 1)
        if text.endswith(f"# <{mark}>")
    ]
    assert len(lines) == 1, f"{file}: {len(lines)} lines are marked <{mark}>"
    return f"{Path(file).name}:{lines[0]}"


def faults(
    program: tp.Program,
    kind: type[tp.TilepipeError],
    *words: str,
    seeds: Iterable[int] = SEEDS,
    **options: Any,
) -> None:
    """Every seed, and the checker, ends in a fault of that kind whose message contains all the
    words.
    """
    for seed in seeds:
        with pytest.raises(kind) as caught:
            program.run(seed=seed, **options)
        _contains(str(caught.value), words, f"seed {seed}")
    refuted(program, kind, *words, **options)


def refuted(
    program: tp.Program, kind: type[tp.TilepipeError], *words: str, **options: Any
) -> Verdict:
    """The checker finds a fault of that kind whose message contains all the words, and its schedule
    replays to the same fault.
    """
    verdict = program.check(bounds=BOUNDS, **options)
    assert verdict.verdict == "fault", f"{verdict.verdict} {verdict.bound}"
    (fault,) = verdict.faults
    found = getattr(tp, fault.kind)
    assert issubclass(found, kind), f"a {fault.kind}, not a {kind.__name__}: {fault.message}"
    _contains(fault.message, words, "the checker")
    again = program.replay(fault, **options)
    assert (type(again), str(again)) == (found, fault.message), f"the schedule ends in {again}"
    return verdict


def verified(program: tp.Program, **options: Any) -> Verdict:
    """The checker proves the program clean, and gives no advice."""
    verdict = program.check(bounds=BOUNDS, **options)
    assert verdict.ok, f"{verdict.verdict} {verdict.bound}: {[f.message for f in verdict.faults]}"
    assert not verdict.advice, verdict.advice
    return verdict


def refuses(build: Callable[[], object], kind: type[tp.TilepipeError], *words: str) -> None:
    """Binding (tracing) is refused with a message that contains all the words."""
    with pytest.raises(kind) as caught:
        build()
    _contains(str(caught.value), words, "trace")


def _contains(message: str, words: Iterable[str], where: str) -> None:
    missing = [word for word in words if word not in message]
    assert not missing, f"{where}: the message lacks {missing}:\n{message}"


def total(run: Any, barriers: str, cta: int = 0) -> int:
    """Completed phases of an array of barriers in one CTA."""
    return sum(run.completions[barriers][cta])


def clean(program: tp.Program, seeds: Iterable[int] = SEEDS) -> Iterator[Any]:
    """The runs of all seeds, one at a time, none of which gives advice; the checker proves that no
    other can end otherwise.
    """
    verified(program)
    for seed in seeds:
        run = program.run(seed=seed)
        assert not run.advice, f"seed {seed}: {run.advice}"
        yield run


def matrix(rows: int, cols: int, seed: int = 0) -> Array:
    """Small integers in bfloat16, so that sums are exact."""
    return np.random.default_rng(seed).integers(-3, 4, (rows, cols)).astype(ml_dtypes.bfloat16)


def zeros(*shape: int) -> Array:
    """float32 results, set to a value that no kernel here computes."""
    return np.full(shape, -77777.0, dtype=np.float32)
