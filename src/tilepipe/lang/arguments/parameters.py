"""What one parameter of a public member takes, by its annotation, and how messages call classes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, NamedTuple, NoReturn, get_args, get_origin

import numpy as np

from tilepipe.errors import BindError, TraceError
from tilepipe.host_arguments import INT32_MAX, INT32_MIN, plain_bool, plain_int, shown
from tilepipe.ir import dtypes
from tilepipe.ir.location import caller
from tilepipe.lang.arguments.annotations import OneOf, Printable, Several, Static, Traced

PUBLIC: set[type] = set()  # what `note_public` has noted
CLASSES: dict[str, type] = {}  # what `note_class` has noted, by name
_SURE = (bool, type(None), float)  # and the classes of this library: a type of theirs decides alone
_NO = object()  # the result of an atom that does not accept a value
_Atom = Callable[[Any], Any]


def _integer(x: Any) -> Any:
    if type(x) is int:
        return x if INT32_MIN <= x <= INT32_MAX else _NO
    found = plain_int(x)
    return _NO if found is None or not INT32_MIN <= found <= INT32_MAX else found


def _boolean(x: Any) -> Any:
    found = plain_bool(x)
    return _NO if found is None else found


def _number(x: Any) -> Any:
    if type(x) is float:
        return x
    found = plain_int(x)
    return found if found is not None else x if isinstance(x, float) else _NO


def _pair(x: Any) -> Any:
    if not isinstance(x, tuple) or len(x) != 2:
        return _NO
    found = tuple(map(_integer, x))
    return _NO if _NO in found else found


def _texts(x: Any) -> Any:
    return x if isinstance(x, tuple) and all(isinstance(part, str) for part in x) else _NO


def _dtype(x: Any) -> Any:
    try:
        dtypes.dtype(x)
    except BindError:
        return _NO
    return x


class _Kind(NamedTuple):
    """What an annotation accepts. `words`: in a message. `name`: a string must be a `Printable`."""

    atoms: tuple[_Atom, ...]
    words: str
    name: bool


_ATOMS: dict[str, tuple[_Atom, str]] = {
    "int": (_integer, "an integer of 32 bits that is known while tracing"),
    "bool": (_boolean, "True or False"),
    "str": (lambda x: x if isinstance(x, str) else _NO, "a text"),
    "float": (_number, "a number"),
    "None": (lambda x: None if x is None else _NO, "None"),
    "tuple[int, int]": (_pair, "(rows, cols), two static integers"),
    "tuple[str, str]": (_texts, "a pair of texts"),
    "tuple[object, ...]": (lambda x: tuple(x) if isinstance(x, tuple | list) else _NO, "a tuple"),
    "DType": (_dtype, "a dtype, such as tp.bfloat16 or its name"),
}
_WORDS: dict[str, str] = {}
_ALIAS = {"MbarPtr": "SharedMemBarrier", "Mbar": "SharedMemBarrier", "SMemPtr": "ElementRef"}


def _atom(text: str, names: Mapping[str, Any]) -> tuple[_Atom, str] | None:
    """What one part of an annotation accepts, with the names of a module; None where it is not
    checked here.
    """
    if text in _ATOMS:
        return _ATOMS[text]
    if get_origin(names.get(text)) is Annotated:
        base, constraint = get_args(names[text])
        return _constrained(constraint, base)
    path = re.sub(r"\[.*", "", text).split(".")
    name = _ALIAS.get(path[-1], path[-1])
    cls: Any = names.get(path[0])
    for part in path[1:]:
        cls = getattr(cls, part, None)
    known = CLASSES.get(name)
    for_checkers = cls is None and len(path) == 1  # imported for type checkers only
    if known is None or not (path[-1] in _ALIAS or for_checkers or cls is known):
        return None
    return functools.partial(_instance, known), _WORDS.get(
        name
    ) or f"{'an' if name[0] in 'AEIO' or name == 'FA4Config' else 'a'} {name}"


def _constrained(constraint: object, base: type) -> tuple[_Atom, str]:
    """What an annotation of `lang.arguments.annotations` takes, and its words in a message."""
    match constraint:
        case Traced(low, high, condition):
            words = f"an integer {_interval(low, high)}, which may be traced"
            atom = functools.partial(_traced, constraint)
            return atom, f"{words} or a condition" if condition else words
        case Static(low, high):
            words = f"{_ATOMS['int'][1]}, {_interval(low, high)}"
            return functools.partial(_between, low, high), words
        case OneOf(values):
            atom = functools.partial(_among, _ATOMS[base.__name__][0], values)
            return atom, f"one of {', '.join(map(repr, values))}"
        case Several(element, words):
            return functools.partial(_several, element), words
    assert isinstance(constraint, Printable)
    return _ATOMS["str"]


def _interval(low: int, high: int) -> str:
    return f"{low}..{high}" if high < INT32_MAX else f"{low} or more"


def _traced(wanted: Traced, x: Any) -> Any:
    if isinstance(x, bool | np.bool_):
        return bool(x) if wanted.condition else _NO
    found = plain_int(x)
    if found is not None:
        return found if wanted.low <= found <= wanted.high else _NO
    return x if isinstance(x, (CLASSES["Value"], CLASSES["Var"])) else _NO


def _between(low: int, high: int, x: Any) -> Any:
    found = _integer(x)
    return found if found is not _NO and low <= found <= high else _NO


def _among(atom: _Atom, values: tuple[Any, ...], x: Any) -> Any:
    found = atom(x)
    return found if found is not _NO and found in values else _NO


def _several(element: str, x: Any) -> Any:
    found = x if isinstance(x, tuple | list) else ()
    return x if found and all(isinstance(part, CLASSES[element]) for part in found) else _NO


def _instance(cls: type, x: Any) -> Any:
    return x if isinstance(x, cls) else _NO


def _kind(annotation: str, names: Mapping[str, Any]) -> _Kind | None:
    """What an annotation takes, None where anything does. Its classes must have been noted by
    then.
    """
    parts = [part.strip() for part in _split(annotation)]
    if "DType" in parts:
        parts = [part for part in parts if part != "str"]  # the name of a dtype, not any text
    found = [_atom(part, names) for part in parts]
    known = [atom for atom in found if atom is not None]
    if len(known) < len(found):
        return None
    return _Kind(
        tuple(atom for atom, _ in known),
        " or ".join(words for _, words in known),
        any(Printable() in get_args(names.get(part)) for part in parts),
    )


def _split(annotation: str) -> list[str]:
    """The alternatives of a union: at each | that is in no brackets."""
    parts, depth = [""], 0
    for letter in annotation:
        depth += (letter == "[") - (letter == "]")
        if letter == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


class Parameter:
    """One parameter of a member, with what it takes. `label`: the member in messages; `{}` in it is
    the public class of the object whose member is called.
    """

    __slots__ = ("_kind", "_names", "annotation", "label", "name", "sure")

    def __init__(self, label: str, name: str, annotation: str, names: Mapping[str, Any]) -> None:
        self._names = names
        self.label = label
        self.name = name
        self.annotation = annotation
        self._kind: _Kind | object | None = _NO
        # types whose objects are all accepted unchanged, learnt call by call
        self.sure: set[type] = set()

    def __call__(self, value: Any, of: object = None) -> Any:
        """The value, normalised. `of`: the object whose member is called.

        Raises:
            TraceError: it is not what the parameter takes.
        """
        kind = self._kind
        if kind is _NO:
            # on the first call: classes that it names may be registered later
            kind = self._kind = _kind(self.annotation, self._names)
        if kind is None:
            self.sure.add(type(value))
            return value
        assert isinstance(kind, _Kind)
        for atom in kind.atoms:
            found = atom(value)
            if found is not _NO:
                if kind.name and type(found) is str:
                    require_name(found, self._labelled(of))
                elif found is value and (type(value) in _SURE or type(value).__name__ in CLASSES):
                    self.sure.add(type(value))
                return found
        self._refuse(value, kind, of)

    @property
    def is_name(self) -> bool:
        """True if a string must be a `Printable`."""
        return isinstance(self._kind, _Kind) and self._kind.name

    def _labelled(self, of: object) -> str:
        cls = of if isinstance(of, type) else type(of)
        return self.label.replace("{}", public_name(cls))

    def _refuse(self, value: object, kind: _Kind, of: object) -> NoReturn:
        raise TraceError(
            f"{self._labelled(of)}: {self.name}= takes {kind.words}, got"
            f" {shown(value)}{_hint(value, self.annotation)}",
            caller(),
        )


def _hint(value: object, annotation: str) -> str:
    kind = type(value).__name__
    if (
        "SmemTile" in annotation
        and "SmemTileArray" not in annotation
        and isinstance(value, CLASSES.get("SmemTileArray", ()))
    ):
        return ". Of an array of tiles take one: `tiles[i]`"
    if (
        ("SharedMemBarrier" in annotation or "Mbar" in annotation)
        and kind == "SMemArray"
        and "SMemArray" not in annotation
    ):
        return ". Of an array of barriers take one: `barriers[i]`"
    return ""


def require_name(name: object, label: str) -> str:
    """A name as messages, printed code and tables show it.

    Raises:
        TraceError: no text, an empty one, or one with line breaks or other letters that are not
            printed.
    """
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise TraceError(
            f"{label}: a name is a text of one line with something in it, got {shown(name)}",
            caller(),
        )
    return name


def public_name(cls: type) -> str:
    """What users call a class: itself, or the first public class that it is derived from."""
    return next((c.__name__ for c in cls.__mro__ if c in PUBLIC), cls.__name__)


def note_public(classes: Iterable[type]) -> None:
    """Makes the public classes known: messages name no other. Those without a `repr` get one."""
    for cls in classes:
        PUBLIC.add(cls)
        if all("__repr__" not in vars(base) for base in cls.__mro__[:-1]):
            setattr(cls, "__repr__", _plain_repr)  # noqa: B010


def _plain_repr(self: object) -> str:
    name = getattr(self, "name", None)
    return f"<{public_name(type(self))}{f' {name!r}' if isinstance(name, str) else ''}>"


def note_class(cls: type, words: str = "") -> None:
    """Makes a class known to annotations by its name; `words`: what its objects are called in
    messages.
    """
    CLASSES.setdefault(cls.__name__, cls)
    if words:
        _WORDS[cls.__name__] = words
