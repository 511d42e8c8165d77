"""Names of entry points and of their parameters in messages."""

from __future__ import annotations

import re

_LENGTH = re.compile(r"[0-9]{1,4}")
_PARAMETER = re.compile(r"_Z.*_param_(\d+)")


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
    """The name of a parameter in a message: `parameter 3 of deep_gemm::gemm` of a compiler's name
    that has the mangled name of the kernel in it (`_ZN9deep_gemm4gemmE..._param_3`; the first is
    0); any other name as it is.
    """
    found = _PARAMETER.fullmatch(name)
    return f"parameter {found[1]} of {shown_name(readable_name(name))}" if found else name
