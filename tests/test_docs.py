"""The pages in docs/ run, and what they show is what is printed."""

from __future__ import annotations

import importlib.util
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilepipe as tp
from tests.examples.ladder import EXAMPLES, NAMES, load, plant
from tests.examples.test_mistakes import MISTAKES
from tests.support.command import tilepipe_in
from tilepipe.kernels.gemm import sm100
from tilepipe.kernels.gemm.config import Sm100GemmConfig
from tilepipe.kernels.gemm_blockwise import sm100 as blockwise
from tilepipe.kernels.gemm_blockwise.config import Sm100BlockwiseGemmConfig
from tools.docs import excerpts, pipeline_picture, shown
from tools.docs.readme import ROOT, blocks, message, run, words

HOW_TO = ROOT / "docs" / "how-to"
PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if "decisions" not in page.parts)
RUNNABLE = [page for page in PAGES if blocks(page, "python")]
BY_HAND = "04_one_warpgroup_gemm"
EXPECT = "                full.expect_bytes(a_tile.nbytes + b_tile.nbytes)\n"


def test_the_pages_there_are() -> None:
    assert {
        "architecture",
        "blackwell",
        "cuda",
        "language",
        "machine",
        "pipelines",
        "simulator",
    } <= {page.stem for page in RUNNABLE}
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert [
        page.name for page in PAGES if page.name not in index and page.name != "README.md"
    ] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where a block writes files
    (tmp_path / "examples").symlink_to(EXAMPLES)  # which some blocks load
    files = shown.files(page.read_text(encoding="utf-8"))
    for name, code in files.items():  # so that one may import another
        (tmp_path / name).write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    run("\n".join(blocks(page, "python")), tmp_path / f"{page.stem}_page.py")
    for name in {name.removesuffix(".py") for name in files} - before:
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tp.tensor_map(out.T, box=box)", "tp.tensor_map(out, box=box)", 0),
        ('a.dtype, order="col", name="turned"', 'a.dtype, name="turned"', 1),
        ("ctx.tma_store(out, place, turned)", "ctx.tma_store(out, place[::-1], turned)", "assert"),
        (
            "        ctx.fence_proxy_async()  # TMA sees what this thread has stored,\n",
            "",
            "proxies",
        ),
    ],
    ids=["map", "order", "coordinates", "fence"],
)
def test_what_goes_wrong_in_a_transposition(
    old: str, new: str, said: int | str, tmp_path: Path
) -> None:
    page = HOW_TO / "transpose.md"
    code = "\n".join(blocks(page, "python"))
    assert code.count(old) == 1
    messages = re.findall(r"\| `(the order of .+?)` \|", page.read_text(encoding="utf-8"))
    assert len(messages) == 2
    expected = messages[said] if isinstance(said, int) else said
    errors = AssertionError if said == "assert" else tp.TilepipeError
    with pytest.raises(errors) as caught:
        run(code.replace(old, new), tmp_path / "page.py")
    if said != "assert":
        assert expected in str(caught.value)
    if isinstance(said, int):
        assert "`tp.tensor_map(array.T, box=...)`" in str(caught.value)


def test_architecture_shows_the_program(tmp_path: Path) -> None:
    page = ROOT / "docs" / "internals" / "architecture.md"
    program = run("".join(blocks(page, "python")), tmp_path / "page.py")["program"]
    printed = "\n".join(line.split("  # ")[0].rstrip() for line in str(program).splitlines())
    assert printed.strip() == blocks(page, "text")[0].strip()


def test_simulator_shows_the_deadlock(tmp_path: Path) -> None:
    path = plant(BY_HAND, EXPECT, "", tmp_path)
    code = f"{path.read_text(encoding='utf-8')}\n"
    shown = blocks(ROOT / "docs" / "concepts" / "simulator.md", "text")[0]
    assert words(
        message(code.replace('if __name__ == "__main__":\n    main()', "main()"), path)
    ) == words(shown)


def test_cuda_shows_the_load_warp() -> None:
    source = load(EXAMPLES / "05_warp_specialised_gemm.py")(0).source()
    start = source.index("__device__ __forceinline__ void load(")
    printed = source[start : source.index("\n}\n", start) + 3]
    assert words(blocks(ROOT / "docs" / "concepts" / "cuda.md", "text")[0]) == words(printed)


@pytest.mark.slow
def test_the_test_of_a_kernel_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = HOW_TO / "check-your-kernel.md"
    for name, code in shown.files(page.read_text(encoding="utf-8")).items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    (test,) = blocks(page, "py")
    run(test, tmp_path / "test_doubled.py")["test_doubled"]()


