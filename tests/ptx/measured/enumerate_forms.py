"""Which forms ptxas takes for sm_90a, and which of them the reader of PTX models.

python -m tests.ptx.measured.enumerate_forms [--out FILE]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path

from tests.ptx.measured.case import module
from tests.ptx.measured.forms import Form, candidates, instructions, register, results
from tilepipe.errors import PtxError
from tilepipe.ptx.definition import operation
from tilepipe.ptx.loading import load

_CLASSES = {"amount": "b32", "field": "b32", "place": "b32", "offset": "b32", "few": "b32",
            "angle": "f32"}  # fmt: skip


def lines_of(form: Form) -> list[str]:
    """The instructions of a form, on some registers."""
    sources = [
        kind if kind[0].isdigit() else f"%{register(_CLASSES.get(kind, kind))}{1 + i}"
        for i, kind in enumerate(form.sources)
    ]
    into = [f"%{register(kind)}{10 + i}" for i, kind in enumerate(results(form))]
    return instructions(form, sources, into)


def taken_by_ptxas(forms: tuple[Form, ...]) -> list[Form]:
    """Those without an error of the assembler, which names the line of each."""
    lines: list[str] = []
    owner: dict[int, int] = {}
    head = module("@@", 128).split("@@")[0].count("\n")
    for number, form in enumerate(forms):
        for line in lines_of(form):
            lines.append(line)
            owner[head + len(lines)] = number
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "forms.ptx"
        path.write_text(module("\n".join(lines), 128), encoding="utf-8")
        done = subprocess.run(
            ["ptxas", "-arch=sm_90a", str(path), "-o", "/dev/null"], capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    refused = {owner[int(n)] for n in re.findall(r"line (\d+); error", done.stdout + done.stderr)}
    return [form for number, form in enumerate(forms) if number not in refused]


def modelled(form: Form) -> str:
    """Why the reader refuses a form; empty where it does not."""
    try:
        kernel = load(module("\n".join(lines_of(form)), 128))["k"]
        for instruction in kernel.function.instructions:
            operation(instruction)
    except PtxError as error:
        return str(error)
    return ""


def main() -> None:
    """Prints what the two take."""
    parser = argparse.ArgumentParser(prog="python -m tests.ptx.measured.enumerate_forms")
    parser.add_argument(
        "--out", type=Path, help="the keys of the forms that both take, a line each"
    )
    options = parser.parse_args()
    forms = candidates()
    taken = taken_by_ptxas(forms)
    known = {form.key for form in taken}
    reasons = {form.key: modelled(form) for form in forms}
    both = [form for form in taken if not reasons[form.key]]
    print(f"{len(forms)} candidates; ptxas takes {len(taken)}, the reader {len(both)} of them")
    for form in taken:
        if reasons[form.key]:
            print("only ptxas:", form.key, "|", reasons[form.key][:150])
    for form in forms:
        if form.key not in known and not reasons[form.key]:
            print("only the reader:", form.key)
    if options.out is not None:
        options.out.write_text("".join(f"{form.key}\n" for form in both), encoding="utf-8")


if __name__ == "__main__":
    main()
