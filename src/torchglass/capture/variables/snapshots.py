"""What is kept of a value to know later whether it has changed; no method of a foreign type is ever called.

Types are compared with ``is``: of a subclass of ``list`` nothing is asked but its identity. The dictionaries of the
standard library (``OrderedDict``, ``defaultdict``, ``Counter``) are read by dict's own methods. Containers are known
by their length and their members, ``ENDS`` from either end, to the depth of the watch. So these changes are not seen:
in the middle of a long container, in a long set whose length stays, the order of an ``OrderedDict``, and a member that
was replaced by another at the same address (numbers and strings among the members are compared by value, so those are
safe).
"""

from __future__ import annotations

import math
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable
from itertools import chain, islice
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

from torchglass.capture.variables.arrays import Fingerprints, array_type, differ
from torchglass.capture.variables.watch import UNBOUND, Past
from torchglass.compiled import extension

ATOM, TEXT, CONTAINER, ARRAY, STAMPED, OBJECT, OPAQUE = range(7)
"""Atoms and texts are kept, containers signed, arrays fingerprinted, stamped ones stamped, objects referred to."""
ENDS = 32
_LONGEST_TEXT = 200
_new_past = tuple.__new__  # half the price of Past(…)
_name_of = type.__dict__["__name__"].__get__
_bases_of = type.__dict__["__mro__"].__get__


class Kind(NamedTuple):
    """What is known of a type."""

    role: int
    name: str
    type: weakref.ref[type] | None
    """None for types that live for ever."""


def _forever(role: int, *types: type) -> dict[int, Kind]:
    return {id(each): Kind(role, each.__name__, None) for each in types}


BUILTINS = {
    **_forever(ATOM, int, float, bool, complex, NoneType),
    **_forever(TEXT, str, bytes),
    **_forever(CONTAINER, list, tuple, dict, set, frozenset, deque, OrderedDict, defaultdict, Counter),
}
NO_KIND = Kind(ATOM, "", None)
_FOREIGN = Kind(OBJECT, "", None)


class _Fields:
    """What an entry has; where there is an extension, C has fields of the same names."""

    __slots__ = ("id", "is_loose", "is_told", "kept", "kind", "signature")
    is_loose: bool
    """Set for attributes and items: whether the owner cannot be referred to, so that another may get its address."""

    def __init__(self) -> None:
        self.id = 0  # of nothing
        self.is_told = False
        self.kept: Any = UNBOUND
        """A number or short text, a reference to an object or array; ``UNBOUND`` for all else."""
        self.kind = NO_KIND
        self.signature: Any = None


if not TYPE_CHECKING and extension is not None:
    _Fields = extension.Known


class Known(_Fields):
    """What is known of one variable; no value of a mutable type is kept."""

    __slots__ = ()

    def clear(self) -> None:
        self.id, self.kept, self.kind, self.signature, self.is_told = 0, UNBOUND, NO_KIND, None, False

    def recall(self) -> Any:
        """The value that the variable had, or what is left of it."""
        role = self.kind[0]
        if role <= TEXT:
            if self.kept is not UNBOUND or not self.id:
                return self.kept
        elif role in (OBJECT, ARRAY):
            value = self.kept()
            if value is not None:
                return value
        return self.past()

    def past(self) -> Past:
        """What is known of the value without the value."""
        role, name, _ = self.kind
        signature = self.signature
        length = signature[1] if role == CONTAINER and signature else None
        return _new_past(Past, (name, self.id, length, signature if role == STAMPED else None))


def _no_stamp(value: Any) -> None:
    """Where nobody knows more types."""