@pytest.mark.parametrize(
    ("name", "compiler"), [("scaled.py", "triton"), ("doubled_cute.py", "cutlass")]
)
def test_a_launch_of_another_compiler_is_verified(name: str, compiler: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    page = (HOW_TO / "check-a-kernel-you-already-have.md").read_text(encoding="utf-8")
    (code,) = re.findall(rf"<!-- {name} -->\n\n```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / name).write_text(code, encoding="utf-8")
    assert "verified" in shown.output(f"tilepipe check {name}:launch", tmp_path, tilepipe_in)


def test_debug_a_hang_shows_the_deadlock(tmp_path: Path) -> None:
    page = HOW_TO / "debug-a-hang.md"
    code = shown.files(page.read_text(encoding="utf-8"))["hang.py"]
    assert words(blocks(page, "text")[0]) == words(
        message(f"{code}program.run()\n", tmp_path / "hang.py")
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["check-your-kernel", "debug-a-hang"])
def test_the_commands_of_a_how_to_are_carried_out(name: str, tmp_path: Path) -> None:
    text = (HOW_TO / f"{name}.md").read_text(encoding="utf-8")
    for file, code in shown.files(text).items():
        (tmp_path / file).write_text(code, encoding="utf-8")
    commands = re.findall(r"^    (tilepipe .+)$", text, re.MULTILINE)
    assert commands
    for command in commands:
        printed = shown.output(command, tmp_path, tilepipe_in)
        assert "load-bearing" in printed or "deadlock: 1 of 2" in printed, f"{command}: {printed}"


@pytest.mark.slow
def test_the_commands_on_a_file_of_ones_own_are_carried_out(tmp_path: Path) -> None:
    page = (HOW_TO / "run-check-and-bench.md").read_text(encoding="utf-8")
    for file, code in shown.files(page).items():
        (tmp_path / file).write_text(code, encoding="utf-8")
    show, check, compiled, timeline, bench = re.findall(r"^    (tilepipe .+)$", page, re.MULTILINE)
    assert "Shared memory" in shown.output(show, tmp_path, tilepipe_in)
    assert "verified" in shown.output(check, tmp_path, tilepipe_in)
    assert ".entry scale" in shown.output(compiled, tmp_path, tilepipe_in)
    assert "tma_load" in shown.output(timeline, tmp_path, tilepipe_in)
    assert bench.startswith("tilepipe bench scale.py:program ")  # which needs a GPU


@pytest.mark.slow
def test_the_tutorial_shows_the_pictures_that_its_commands_draw() -> None:
    drawn = pipeline_picture.pictures(tilepipe_in)
    assert {path.name for path in drawn} == {"gemm.svg", "ring.svg", "tensor_memory.svg"}
    for path, text in drawn.items():
        assert path.read_text(encoding="utf-8") == text, (
            f"{path.name} is not what is drawn: python -m tools.docs.pipeline_picture"
        )


def test_the_ladder_quotes_the_examples_as_they_are() -> None:
    page = excerpts.LADDER.read_text(encoding="utf-8")
    quoted = excerpts.QUOTED.findall(page)
    assert {file for file, *_ in quoted} == {f"examples/{name}.py" for name in NAMES}
    for file, kind, name, text in quoted:
        assert text == excerpts.excerpt(file, kind, name), (
            f"{file} {name}: docs/tutorial/ladder.md is not what the examples are: python -m"
            " tools.docs.excerpts"
        )


def test_blackwell_quotes_the_kernels_as_they_are() -> None:
    page, more = (
        path.read_text(encoding="utf-8") for path in (excerpts.PAGE, excerpts.KERNELS_PAGE)
    )
    assert excerpts.written(page) == page, (
        "docs/concepts/blackwell.md is not what the kernels are: python -m tools.docs.excerpts"
    )
    assert excerpts.written(more) == more, (
        "docs/concepts/blackwell-kernels.md is not what the kernels are: python -m "
        "tools.docs.excerpts"
    )
    quoted = [
        (file, what)
        for file, kind, what, _ in excerpts.QUOTED.findall(page + more)
        if kind == "function"
    ]
    both = [(f"{kernel}.py", role) for kernel, roles in ROLES.items() for role in roles]
    assert [pair for pair in both if pair not in quoted] == []


def test_block_scaled_shows_what_differs() -> None:
    page = excerpts.PAGES[1].read_text(encoding="utf-8")
    assert excerpts.written(page) == page, (
        "docs/concepts/block-scaled.md is not what the kernels are: python -m tools.docs.excerpts"
    )
    ((one, other, diff),) = excerpts.DIFFED.findall(page)
    assert (one, other) == ("gemm/sm100", "gemm_block_scaled/sm100")
    changed = [line for line in diff.splitlines() if line[:1] in ("+", "-")]
    assert any("tmem_copy" in line for line in changed)
    assert not [line for line in changed if "allocate(" in line or "declare_roles(" in line]


@pytest.mark.parametrize(
    "mistake", ["08 an accumulator freed before it is loaded", "09 a commit for one CTA"]
)
def test_blackwell_shows_what_is_said(mistake: str, tmp_path: Path) -> None:
    planted = MISTAKES[mistake]
    path = plant(planted.name, planted.old, planted.new, tmp_path)
    code = path.read_text(encoding="utf-8").replace(
        'if __name__ == "__main__":\n    main()', "main()"
    )
    shown = blocks(excerpts.PAGE, "text")[mistake.startswith("09")]
    assert words(message(code, path)) == words(shown)


ROLES = {
    "gemm/sm90": ["load"],
    "common/sm90_gemm": ["multiply_and_store"],
    "common/sm100_gemm": ["load", "multiply", "store"],
    "gemm/sm100": ["copy", "issue"],
    "gemm_blockwise/sm90": ["multiply"],
    "gemm_blockwise/sm100": ["multiply", "store"],
}


@pytest.mark.parametrize(
    ("x", "y", "group"),
    [(1, 1, 1), (2, 1, 1), (1, 2, 1), (4, 2, 1), (2, 1, 2), (2, 2, 2), (4, 2, 2), (8, 1, 2)],
)
def test_accumulators_says_who_arrives_where(x: int, y: int, group: int) -> None:
    """The table's counts, for clusters of x × y CTAs of which `group` share an MMA."""
    settings: dict[str, Any] = {"cluster": x, "cluster_n": y, "cta_group": group, "bn": 128}
    a, c = np.zeros((512, 256), ml_dtypes.bfloat16), np.zeros((512, 512), np.float32)
    fp8, a_scales, b_scales = (
        a.astype(tp.float8_e4m3.numpy),
        np.zeros((2, 512), np.float32),
        np.zeros((4, 2), np.float32),
    )
    scaled_config = Sm100BlockwiseGemmConfig(**settings)
    programs = (
        sm100.bind(a, a, c, Sm100GemmConfig(**settings)),
        blockwise.bind(fp8, fp8, a_scales, b_scales, c, scaled_config),
    )
    plain, scaled = (
        {array.name: array.count for array in program.kernel.barriers} for program in programs
    )
    table = {
        row[0].strip(" `"): row[1].strip()
        for row in (
            line.strip("|").split("|")
            for line in _section("accumulators", "## Arrivals on each barrier").splitlines()
        )
        if len(row) == 3 and row[0].strip().startswith("`")
    }
    formulas = {name: count.replace("·", "*") for name, count in table.items()}
    counts = {
        name: int(eval(formula, {"x": x, "y": y, "g": group})) for name, formula in formulas.items()
    }
    assert list(counts) == [
        "inputs.full",
        "inputs.empty",
        "outputs.full",
        "outputs.empty",
        "tmem_dealloc",
    ]
    assert {name: plain[name] for name in counts} == counts
    assert scaled["inputs.empty"] == counts["inputs.empty"] + 4 * x * y
    assert "| the same, blockwise fp8 | + 4 · x · y |" in _section(
        "accumulators", "## Arrivals on each barrier"
    )


def _section(page: str, heading: str) -> str:
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text(encoding="utf-8")
    return text[text.index(heading) :].split("\n## ", 1)[0]


def test_the_pages_are_plain_text() -> None:
    for page in (ROOT / "README.md", *PAGES):
        text = page.read_text(encoding="utf-8")
        assert "\t" not in text
        assert textwrap.dedent(text).count("```") % 2 == 0


@pytest.mark.slow
def test_contributing_names_files_that_there_are() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (table,) = re.findall(
        r"^\| what \| where, under `src/tilepipe/` \|\n(.*?)\n\n", text, re.M | re.S
    )
    named = re.findall(r"`([a-z_]+/[\w/.]*|[a-z_]+\.py)`", table.replace("NAME", "gemm"))
    assert len(named) > 20
    assert [n for n in named if not list((ROOT / "src" / "tilepipe").rglob(n.rstrip("/")))] == []


def test_contributing_has_a_row_for_each_tool() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w/.]+)` \|", text, re.M)
    tools = ROOT / "tools"
    there = [x for x in (*tools.iterdir(), *(tools / "docs").glob("*.py")) if x.name[0] not in "_."]
    named = {f"{x.relative_to(tools)}{'/' if x.is_dir() else ''}" for x in there}
    assert named - {"docs/"} - set(rows) == set()
