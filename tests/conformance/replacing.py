"""Members taken out, and members watched: what the mutation job and the tests of the table do to
the library.
"""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import CodeType, FrameType, ModuleType
from typing import Any, Self

import tilepipe as tp
from tests.conformance import subtle
from tests.conformance.table import Target


class Nothing:
    """What stands where a member gave an object: whatever is asked of it gives itself, and has no
    effect.
    """

    def __getattr__(self, name: str) -> Self:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: object, **options: object) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __getitem__(self, index: object) -> Self:
        return self

    def __iter__(self) -> Iterator[Self]:
        return iter(())

    def __repr__(self) -> str:
        return "<nothing>"


def result(target: Target, me: object) -> Any:
    """What a body that does nothing gives, by what the member says it returns: None, 0, False,
    itself, or `Nothing`.
    """
    kind = str(getattr(inspect.unwrap(target.value), "__annotations__", {}).get("return", ""))
    if kind in ("None", "") or target.attr in ("__enter__", "__exit__"):
        return None
    if kind == "Self":
        return me
    if kind in ("int", "bool", "Value"):
        return False if target.attr.startswith(("try_", "elect_")) or kind == "bool" else 0
    return Nothing()


def body(target: Target) -> Any:
    """What takes a member's place."""
    if target.kind in ("attribute", "alias"):
        return (
            property(lambda self: None, lambda self, value: None)
            if target.kind == "attribute"
            else None
        )
    if target.kind == "property":
        return property(lambda self: result(target, self))

    def nothing(*args: object, **options: object) -> Any:
        return result(target, args[0] if args else None)

    static = isinstance(
        inspect.getattr_static(target.owner, target.attr), (staticmethod, classmethod)
    )
    return staticmethod(nothing) if static else nothing


@contextmanager
def put(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Sets an attribute of a class or module, and puts things back."""
    own = name in vars(owner)
    before = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


@contextmanager
def replaced(target: Target, change: str = "") -> Iterator[None]:
    """The member does nothing; with `change`, the name of a variant of `tests.conformance.subtle`,
    it does that. A function of the library does so wherever a module has imported it.
    """
    instead = body(target)
    if change:
        (mutant,) = (m for m in subtle.mutants(target) if m.operator == change)
        instead = subtle.body(target, mutant.function)
    if target.kind != "function":
        with put(subtle.home(target) if change else target.owner, target.attr, instead):
            yield
        return
    # `tp` has the one that checks its arguments
    same = {id(target.value), id(inspect.unwrap(target.value))}
    modules = [m for m in list(sys.modules.values()) if isinstance(m, ModuleType)]
    homes = [(m, vars(m)[target.attr]) for m in modules if id(vars(m).get(target.attr)) in same]
    for home, _ in homes:
        setattr(home, target.attr, instead)
    try:
        yield
    finally:
        for home, value in homes:
            setattr(home, target.attr, value)


def forget_traces() -> None:
    """Kernels that were traced are traced again."""
    gc.unfreeze()  # get_objects leaves out what tests/conftest.py has frozen
    for x in gc.get_objects():
        if type(x) is tp.KernelFunction:  # isinstance would ask weak proxies, too
            x.forget()
    gc.freeze()


def _codes(target: Target) -> set[CodeType]:
    """The code that runs when a member is used: for a type, that of its `__init__`, or of those of
    its subclasses.
    """
    if target.kind != "type":
        return {inspect.unwrap(target.value).__code__}
    # behind the check of its arguments
    code = getattr(
        inspect.unwrap(inspect.getattr_static(target.value, "__init__")), "__code__", None
    )
    return (
        {code}
        if code
        else {
            code
            for sub in target.value.__subclasses__()
            for code in _codes(Target("type", tp, sub.__name__, sub))
        }
    )


@contextmanager
def watched(targets: Iterable[Target]) -> Iterator[set[Target]]:
    """The members that are used meanwhile. Aliases count as used."""
    seen: set[Target] = set()
    by_code: dict[CodeType, list[Target]] = {}
    with ExitStack() as stack:
        for target in targets:
            if target.kind == "attribute":
                stack.enter_context(put(target.owner, target.attr, _noting(target, seen)))
            elif target.kind == "alias":
                seen.add(target)
            else:
                for code in _codes(target):
                    by_code.setdefault(code, []).append(target)

        def note(frame: FrameType, event: str, arg: object) -> None:
            found = by_code.get(frame.f_code) if event == "call" else None
            seen.update(target for target in found or () if _of(target, frame))

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            yield seen
        finally:
            sys.setprofile(before)


def _of(target: Target, frame: FrameType) -> bool:
    """Whether a call is of the target's class, not of another that inherits the same code."""
    owner = target.value if target.kind == "type" else target.owner
    name = getattr(target.value, "__name__", "")
    if not inspect.isclass(owner) or isinstance(
        inspect.getattr_static(owner, name, None), staticmethod
    ):
        return True
    me = frame.f_locals.get(frame.f_code.co_varnames[0])
    return issubclass(me if inspect.isclass(me) else type(me), owner)


def _noting(target: Target, seen: set[Target]) -> property:
    """A property in front of an instance attribute that notes that it is read."""
    default = inspect.getattr_static(target.owner, target.attr, None)

    def read(self: Any) -> Any:
        seen.add(target)
        return vars(self).get(target.attr, default)

    def write(self: Any, value: Any) -> None:
        vars(self)[target.attr] = value

    return property(read, write)
