"""Texts without what a rename changes: comments, source locations and the choice of identifiers.

An identifier becomes a number by the order in which names are declared, scope by scope, so that
renaming one of two variables that happen to share a name in disjoint scopes does not show either.
Keywords, types and intrinsics of CUDA, instruction text inside strings, and every literal stay.
"""

from __future__ import annotations

import hashlib
import io
import keyword
import re
import tokenize
from collections.abc import Iterator

HASH_DIGITS = 12


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\S+", text))


_CPP_KEPT = _words(
    """
    alignas asm auto bool break case char class const constexpr continue do double else enum extern
    false float for goto if inline int long namespace nullptr operator private public
    reinterpret_cast
    return short signed sizeof static static_assert static_cast struct switch template this true
    typedef typename union unsigned using void volatile while
    pragma unroll include define undef ifdef ifndef endif
    threadIdx blockIdx blockDim gridDim clusterDim warpSize
    min max abs printf half float2 float4 int2 int4 uint2 uint4
    """
)
_CPP_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
      | (?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)
      | (?P<name>[A-Za-z_]\w*)
      | (?P<sign>::|->|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/%&|^]=|\S)
      | (?P<space>\s+)""",
    re.VERBOSE | re.DOTALL,
)
# Two names in a row declare the second, unless the first is one of these.
_NO_TYPE = _words(
    "return else case goto new delete throw do sizeof define undef ifdef ifndef pragma"
)

# Words of a printed program that are no names of its author; a name that is declared comes first.
_IR_KEPT = _words(
    """
    assert atomic_add clc_query clc_try_cancel cluster_arrive cluster_wait fence_barrier_init
    fence_proxy_async fragment_any fragment_load fragment_load_global fragment_reduce fragment_set
    fragment_store fragment_store_global grid_dependency_wait launch_dependents load mbar_arrive
    mbar_complete_tx mbar_expect mbar_init mbar_inval mbar_try_wait mbar_wait named_arrive
    named_sync
    print setup_barrier store sync_warp tcgen05_commit tcgen05_fence_after tcgen05_fence_before
    tcgen05_mma tma_load tma_store tma_store_commit tma_store_wait tmem_alloc tmem_copy tmem_dealloc
    tmem_load tmem_relinquish tmem_store tmem_wait_load tmem_wait_store wgmma wgmma_commit
    wgmma_fence wgmma_wait
    for in range while when otherwise pass elect one of per warp var cursor fragment step by from
    stages columns rows row scales where pair the tmem role warpgroup
    boolean int8 uint8 int32 uint32 int64 uint64 float16 bfloat16 float32 float64
    float8_e4m3 float8_e5m2 float4_e2m1 float8_e8m0
    True False None min max abs select not lane thread cta_rank block_id
    release relaxed acquire shared global all cta cluster
    """
)
_IR_HEADER = re.compile(
    r"^(kernel |  param |  smem +\d+ |  named barrier [\d.]+ |role )([\w.]+)(?=:)"
)
_IR_TOKEN = re.compile(
    r"(?P<name>[A-Za-z_][\w.]*)|(?P<number>\d[\w.,]*)|(?P<sign>\S)|(?P<space>\s+)"
)
_IR_DECLARES = re.compile(
    r"(for) ([\w.]+) in |(?:var|cursor|fragment) ([\w.]+):|(per warp) ([\w.]+):"
    r"|([\w.]+(?:, [\w.]+)*) = "
)
_LOCATION = re.compile(r"[\w.]+\.py:\d+")  # in the text of a printed assertion
_IR_LOCATION = re.compile(r"\s+# \S+:\d+$")


class _Scopes:
    """Numbers for names, by scope."""

    def __init__(self, letter: str) -> None:
        self._letter = letter
        self._count = 0
        self._stack: list[dict[str, str]] = [{}]

    def push(self) -> None:
        self._stack.append({})

    def pop(self) -> None:
        if len(self._stack) > 1:
            self._stack.pop()

    @property
    def depth(self) -> int:
        return len(self._stack) - 1

    def declare(self, name: str) -> str:
        """The number of a name that begins to exist in the innermost scope."""
        self._stack[-1][name] = f"{self._letter}{self._count}"
        self._count += 1
        return self._stack[-1][name]

    def find(self, name: str) -> str | None:
        return next((scope[name] for scope in reversed(self._stack) if name in scope), None)

    def use(self, name: str) -> str:
        """The number of a name; one that nothing has declared is of the outermost scope."""
        found = self.find(name)
        if found is None:
            found = self._stack[0][name] = f"{self._letter}{self._count}"
            self._count += 1
        return found


def digest(text: str | bytes) -> str:
    """A short hash."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).hexdigest()[
        :HASH_DIGITS
    ]


def _lexed(source: str) -> Iterator[tuple[str, str]]:
    for match in _CPP_TOKEN.finditer(source):
        kind = match.lastgroup or ""
        if kind not in ("comment", "space"):
            yield kind, _LOCATION.sub("here", match[0]) if kind == "text" else match[0]


def _kept(name: str) -> bool:
    return name in _CPP_KEPT or name.startswith("__")


