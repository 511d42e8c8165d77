"""`tilepipe tune --simulate`: choices of tiles, ranked without a GPU."""

from __future__ import annotations

import pytest

from tests.cli.copying import Call, report
from tilepipe.registry.catalog import find

SHAPE = ["-s", "m=256", "-s", "n=256", "-s", "k=512"]


@pytest.mark.slow
def test_choices_are_ranked_by_predicted_time(tilepipe: Call) -> None:
    asked = ["tune", "gemm", "--simulate", *SHAPE, "-s", "bn=64,128", "-s", "stages=2,4,50"]
    found = report(tilepipe(*asked, "--json"))
    us = [x["predicted_us"] for x in found["trials"]]
    assert us == sorted(us)
    assert {(x["config"]["bn"], x["config"]["stages"]) for x in found["trials"]} == {
        (64, 2), (64, 4), (128, 2), (128, 4),
    }  # fmt: skip
    assert found["refused"] == [
        "m=256 n=256 k=512 bn=64 stages=50",
        "m=256 n=256 k=512 bn=128 stages=50",
    ]
    best = found["trials"][0]
    run = find("gemm").make(best["config"], 0).program.run()
    assert best["predicted_us"] == pytest.approx(run.predicted_us)
    _, out, _ = tilepipe(*asked)
    assert out.index("bn=64 stages=4") < out.index("bn=128 stages=2")
    assert "shared memory" in out
    assert "gemm, simulated for H200 at costs measured on H200; nothing is" in " ".join(out.split())


def test_the_ranking_says_whose_costs_the_times_are_made_of(tilepipe: Call) -> None:
    """A B200 is simulated, and the costs are an H200's."""
    asked = ["tune", "gemm", "--simulate", "-s", "arch=sm100", "-s", "bn=64,128"]
    asked += ["-s", "m=128", "-s", "n=128", "-s", "k=128"]
    _, out, _ = tilepipe(*asked)
    assert "simulated for B200 at costs measured on H200;" in " ".join(out.split())
    found = report(tilepipe(*asked, "--json"))
    assert (found["chip"], found["costs_of"]) == ("B200", "H200")


def test_what_cannot_be_ranked(tilepipe: Call) -> None:
    for args, message in [
        (SHAPE, "tune --simulate ranks choices of tiles: give some of them several values"),
        (["-s", "bn=64,128", "--limit", "1"], "these are 2 choices, and --limit is 1"),
        (["-s", "stages=50,60"], "none of these can be made: stages=50"),
    ]:
        code, _, err = tilepipe("tune", "gemm", "--simulate", *args)
        assert code == 2
        assert message in " ".join(err.split())


@pytest.mark.parametrize(
    "options",
    [
        ["--list"],
        ["--forget"],
        ["--merge", "other.json"],
        ["--chip", "H100"],
        ["--regime", "burst"],
        ["--seed", "0"],
        ["--seed", "3", "--list"],
    ],
    ids=" ".join,
)
def test_options_that_would_be_ignored_are_refused(options: list[str], tilepipe: Call) -> None:
    code, _, err = tilepipe("tune", "gemm", "--simulate", *SHAPE, "-s", "bn=64,128", *options)
    assert code == 2
    names = ", ".join(x for x in options if x.startswith("--"))
    expected = "--simulate predicts times without a GPU and remembers nothing: leave out "
    assert " ".join(err.split()).endswith(expected + names)
