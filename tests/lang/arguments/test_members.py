"""Every public member that kernels call × each of its parameters × a list of bad values: no
traceback, no hang, no silent acceptance.

A member takes from one to some seconds, so `make test` tries a sample of them. After adding one:
`pytest tests/lang/arguments/test_members.py -k MEMBER`.
"""

from __future__ import annotations

import inspect

import pytest

from tests.support.arguments.interpose import members
from tests.support.arguments.trying import attempt, calls
from tests.support.arguments.values import AS_GOOD_AS, VALUES
from tests.support.arguments.wanted import good

# Public by their names, but called by the library alone: constructors of what members give (stages,
# views, handles), what these ask of each other, and members of bases, which are tried in the
# classes derived from them.
OF_THE_LIBRARY = {
    "Place.__setitem__",  # an error for every key: tests/lang/values/test_refused.py
    "AheadTiles.expect_bytes",  # refuses whatever it is given
    "AccumulatorRing.view",
    "AccumulatorStage.__init__",
    "AheadTile.__init__",
    "BlockScaledTilePayload.allocate",
    "BlockwiseFP8TilePayload.allocate",
    "ConsumerStage.__init__",
    "Context.__init__",
    "DynamicScheduler.__init__",
    "DynamicScheduler.share",
    "ElementRef.__init__",
    "EpilogueKContext.__init__",
    "EpilogueKStage.__init__",
    "EpilogueStage.__init__",
    "Fragment.__init__",
    "Fragment.define",
    "Fragment.load_tmem",
    "FragmentValue.__init__",
    "GlobalTensor.__init__",
    "GroupedTile.__init__",
    "Handle.__init__",
    "Handle.check_held",
    "Handle.refuse_twice",
    "Held.__init__",
    "InputConsumer.__init__",
    "InputConsumerStage.__init__",
    "InputConsumerStage.bind_commit",
    "InputProducer.__init__",
    "InputProducerStage.__init__",
    "InputStage.__init__",
    "KVTiles.__init__",
    "MmaConsumerStage.__init__",
    "MmaConsumerStage.bind_commit",
    "MmaStage.__init__",
    "NamedBarrier.__init__",
    "OutputKPipeline.__init__",
    "OutputStage.__init__",
    "ProducerStage.__init__",
    "Range.__init__",
    "SharedMemBarrier.__init__",
    "SmemTile.__init__",
    "SmemTile.fragment_operand",
    "SmemTile.ir",
    "SmemTileArray.__init__",
    "StageContext.__init__",
    "StageHandle.__init__",
    "StagedPipeline.checked_part",
    "TMADestination.__init__",
    "TensorMap.__init__",
    "TilePayload.allocate",
    "TilePayload.get_tile",
    "TmemScales.__init__",
    "TmemScales.ir",
    "TmemStage.__init__",
    "TmemTensor.__init__",
    "TmemTensor.ir",
    "Value.__init__",
    "Var.__init__",
    "View.__init__",
    "WhileLoop.__init__",
    "WorkTile.__init__",
    "_WarpContext.__init__",
}


MEMBERS = members()


def parameters(member: str) -> list[str]:
    """The names of what a member takes, without self or cls, and without arguments of any name,
    whose bad values the member's own test tries.
    """
    _, _, raw = MEMBERS[member]
    function = raw.__func__ if isinstance(raw, staticmethod | classmethod) else raw
    named = inspect.signature(function).parameters.values()
    names = [x.name for x in named if x.kind is not inspect.Parameter.VAR_KEYWORD]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


TRIED = sorted(member for member in MEMBERS if parameters(member) and member not in OF_THE_LIBRARY)


@pytest.mark.sampled(suite=72)
@pytest.mark.slow
@pytest.mark.parametrize("member", TRIED)
def test_each_bad_value_is_refused_and_each_good_one_taken(member: str) -> None:
    wrong = []
    for parameter in parameters(member):
        allowed = good(member, parameter)
        found = {value: attempt(member, parameter, value) for value in VALUES}
        for value, outcome in found.items():
            if outcome.kind == "wrong" or (outcome.kind == "accepted" and value not in allowed):
                wrong.append(f"{parameter}={value}: {outcome.kind} {outcome.message}")
        for value, plain in AS_GOOD_AS.items():
            if found[value].kind != found[plain].kind:
                wrong.append(f"{parameter}={value}: {found[value]}, but {plain}: {found[plain]}")
    assert wrong == [], (
        "refuse what is accepted by an annotation of lang/arguments/annotations.py; if the value is"
        " good, say so in tests/support/arguments/wanted.py"
    )


@pytest.mark.slow
def test_every_public_member_is_tried() -> None:
    uncalled = [member for member in TRIED if member not in calls()]
    assert uncalled == [], (
        "call them in a case of tests/cases, in a kernel of tests/conformance, or in"
        " tests/support/arguments/kernels.py; or, if the library alone calls them, list them in"
        " OF_THE_LIBRARY"
    )
    assert sorted(OF_THE_LIBRARY - set(members())) == []
    assert sum(len(parameters(member)) * len(VALUES) for member in TRIED) >= 10_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("member", "parameter", "value", "kind", "words"),
    [
        ("SMemArray.__init__", "ctx", "None", "refused", "takes the kernel's ctx, got None"),
        (
            "TransferMembers.tma_load",
            "tensor",
            "None",
            "refused",
            "takes a tensor argument of the kernel, got None",
        ),
        (
            "SharedMemBarrier.on",
            "cta",
            "1.5",
            "refused",
            "takes an integer 0..15, which may be traced, got 1.5",
        ),
        ("TransferMembers.smem", "count", "2**34", "refused", "got 17179869184"),
        ("Context.role", "name", "two lines", "refused", "a name is a text of one line"),
        ("Context.range", "bounds", "2**34", "refused", "a loop counts in 32 bits"),
    ],
)
def test_a_trial_is_one(member: str, parameter: str, value: str, kind: str, words: str) -> None:
    """That what is tried is what is said: the message of the call, with the value."""
    outcome = attempt(member, parameter, value)
    assert outcome.kind in (kind, "late")
    assert words in outcome.message
