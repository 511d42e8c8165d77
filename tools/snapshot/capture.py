"""Programs that tests make, wherever they make them: caught at `tp.Program` and `tp.KernelFunction`
while the tests run.

An entry is keyed by the normalised text of the program, so that tests may be moved and renamed.
Where a test checks one program twice, with other data, the entry lists what was answered.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tools.snapshot import doors, normalise
from tools.snapshot.sections import Context, Entry


class _Recorder:
    """A pytest plugin that counts tests, and keeps what `note` is given."""

    def __init__(self, context: Context, section: str) -> None:
        self.context, self.section = context, section
        self.found: dict[str, Entry] = {}
        self.total = 0
        self.test = ""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.total = len(session.items)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.test = item.nodeid
        self.context.tick(f"{self.section} {item.name[:40]}", self.total)

    def note(self, key: str, part: str, answer: Any) -> None:
        """Adds an answer to a part of an entry."""
        entry = self.found.setdefault(key, {"test": self.test.split("::")[-1][:48]})
        answers = entry.setdefault(part, [])
        if answer not in answers:
            answers.append(answer)
            answers.sort(key=repr)


@contextlib.contextmanager
def _patched(replacements: dict[tuple[Any, str], Callable[..., Any]]) -> Iterator[None]:
    before = {where: getattr(*where) for where in replacements}
    for (owner, name), replacement in replacements.items():
        setattr(owner, name, replacement)
    try:
        yield
    finally:
        for (owner, name), original in before.items():
            setattr(owner, name, original)


def _run_tests(context: Context, folders: list[str], recorder: _Recorder, *options: str) -> None:
    """Runs the tests of these folders, silently; what they assert is not our business."""
    here = os.getcwd()
    os.chdir(context.tree)
    try:
        chosen = [folder for folder in folders if (context.tree / folder).exists()]
        with contextlib.redirect_stdout(io.StringIO()):
            pytest.main(
                ["-q", "-p", "no:cacheprovider", "--no-header", *options, *chosen],
                plugins=[recorder],
            )
    finally:
        os.chdir(here)


def _options(options: dict[str, Any]) -> str:
    usual = (None, 0, False, "practice")
    kept = {
        name: options[name]
        for name in ("seed", "rules", "explore")
        if options.get(name) not in usual
    }
    return " ".join(f"{name}={value}" for name, value in sorted(kept.items()))


def _program_key(program: Any) -> str:
    return normalise.digest(normalise.ir(str(program)) + doors.arguments_of(program))


def judged(context: Context) -> dict[str, Entry]:
    """How runs and checks of planted kernels end: faults and verdicts one by one, runs that end
    well as one hash.
    """
    import tilepipe as tp

    recorder = _Recorder(context, "planted")
    run, check = tp.Program.run, tp.Program.check

    def noted_run(program: Any, **options: Any) -> Any:
        key = _program_key(program)
        try:
            result = run(program, **options)
        except tp.TilepipeError as error:
            fault = {"fault": type(error).__name__, "line": doors.line_of(error)}
            recorder.note(
                key,
                "faults",
                fault
                | (
                    {"rules": options["rules"]}
                    if options.get("rules", "practice") != "practice"
                    else {}
                ),
            )
            raise
        recorder.note(key, "runs", f"{_options(options)} {result.simulated_us:.6f} {result.steps}")
        return result

    def noted_check(program: Any, **options: Any) -> Any:
        key = _program_key(program)
        verdict = check(program, **options)
        said = _options(options)
        recorder.note(
            key,
            "checks",
            doors.verdict_of(verdict, doors.kernel_of(program)) | ({"with": said} if said else {}),
        )
        return verdict

    with _patched({(tp.Program, "run"): noted_run, (tp.Program, "check"): noted_check}):
        _run_tests(context, doors.PLANTED, recorder)
    for entry in recorder.found.values():
        if "runs" in entry:
            entry["runs"] = normalise.digest("\n".join(entry["runs"]))
    return recorder.found


def printed(context: Context) -> dict[str, Entry]:
    """The CUDA of what tests bind; a test ends where it would run, check, launch or compile
    something.
    """
    import tilepipe as tp

    recorder = _Recorder(context, "printed")
    known: set[int] = set()
    kept: list[Any] = []  # so that no id is used again
    bind = tp.KernelFunction.bind
    cuda = doors.module(doors.CUDA)
    source = cuda.source

    def note(kernel: Any, arch: str | None) -> None:
        if id(kernel) in known:
            return
        known.add(id(kernel))
        kept.append(kernel)
        with contextlib.suppress(AssertionError):
            text = normalise.ir(doors.text_of(kernel))
            try:
                printed_text = normalise.cuda(source(kernel, arch))
            except tp.TilepipeError as error:
                recorder.note(normalise.digest(text), "refused", type(error).__name__)
            else:
                number = normalise.digest(text)
                recorder.note(number, "cuda", context.hashed("printed", number, printed_text))

    def noted_bind(function: Any, *args: Any, **static: Any) -> Any:
        program = bind(function, *args, **static)
        note(doors.kernel_of(program), None)
        return program

    def enough(*_: Any, **__: Any) -> Any:
        pytest.skip("what it prints is known")

    def noted_kernel(kernel: Any, arch: str | None = None, *_: Any, **__: Any) -> Any:
        note(kernel, arch)
        return enough()

    program_ends = {
        (tp.Program, name): enough
        for name in ("run", "check", "launch", "launcher", "compile", "sensitivity", "replay")
    }
    module_ends: dict[tuple[Any, str], Callable[..., Any]] = {
        (cuda, "compile"): noted_kernel,
        (doors.module(doors.SIMULATING), "run"): enough,
        (doors.module(doors.CHECKING), "check"): enough,
    }
    with _patched({(tp.KernelFunction, "bind"): noted_bind, **program_ends, **module_ends}):
        _run_tests(context, doors.PRINTED, recorder, "-p", "no:randomly")
    return recorder.found
