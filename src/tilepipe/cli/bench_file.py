"""`tilepipe bench FILE.py:NAME`: programs of a user's file on device 0."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import tilepipe as tp
from tilepipe.cli import programs
from tilepipe.cli.against import Peer, peer_of
from tilepipe.cli.common import print_json, stepping
from tilepipe.cli.measuring import Wanted, announce, require_torch, show
from tilepipe.errors import BindError


def bench_file(what: str, settings: Sequence[str], against: Sequence[str], wanted: Wanted) -> bool:
    """Measures every instance beside its peers; whether all results agree.

    Raises:
        BindError: a target or a peer that does not fit, before the GPU is looked for.
        UnavailableError: no GPU, or no PyTorch.
    """
    with contextlib.redirect_stdout(sys.stderr):  # what the file prints
        found = programs.target(what, settings)
        instances = [
            (x.name, program, [peer_of(name, program, i) for name in against])
            for i, x in enumerate(found.instances)
            for program in [_program(what, x.make())]
        ]
    from tilepipe.cuda.runtime import driver

    chip = driver.chip(0)
    require_torch()
    from tilepipe.bench import own, timing
    from tilepipe.bench.gemm import REGIMES_TEXT, environment

    contests = [own.Contest(name, program, _peers(peers)) for name, program, peers in instances]
    head = [environment(chip), REGIMES_TEXT, _compared(against)]
    wanted.heading(head)
    each = timing.seconds(1 + len(against), wanted.regimes, wanted.repeats)
    announce(len(contests) * (1.0 + each))
    with stepping("compiling", len(contests) * len(wanted.regimes), wanted.as_json) as step:
        lines = [
            line
            for contest in contests
            for line in own.measure(contest, wanted.regimes, wanted.repeats, step)
        ]
    right = all(line.right for line in lines)
    if wanted.as_json:
        print_json(
            {
                "kernel": what,
                "config": found.config,
                "environment": head,
                "against": list(against),
                "ok": right if against else None,
                "results": [line.report() for line in lines],
            }
        )
    else:
        tables = [own.table(lines, regime, against) for regime in wanted.regimes]
        show(tables, wanted.markdown, head)
    return right


def _program(what: str, made: programs.Made) -> tp.Program:
    if not isinstance(made, tp.Program):
        raise BindError(f"{what} is a launch of PTX, which is simulated only: it is not timed")
    return made


def _peers(peers: Sequence[Peer]) -> Mapping[str, Any]:
    return {x.what: x.call if x.other is None else x.other for x in peers}


def _compared(against: Sequence[str]) -> str:
    if not against:
        return "compared with nothing: --against FILE.py:NAME measures another beside it"
    return "results are compared before anything is timed; ratio: peer's time / ours"
