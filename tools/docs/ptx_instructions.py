"""Which forms of PTX are read: `python -m tools.docs.ptx_instructions` writes
docs/generated/ptx-instructions.md.

The forms are those of `ptx_forms.txt`, which is kept by hand from the PTX ISA and knows nothing of
the reader. Whether a form is read, and why it is not, its definition says (`tilepipe.ptx.isa`).
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from pathlib import Path

from tilepipe.errors import PtxError
from tilepipe.ptx import isa  # noqa: F401 (registers the definitions)
from tilepipe.ptx.definition import operation
from tilepipe.ptx.syntax.parser import parse

ROOT = Path(__file__).parents[2]
FORMS = Path(__file__).with_name("ptx_forms.txt")
PAGE = ROOT / "docs" / "generated" / "ptx-instructions.md"
HEAD = """# Which forms of PTX are read

All opcodes of PTX ISA 9.1, with the forms of its syntax: those that the reader of PTX takes, and
those that it refuses, before anything runs, for the reason given. {a|b} stands for one of several
modifiers; h, r, d and q are registers of 16, 32, 64 and 128 bits, p is a predicate.

A form that is read may still be refused for the value of an operand, by a fault that names it: an
instruction descriptor that its kind does not have, or an interleaved tensor map.

`python -m tools.docs.ptx_instructions` writes this page, from `tools/docs/ptx_forms.txt`.
"""
_REGISTER = re.compile(r"(?<![%.:0-9a-z_])([hrdqp])(?![0-9a-z_:])")
_KERNEL = """
.version 9.1
.target sm_100a
.address_size 64
.global .b32 array[4];
.func function() {{ ret; }}
.visible .entry k(.param .u32 parameter) {{
.reg .b16 %h<2>; .reg .b32 %r<2>; .reg .b64 %d<2>; .reg .b128 %q<2>; .reg .pred %p<2>;
{text};
L: ret;
targets: .branchtargets L;
}}
"""


@dataclass
class Form:
    """A line of the list: a form, or several.

    Attributes:
        text: as it stands there. elsewhere: why it is not on sm_90a or sm_100a, or "".
        refused: forms that are not read -> why.
    """

    text: str
    elsewhere: str = ""
    count: int = 0
    refused: dict[str, str] = field(default_factory=dict)


def expanded(text: str) -> list[str]:
    """The forms that {a|b} before the operands stand for."""
    name, space, operands = text.partition(" ")
    parts = re.split(r"\{(.*?)\}", name)
    choices = [[part] if n % 2 == 0 else part.split("|") for n, part in enumerate(parts)]
    return ["".join(chosen) + space + operands for chosen in itertools.product(*choices)]


def _text(form: str) -> str:
    """With the names of registers."""
    name, _, operands = form.partition(" ")
    return f"{name} {_REGISTER.sub(lambda m: f'%{m[0]}1', operands)}".strip()


def refusal(form: str) -> str:
    """Why a form is not read, or ""."""
    try:
        kernel = parse(_KERNEL.format(text=_text(form))).functions["k"]
        operation(kernel.instructions[0])
    except PtxError as error:
        reason = re.sub(r"^PTX line \d+: ", "", str(error).splitlines()[0])
        name = form.partition(" ")[0]
        return reason.removeprefix(_text(form).strip() + ": ").removeprefix(name + ": ")
    return ""


def sections() -> dict[str, list[Form]]:
    """The list, with what is read: section -> its forms."""
    found: dict[str, list[Form]] = {}
    for line in FORMS.read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            forms = found.setdefault(line[3:], [])
        elif line.startswith("@ "):
            reason, _, text = line[2:].partition(": ")
            forms.append(Form(text, reason))
        elif line and not line.startswith("#"):
            each = expanded(line)
            reasons = {form: refusal(form) for form in each}
            refused = {form: reason for form, reason in reasons.items() if reason}
            forms.append(Form(line, "", len(each), refused))
    return found


def opcodes() -> set[str]:
    """The opcodes of the list."""
    lines = FORMS.read_text(encoding="utf-8").splitlines()
    lines = [line.partition(": ")[2] if line.startswith("@") else line for line in lines]
    forms = [f for line in lines if line and line[0] not in "=#" for f in expanded(line)]
    return {re.split(r"[. ]", form)[0] for form in forms}


def page(found: dict[str, list[Form]]) -> str:
    """The page."""
    out = [HEAD]
    for title, forms in found.items():
        read = [form.text for form in forms if not form.refused and not form.elsewhere]
        out += [f"\n## {title}\n"]
        if read:
            out += ["```", *read, "```"]
        rows: list[tuple[str, str]] = []
        for form in forms:
            if form.elsewhere:
                rows.append((form.text, f"not on sm_90a and sm_100a: {form.elsewhere}"))
            elif form.refused:
                rows += _rows(form)
        if rows:
            out += ["", "| not read | why |", "|---|---|"]
            out += [f"| `{_cell(text)}` | {_cell(why)} |" for text, why in rows]
    return "\n".join(out) + "\n"


def _rows(form: Form) -> list[tuple[str, str]]:
    """What is not read of a line: all of it, where the reason is one, or some forms."""
    reasons = set(form.refused.values())
    if len(form.refused) == form.count and len(reasons) == 1:
        return [(form.text, reasons.pop())]
    return list(form.refused.items())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(sections()), encoding="utf-8")
