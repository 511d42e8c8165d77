"""PTX as ptxas takes it by default: a product that is added or subtracted once is one fused
multiply-add, which does not round the product (`--fmad=true`).
"""

from __future__ import annotations

import re
from collections import Counter

_PRODUCT = re.compile(r"\s*mul\.f32\s+(%f\d+), (\S+), (\S+);")
_SUM = re.compile(r"\s*(add|sub)\.f32\s+(%f\d+), (\S+), (\S+);")


def contracted(ptx: str) -> tuple[str, int]:
    """The text with fused multiply-adds, and how many there are now."""
    lines = ptx.splitlines()
    uses = Counter(re.findall(r"%f\d+\b", ptx))
    products: dict[str, tuple[str, str]] = {}
    count = 0
    for i, line in enumerate(lines):
        if product := _PRODUCT.fullmatch(line):
            name, a, b = product.groups()
            # written once and read once; a register that is written again is no such product
            if uses[name] == 2:
                products[name] = a, b
        elif (found := _SUM.fullmatch(line)) and found[3] in products:
            kind, name, product_name, other = found.groups()
            a, b = products[product_name]
            minus = f"neg.f32 {product_name}, {other};\n" if kind == "sub" else ""
            term = product_name if kind == "sub" else other
            lines[i] = f"{minus}fma.rn.f32 {name}, {a}, {b}, {term};"
            count += 1
    return "\n".join(lines), count
