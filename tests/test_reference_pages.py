"""The pages of docs/reference name every public member and every error."""

from __future__ import annotations

import inspect

import pytest

import tilepipe as tp
from tilepipe.pipelines.schedulers.dynamic import DynamicScheduler
from tools.docs.readme import ROOT


def public(cls: type) -> list[str]:
    return [name for name in vars(cls) if not name.startswith("_")]


def test_language_has_every_member_of_ctx() -> None:
    text = (ROOT / "docs" / "reference" / "language.md").read_text(encoding="utf-8")
    members = [name for cls in tp.Context.__mro__[:-1] for name in public(cls)]
    assert {"role", "atomic_add", "tmem_copy"} <= set(members)
    assert [name for name in members if f"`{name}" not in text] == []


@pytest.mark.parametrize(
    "cls",
    [
        tp.SharedMemBarrier,
        tp.SMemArray,
        tp.PipelineState,
        tp.ProducerConsumerPipeline,
        tp.ProducerStage,
        tp.ConsumerStage,
        tp.InputTilePipeline,
        tp.InputProducer,
        tp.InputConsumer,
        tp.TilePayload,
        tp.OrderedBarrier,
        tp.OutputTilePipeline,
        tp.OutputPipelineConfig,
        tp.OutputStage,
        tp.MmaStage,
        tp.EpilogueStage,
        tp.OutputProducer,
        tp.OutputConsumer,
        tp.TmemAllocation,
        tp.TmemStage,
        tp.TmemFragments,
        tp.TmemDeallocBarrier,
        tp.AccumBarrier,
        tp.MmaWarpContext,
        tp.EpilogueWarpContext,
        tp.OutputKPipeline,
        tp.MmaKStage,
        tp.PerKConsumerStage,
        tp.EpilogueKContext,
        tp.EpilogueKStage,
        tp.BlockwiseFP8Accumulator,
        tp.StaticScheduler,
        DynamicScheduler,
    ],
    ids=lambda cls: cls.__name__,
)
def test_pipelines_has_every_member(cls: type) -> None:
    pages = "pipelines", "accumulators", "staged-rings", "schedulers"
    text = "".join(
        (ROOT / "docs" / "reference" / f"{page}.md").read_text(encoding="utf-8") for page in pages
    )
    internal = {
        "bind_commit",
        "ref",
        "carve",
        "find",
        "pointer",
        "note_use",
        "segments",
        "BarrierArray",
        "Pipeline",
        "arrive",
        "how_to_release",
    }
    assert [name for name in public(cls) if name not in text and name not in internal] == []


def test_every_error_is_named() -> None:
    text = (ROOT / "docs" / "reference" / "language.md").read_text(encoding="utf-8")
    errors = [
        name
        for name, member in inspect.getmembers(tp, inspect.isclass)
        if issubclass(member, tp.TilepipeError)
    ]
    assert [name for name in errors if name not in text] == []
