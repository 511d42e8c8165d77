"""Synchronisation bugs of public kernels are found, with culprits, and their fixes verified."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.check.corpus.bugs import BUGS, Bug, bugs_of
from tests.check.corpus.write import PAGE, cell, rows
from tilepipe.check import check, replay


def _name(bug: Bug) -> str:
    return bug.name


# Bugs that alone show a cause that a message names, or a rule that it keeps.
ALONE = {
    "arrive_on_wrong_rank", "cp_async_without_wait", "named_barrier_shared",
    "syncthreads_in_branch", "syncthreads_skipped", "tensor_map_in_flight",
    "wgmma_registers_in_flight",
}  # fmt: skip


def _classes(bug: Bug, **_: Any) -> list[str]:
    return [bug.name if bug.name in ALONE else bug.kind]


@pytest.mark.slow
@pytest.mark.sampled(suite=3, classes=_classes)
@pytest.mark.parametrize("bug", BUGS, ids=_name)
def test_the_bug_is_found_and_its_fix_is_verified(bug: Bug) -> None:
    launch = bug.launch(True)
    verdict = check(launch, rules=bug.rules)
    assert verdict.verdict == "fault"
    (fault,) = verdict.faults
    assert fault.kind == bug.kind
    assert re.search(bug.says, fault.message)
    assert f"{bug.file.name}:{bug.line}" in f"{fault.loc}\n{fault.message}"
    assert not re.search(r"\broles?\b", fault.message)  # a word of this project's language
    # shared memory and parameters go by the names of the kernel
    assert not re.search(r"(bytes|at|mbarrier) 0x|kernel_param_|on shared memory", fault.message)
    again = replay(launch, fault.schedule, rules=bug.rules)
    assert str(again) == fault.message

    fixed = check(bug.launch(False), rules=bug.rules)
    assert (fixed.verdict, fixed.faults) == ("verified", [])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tensor_memory_released_early", "tensor_memory_freed_early"])
def test_fixed_kernels_with_tensor_memory_keep_the_strict_rules(name: str) -> None:
    (bug,) = (bug for bug in BUGS if bug.name == name)
    verdict = check(bug.launch(False), rules="strict")
    assert (verdict.verdict, verdict.faults) == ("verified", [])


def test_bugs_that_stand_alone_are_in_the_table() -> None:
    assert {bug.name for bug in BUGS} >= ALONE


def test_each_kernel_is_in_the_table_and_says_where_its_bug_was_reported() -> None:
    assert {bug.file for bug in BUGS} == bugs_of()
    for bug in BUGS:
        head = bug.file.read_text(encoding="utf-8").split("#include")[0]
        for repository, numbers in bug.reported:
            assert repository in head, bug.name
            for number in numbers:
                assert re.search(rf"\b{number}\b", head), (bug.name, number)


def test_the_page_has_a_row_for_each_bug() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [row.split("|")[1].strip() for row in rows(page)] == [cell(bug) for bug in BUGS]
