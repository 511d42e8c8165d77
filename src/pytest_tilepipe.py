"""The pytest plugin of tilepipe: fixtures `tilepipe_check`, `tilepipe_run`, `tilepipe_perturb`.

It lies beside the package, so that pytest starts without importing it, and NumPy, in projects that
never ask for a fixture.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

PROPERTY = "tilepipe check"  # of a test's report: the verdict in words


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--tilepipe-explore` and `--tilepipe-seeds N`."""
    group = parser.getgroup("tilepipe", "tests of tilepipe kernels")
    group.addoption(
        "--tilepipe-explore",
        action="store_true",
        help="tilepipe_check explores all interleavings, also where one run is enough",
    )
    group.addoption(
        "--tilepipe-seeds",
        type=int,
        metavar="N",
        help="interleavings of each tilepipe_run (default 4) and tilepipe_perturb (8)",
    )


@pytest.fixture
def tilepipe_check(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`tilepipe.testing.check`; its verdict is part of the test's report, and counted at the
    end.
    """

    def check(*programs: Any, **options: Any) -> Any:
        from tilepipe.testing import CheckFailed, check

        explore = bool(request.config.getoption("--tilepipe-explore"))
        try:
            verdict = check(*programs, **{"explore": explore, **options})
        except CheckFailed as failed:
            _note(request, failed.verdict)
            raise
        _note(request, verdict)
        return verdict

    return check


@pytest.fixture
def tilepipe_run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`tilepipe.testing.run`, with as many seeds as the command line says."""
    seeds: int | None = request.config.getoption("--tilepipe-seeds")

    def run(program: Any, **options: Any) -> Any:
        from tilepipe.testing import run

        return run(program, **({} if seeds is None else {"seeds": range(seeds)}) | options)

    return run


@pytest.fixture
def tilepipe_perturb(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`tilepipe.testing.perturb`, with as many seeds as the command line says. Skips the test where
    there is no GPU.
    """
    seeds: int | None = request.config.getoption("--tilepipe-seeds")

    def perturb(program: Any, **options: Any) -> None:
        from tilepipe.testing import perturb

        perturb(program, **({} if seeds is None else {"seeds": range(1, seeds + 1)}) | options)

    return perturb


def _note(request: pytest.FixtureRequest, verdict: Any) -> None:
    method = f" ({verdict.method})" if verdict.ok else ""
    request.node.user_properties.append(
        (PROPERTY, f"{verdict.verdict}{method}: {verdict.instance}")
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line: how many checks there were, and how they ended."""
    reports = [
        r
        for group in terminalreporter.stats.values()
        for r in group
        if getattr(r, "when", "") == "call"
    ]
    answers = Counter(
        text.split(":")[0] for r in reports for name, text in r.user_properties if name == PROPERTY
    )
    if answers:
        counts = ", ".join(
            f"{n} {answer}" for answer, n in sorted(answers.items(), key=lambda x: (-x[1], x[0]))
        )
        terminalreporter.write_line(f"tilepipe: {counts}; of these instances, not of other shapes")
