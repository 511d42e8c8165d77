"""Names of entry points, of their parameters and of variables in messages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_LENGTH = re.compile(r"[0-9]{1,4}")
_PARAMETER = re.compile(r".+_param_(\d+)")
# what may follow the last name in the mangled name of a variable (Itanium C++ ABI): the end of the
# scopes, or the number of several variables of that name in one function
_AFTER_NAME = re.compile(r"E?|_\d|__\d+_")
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")


def readable_name(name: str) -> str:
    """The name of a C++ function without its types: `cutlass::device_kernel` of
    `_ZN7cutlass13device_kernelI...` (Itanium C++ ABI, "Mangling"); any other name as it is.
    """
    if not name.startswith("_Z"):
        return name
    nested = name[2:3] == "N"
    at = 3 if nested else 2
    if name[at : at + 1] == "L":  # of internal linkage
        at += 1
    parts: list[str] = []
    while (length := _LENGTH.match(name, at)) and (nested or not parts):
        end = length.end() + int(length[0])
        if end > len(name):
            break
        parts.append(name[length.end() : end])
        at = end
    return "::".join(parts) or name


def shown_name(name: str, most: int = 120) -> str:
    """A name in a message: cut in the middle where it is as long as those of templates."""
    return name if len(name) <= most else f"{name[: most * 2 // 3]}...{name[3 - most // 3 :]}"


def named_kernel(name: str) -> str:
    """An entry point in a message: `kernel 'deep_gemm::gemm'`."""
    return f"kernel '{shown_name(readable_name(name))}'"


def parameter_name(name: str) -> str:
    """The name of a parameter in a message: `parameter 4` of a compiler's name, which has the
    kernel's in it (`_ZN9deep_gemm4gemmE..._param_3`; there the first is 0); any other as it is.
    """
    found = _PARAMETER.fullmatch(name)
    return f"parameter {int(found[1]) + 1}" if found else name


def variable_name(name: str) -> str:
    """The name of a variable in a message: `tile` of `_ZZ6kernelPfE4tile`, a variable of a function
    in C++, and of `_ZN5tiles4tileE`; any other name as it is.
    """
    return (_last_name(name) if name.startswith("_Z") else "") or shown_name(name)


def variable_names(names: Iterable[str]) -> dict[str, str]:
    """The names of several variables in messages, no two alike: `kernel::tile` and `helper::tile`
    where two functions have a `tile`; whole where that is not enough.
    """
    every = list(names)
    found = {name: variable_name(name) for name in every}
    for make in (_with_function, str):
        count = Counter(found.values())
        found = {name: said if count[said] == 1 else make(name) for name, said in found.items()}
    return found


def _last_name(name: str) -> str:
    """The last identifier in a mangled name, which its length precedes."""
    for at in range(2, len(name)):
        length = _LENGTH.match(name, at)
        if length is None:
            continue
        end = length.end() + int(length[0])
        last = name[length.end() : end]
        after = _AFTER_NAME.fullmatch(name, end) if end <= len(name) else None
        if after is not None and _IDENTIFIER.fullmatch(last):
            return last
    return ""


def _with_function(name: str) -> str:
    """`kernel::tile` of `_ZZ6kernelPfE4tile`."""
    if not (name.startswith("_ZZ") and (last := _last_name(name))):
        return name
    function = readable_name(f"_Z{name[3:]}")
    return name if function.startswith("_Z") else f"{shown_name(function, 40)}::{last}"
