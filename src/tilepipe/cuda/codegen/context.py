"""State of printing: the file (`Module`), one of its functions (`Context`), and its lines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tilepipe.cuda.codegen.names import Names
from tilepipe.cuda.codegen.parameters import Argument
from tilepipe.cuda.ptx.wrappers import SNIPPETS, Snippet
from tilepipe.errors import CompileError
from tilepipe.ir import ops
from tilepipe.ir.expressions import Expr, Local
from tilepipe.ir.location import Loc
from tilepipe.ir.memory import BarrierArray, Cursor, SmemBuffer, Variable
from tilepipe.ir.program import Kernel, Role

_COMMENT = 92  # column of source-line comments


class Lines:
    """Lines of code at the present indentation, with the user's source line beside the first line
    of each.
    """

    def __init__(self, depth: int = 0, lineinfo: bool = False) -> None:
        self.lines: list[str] = []
        self.depth = depth
        self.lineinfo = lineinfo
        self._last = self._pending = ""

    def at(self, loc: Loc) -> None:
        """The lines that follow come from this line of the user's kernel."""
        if self.lineinfo:
            directive = f'#line {loc.line} "{loc.file}"'.replace("\\", "/")
            if loc.line > 0:
                self.lines.append(directive)
        elif loc.short != self._last:
            self._last = self._pending = loc.short

    def __call__(self, text: str) -> None:
        """Adds a line."""
        line = "    " * self.depth + text
        if self._pending and text.strip("{} ") and not text.startswith(("#", "//")):
            line, self._pending = f"{line:<{_COMMENT - 2}}  // {self._pending}", ""
        self.lines.append(line)

    @contextmanager
    def block(self, head: str = "", end: str = "}") -> Iterator[None]:
        """`head {`, an indented body, and its closing brace."""
        self(f"{head} {{".strip())
        self.depth += 1
        yield
        self.depth -= 1
        self.lines.append("    " * self.depth + end)

    @contextmanager
    def loop(self, index: str, trips: int) -> Iterator[None]:
        """An unrolled loop; nothing round the body when it runs once (`index` is then not declared:
        print it as 0).
        """
        if trips == 1:
            yield
            return
        self("#pragma unroll")
        with self.block(f"for (int {index} = 0; {index} < {trips}; ++{index})"):
            yield


@dataclass
class Module:
    """The file being printed: what it needs beside its functions."""

    kernel: Kernel
    lineinfo: bool = False
    names: Names = field(default_factory=lambda: Names(reserved=frozenset(SNIPPETS)))
    snippets: dict[str, Snippet] = field(default_factory=dict)
    # Constants and accessors by what they are of: a buffer, a barrier, or the matrix format of a
    # buffer.
    memory: dict[object, list[str]] = field(default_factory=dict)
    arguments: list[Argument] = field(default_factory=list)
    released_remotely: set[BarrierArray] = field(default_factory=set)
    committed_remotely: set[BarrierArray] = field(default_factory=set)
    credited_remotely: set[BarrierArray] = field(default_factory=set)
    # what is worth printing a definition of
    needed: set[Local | Variable] = field(default_factory=set)
    # Debug and perturbed builds (`instrument`): the number of each wait, the locals and variables
    # read from memory, and the buffers that tcgen05.alloc writes to.
    debug: bool = False
    perturbed: bool = False
    sites: dict[ops.Op, int] = field(default_factory=dict)
    loaded: set[object] = field(default_factory=set)
    allocated: set[SmemBuffer] = field(default_factory=set)

    @property
    def instrumented(self) -> bool:
        return self.debug or self.perturbed

    def use(self, name: str) -> str:
        """Includes a PTX wrapper and what it needs; returns its name."""
        snippet = SNIPPETS[name]
        for need in snippet.needs:
            self.use(need)
        self.snippets.setdefault(name, snippet)
        return name

    def add_snippet(self, snippet: Snippet) -> str:
        """Includes a wrapper generated for this kernel; returns its name."""
        self.snippets.setdefault(snippet.name, snippet)
        return snippet.name

    def argument(self, kind: str, name: str, axis: int = -1) -> Argument:
        """The kernel argument of that kind for a parameter."""
        return next(
            a for a in self.arguments if (a.kind, a.param.name, a.axis) == (kind, name, axis)
        )