def cuda(source: str) -> str:
    """CUDA C++ without comments and layout, a statement a line, its own identifiers numbered."""
    out: list[str] = []
    line: list[str] = []
    everywhere = _Scopes("g")
    for chunk in _chunks(list(_lexed(source))):
        for token in _renamed(chunk, everywhere):
            line.append(token)
            if token in (";", "{", "}"):
                out.append(" ".join(line))
                line = []
    return "\n".join([*out, *([" ".join(line)] if line else [])]) + "\n"


def _chunks(tokens: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Top-level declarations: up to a `;`, or up to the `}` of a body, outside all brackets."""
    chunk: list[tuple[str, str]] = []
    depth = 0
    for token in tokens:
        chunk.append(token)
        depth += (token[1] in "({[") - (token[1] in ")}]") if token[0] == "sign" else 0
        body_over = token[1] == "}" and chunk[0][1] not in (
            "struct",
            "class",
            "union",
            "enum",
            "using",
            "static",
            "constexpr",
        )
        if depth == 0 and (token[1] == ";" or body_over):
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _renamed(chunk: list[tuple[str, str]], everywhere: _Scopes) -> Iterator[str]:
    scopes = _Scopes("l")
    loops: list[tuple[int, int]] = []  # (braces, brackets) open where the head of a loop begins
    braces = brackets = 0
    defined = False
    for i, (kind, text) in enumerate(chunk):
        before = chunk[i - 1] if i else ("", "")
        after = chunk[i + 1][1] if i + 1 < len(chunk) else ""
        if kind == "sign" and text == "{":
            braces += 1
            scopes.push()
        elif kind == "sign" and text == "}":
            braces -= 1
            scopes.pop()
        elif kind == "sign" and text in "()":
            brackets += 1 if text == "(" else -1
        ends = kind == "sign" and text in ("}", ";") and loops and loops[-1] == (braces, brackets)
        if kind == "name" and text == "for":
            scopes.push()
            loops.append((braces, brackets))
        if kind != "name" or _kept(text):
            yield text
        elif before[1] in (".", "->"):
            yield everywhere.find(text) or scopes.use("." + text)
        else:
            is_type_before = (before[0] == "name" and before[1] not in _NO_TYPE) or before[1] in (
                "*",
                "&",
                ">",
            )
            declares = is_type_before and after in ("=", ";", "[", ",", ")", "(", ":", "{")
            names_chunk = (
                not defined
                and braces == brackets == 0
                and (after in ("(", "=", "{", ";", "["))
                and before[0] != ""
            )
            if names_chunk:
                defined = True
                yield everywhere.declare(text)
            elif declares and before[0] == "name" and after != "(":
                yield scopes.declare(text)
            else:
                yield scopes.find(text) or everywhere.find(text) or scopes.use(text)
        if ends:
            loops.pop()
            scopes.pop()


def ir(text: str) -> str:
    """A printed program without source locations, its names numbered; names of ops, types and
    literals stay.
    """
    everywhere, scopes, fields = _Scopes("g"), _Scopes("l"), _Scopes("f")
    out = []
    for raw in text.splitlines():
        line = _IR_LOCATION.sub("", raw)
        indent = len(line) - len(line.lstrip())
        header = _IR_HEADER.match(line)
        if indent < 4:
            scopes = _Scopes("l")
            out.append(
                line
                if header is None
                else header[1] + everywhere.declare(header[2]) + line[header.end() :]
            )
            continue
        while scopes.depth > indent // 4:
            scopes.pop()
        while scopes.depth < indent // 4:
            scopes.push()
        out.append(" " * indent + _ir_op(line.strip(), everywhere, scopes, fields))
    return "\n".join(out) + "\n"


def _ir_op(body: str, everywhere: _Scopes, scopes: _Scopes, fields: _Scopes) -> str:
    match = _IR_DECLARES.match(body)
    if match is None:
        return _ir_words(body, everywhere, scopes, fields)
    rest = _ir_words(
        body[match.end() :], everywhere, scopes, fields
    )  # what a declaration says is outside its scope
    if match[1] or match[4]:
        scopes.push()
        return f"{match[1] or match[4]} {scopes.declare(match[2] or match[5])} {rest}"
    if match[3]:
        return f"{body.split()[0]} {scopes.declare(match[3])}: {rest}"
    return f"{', '.join(scopes.declare(name) for name in match[6].split(', '))} = {rest}"


def _ir_words(body: str, everywhere: _Scopes, scopes: _Scopes, fields: _Scopes) -> str:
    out = []
    for match in _IR_TOKEN.finditer(body):
        kind, text, after = match.lastgroup, match[0], body[match.end() : match.end() + 2]
        if kind != "name" or (match.start() == 0 and text in _IR_KEPT):
            out.append(text)
        elif after.startswith("=") and after != "==":
            out.append(fields.use(text))
        else:
            name, shape, rest = text.partition(".shape")
            found = scopes.find(name) or everywhere.find(name)
            out.append((found or (name if name in _IR_KEPT else scopes.use(name))) + shape + rest)
    return "".join(out)


def source_line(text: str) -> str:
    """A line of Python with its names numbered, and no comment: what is compared of the line of a
    fault.
    """
    names: dict[str, str] = {}
    out = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text.strip()).readline):
            if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
                out.append(names.setdefault(token.string, f"n{len(names)}"))
            elif token.type in (tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING):
                out.append(token.string)
    except (tokenize.TokenError, IndentationError):  # a line of a statement that goes on
        pass
    return " ".join(out)
