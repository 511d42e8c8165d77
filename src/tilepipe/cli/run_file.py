"""`tilepipe run FILE.py:NAME` and `tilepipe compile FILE.py:NAME`: programs of a user's file."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import tilepipe as tp
from tilepipe.cli import programs
from tilepipe.cli.against import Peer, peer_of
from tilepipe.cli.common import Source, counting, out, print_json, print_list
from tilepipe.cli.programs import Target
from tilepipe.errors import BindError
from tilepipe.testing.agreement import Agreement


@dataclass(frozen=True)
class Ran:
    """One run of an instance. `simulated_us`, `steps`: of the simulator, None elsewhere.
    `agreements`: by output, where results were compared. `printed`: the lines that the kernel
    printed, and `advice`: what it should do otherwise, both on the simulator.
    """

    instance: str
    wall_s: float
    simulated_us: float | None
    steps: int | None
    agreements: dict[str, Agreement]
    printed: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing that was compared differs."""
        return all(x.ok for x in self.agreements.values())

    def report(self) -> dict[str, Any]:
        """The run as `--json` prints it."""
        return {
            "instance": self.instance,
            "wall_s": self.wall_s,
            "simulated_us": self.simulated_us,
            "steps": self.steps,
            "ok": self.ok if self.agreements else None,
            "outputs": {name: x.report() for name, x in self.agreements.items()},
            "printed": self.printed,
            "advice": self.advice,
        }

    def __str__(self) -> str:
        parts = [f"{self.instance}: {self.wall_s:.3f} s"]
        if self.simulated_us is not None:
            parts.append(f"modelled time {self.simulated_us:.1f} µs")
        if self.steps is not None:
            parts.append(f"{self.steps:,} steps")
        return "\n  ".join([", ".join(parts), *(f"{n}: {x}" for n, x in self.agreements.items())])


def run_file(
    found: Target,
    device: str,
    source: Source,
    seed: int,
    timeout: float | None,
    against: str,
    as_json: bool,
) -> bool:
    """Runs every instance on its own arrays; whether all that was compared agrees.

    Args:
        found: the programs themselves; of `source` ptx their printed PTX is run, which writes into
            the same arrays.

    Raises:
        BindError: a launch of PTX for a GPU, or a peer that does not fit.
    """
    done: list[Ran] = []
    compares = True  # --against takes these programs
    for number, instance in enumerate(found.instances):
        with contextlib.redirect_stdout(sys.stderr):  # what the file prints
            program = instance.make()
            peer = peer_of(against, program, number) if against else None
        compares = compares and isinstance(program, tp.Program)
        made = program
        if source is Source.ptx and isinstance(program, tp.Program):
            made = program.ptx()
        done.append(_run(instance.name, made, peer, device, seed, timeout, as_json))
    if as_json:
        ok = all(x.ok for x in done) if against else None
        print_json(
            {
                "kernel": found.what,
                "config": found.config,
                "device": device,
                "from": source.value,
                "seed": seed,
                "against": against or None,
                "ok": ok,
                "runs": [x.report() for x in done],
            }
        )
    else:
        out.print(" ".join([f"{found.what}:", *(f"{n}={x}" for n, x in found.config.items())]))
        for ran in done:
            out.print(str(ran))
        print_list("Advice:", list(dict.fromkeys(text for ran in done for text in ran.advice)))
        if not against:
            cure = ": --against FILE.py:NAME does" if compares else ""
            out.print(f"ran without a fault; compared with nothing{cure}")
    return all(x.ok for x in done)


def _run(
    name: str,
    program: programs.Made,
    peer: Peer | None,
    device: str,
    seed: int,
    timeout: float | None,
    quiet: bool,
) -> Ran:
    expected = None if peer is None else peer.expected(device)
    us: float | None = None
    steps: int | None = None
    printed: list[str] = []
    advice: list[str] = []
    # What the kernel prints is shown as it runs, or is a part of the report.
    shown = contextlib.redirect_stdout(sys.stderr) if quiet else contextlib.nullcontext()
    started = time.perf_counter()
    if not isinstance(program, tp.Program):
        if device == "cuda":
            raise BindError(f"{name} is a launch of PTX, which is simulated: leave out --device")
        with shown:
            steps = (
                program.run(seed=seed)
                if timeout is None
                else program.run(seed=seed, timeout=timeout or None)
            )
        printed, advice = program.printed, program.advice
    elif device == "cuda":
        from tilepipe.cuda.runtime import driver
        from tilepipe.cuda.runtime.launching import wait_for

        program.launch(debug=False)
        with driver.current(program.launcher().ordinal):
            wait_for(program.kernel.name)
    else:
        with shown, counting("simulating CTAs", quiet) as progress:
            result = program.run(seed=seed, progress=progress)
        us, steps = result.simulated_us, result.steps
        printed, advice = result.printed, result.advice
    wall = time.perf_counter() - started
    agreements = {} if expected is None else expected.compared()
    return Ran(name, wall, us, steps, agreements, printed, advice)