class Snapshots:
    """Snapshots at values for one engine."""

    def __init__(self, depth: int, stamp: Callable[[Any], Hashable | None] | None, in_place: bool) -> None:
        self.depth = depth
        self.stamp = stamp or _no_stamp
        self.in_place = in_place
        self.fingerprints = Fingerprints()
        self.kinds = dict(BUILTINS)

    def kind(self, value: Any) -> Kind:
        of = type(value)
        known = self.kinds.get(id(of))
        if known is None or (known.type is not None and known.type() is not of):
            known = self.kinds[id(of)] = Kind(self._find_role(of, value), _name_of(of), weakref.ref(of))
        return known

    def _find_role(self, kind: type, value: Any) -> int:
        if kind is array_type():
            return ARRAY
        if self.stamp(value) is not None:
            return STAMPED
        if any(_module_of(base) == "torch" for base in _bases_of(kind)):
            return OPAQUE  # torch.utils.swap_tensors refuses tensors that somebody refers to
        try:
            weakref.ref(value)
        except TypeError:
            return OPAQUE
        return OBJECT

    def take(self, entry: Known, value: Any, whole: bool = False) -> None:
        """Let the entry know this value."""
        kind = self.kinds.get(id(type(value)))
        if kind is None or (kind.type is not None and kind.type() is not type(value)):
            kind = self.kind(value)
        role = kind[0]
        entry.id, entry.kind, entry.signature = id(value), kind, None
        if role == ATOM or (role == TEXT and len(value) <= _LONGEST_TEXT):
            entry.kept = value
        elif role in (OBJECT, ARRAY):
            entry.kept = weakref.ref(value)
        else:
            entry.kept = UNBOUND  # not None, which a variable may hold next
        if TEXT < role < OBJECT and self.in_place:
            if role == STAMPED:
                entry.signature = self.stamp(value)
            elif not (type(value) is tuple and self.is_closed(value, role)):
                entry.signature = self.signature(value, role, whole)

    def is_closed(self, value: Any, role: int) -> bool:
        """Whether only who holds the value itself can change what is looked at: it is no view of other memory, and
        nothing that is looked at inside can change. So it is with most tuples, of numbers and tensors.
        """
        if role == ARRAY:
            return value.base is None
        if role != CONTAINER or len(value) > 2 * ENDS:
            return False
        members = dict.values(value) if issubclass(type(value), dict) else value  # what can change is no key
        return self.depth <= 1 or not any(TEXT < self.kind(each).role < OBJECT for each in members)

    def signature(self, value: Any, role: int, whole: bool = False) -> Any:
        """Something that differs after a change in place; None for what cannot change or cannot be looked at."""
        if role == STAMPED:
            return self.stamp(value)
        if role == CONTAINER:
            return sign(value, self.depth, self)
        if role == ARRAY:
            return self.fingerprints.of(value, whole)
        return None


def same_atom(old: Any, new: Any) -> bool:
    """Whether two numbers or short texts of exact types are the same; -0.0 is not 0.0."""
    kind = type(new)
    if type(old) is not kind or BUILTINS.get(id(kind), _FOREIGN).role > TEXT or old != new:
        return False
    return kind is not float or new != 0 or math.copysign(1, old) == math.copysign(1, new)


def has_changed(role: int, old: Any, new: Any) -> bool:
    """Whether two signatures of one object prove a change."""
    return differ(old, new) if role == ARRAY else old != new


def _module_of(kind: type) -> Any:
    return type.__dict__["__dict__"].__get__(kind).get("__module__")


def _sign(value: Any, depth: int, snapshots: Snapshots) -> Hashable:
    """Type, length and members of a container, as a tuple of numbers and texts."""
    kind, length = type(value), len(value)
    try:
        members = _ends(value, kind, length)
        return (id(kind), length, tuple([_sign_member(each, depth, snapshots) for each in members]))
    except RuntimeError:  # another thread changes it at this moment: the next look will tell
        return (id(kind), length)


def _ends(value: Any, kind: type, length: int) -> Any:
    if issubclass(kind, dict):
        items = dict.items(value)
        if length > 2 * ENDS:
            return chain.from_iterable(chain(islice(items, ENDS), islice(reversed(items), ENDS)))
        return chain.from_iterable(items)
    if length <= 2 * ENDS:
        return value
    if kind is list or kind is tuple:
        return value[:ENDS] + value[-ENDS:]
    if kind is deque:
        return chain(islice(value, ENDS), islice(reversed(value), ENDS))
    return islice(value, 2 * ENDS)


def _sign_member(value: Any, depth: int, snapshots: Snapshots) -> Hashable:
    """Numbers and texts by value and type, containers and arrays by content, all else by identity."""
    kind = type(value)
    role = BUILTINS.get(id(kind), _FOREIGN).role
    if role == ATOM:
        return value if kind is int else (id(kind), repr(value))
    if role == TEXT:
        return value if kind is str and len(value) <= _LONGEST_TEXT else (id(kind), len(value), hash(value))
    if depth <= 1:
        return id(value)
    if role == CONTAINER:
        return (id(value), _sign(value, depth - 1, snapshots))
    role = snapshots.kind(value).role
    return (id(value), snapshots.signature(value, role)) if role in (ARRAY, STAMPED) else id(value)


sign: Callable[[Any, int, Snapshots], Hashable] = _sign if extension is None else extension.sign
"""``_sign``, compiled where it can be (``capture/engine/fast/signing.c``)."""
if extension is not None:
    extension.sign_with(_sign)
