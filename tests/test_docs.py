"""The pages in docs/ run, and what they show is what is printed."""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path

import pytest

import tilepipe as tp
from tests.examples.ladder import EXAMPLES, load, plant
from tests.readme import ROOT, blocks, message, run, words
from tilepipe.lang.grid import GridMembers
from tilepipe.pipelines.dynamic_scheduler import DynamicScheduler

PAGES = sorted((ROOT / "docs").glob("*.md"))
RUNNABLE = [page for page in PAGES if blocks(page, "python")]
BY_HAND = "04_one_warpgroup_gemm"
EXPECT = "                full.expect_bytes(a_tile.nbytes + b_tile.nbytes)\n"


def test_the_pages_there_are() -> None:
    assert {"architecture", "cuda", "language", "machine", "pipelines", "simulator"} <= {page.stem for page in RUNNABLE}
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if page.name not in index and page.name != "README.md"] == []


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    run("\n".join(blocks(page, "python")), tmp_path / f"{page.stem}_page.py")


def test_architecture_shows_the_program(tmp_path: Path) -> None:
    page = ROOT / "docs" / "architecture.md"
    program = run("".join(blocks(page, "python")), tmp_path / "page.py")["program"]
    printed = "\n".join(line.split("  # ")[0].rstrip() for line in str(program).splitlines())
    assert printed.strip() == blocks(page, "text")[0].strip()


def test_simulator_shows_the_deadlock(tmp_path: Path) -> None:
    path = plant(BY_HAND, EXPECT, "", tmp_path)
    code = f"{path.read_text(encoding='utf-8')}\n"
    shown = blocks(ROOT / "docs" / "simulator.md", "text")[0]
    assert words(message(code.replace('if __name__ == "__main__":\n    main()', "main()"), path)) == words(shown)


def test_cuda_shows_the_load_warp() -> None:
    source = load(EXAMPLES / "05_warp_specialised_gemm.py")(0).source()
    start = source.index("__device__ __forceinline__ void load(")
    printed = source[start : source.index("\n}\n", start) + 3]
    assert words(blocks(ROOT / "docs" / "cuda.md", "text")[0]) == words(printed)


def public(cls: type) -> list[str]:
    return [name for name in vars(cls) if not name.startswith("_")]


def test_language_has_every_member_of_ctx() -> None:
    text = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    assert [name for name in [*public(tp.Context), *public(GridMembers)] if f"`{name}" not in text] == []


@pytest.mark.parametrize(
    "cls",
    [
        tp.SharedMemBarrier, tp.SMemArray, tp.PipelineState, tp.ProducerConsumerPipeline, tp.ProducerStage, tp.ConsumerStage,
        tp.InputTilePipeline, tp.InputProducer, tp.InputConsumer, tp.TilePayload, tp.OrderedBarrier,
        tp.StaticScheduler, DynamicScheduler,
    ],
    ids=lambda cls: cls.__name__,
)  # fmt: skip
def test_pipelines_has_every_member(cls: type) -> None:
    text = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
    internal = {"bind_commit", "ref", "split", "segments", "BarrierArray", "Pipeline", "arrive"}
    assert [name for name in public(cls) if name not in text and name not in internal] == []


def test_every_error_is_named() -> None:
    text = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    errors = [name for name, member in inspect.getmembers(tp, inspect.isclass) if issubclass(member, tp.TilepipeError)]
    assert [name for name in errors if name not in text] == []


def test_the_pages_are_plain_text() -> None:
    for page in (ROOT / "README.md", *PAGES):
        text = page.read_text(encoding="utf-8")
        assert "\t" not in text
        assert textwrap.dedent(text).count("```") % 2 == 0
