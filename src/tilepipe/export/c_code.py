"""The launcher of one kernel in C: its header and its source, which call `launch/`."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tilepipe.cuda.runtime.tensormap import map_recipe
from tilepipe.errors import ExportError
from tilepipe.export.manifest import Manifest, Scalar, Tensor
from tilepipe.export.rules import CLUSTERS, Rule, in_c, names_in
from tilepipe.ir.hardware.tma import ALIGNMENT

MAX_RANK, MAX_PARAMETERS, MAX_ARGUMENTS, MAX_MAPS = 5, 24, 96, 16  # of tilepipe_launch.h
_KINDS = {
    "map": "TILEPIPE_MAP",
    "data": "TILEPIPE_DATA",
    "stride": "TILEPIPE_STRIDE",
    "shape": "TILEPIPE_SHAPE",
    "scalar": "TILEPIPE_SCALAR",
}
# as the printed kernel takes them: narrow integers as 32 bits, small floats as float
_C_TYPES = {
    "boolean": "bool",
    "int8": "int32_t",
    "uint8": "int32_t",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int64": "int64_t",
    "uint64": "uint64_t",
    "float64": "double",
}
# C99 and C++: names that a member of a struct cannot have
_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl const
constexpr const_cast continue decltype default delete do double dynamic_cast else enum explicit
export extern false float for friend goto if inline int long mutable namespace new noexcept not
not_eq nullptr operator or or_eq private protected public register reinterpret_cast restrict return
short signed sizeof static static_assert static_cast struct switch template this thread_local throw
true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
"""


def check_names(manifest: Manifest) -> None:
    """Raises ExportError for names that C cannot have, or that stand for two things, and for more
    of anything than `launch/` has room for.
    """
    parameters = [x.param.name for x in manifest.parameters]
    for name in (manifest.name, *parameters, *manifest.symbols):
        if not (name.isascii() and name.isidentifier()) or name in _KEYWORDS.split():
            how = "give name= (--name)" if name == manifest.name else "name it otherwise"
            raise ExportError(f"'{name}' is no name in C: {how} to export it")
    both = sorted(set(manifest.symbols) & {*parameters, CLUSTERS})
    if both:
        raise ExportError(
            f"'{both[0]}' names an extent and a parameter of '{manifest.kernel}': name the extent"
            " otherwise"
        )
    maps = [x for x in manifest.arguments if x.kind == "map"]
    for count, most, what in (
        (len(manifest.tensors), MAX_PARAMETERS, "tensors"),
        (len(manifest.arguments), MAX_ARGUMENTS, "arguments"),
        (len(maps), MAX_MAPS, "tensor maps"),
    ):
        if count > most:
            raise ExportError(
                f"'{manifest.kernel}' has {count} {what}; an exported launcher takes up to {most}"
            )


def header(manifest: Manifest) -> str:
    """NAME.h: the arguments as a struct, and what loads and launches."""
    name, guard = manifest.name, f"{manifest.name.upper()}_TILEPIPE_H"
    fields = [f"  {_field(x)}" for x in manifest.parameters]
    home, least, family = manifest.compute_capability
    of = f"{home}.{least}{' and later' if family else ''}"
    sms = f", of {manifest.sms} multiprocessors or more" if manifest.sms else ""
    return "\n".join(
        [
            f"/* '{manifest.kernel}', exported by tilepipe for compute capability {of}{sms}.",
            " * tilepipe_launch.h says what the functions return. */",
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            '#include "tilepipe_launch.h"',
            "",
            "#include <stdbool.h>",
            "",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            "",
            "typedef struct {",
            *fields,
            f"}} {name}_arguments;",
            "",
            "/* The shapes and numbers of the exported program. Copy it, and set addresses and what"
            " differs. */",
            f"extern const {name}_arguments {name}_as_exported;",
            "",
            "/* Loads NAME.cubin from a directory, or a cubin from memory. */",
            f"int {name}_load(tilepipe_kernel *kernel, const char *directory);",
            f"int {name}_load_data(tilepipe_kernel *kernel, const void *cubin, size_t bytes);",
            "",
            "/* Queues the kernel on a stream. */",
            f"int {name}_launch(tilepipe_kernel *kernel, const {name}_arguments *arguments,"
            " CUstream stream);",
            "",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            "#endif",
            "",
        ]
    )


def _field(x: Tensor | Scalar) -> str:
    if isinstance(x, Scalar):
        return f"{_c_type(x)} {x.param.name}; /* {_literal(x)} as exported */"
    return f"tilepipe_tensor {x.param.name}; /* {x}{', written' if x.written else ''} */"


def _c_type(x: Scalar) -> str:
    return _C_TYPES.get(x.param.dtype.name, "float")


def _literal(x: Scalar) -> str:
    if not x.param.dtype.is_float:
        return str(int(x.value))
    number = float(x.value)
    if math.isinf(number):
        return "INFINITY" if number > 0 else "-INFINITY"
    if math.isnan(number):
        return "NAN"
    return number.hex() + ("" if _c_type(x) == "double" else "f")


