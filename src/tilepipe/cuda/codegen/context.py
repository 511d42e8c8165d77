"""The state of printing: the file (`Module`), one of its functions (`Context`), and its lines; and
`emit`, for which the other modules of this package register a function for each class of op.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import singledispatch

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
    """Lines of code at the current indentation. The first line of each op carries the place of the
    op in the user's kernel.
    """

    def __init__(self, depth: int = 0, lineinfo: bool = False) -> None:
        self.lines: list[str] = []
        self.depth = depth
        self.lineinfo = lineinfo
        self._last = self._pending = ""

    def at(self, loc: Loc) -> None:
        """Sets the line of the user's kernel that the next lines come from."""
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

    def aside(self, text: str) -> None:
        """Adds a line of the printer's own, which has no place in the user's kernel."""
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, head: str = "", end: str = "}") -> Iterator[None]:
        """Prints `head {`, an indented body, and its closing brace."""
        self(f"{head} {{".strip())
        self.depth += 1
        yield
        self.depth -= 1
        self.lines.append("    " * self.depth + end)

    @contextmanager
    def loop(self, index: str, trips: int) -> Iterator[None]:
        """Prints an unrolled loop around a body. A body that runs once gets no loop: `index` is
        then not declared and has to be printed as 0.
        """
        if trips == 1:
            yield
            return
        self("#pragma unroll")
        with self.block(f"for (int {index} = 0; {index} < {trips}; ++{index})"):
            yield


@dataclass
class Module:
    """The file being printed, except its functions."""

    kernel: Kernel
    arch: str
    lineinfo: bool = False
    names: Names = field(default_factory=lambda: Names(reserved=frozenset(SNIPPETS)))
    snippets: dict[str, Snippet] = field(default_factory=dict)
    # Constants and accessors by what they belong to: a buffer, a barrier, or the matrix format of
    # a buffer.
    memory: dict[object, list[str]] = field(default_factory=dict)
    arguments: list[Argument] = field(default_factory=list)
    released_remotely: set[BarrierArray] = field(default_factory=set)
    committed_remotely: set[BarrierArray] = field(default_factory=set)
    credited_remotely: set[BarrierArray] = field(default_factory=set)
    # the locals and variables whose definition has to be printed
    needed: set[Local | Variable] = field(default_factory=set)
    # the atomic operations whose results nothing reads
    reductions: set[ops.Op] = field(default_factory=set)
    # For debug and perturbed builds (`instrument`): the number of each wait, the locals and
    # variables whose value comes from memory, and the buffers that tcgen05.alloc writes to.
    debug: bool = False
    perturbed: bool = False
    sites: dict[ops.Op, int] = field(default_factory=dict)
    loaded: set[object] = field(default_factory=set)
    allocated: set[SmemBuffer] = field(default_factory=set)
    # For timed builds (`stamps`): the numbers of the ops that are noted.
    timed: bool = False
    points: dict[ops.Op, int] = field(default_factory=dict)
    implied: set[ops.Op] = field(default_factory=set)

    @property
    def instrumented(self) -> bool:
        return self.debug or self.perturbed

    def use(self, name: str) -> str:
        """Includes a PTX wrapper and those it calls; returns its name."""
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
    """One function being printed, and the position in it.

    Attributes:
        role: the role whose body it is; None for set-up code, which the kernel itself contains.
        setup: the context of set-up code; a role takes the values bound there as parameters.
        used: the kernel arguments that the function reads.
        outer: the values of set-up that it reads, as declaration -> argument.
        specials: the names of the special registers that it reads, in order.
        block, position: the block being printed and the position in it.
        enclosing: the (block, position) of the blocks around it, outermost first.
        per_warp: the position is inside `PerWarp`.
        diverged: some lanes of the warp may not execute the code at this position.
        elected: one lane executes it, by an election.
        unnoted: the stamps of a timed build are left out here.
        unlooked: how many stamps the warp may have made since it looked whether to store them.
        mask: C++ for the lanes that execute it, where an op in the block needs it; None for all.
        inline: the locals whose `Let` is printed where they are used.
        inlined: those of them that have been met, with their expressions.
        bits: phase locals that are already reduced to a parity bit.
        layouts: the layouts of the fragment-shaped locals.
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
    elected: bool = False
    unnoted: bool = False
    unlooked: int = 0
    mask: str | None = None

    @property
    def kernel(self) -> Kernel:
        return self.module.kernel

    def use(self, snippet: str) -> str:
        """Includes a PTX wrapper; returns its name."""
        return self.module.use(snippet)

    def argument(self, kind: str, name: str, axis: int = -1) -> str:
        """The identifier of a kernel argument, which becomes a parameter of this function."""
        a = self.module.argument(kind, name, axis)
        self.used.setdefault(a)
        return self.module.names.of(a, a.name)

    def special(self, name: str) -> str:
        """The identifier of a special register, which is declared at the top of the function."""
        self.specials.setdefault(name)
        return name

    def temporary(self, name: str) -> str:
        """The identifier of a helper value of the printer. The same name gives the same
        identifier.
        """
        return self.names.of(("temporary", name), name)

    def fresh(self, name: str) -> str:
        """A new identifier for a helper value of the printer, of which a scope may have several."""
        return self.names.fresh(name)

    def name(self, thing: Local | Variable | Cursor, suffix: str = "", c_type: str = "i32") -> str:
        """The identifier of a value that is already bound. One bound by set-up code becomes a
        parameter.
        """
        key = (thing, suffix) if suffix else thing
        if (found := self.names.find(key)) is not None:
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
        """A fresh identifier for a value that is bound here."""
        return self.names.of((thing, suffix) if suffix else thing, thing.name, suffix)

    @contextmanager
    def lanes(
        self,
        diverged: bool = False,
        mask: str | None = None,
        per_warp: bool = False,
        elected: bool = False,
    ) -> Iterator[None]:
        """Makes the body print code that only some lanes execute, or each warp by itself."""
        before = self.diverged, self.mask, self.per_warp, self.elected
        self.diverged, self.mask, self.per_warp, self.elected = (
            self.diverged or diverged,
            mask or self.mask,
            self.per_warp or per_warp,
            self.elected or elected,
        )
        yield
        self.diverged, self.mask, self.per_warp, self.elected = before

    @contextmanager
    def without_stamps(self, here: bool = True) -> Iterator[None]:
        """Leaves the stamps of a timed build out of the body, if `here`."""
        before, self.unnoted = self.unnoted, self.unnoted or here
        yield
        self.unnoted = before


def smem_things(kernel: Kernel) -> list[SmemBuffer | BarrierArray]:
    """The buffers and barrier arrays of a kernel in the order of their offsets in shared memory."""
    return sorted([*kernel.buffers, *kernel.barriers], key=lambda x: x.offset)


@singledispatch
def emit(op: ops.Op, ctx: Context) -> None:
    """Prints an op at the end of the function of `ctx`.

    Raises:
        CompileError: the op has no CUDA form, or none for these operands.
    """
    raise CompileError(f"{type(op).__name__} has no CUDA form", op.loc)


def require_rule(broken: str | None, op: ops.Op, what: str = "") -> None:
    """Raises CompileError where `op` breaks a rule of the hardware; `broken`: which."""
    if broken is not None:
        raise CompileError(f"{what}: {broken}" if what else broken, op.loc)