@dataclass
class Context:
    """One function being printed, and where in it we are.

    Attributes:
        role: whose body it is; None for set-up code, which is printed in the kernel itself.
        setup: what set-up code has named; a role gets those as parameters.
        used: kernel arguments the function reads; outer: set-up values it reads, as (declaration,
            argument).
        specials: names of special registers it reads, in order.
        block, position: the block being printed and the place in it. enclosing: the same of the
            blocks it is in, outermost first.
        per_warp: inside `PerWarp`. diverged: not all lanes of the warp are known to be here. mask:
            C++ for the lanes that are, where an op in the block asks for it; None for all.
        inline: locals whose `Let` is printed where they are used; inlined: those met so far.
        bits: phase locals that already are a parity bit. layouts: of the fragment-shaped locals.
    """

    module: Module
    out: Lines
    names: Names
    role: Role | None = None
    setup: Context | None = None
    used: dict[Argument, None] = field(default_factory=dict)
    outer: dict[str, str] = field(default_factory=dict)
    specials: dict[str, None] = field(default_factory=dict)
    inline: set[Local] = field(default_factory=set)
    inlined: dict[Local, Expr] = field(default_factory=dict)
    bits: set[Local] = field(default_factory=set)
    layouts: dict[Local, str] = field(default_factory=dict)
    block: ops.Block = field(default_factory=ops.Block)
    position: int = 0
    enclosing: list[tuple[ops.Block, int]] = field(default_factory=list)
    per_warp: bool = False
    diverged: bool = False
    mask: str | None = None

    @property
    def kernel(self) -> Kernel:
        return self.module.kernel

    def use(self, snippet: str) -> str:
        """Includes a PTX wrapper; returns its name."""
        return self.module.use(snippet)

    def argument(self, kind: str, name: str, axis: int = -1) -> str:
        """The identifier of a kernel argument, which this function is then passed."""
        a = self.module.argument(kind, name, axis)
        self.used.setdefault(a)
        return self.module.names.of(a, a.name)

    def special(self, name: str) -> str:
        """The identifier of a special register, declared at the function's top."""
        self.specials.setdefault(name)
        return name

    def temporary(self, name: str) -> str:
        """An identifier for a value of the block being printed; the same name gives the same
        identifier.
        """
        return self.names.of(("temporary", name), name)

    def name(self, thing: Local | Variable | Cursor, suffix: str = "", c_type: str = "i32") -> str:
        """The identifier of something bound before; something bound by set-up code becomes a
        parameter.
        """
        key = (thing, suffix) if suffix else thing
        found = self.names.find(key)
        if found is not None:
            return found
        source = self.setup.names.find(key) if self.setup is not None else None
        if source is None:
            raise CompileError(
                f"'{thing.name}' of kernel '{self.kernel.name}' is used where it is not bound",
                self.kernel.loc,
            )
        name = self.names.of(key, thing.name, suffix)
        self.outer[f"{c_type} {name}"] = source
        return name

    def bind(self, thing: Local | Variable | Cursor, suffix: str = "") -> str:
        """A fresh identifier for something bound here."""
        return self.names.of((thing, suffix) if suffix else thing, thing.name, suffix)

    @contextmanager
    def lanes(
        self, diverged: bool = False, mask: str | None = None, per_warp: bool = False
    ) -> Iterator[None]:
        """Prints a body that fewer lanes execute."""
        before = self.diverged, self.mask, self.per_warp
        self.diverged, self.mask, self.per_warp = (
            self.diverged or diverged,
            mask or self.mask,
            self.per_warp or per_warp,
        )
        yield
        self.diverged, self.mask, self.per_warp = before


def smem_things(kernel: Kernel) -> list[SmemBuffer | BarrierArray]:
    """Buffers and barrier arrays in the order they lie in shared memory."""
    return sorted([*kernel.buffers, *kernel.barriers], key=lambda x: x.offset)