def source(manifest: Manifest) -> str:
    """NAME.c: tables of what the kernel takes, and its grid."""
    name, tensors = manifest.name, manifest.tensors
    lines = [
        f"/* Launches '{manifest.kernel}', exported by tilepipe: see {name}.h. */",
        f'#include "{name}.h"',
        "",
        "#include <math.h>",
        "",
        f"const {name}_arguments {name}_as_exported = {{",
        *(f"  .{x.param.name} = {_initial(x)}," for x in manifest.parameters),
        *([] if manifest.parameters else ["  0"]),
        "};",
        "",
    ]
    maps = [x.parameter for x in manifest.arguments if x.kind == "map"]
    lines += _table(
        "static const tilepipe_parameter tensors[]",
        [_parameter(x, maps, manifest.symbols) for x in tensors],
    )
    places = {x.param.name: i for i, x in enumerate(tensors)}
    places |= {x.param.name: i for i, x in enumerate(manifest.scalars)}
    lines += _table(
        "static const tilepipe_argument passed[]",
        [f"{{{_KINDS[x.kind]}, {places[x.parameter]}, {x.axis}}}" for x in manifest.arguments],
    )
    lines += _table("static const char *const names[]", [f'"{x}"' for x in manifest.symbols])
    home, least, family = manifest.compute_capability
    lines += [
        "static const tilepipe_image image = {",
        f'  "{name}", "{manifest.entry}", "{manifest.cubin_file}",',
        f'  "{manifest.cubin_sha256}",',
        f"  {home}, {least}, {int(family)}, {manifest.sms},",
        f"  {manifest.threads}, {manifest.cluster}, {manifest.smem_bytes},"
        f" {int(manifest.cooperative)},",
        f"  {len(tensors)}, {len(manifest.arguments)}, {len(manifest.symbols)},",
        "  tensors, passed, names,",
        "};",
        "",
        f"int {name}_load(tilepipe_kernel *kernel, const char *directory)",
        "{",
        "  return tilepipe_load(kernel, &image, directory);",
        "}",
        "",
        f"int {name}_load_data(tilepipe_kernel *kernel, const void *cubin, size_t bytes)",
        "{",
        "  return tilepipe_load_data(kernel, &image, cubin, bytes);",
        "}",
        "",
    ]
    return "\n".join([*lines, *_launch(manifest), ""])


def _table(declaration: str, rows: Iterable[str]) -> list[str]:
    found = [f"  {row}," for row in rows] or ["  {0},"]
    if not declaration.endswith("names[]") or found != ["  {0},"]:
        return [f"{declaration} = {{", *found, "};", ""]
    return [f"{declaration} = {{", "  NULL,", "};", ""]


def _initial(x: Tensor | Scalar) -> str:
    if isinstance(x, Scalar):
        return _literal(x)
    shape = ", ".join(str(n) if isinstance(n, int) else "0" for n in x.extents)
    strides = "0" if x.strides is None else ", ".join(map(str, x.strides))
    return f"{{NULL, {{{shape}}}, {{{strides}}}}}"


def _parameter(x: Tensor, maps: list[str], symbols: tuple[str, ...]) -> str:
    p = x.param
    fixed = [n if isinstance(n, int) else -1 for n in x.extents]
    which = [-1 if isinstance(n, int) else symbols.index(n) for n in x.extents]
    aligned = max(p.dtype.bits // 8, 1) if p.box is None else ALIGNMENT
    if p.name in maps:
        recipe = map_recipe(p)
        boxes = ", ".join(map(str, recipe.box))
        map_ = (
            f"{maps.index(p.name)}, CU_TENSOR_MAP_DATA_TYPE_{recipe.data_type},"
            f" CU_TENSOR_MAP_SWIZZLE_{recipe.swizzle}, {int(p.ragged)}, {int(p.loaded)},"
            f" {{{boxes}}}"
        )
    else:
        map_ = "-1, 0, 0, 0, 0, {0}"
    return (
        f'{{"{p.name}", {p.rank}, {p.dtype.bits}, {p.contiguous_axis}, {aligned},'
        f" {{{', '.join(map(str, fixed))}}}, {{{', '.join(map(str, which))}}},"
        f" {{{', '.join(map(str, reversed(x.memory)))}}},\n   {map_}}}"
    )


def _launch(manifest: Manifest) -> list[str]:
    scalars = {x.param.name: f"(long long)arguments->{x.param.name}" for x in manifest.scalars}
    names = scalars | {n: f"extent_{n}" for n in manifest.symbols} | {CLUSTERS: CLUSTERS}
    rules: list[Rule] = [manifest.grid]
    for condition in manifest.conditions:
        rules += [condition.holds, *condition.shows]
    used = {n for rule in rules for n in names_in(rule)}
    lines = [
        f"int {manifest.name}_launch(tilepipe_kernel *kernel, const {manifest.name}_arguments"
        " *arguments,",
        "           CUstream stream)",
        "{",
        "  const tilepipe_tensor *const given[] = {",
        "    " + ", ".join([f"&arguments->{x.param.name}" for x in manifest.tensors] or ["NULL"]),
        "  };",
        "  const void *const scalars[] = {",
        "    " + ", ".join([f"&arguments->{x.param.name}" for x in manifest.scalars] or ["NULL"]),
        "  };",
        f"  int64_t extents[{max(len(manifest.symbols), 1)}];",
        "  int64_t grid;",
        "  if (tilepipe_match(kernel, given, extents)) return 1;",
        "  {",
    ]
    lines += [
        f"    const long long extent_{n} = extents[{i}];"
        for i, n in enumerate(manifest.symbols)
        if n in used
    ]
    lines.append(f"    grid = {in_c(manifest.grid, names)};")
    if CLUSTERS in used:
        lines.append(f"    const long long {CLUSTERS} = grid / {manifest.cluster};")
    for condition in manifest.conditions:
        text = condition.message.replace("%", "%%").replace("{}", "%lld")
        text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        shows = "".join(f",\n        (long long){in_c(x, names)}" for x in condition.shows)
        lines += [
            f"    if (!{in_c(condition.holds, names)})",
            f'      return tilepipe_fail(kernel, "{text}"{shows});',
        ]
    unused = [] if manifest.parameters else ["  (void)arguments;"]
    return [
        *lines,
        "  }",
        *unused,
        "  return tilepipe_launch(kernel, given, scalars, grid, stream);",
        "}",
    ]
