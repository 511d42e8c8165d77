"""Linear handles: an acquired stage is released exactly once, in the block that acquired it; and
views of memory, which end with the stage they belong to.

The tracer sees every path, so this is checked before anything runs.
"""

from __future__ import annotations

from types import TracebackType
from typing import ClassVar, Self

from tilepipe.errors import HandleError
from tilepipe.ir.expressions import Expr
from tilepipe.ir.location import Loc, caller
from tilepipe.ir.memory import BarrierArray
from tilepipe.lang.handles.arrivals import Arrivals
from tilepipe.lang.tracing.scopes import Held, Scope
from tilepipe.lang.tracing.tracer import Tracer


class Handle(Held):
    """Base class of everything that is acquired and must be released."""

    def __init__(
        self,
        tracer: Tracer,
        what: str,
        array: BarrierArray | None = None,
        index: Expr | None = None,
    ) -> None:
        super().__init__(what, tracer.scope, tracer.role, array, index)
        self._tracer = tracer
        self.read_by_mma = False
        self.touched = False  # by ordinary loads or stores
        self._signalled: list[tuple[str, Scope, Loc]] = []
        self.home.handles.append(self)

    def _is_dead(self) -> bool:
        return self.released_at is not None or self.home.closed

    def check_held(self, use: str = "used") -> None:
        """Raises HandleError when the handle has been released, or belongs to another role or a
        closed block.
        """
        if self.released_at is not None:
            raise HandleError(
                f"{self.describe()} is {use} after its release at {self.released_at.short}. Its"
                " slot may already belong to the other side.",
                caller(),
            )
        if self.home.closed:
            raise HandleError(
                f"{self.describe()} is {use} outside the block it was acquired in, which has"
                " closed",
                caller(),
            )

    def refuse_twice(self, verb: str) -> None:
        """Raises HandleError when the threads of this block have signalled the stage in the same
        way already, on the same path.
        """
        scope = self._tracer.scope
        for earlier, where, loc in self._signalled:
            if earlier == verb and _on_the_way(where, scope) and _overlap(where, scope):
                raise HandleError(
                    f"{self.describe()} is signalled twice: it already {verb} at {loc.short}. One"
                    " stage is one phase: a second signal would complete, or count toward, the next"
                    " phase.",
                    caller(),
                )
        self._signalled.append((verb, scope, caller()))

    def check_releasable(self) -> None:
        """Raises HandleError when the handle may not be released here."""
        if self.released_at is not None:
            raise HandleError(
                f"{self.describe()} is released twice: first at {self.released_at.short}. One"
                " acquire, one release.",
                caller(),
            )
        self.check_held("released")
        if self._tracer.scope is not self.home:
            raise HandleError(
                f"{self.describe()} is released in a nested {self._tracer.scope.kind} block: on the"
                " other paths, or in other iterations, it would be released never or twice. Release"
                " it in the block that acquired it.",
                caller(),
            )

    def must_signal(self) -> bool:
        """True if a release must signal, because the body has not.

        Raises:
            HandleError: it must, and a release is not allowed here.
        """
        self._tracer.flush_branch()
        if self.released_at is not None or self.signals is not None:
            return False
        self.check_releasable()
        return True

    def mark_released(self) -> None:
        """Ends the handle's life."""
        self._tracer.flush_branch()
        self.check_releasable()
        self.home.handles.remove(self)
        self.released_at = caller()

    @property
    def signals(self) -> Arrivals | None:
        """The arrivals made so far for this handle in its own block, None if there are none."""
        return self.home.signals.get(self)


class Entered(Handle):
    """A handle that `with` releases at the end of its block: acquired before it is entered."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.release()

    def release(self) -> None:
        """Ends what was acquired."""
        raise NotImplementedError


class View:
    """Memory as a kernel names it: a tile, a matrix, a barrier, one element. It ends with the block
    that it was made in and, where it belongs to an acquired stage, with the release of that.
    """

    _kind: ClassVar[str]  # in messages

    def __init__(self, tracer: Tracer, owner: Handle | None = None) -> None:
        self._tracer = tracer
        self._owner = owner
        self._scope: Scope = tracer.scope

    def _is_dead(self) -> bool:
        return self._scope.closed or (self._owner is not None and self._owner._is_dead())

    def _check_usable(self, use: str = "used") -> None:
        """Raises HandleError when the stage that it belongs to has been released, TraceError when
        the block that it was made in has closed.
        """
        if self._owner is not None:
            self._owner.check_held(use)
        self._tracer.check_alive(self._scope, self._kind, self)


def _on_the_way(earlier: Scope, now: Scope) -> bool:
    """True if threads that execute `now` have also executed `earlier`: no branch on data contains
    `earlier` and not `now`.
    """
    for scope in earlier.outward:
        if scope in now.outward:
            break
        if scope.on_data:
            return False
    return True


def _overlap(earlier: Scope, now: Scope) -> bool:
    """True if some thread is known to execute both blocks."""
    return (
        earlier.active is not None
        and now.active is not None
        and bool((earlier.active & now.active).any())
    )


def owner_of(tracer: Tracer, array: BarrierArray, index: Expr) -> Handle | None:
    """The held handle of the current role that is responsible for one barrier."""
    for handle in tracer.scope.held():
        if isinstance(handle, Handle) and handle.array is array and handle.index_expr is index:
            return handle
    return None
