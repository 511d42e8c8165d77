"""What becomes of a mutant of a PTX text: the classes, and why one is not noticed."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from tests.mutation.ptx.mutants import Mutant
from tests.mutation.ptx.subjects import SEEDS, Subject, subject
from tests.support.time_limit import TimeLimitExceeded, time_limit
from tilepipe.errors import BindError, PtxError, SimFault, UnfinishedError

# What a mutant of other instructions does, it does in every interleaving: one run says it.
_ORDERED = re.compile(
    r"mbarrier|bar|fence|membar|wgmma|tcgen05|cp\.|st\.|ld\.|red|atom|elect|vote|griddep|bra|ret"
    r"|exit"
)
PATIENCE = 6  # times as long as the kernel takes a mutant may run, in seconds of the processor
LIMIT = 60  # seconds of one mutant, whatever it does


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one mutant.

    Attributes:
        subject: the kernel. operator, line, instruction, what: the mutant's. opcode: with
            modifiers.
        fate: "refused" (before anything runs), "fault", "wrong result", "endless", "survived"; or
            "error", where the reader ends in anything but one of its errors.
        kind, message: of the fault. reason: why it is not noticed.
    """

    subject: str
    operator: str
    line: int
    instruction: str
    what: str
    opcode: str
    fate: str
    kind: str = ""
    message: str = ""
    reason: str = ""
    seconds: float = 0.0


def judge(name: str, mutant: Mutant) -> Result:
    """The result of a mutant of a subject."""
    begun = time.monotonic()
    found = subject(name)
    fate, kind, message = _fate(found, mutant)
    reason = unnoticed(mutant, found) if fate == "survived" else ""
    return Result(
        name, mutant.operator, mutant.line, mutant.instruction, mutant.what, mutant.opcode,
        fate, kind, message, reason, round(time.monotonic() - begun, 2),
    )  # fmt: skip


def _fate(found: Subject, mutant: Mutant) -> tuple[str, str, str]:
    text = mutant.of(found.printed.text)
    try:
        with time_limit(LIMIT):
            for seed in SEEDS if _ORDERED.match(mutant.opcode) else SEEDS[:1]:
                if found.result(text, seed, 1 + PATIENCE * found.seconds) != found.after:
                    return "wrong result", "", ""
    except UnfinishedError as error:
        return "endless", "", _headline(error)
    except SimFault as error:
        return "fault", type(error).__name__, _headline(error)
    except (PtxError, BindError) as error:
        return "refused", type(error).__name__, _headline(error)
    except (Exception, TimeLimitExceeded) as error:  # a bug of the reader: the campaign goes on
        return "error", type(error).__name__, _headline(error)
    return "survived", "", ""


def _headline(error: BaseException) -> str:
    return f"{error}".split("\n")[0][:200]


# What is not noticed, by opcode: it changes no result, in no interleaving.
_HARMLESS: list[tuple[str, str]] = [
    (r"prefetch|\S+\.prefetch", "a prefetch changes no result"),
    (r"setmaxnreg", "registers are not counted: the simulated SM has enough"),
    (r"griddepcontrol", "one grid runs alone: nothing comes before or after it"),
    (r"nanosleep|pragma", "a pause changes no result"),
    (
        r"tcgen05\.relinquish_alloc_permit",
        "one CTA runs on an SM: no other waits for the permit to allocate",
    ),
]


def unnoticed(mutant: Mutant, found: Subject) -> str:
    """Why nobody can notice a mutant; "" where no rule says so."""
    if mutant.line not in found.executed:
        return "not executed in this problem"
    for pattern, reason in _HARMLESS:
        if re.match(pattern, mutant.opcode):
            return reason
    if mutant.operator == "deletion" and "fence" in mutant.opcode:
        return "a fence that orders nothing more: others, or the instruction itself, do"
    if mutant.opcode.startswith("mbarrier.init") and _is_init_alone(mutant, found):
        return "a barrier that none of these interleavings comes to: its use would be a fault"
    if mutant.operator == "bit flip":
        return _bit_reason(mutant)
    return ""


def _is_init_alone(mutant: Mutant, found: Subject) -> bool:
    """True if a deletion takes away the only instruction that names some barriers when it runs:
    nothing arrives at them or waits for them.
    """
    text = found.printed.text
    made = {bar for bar, line in found.barriers(text).items() if line == mutant.line}
    gone = mutant.operator == "deletion"
    return gone and bool(made) and made.isdisjoint(found.barriers(mutant.of(text)))


def _bit_reason(mutant: Mutant) -> str:
    if mutant.opcode.startswith("selp") and mutant.new not in ("0", "1"):
        return "a truth value, which is compared with 0 alone"
    if mutant.opcode.startswith(("shr", "shl")):
        return "a shift of a number that is 0 here, or that shifts out the same sign"
    if mutant.opcode.startswith("setp"):
        return "a comparison with another bound that separates the same numbers"
    if mutant.opcode.startswith(("and", "or", "lop3")):
        return "a bit of a mask, or of a descriptor, that decides nothing"
    return ""
