"""`tilepipe tune --simulate`: choices of tiles, ranked without a GPU."""

from __future__ import annotations

import re

import pytest

from tests.cli.copying import Call, report
from tilepipe.cli.tune_simulated import choices
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


@pytest.mark.slow
def test_the_ranking_says_whose_costs_the_times_are_made_of(tilepipe: Call) -> None:
    """A B200 is simulated, and the costs are an H200's."""
    asked = ["tune", "gemm", "--simulate", "-s", "arch=sm100", "-s", "bn=64,128"]
    asked += ["-s", "m=128", "-s", "n=128", "-s", "k=128"]
    _, out, _ = tilepipe(*asked)
    assert "simulated for B200 at costs measured on H200;" in " ".join(out.split())
    found = report(tilepipe(*asked, "--json"))
    assert (found["chip"], found["costs_of"]) == ("B200", "H200")


@pytest.mark.slow
def test_what_cannot_be_ranked(tilepipe: Call) -> None:
    for args, message in [
        (SHAPE, "tune --simulate ranks choices of tiles: give some of them several values"),
        (["-s", "bn=64,128", "--limit", "1"], "these are 2 choices, and --limit is 1"),
        (
            ["-s", "bn=64,64"],
            "several values, as -s stages=4,8; gemm has accumulate, bk, bm, bn, ",
        ),
        (["-s", "arch=sm100"], "gemm has accumulators, bk, bm, bn, "),
        (["-s", "bn=64,zz"], "setting bn: 'zz' is not an integer"),
        (["-s", "bn=64,"], "setting bn: a value is missing beside a comma in '64,'"),
        (["-s", "wide=1,2"], "kernel 'gemm' has no setting 'wide'; it has m, "),
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


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["gemm", "attention", "rms_norm", "gemm_block_scaled"])
def test_the_example_that_is_suggested_can_be_ranked(kernel: str, tilepipe: Call) -> None:
    _, _, err = tilepipe("tune", kernel, "--simulate")
    (example,) = re.findall(r"several values, as -s (\w+=\d+,\d+); ", " ".join(err.split()))
    every = choices(find(kernel), [example])
    assert len(every) == 2
    for settings in every:
        find(kernel).make(find(kernel).configure(find(kernel).parse(list(settings)), None)[0], 0)


@pytest.mark.slow
def test_a_value_that_is_given_twice_is_simulated_once(tilepipe: Call) -> None:
    asked = ["tune", "rms_norm", "--simulate", "-s", "m=8", "-s", "n=1024"]
    found = report(tilepipe(*asked, "-s", "threads=128,64,128,0128", "--json"))
    assert sorted(x["config"]["threads"] for x in found["trials"]) == [64, 128]


@pytest.mark.slow
def test_times_that_tell_nothing_are_said_to(tilepipe: Call) -> None:
    asked = ["tune", "rms_norm", "--simulate", "-s", "m=8", "-s", "n=1024"]
    alike = "within 1% of each other, which is less than the prediction's error: time them on a GPU"
    assert alike in " ".join(tilepipe(*asked, "-s", "ahead=1,2")[1].split())
    assert "of each other" not in tilepipe(*asked, "-s", "threads=32,128")[1]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["GEMM"], "Did you mean gemm?"),
        (["gemm", "-s", "stage=2,3", "--simulate"], "Did you mean stages?"),
        (["softmax", "-s", "bakward=yes"], "Did you mean backward?"),
        (["append_kv"], "append_kv has no tiles to choose, so there is nothing to search"),
        (["append_kv", "--simulate"], "append_kv has no tiles to choose, so there is nothing to"),
        (
            ["first.py:program", "--simulate"],
            "tune is for shipped kernels, which `tilepipe kernels` lists. To time first.py:program",
        ),
    ],
)
def test_a_near_miss(args: list[str], message: str, tilepipe: Call) -> None:
    code, _, err = tilepipe("tune", *args)
    assert code == 2
    assert message in " ".join(err.split())


def test_help_promises_shipped_kernels_alone(tilepipe: Call) -> None:
    _, out, _ = tilepipe("tune", "--help")
    text = " ".join(out.replace("│", " ").split())
    assert "Any shipped kernel that has tiles; nothing is remembered" in text
    assert "function NAME" not in text
