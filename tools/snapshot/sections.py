"""The sections of a snapshot: each is a dictionary of entries, which differ exactly where something
that matters does.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tools.snapshot import cubin, doors, normalise
from tools.snapshot.families import COMPILED, FAMILIES, MUTATED, RUN

Entry = Any  # a hash, or a dictionary of answers
Tick = Callable[[str, int], None]  # (what is at hand, of how many)
CHECKED_SECONDS = 60.0
# `tilepipe check NAME` explores these for longer than a snapshot should take.
LONG: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Context:
    """Where and how a snapshot is taken.

    Attributes:
        tree: the root of the repository. complete: everything, however long it takes.
        texts: a folder for the normalised texts behind the hashes, to be compared with diff.
    """

    tree: Path
    complete: bool
    texts: Path | None
    tick: Tick

    def hashed(self, section: str, key: str, text: str) -> str:
        """The hash of a text, which is kept where texts are."""
        if self.texts is not None:
            path = self.texts / section / (key.replace("/", "_").replace(" ", "_") + ".txt")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return normalise.digest(text)


def _programs(context: Context) -> Iterator[tuple[str, str | None, Callable[[], Any]]]:
    """(key, architecture, what makes the program) of all kernels: shipped families, small cases,
    examples.
    """
    for kernel, families in FAMILIES.items():
        for name, settings in families.items():
            yield f"{kernel}/{name}", doors.arch_of(kernel), partial(_shipped, kernel, settings)
    for key, case in doors.cases():
        yield key, None, partial(_first, case)
    for name, program in doors.examples(context.tree).items():
        yield f"example/{name}", None, partial(_same, program)
    yield "mutation/small kernel", None, doors.small_kernel


def _shipped(kernel: str, settings: dict[str, Any]) -> Any:
    return doors.shipped(kernel, settings).program


def _first(case: Any) -> Any:
    return case.make(np.random.default_rng(0))[0]


def _same(program: Any) -> Any:
    return program


def _printed(
    context: Context, section: str, text_of: Callable[[Any, str | None], str]
) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    programs = list(_programs(context))
    for key, arch, make in programs:
        context.tick(f"{section} {key}", len(programs))
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                text = text_of(make(), arch)
        except doors.errors() as error:
            found[key] = f"refused: {type(error).__name__}"
        else:
            found[key] = context.hashed(section, key, text)
    return found


def cuda(context: Context) -> dict[str, Entry]:
    """The CUDA that is printed for every kernel."""
    return _printed(
        context,
        "cuda",
        lambda program, arch: normalise.cuda(doors.source_of(doors.kernel_of(program), arch)),
    )


def ir(context: Context) -> dict[str, Entry]:
    """Every kernel as text."""
    return _printed(context, "ir", lambda program, _: normalise.ir(str(program)))


def sass(context: Context) -> dict[str, Entry]:
    """Machine code of shipped kernels: of a few families of each, or of all."""
    chosen = [
        (kernel, name, settings)
        for kernel, families in FAMILIES.items()
        for name, settings in families.items()
        if context.complete or name in COMPILED[kernel]
    ]
    found: dict[str, Entry] = {}
    for kernel, name, settings in chosen:
        key = f"{kernel}/{name}"
        context.tick(f"sass {key}", len(chosen))
        code = doors.cubin_of(doors.shipped(kernel, settings).program, doors.arch_of(kernel))
        found[key] = normalise.digest(cubin.contents(code))
    return found


def verdicts(context: Context) -> dict[str, Entry]:
    """What `tilepipe check` says of the shipped kernels at their defaults, and of the examples."""
    found: dict[str, Entry] = {}
    jobs: list[tuple[str, Any]] = []
    for kernel in FAMILIES:
        if kernel not in LONG:
            jobs += [
                (f"{kernel}/instance {i}", program)
                for i, program in enumerate(doors.instances(kernel, {}))
            ]
    jobs += [(f"example/{name}", program) for name, program in doors.examples(context.tree).items()]
    jobs.append(("mutation/small kernel", doors.small_kernel()))
    for key, program in jobs:
        context.tick(f"check {key}", len(jobs))
        with contextlib.redirect_stdout(io.StringIO()):
            verdict = program.check(bounds=doors.bounds(CHECKED_SECONDS))
        found[key] = doors.verdict_of(verdict, doors.kernel_of(program))
    return found


def mutants(context: Context) -> dict[str, Entry]:
    """What becomes of a sample of mutants, which the hash of a mutant's text draws: kernels as
    small as they get.
    """
    found: dict[str, Entry] = {}
    subjects: list[tuple[str, Any, int]] = [
        ("small kernel", doors.small_kernel(), 1 if context.complete else 2)
    ]
    for name, (kernel, settings, one_of) in MUTATED.items():
        subjects.append(
            (name, doors.instances(kernel, settings)[-1], 1 if context.complete else one_of)
        )
    chosen = []
    for name, program, one_of in subjects:
        for mutant in doors.mutants(program):
            text = normalise.ir(doors.text_of(mutant.kernel))
            if int(normalise.digest(text), 16) % one_of == 0:
                chosen.append((name, program, mutant, normalise.digest(text)))
    references = {name: doors.outputs(program) for name, program, _ in subjects}
    for name, program, mutant, number in chosen:
        context.tick(f"mutant of {name}", len(chosen))
        found[f"{name}/{number}"] = doors.judged(mutant, program, references[name])
    return found


def runs(context: Context) -> dict[str, Entry]:
    """Modelled time, steps and results of shipped kernels on small problems, for three
    interleavings each.
    """
    found: dict[str, Entry] = {}
    jobs = [
        (f"{kernel}/{name}", kernel, settings, seed)
        for kernel, problems in RUN.items()
        for name, settings in problems.items()
        for seed in range(3)
    ]
    for key, kernel, settings, seed in jobs:
        context.tick(f"run {key}", len(jobs))
        made = doors.shipped(kernel, settings, seed)
        run = made.program.run(seed=seed)
        digest = hashlib.sha256(np.ascontiguousarray(made.output).tobytes()).hexdigest()[
            : normalise.HASH_DIGITS
        ]
        found[f"{key}/seed {seed}"] = {
            "us": round(run.simulated_us, 6),
            "steps": run.steps,
            "output": digest,
        }
    return found


def planted(context: Context) -> dict[str, Entry]:
    """What runs and checks of the kernels end in that the tests plant mistakes in."""
    from tools.snapshot import capture

    return capture.judged(context)


def printed(context: Context) -> dict[str, Entry]:
    """The CUDA of every kernel that any test binds."""
    from tools.snapshot import capture

    return capture.printed(context)


SECTIONS: dict[str, Callable[[Context], dict[str, Entry]]] = {
    "ir": ir,
    "cuda": cuda,
    "printed": printed,
    "runs": runs,
    "verdicts": verdicts,
    "planted": planted,
    "mutants": mutants,
    "sass": sass,
}  # fmt: skip
