"""Tries a bad value for a parameter of a member, in a kernel that calls it, and says what came of
it.
"""

from __future__ import annotations

import functools
import traceback
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilepipe as tp
from tests.support.arguments.interpose import Refused, Replace, Seen, interposed
from tests.support.arguments.kernels import CASES
from tests.support.arguments.values import VALUES
from tests.support.time_limit import TimeLimitExceeded, time_limit
from tilepipe.ir.location import is_library_file

SECONDS = 20  # after which a call hangs; no call takes one, but a machine may be busy


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Attributes:
        kind: "refused" by an error of tilepipe in the call, "late" by one afterwards, "accepted",
            "wrong" for anything else.
        message: of the error; where it was raised, too, if it is none of tilepipe.
    """

    kind: str
    message: str = ""


@functools.cache
def calls() -> dict[str, tuple[Any, dict[str, Any]]]:
    """member -> (the case that calls it, parameter -> a valid argument)."""
    found: dict[str, tuple[Any, dict[str, Any]]] = {}
    for case in CASES:
        seen = Seen()
        with interposed(seen):
            case.make(np.random.default_rng(0))
        for member, arguments in seen.calls.items():
            if member not in found:
                found[member] = case, arguments
    return found


def attempt(member: str, parameter: str, value: str) -> Outcome:
    """Calls `member` with a bad value for one parameter, goes on with the kernel, and prints it for
    both readers.
    """
    replace = Replace(member, parameter, VALUES[value])
    case = calls()[member][0]  # found before anything is replaced
    try:
        with time_limit(SECONDS):
            with interposed(replace=replace):
                program = case.make(np.random.default_rng(0))[0]
            assert replace.done, f"{member} is not called"
            str(program)
            program.source()
    except Refused as refused:
        return _of(refused.error, "refused")
    except tp.TilepipeError as error:
        return Outcome("late", str(error))
    except TimeLimitExceeded:
        return Outcome("wrong", f"more than {SECONDS} s")
    except Exception as error:
        if not is_library_file(
            traceback.extract_tb(error.__traceback__)[-1].filename
        ) and "src/tilepipe" not in _where(error):
            # which is an argument of the test's own
            return Outcome("accepted", "the kernel itself has another opinion")
        return _of(error, "late")
    return Outcome("accepted")


def _of(error: BaseException, kind: str) -> Outcome:
    if isinstance(error, tp.TilepipeError):
        return Outcome(kind, str(error))
    return Outcome("wrong", f"{type(error).__name__}: {error} at {_where(error)}")


def _where(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}"
