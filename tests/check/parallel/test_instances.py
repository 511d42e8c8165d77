"""Many instances: in one process, in several, on a local Dask cluster; and what happens to the
others when one goes wrong.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tilepipe as tp
from tests.support.check import recipes
from tilepipe.check import Bounds, Verdict
from tilepipe.check.parallel import Instance, InstanceError, check_all, instances as many
from tilepipe.check.parallel.recipes import Options, check_instance
from tilepipe.check.sizes import TooSmallError
from tools.docs.readme import ROOT, blocks

HOW: list[dict[str, Any]] = [{"jobs": 1}, {"jobs": 2}]
FAULTY: Instance = ("reads poison", recipes.poison)
MISBOUND: Instance = ("misbound", recipes.misbound)
DIVIDES: Instance = ("divides", recipes.divides)


def timeless(verdicts: list[Verdict]) -> list[Verdict]:
    return [replace(v, seconds=0.0) for v in verdicts]


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW, ids=str)
def test_verdicts_come_in_order(how: dict[str, Any]) -> None:
    instances = [*recipes.good(3), FAULTY]
    told: list[int] = []
    verdicts = check_all(instances, **how, on_verdict=lambda number, v: told.append(number))
    assert [v.instance for v in verdicts] == [name for name, _ in instances]
    assert [v.verdict for v in verdicts] == ["verified"] * 3 + ["fault"]
    assert verdicts[3].faults[0].kind == "PoisonError"
    assert "recipes.py" in verdicts[3].faults[0].loc
    assert sorted(told) == [0, 1, 2, 3]
    assert timeless(verdicts) == timeless([check_all([x])[0] for x in instances])


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW, ids=str)
def test_options_arrive(how: dict[str, Any]) -> None:
    verdicts = check_all(recipes.good(2), **how, explore=True, bounds=Bounds(traces=20_000))
    assert [v.method for v in verdicts] == ["explored"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("how", HOW, ids=str)
def test_an_instance_that_raises_costs_no_other(how: dict[str, Any]) -> None:
    first, second = recipes.good(2)
    with pytest.raises(InstanceError, match="2 of 4 instances could not be checked") as caught:
        check_all([first, MISBOUND, DIVIDES, second], **how)
    text = str(caught.value)
    assert (
        "instance 'misbound': BindError: argument 'out': expected a tensor map, an array or a"
        " number, got 'out'" in text
    )
    assert "instance 'divides': ZeroDivisionError" in text
    assert [v and v.verdict for v in caught.value.verdicts] == ["verified", None, None, "verified"]
    (note,) = caught.value.__notes__  # of the error that is not tilepipe's own
    assert note.startswith("instance 'divides':")
    assert "return three_roles(1 // by)" in note


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("kill", "was killed by SIGKILL (out of memory?)"),
        # test_shared.py has a process that ends so
        pytest.param("exit", "ended with exit code 7", marks=pytest.mark.thorough),
    ],
)
def test_a_process_that_dies_names_its_instance(how: str, said: str) -> None:
    first, second, third = recipes.good(3)
    with pytest.raises(InstanceError, match="1 of 4 instances could not be checked") as caught:
        check_all([first, ("dies", functools.partial(recipes.ends, how)), second, third], jobs=2)
    assert f"instance 'dies': the process that checked it {said}" in str(caught.value)
    assert [v and v.verdict for v in caught.value.verdicts] == [
        "verified",
        None,
        "verified",
        "verified",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_what_is_postponed_goes_on_with_the_time_that_is_left(
    jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance that is too small alone, and one beside which it is explored."""
    given: list[tuple[int, float]] = []
    for name in ("check_instance", "check_shared"):
        perform = getattr(many, name)

        def noted(name: str, recipe: Any, options: Options, *rest: Any, do: Any = perform) -> Any:
            given.append((int(name), options.spent))
            return do(name, recipe, options, *rest)

        monkeypatch.setattr(many, name, noted)
    several = [(str(n), functools.partial(recipes.drawn, n)) for n in (2, 1)]
    verdicts = check_all(several, jobs=jobs, large=True)
    assert timeless(verdicts) == timeless(check_all(several))
    assert [v.method for v in verdicts] == ["explored"] * 2
    if jobs != 2:  # else in other processes
        assert [ctas for ctas, _ in given[:3]] == [1, 2, 1]
        assert [spent > 0 for _, spent in given[:3]] == [False, False, True]
        assert verdicts[1].seconds > given[2][1]
        with pytest.raises(TooSmallError, match="small to say much of the kernel:\nthere is one"):
            check_all(several[1:] * 2, jobs=jobs, large=True)


def test_time_that_was_spent_counts() -> None:
    bounds = Bounds(seconds=30)
    spent = check_instance("1", recipes.drawn, Options(bounds=bounds, spent=31.0))
    assert isinstance(spent, Verdict)
    assert spent.bound.startswith("30 seconds")


def test_one_instance() -> None:
    with pytest.raises(
        InstanceError, match=r"^it could not be checked\n  instance 'misbound': BindError: "
    ):
        check_all([MISBOUND])
    assert check_all([]) == []
    assert check_all([], jobs=4) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"jobs": 0}, "jobs= is a number of processes, at least 1; got 0"),
        ({"jobs": True}, "got True"),
        ({"jobs": 2, "client": object()}, "got both (2 jobs)"),
    ],
)
def test_what_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(tp.BindError) as caught:
        check_all(recipes.good(2), **options)
    assert said in str(caught.value)


