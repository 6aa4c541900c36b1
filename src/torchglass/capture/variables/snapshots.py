"""Takes snapshots of values to detect later whether a value has changed, without calling methods of foreign types.

The entry of a variable (``Known``) remembers the value's ``id`` and, depending on the type, the value itself, a weak
reference to it, or a *signature*: something small that differs after a change in place.

Only exact types are looked into: of a subclass of ``list``, only the identity is read. The dictionaries of the standard
library (``OrderedDict``, ``defaultdict``, ``Counter``) are read with the methods of dict. Containers are compared by
their length and by their first and last ``ENDS`` members, to the depth of the watch. So these changes are missed:

- in the middle of a long container, or in a long set of constant length
- the order of an ``OrderedDict``
- a member that was replaced by another object at the same address (numbers and strings are compared by value)
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
from torchglass.capture.variables.watch import UNBOUND, PreviousValue
from torchglass.compiled import extension

# Roles: how values of a type are remembered. Their order matters: the mutable ones are between TEXT and OBJECT.
ATOM = 0
"""A number, a truth value or None: the value is kept."""
TEXT = 1
"""A text or bytes: the value is kept if it is short."""
CONTAINER = 2
"""A signature of the members is kept."""
ARRAY = 3
"""A fingerprint of the content is kept (arrays.py)."""
STAMPED = 4
"""The stamp of the watch is kept, such as a tensor's version."""
OBJECT = 5
"""A weak reference is kept."""
OPAQUE = 6
"""Only the identity is kept."""
ENDS = 32
"""How many members of a container are compared at each end."""
_LONGEST_TEXT = 200
"""Longer texts are not kept."""
_new_tuple = tuple.__new__  # takes half the time of PreviousValue(…)
_name_of = type.__dict__["__name__"].__get__
_bases_of = type.__dict__["__mro__"].__get__


class Kind(NamedTuple):
    """How values of a type are remembered and compared."""

    role: int
    name: str
    type: weakref.ref[type] | None
    """The type; None for types that are never deleted."""


def _forever(role: int, *types: type) -> dict[int, Kind]:
    return {id(each): Kind(role, each.__name__, None) for each in types}


BUILTINS = {
    **_forever(ATOM, int, float, bool, complex, NoneType),
    **_forever(TEXT, str, bytes),
    **_forever(
        CONTAINER, list, tuple, dict, set, frozenset, deque, OrderedDict, defaultdict, Counter
    ),
}
NO_KIND = Kind(ATOM, "", None)
_FOREIGN = Kind(OBJECT, "", None)


class _Fields:
    """The fields of an entry; with the extension, C defines fields of the same names."""

    __slots__ = ("id", "is_loose", "is_reported", "kept", "kind", "signature")
    is_loose: bool
    """For attributes and items: whether the owner has no weak references, so another object may get its address."""

    def __init__(self) -> None:
        self.id = 0  # no object has this id
        self.is_reported = False
        self.kept: Any = UNBOUND
        """A number or short text, or a weak reference to an object or array; ``UNBOUND`` for everything else."""
        self.kind = NO_KIND
        self.signature: Any = None


if not TYPE_CHECKING and extension is not None:
    _Fields = extension.Known


class Known(_Fields):
    """The entry of one variable: what is known of its value. No value of a mutable type is kept."""

    __slots__ = ()

    def clear(self) -> None:
        self.id = 0
        self.kept = UNBOUND
        self.kind = NO_KIND
        self.signature = None
        self.is_reported = False

    def recall(self) -> Any:
        """Return the value that the variable had, or a description if the value is gone."""
        role = self.kind.role
        if role <= TEXT:
            if self.kept is not UNBOUND or not self.id:
                return self.kept
        elif role in (OBJECT, ARRAY):
            value = self.kept()
            if value is not None:
                return value
        return self.past()

    def past(self) -> PreviousValue:
        """Return a description of the value."""
        role, name, _ = self.kind
        length = None
        if role == CONTAINER and self.signature:
            _, length, *_ = self.signature
        stamp = None
        if role == STAMPED:
            stamp = self.signature
        return _new_tuple(PreviousValue, (name, self.id, length, stamp))


def _no_stamp(value: Any) -> None:
    """Return None, which means that there are no further types."""


