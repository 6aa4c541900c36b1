"""``auto_diff`` and ``var_tracker``: decorators that log every call of a function, and how its variables change.

A decorated function keeps its kind (a coroutine function stays one), its signature, its name and its place in its
module, so that instances and functions can be pickled. If ``TORCHGLASS=0`` is in the environment when the decorator is
applied, it returns the function unchanged.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import weakref
from collections.abc import Callable, Generator
from typing import Any, TypeVar, overload

from torchglass.compat.ttracker.calls import Call, Tracked, Watcher
from torchglass.compat.ttracker.output import is_off
from torchglass.compat.ttracker.variables import VariableWatcher
from torchglass.errors import WrongType

F = TypeVar("F")
Wrap = Callable[[types.FunctionType], Callable[..., Any]]

_WRAPPERS: weakref.WeakKeyDictionary[Callable[..., Any], VariableWatcher | None] = (
    weakref.WeakKeyDictionary()
)
"""The decorated functions. An attribute on the function would not work, because other decorators would copy it."""


@overload
def auto_diff(function: F, /) -> F: ...
@overload
def auto_diff() -> Callable[[F], F]: ...
def auto_diff(function: Any = None, /) -> Any:
    """Log each call: its caller, the arguments that were passed, its outputs or its exception, and its time.

    Write ``@auto_diff`` or ``@auto_diff()`` on functions, methods, static and class methods (above or below
    ``@staticmethod``), coroutine functions, generators and async generators.
    """
    if function is None:
        return auto_diff
    return decorated(function, tracked, "auto_diff")


def var_tracker(*names: str) -> Callable[[F], F]:
    """Log each call as ``auto_diff`` does, and each change of the named variables, at the line where it happens.

    ``@var_tracker("video", "self.cache", "hidden_*")`` follows variables of the function and of the functions that it
    calls, except those of torch, numpy and the standard library. ``torchglass.capture.variables`` describes what counts
    as a change.
    """
    if not names or not all(isinstance(name, str) for name in names):
        given = ", ".join(type(name).__name__ for name in names) or "nothing"
        raise WrongType(
            f'@var_tracker takes the names of variables, not {given}: write @var_tracker("video") above a def'
        )
    # This raises now if a name cannot be watched. Each decorated function gets its own watcher below.
    VariableWatcher(names)
    return lambda function: decorated(
        function, lambda plain: tracked(plain, VariableWatcher(names)), "var_tracker"
    )


def decorated(function: Any, wrap: Wrap, name: str) -> Any:
    """Wrap a function, also if it is inside a static, class or bound method."""
    if type(function) in (staticmethod, classmethod):
        return type(function)(decorated(function.__func__, wrap, name))
    if type(function) is types.MethodType:
        return types.MethodType(decorated(function.__func__, wrap, name), function.__self__)
    if type(function) is not types.FunctionType:
        raise WrongType(_refusal(function, name))
    if is_off():
        return function
    return wrap(function)


def _refusal(given: Any, name: str) -> str:
    if isinstance(given, type):
        return f"@{name} takes a function, not the class {given.__name__}: decorate its methods, as __call__ or forward"
    called = getattr(given, "__name__", None)
    if type(given) in (
        types.BuiltinFunctionType,
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
    ):
        return (
            f"@{name} takes a Python function, and {called} is written in C: "
            "put it in a function of your own (def …)"
        )
    if isinstance(given, (property, functools.cached_property)) or callable(given):
        return f"@{name} takes a function, not {type(given).__name__}: put @{name} directly above the def"
    return f"@{name} takes a function, not {type(given).__name__}: write @{name} above a def"


def tracked(
    function: types.FunctionType, watcher: VariableWatcher | None = None
) -> Callable[..., Any]:
    """Return a wrapper that logs a function's calls. If the function is decorated already, do not log calls twice.

    A watcher adds its variables to those of earlier decorators.
    """
    if function in _WRAPPERS:
        if watcher is None:
            return function
        before = _WRAPPERS[function]
        if before is not None:
            watcher = VariableWatcher((*before.names, *watcher.names))
        function = function.__wrapped__  # type: ignore[attr-defined]
    about = Tracked(function)
    if inspect.iscoroutinefunction(function):
        wrapper = _of_coroutine(function, about, watcher)
    elif inspect.isasyncgenfunction(function):
        wrapper = _of_async_generator(function, about, watcher)
    elif inspect.isgeneratorfunction(function):
        wrapper = _of_generator(function, about, watcher)
        if function.__code__.co_flags & inspect.CO_ITERABLE_COROUTINE:
            wrapper = types.coroutine(wrapper)
    else:
        wrapper = _of_function(function, about, watcher)
    if watcher is not None:
        watcher.about = about
    _WRAPPERS[wrapper] = watcher
    _keep_from_compiling(wrapper)
    return wrapper


def _keep_from_compiling(wrapper: Any) -> None:
    """Make torch.compile run a decorated function uncompiled. Otherwise it would warn about our calls and lose lines.

    This sets the attributes that ``torch.compiler.disable`` sets, because calling it would import the whole compiler.
    """
    wrapper._torchdynamo_disable = True
    wrapper._torchdynamo_disable_msg = "its calls are logged"
    frames: Any = sys.modules.get("torch._C._dynamo.eval_frame")
    try:
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(wrapper.__code__, frames._FrameExecStrategy(skip, skip))
    except AttributeError:
        pass  # torch is not installed or not imported yet, or this version does not have these names


# ---------------------------------------------------------------- one wrapper a kind of function
# The body of a generator or coroutine starts at the first `next` or `await`, and so does its logged call. While it
# waits, a wrapper keeps neither arguments nor items alive, because the program may rely on their being freed. (The
# arguments of a plain function live as long as its call, as with every decorator.)


def _of_function(
    function: types.FunctionType, about: Tracked, watcher: Watcher | None
) -> Callable[..., Any]:
    @functools.wraps(function)
    def tracked_call(*args: Any, **kwargs: Any) -> Any:
        call = Call(about, watcher, args, kwargs)
        call.enter()
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            call.raised(error)
            raise
        finally:
            call.leave()
        call.returned(result)
        return result

    return tracked_call


def _of_coroutine(
    function: types.FunctionType, about: Tracked, watcher: Watcher | None
) -> Callable[..., Any]:
    @functools.wraps(function)
    async def tracked_call(*args: Any, **kwargs: Any) -> Any:
        call = Call(about, watcher, args, kwargs)
        coroutine = function(*args, **kwargs)
        del args, kwargs
        try:
            result = await _waiting(call, coroutine)
        except BaseException as error:
            call.raised(error)
            raise
        call.returned(result)
        return result

    return tracked_call


def _of_generator(
    function: types.FunctionType, about: Tracked, watcher: Watcher | None
) -> Callable[..., Any]:
    @functools.wraps(function)
    def tracked_call(*args: Any, **kwargs: Any) -> Any:
        call = Call(about, watcher, args, kwargs)
        generator = function(*args, **kwargs)
        del args, kwargs
        try:
            result = yield from _steps(call, generator, call.gave)
        except BaseException as error:
            call.raised(error)
            raise
        call.exhausted(result)
        return result

    return tracked_call


def _of_async_generator(
    function: types.FunctionType, about: Tracked, watcher: Watcher | None
) -> Callable[..., Any]:
    @functools.wraps(function)
    async def tracked_call(*args: Any, **kwargs: Any) -> Any:
        call = Call(about, watcher, args, kwargs)
        generator = function(*args, **kwargs)
        del args, kwargs
        step = generator.asend(None)
        try:
            while True:
                item = [await _waiting(call, step)]
                call.gave(item[0])
                try:
                    step = generator.asend((yield item.pop()))
                except GeneratorExit:
                    await _waiting(call, generator.aclose())
                    raise
                except BaseException as error:
                    step = generator.athrow(error)
        except StopAsyncIteration:
            call.exhausted(None)
        except BaseException as error:
            call.raised(error)
            raise

    return tracked_call


def _steps(
    call: Call, target: Any, gave: Callable[[Any], None] | None = None
) -> Generator[Any, Any, Any]:
    """Run a generator or coroutine step by step: leave the call while it waits, and enter it when it continues.

    This does explicitly what ``yield from`` does with values, exceptions and ``close()``.
    """
    step = target.send
    given = None
    while True:
        call.enter()
        try:
            item = [step(given)]
        except StopIteration as stop:
            return stop.value
        finally:
            given = None  # while it waits, keep neither the sent value nor the yielded item alive
            call.leave()
        if gave is not None:
            gave(item[0])
        try:
            given = yield item.pop()
            step = target.send
        except GeneratorExit:
            call.enter()
            try:
                target.close()
            finally:
                call.leave()
            raise
        except BaseException as error:
            step = target.throw
            given = error


_waiting = types.coroutine(_steps)
"""``_steps`` for a coroutine that is awaited. The items that it yields are for the event loop and are not logged."""