def test_a_recipe_that_cannot_travel() -> None:
    made = recipes.three_roles(1)
    instances: list[Instance] = [*recipes.good(1), ("here", lambda: made)]
    assert [v.verdict for v in check_all(instances)] == ["verified", "verified"]
    with pytest.raises(
        tp.BindError, match="the recipe of instance 'here' cannot go to another process"
    ) as caught:
        check_all(instances, jobs=2)
    assert "functools.partial" in str(caught.value)


SCRIPT = """
import functools, sys
from tests.support.check import recipes
from tilepipe.check.parallel import check_all
if {guard}:
    sleeps = functools.partial(recipes.sleeps, sys.argv[1])
    sleepers = [(f"sleeper {{i}}", sleeps) for i in range(5)]
    said = lambda number, verdict: print(verdict.verdict, flush=True)
    check_all([*recipes.good(1), *sleepers], jobs=2, on_verdict=said)
"""


def script(folder: Path, guard: str) -> subprocess.Popen[str]:
    path = folder / "script.py"
    path.write_text(SCRIPT.format(guard=guard), encoding="utf-8")
    noted = folder / "processes"
    noted.mkdir()
    return subprocess.Popen(
        [sys.executable, str(path), str(noted)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        # which is ignored where the tests run in the background
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    # a zombie has ended
    return not status.exists() or status.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def eventually(what: Any, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.05)
    return bool(what())


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_behind(how: signal.Signals, tmp_path: Path) -> None:
    with script(tmp_path, '__name__ == "__main__"') as parent:
        noted = tmp_path / "processes"
        assert eventually(lambda: len(list(noted.iterdir())) == 2)
        workers = [int(path.name) for path in noted.iterdir()]
        assert all(alive(pid) for pid in workers)
        os.kill(parent.pid, how) if how is signal.SIGKILL else os.killpg(parent.pid, how)
        out, err = parent.communicate(timeout=30)
    assert eventually(lambda: not any(alive(pid) for pid in workers))
    assert out == "verified\n"  # what was done is not lost
    if how is signal.SIGINT:
        assert err.count("KeyboardInterrupt") == 1
        assert (
            "interrupted: 1 of 6 instances have been checked, not yet 'sleeper 0', 'sleeper 1',"
            " 'sleeper 2', 'sleeper 3' and 1 more" in err
        )


@pytest.mark.slow
def test_a_script_without_a_guard(tmp_path: Path) -> None:
    with script(tmp_path, "True") as parent:
        _, err = parent.communicate(timeout=60)
    assert parent.returncode == 1
    assert "WorkerError: a process for checking ended with exit code 1 before it had begun" in err
    assert '`if __name__ == "__main__":`' in err


@pytest.mark.slow
def test_the_script_of_the_page(tmp_path: Path) -> None:
    page = ROOT / "docs" / "concepts" / "checker.md"
    (tmp_path / "ring.py").write_text(blocks(page, "python")[0], encoding="utf-8")
    (many,) = (block for block in blocks(page, "py") if "check_all" in block)
    (tmp_path / "many.py").write_text(many, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "many.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [f"{rows} rows verified" for rows in (10, 20, 40)]


# -- Dask ------------------------------------------------------------------------------

needs_dask = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None,
    reason="distributed is not installed: pip install 'tilepipe[dask]'",
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=2,
            processes=True,
            dashboard_address=None,
            silence_logs=50,
        ) as local,
        distributed.Client(local) as client,
    ):
        yield client


@pytest.mark.slow
@needs_dask
def test_on_a_cluster(cluster: Any) -> None:
    instances = [*recipes.good(5), FAULTY]
    told: list[int] = []
    verdicts = check_all(
        instances, client=cluster, on_verdict=lambda number, v: told.append(number)
    )
    assert timeless(verdicts) == timeless(check_all(instances))
    assert sorted(told) == list(range(6))


@needs_dask
@pytest.mark.slow
def test_on_a_cluster_others_are_not_lost(cluster: Any) -> None:
    first, second = recipes.good(2)
    dies = ("dies", functools.partial(recipes.ends, "exit"))
    with pytest.raises(InstanceError, match="3 of 5 instances could not be checked") as caught:
        check_all([first, dies, MISBOUND, DIVIDES, second], client=cluster)
    text = str(caught.value)
    assert "instance 'dies': its worker died, alone with it and more than once" in text
    assert "instance 'misbound': BindError: argument 'out'" in text
    assert "instance 'divides': ZeroDivisionError" in text
    assert [v and v.verdict for v in caught.value.verdicts] == [
        "verified",
        None,
        None,
        None,
        "verified",
    ]


@pytest.mark.slow
def test_what_is_no_client() -> None:
    said = (
        "client= is a distributed.Client"
        if importlib.util.find_spec("distributed")
        else "pip install 'tilepipe"
    )
    with pytest.raises(tp.TilepipeError) as caught:
        check_all(recipes.good(1), client="tcp://127.0.0.1:8786")
    assert said in str(caught.value)


@pytest.mark.slow
def test_without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(tp.UnavailableError, match=r"pip install 'tilepipe\[dask\]'"):
        check_all(recipes.good(1), client=object())