class Snapshots:
    """Takes snapshots of values for one engine."""

    def __init__(
        self, depth: int, stamp: Callable[[Any], Hashable | None] | None, in_place: bool
    ) -> None:
        self.depth = depth
        self.stamp = stamp or _no_stamp
        self.in_place = in_place
        self.fingerprints = Fingerprints()
        self.kinds = dict(BUILTINS)

    def kind(self, value: Any) -> Kind:
        """Return how values of this type are remembered."""
        of = type(value)
        known = self.kinds.get(id(of))
        if known is None or (known.type is not None and known.type() is not of):
            known = Kind(self._find_role(of, value), _name_of(of), weakref.ref(of))
            self.kinds[id(of)] = known
        return known

    def _find_role(self, kind: type, value: Any) -> int:
        if kind is array_type():
            return ARRAY
        if self.stamp(value) is not None:
            return STAMPED
        if any(_module_of(base) == "torch" for base in _bases_of(kind)):
            return OPAQUE  # torch.utils.swap_tensors refuses tensors with weak references
        try:
            weakref.ref(value)
        except TypeError:
            return OPAQUE
        return OBJECT

    def take(self, entry: Known, value: Any, whole: bool = False) -> None:
        """Remember a value in the entry of its variable."""
        kind = self.kinds.get(id(type(value)))
        if kind is None or (kind.type is not None and kind.type() is not type(value)):
            kind = self.kind(value)
        role = kind[0]
        entry.id = id(value)
        entry.kind = kind
        entry.signature = None
        if role == ATOM or (role == TEXT and len(value) <= _LONGEST_TEXT):
            entry.kept = value
        elif role in (OBJECT, ARRAY):
            entry.kept = weakref.ref(value)
        else:
            entry.kept = UNBOUND  # not None, which a variable may hold next
        can_change = TEXT < role < OBJECT
        if not can_change or not self.in_place:
            return
        if role == STAMPED:
            entry.signature = self.stamp(value)
        elif type(value) is not tuple or not self.is_closed(value, role):
            entry.signature = self.signature(value, role, whole)

    def is_closed(self, value: Any, role: int) -> bool:
        """Return whether a value can change only through itself, as most tuples of numbers and tensors can.

        Such a value is not a view of other memory, and nothing in it that we compare can change.
        """
        if role == ARRAY:
            return value.base is None
        if role != CONTAINER or len(value) > 2 * ENDS:
            return False
        # Keys cannot change, so look only at the values.
        members = value
        if issubclass(type(value), dict):
            members = dict.values(value)
        if self.depth <= 1:
            return True
        return not any(TEXT < self.kind(each).role < OBJECT for each in members)

    def signature(self, value: Any, role: int, whole: bool = False) -> Any:
        """Return something that differs after a change in place.

        Return None for a value that cannot change or cannot be looked at.
        """
        if role == STAMPED:
            return self.stamp(value)
        if role == CONTAINER:
            return sign(value, self.depth, self)
        if role == ARRAY:
            return self.fingerprints.of(value, whole)
        return None


def same_atom(old: Any, new: Any) -> bool:
    """Return whether two numbers or short texts of the same builtin type are equal; -0.0 and 0.0 are different."""
    kind = type(new)
    if type(old) is not kind or BUILTINS.get(id(kind), _FOREIGN).role > TEXT or old != new:
        return False
    return kind is not float or new != 0 or math.copysign(1, old) == math.copysign(1, new)


def has_changed(role: int, old: Any, new: Any) -> bool:
    """Return whether two signatures of one object prove a change."""
    if role == ARRAY:
        return differ(old, new)
    return old != new


def _module_of(kind: type) -> Any:
    return type.__dict__["__dict__"].__get__(kind).get("__module__")


def _sign(value: Any, depth: int, snapshots: Snapshots) -> Hashable:
    """Return the signature of a container: its type, length and members, as a tuple of numbers and texts."""
    kind = type(value)
    length = len(value)
    try:
        members = _ends(value, kind, length)
        return (id(kind), length, tuple([_sign_member(each, depth, snapshots) for each in members]))
    except RuntimeError:  # another thread is changing the container; the next look sees the result
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
    """Return the signature of a member: numbers and texts by value, containers and arrays by content, others by id."""
    kind = type(value)
    role = BUILTINS.get(id(kind), _FOREIGN).role
    if role == ATOM:
        if kind is int:
            return value
        return (id(kind), repr(value))
    if role == TEXT:
        if kind is str and len(value) <= _LONGEST_TEXT:
            return value
        return (id(kind), len(value), hash(value))
    if depth <= 1:
        return id(value)
    if role == CONTAINER:
        return (id(value), _sign(value, depth - 1, snapshots))
    role = snapshots.kind(value).role
    if role in (ARRAY, STAMPED):
        return (id(value), snapshots.signature(value, role))
    return id(value)


sign: Callable[[Any, int, Snapshots], Hashable] = _sign if extension is None else extension.sign
"""``_sign``, or its compiled version (``capture/engine/fast/signing.c``)."""
if extension is not None:
    extension.sign_with(_sign)
