"""What Python objects around a model hold beside its parameters and buffers: attributes, lists, classes, globals."""

import collections
import contextlib
import sys
import types
from collections.abc import Iterable, Iterator

import torch
from torch import nn

# A container, by its identity, and the name of what it holds.
Place = tuple[int, object]

# Of every module, and in others' hands. Hooks are not: models note in an attribute that they have put theirs.
_OF_MODULES = {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"}
_CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, nn.Module)
_NUMBERS = (bool, int, float)
_LISTS = (list, set, collections.deque)
# Whose objects, classes and globals are no state of a model.
_LIBRARIES = {"torch", "numpy", "builtins", "functools", "logging", "threading", "typing", "enum", "stagewright"}
# A model that holds more containers, as one with its data set does, is looked through so far.
_MOST = 20_000
GONE = object()


@contextlib.contextmanager
def kept_state(modules: list[nn.Module], without: Iterable[str] = ()) -> Iterator[None]:
    """Puts all of it back afterwards as it was. The attributes of the first module in `without`, by their path, are gone
    while open: forward, or a hook before it, must set them before they are read."""
    held = HeldState(modules)
    for name in without:
        path, _, attribute = name.rpartition(".")
        delattr(modules[0].get_submodule(path), attribute)
    try:
        yield
    finally:
        held.restore()


class HeldState:
    """The state of modules and of what they refer to, as it was when this was made."""

    def __init__(self, modules: list[nn.Module]):
        self._containers: dict[int, _Container] = {}
        self._tensors: dict[int, tuple[torch.Tensor, torch.Tensor, int]] = {}
        self._own = {id(t) for module in modules for t in [*module._parameters.values(), *module._buffers.values()]}
        for module in modules:
            self._add(_Attributes(module, type(module).__name__))
        for kind in dict.fromkeys(kind for module in modules for kind in type(module).__mro__):
            if _root(kind) not in _LIBRARIES:
                self._add(_ClassAttributes(kind, kind.__name__))
                if kind.__module__ in sys.modules:
                    self._add(_Globals(sys.modules[kind.__module__], kind.__module__))

    def restore(self) -> None:
        """Puts back what has changed, and leaves all else alone."""
        for container in self._containers.values():
            container.restore()
        with torch.no_grad():
            for tensor, content, version in self._tensors.values():
                if tensor._version != version:
                    tensor.copy_(content)

    def numbers(self) -> dict[Place, int | float]:
        """Those that are held now."""
        return {
            (key, name): value
            for key, container in self._containers.items()
            for name, value in container.read().items()
            if type(value) in (int, float)
        }

    def changed(self) -> dict[Place, object]:
        """What places hold now that hold something else than they did; GONE where they hold nothing."""
        found: dict[Place, object] = {}
        for key, container in self._containers.items():
            now = container.read()
            found |= {(key, name): now.get(name, GONE) for name in _differing(container.saved, now)}
        for tensor, _, version in self._tensors.values():
            if tensor._version != version:
                found[self._place_of(tensor)] = tensor.detach().clone()
        return found

    def put(self, values: dict[Place, object]) -> None:
        for (key, name), value in values.items():
            self._containers[key].write({name: value})

    def name(self, place: Place) -> str:
        """As the code writes it: an attribute's, a key's, or the list's."""
        key, name = place
        container = self._containers[key]
        return str(name) if isinstance(name, str) else container.name

    def _place_of(self, tensor: torch.Tensor) -> Place:
        return next(
            (key, name) for key, c in self._containers.items() for name, value in c.saved.items() if value is tensor
        )

    def _add(self, container: "_Container") -> None:
        waiting = [container]
        while waiting and len(self._containers) < _MOST:
            container = waiting.pop()
            if container.key in self._containers:
                continue
            self._containers[container.key] = container
            for name, value in container.saved.items():
                self._add_tensor(value)
                inner = _container_of(value, name if isinstance(name, str) else container.name)
                if inner is not None:
                    waiting.append(inner)

    def _add_tensor(self, value: object) -> None:
        """Remembers the content of a plain tensor, which may be written in place."""
        if type(value) is torch.Tensor and id(value) not in self._own | self._tensors.keys():
            if value.device.type == "cpu" and value.layout is torch.strided and not value.is_inference():
                self._tensors[id(value)] = (value, value.detach().clone(), value._version)


class _Container:
    """Something that holds values by name; a dictionary, whatever its class makes of `[]`."""

    def __init__(self, holder: object, name: str):
        self.holder, self.name, self.key = holder, name, id(holder)
        self.saved = self.read()

    def read(self) -> dict:
        return dict(dict.items(self.holder))

    def write(self, values: dict) -> None:
        """Sets entries, or takes those away that are GONE."""
        _write(self.holder, values)

    def restore(self) -> None:
        changed = {name: self.saved.get(name, GONE) for name in _differing(self.saved, self.read())}
        if changed:
            self.write(changed)


class _Attributes(_Container):
    """Of a module or another object, but for what is in others' hands."""

    def read(self) -> dict:
        return {name: value for name, value in vars(self.holder).items() if name not in _OF_MODULES}

    def write(self, values: dict) -> None:
        _write(vars(self.holder), values)


class _ClassAttributes(_Container):
    def read(self) -> dict:
        return {name: value for name, value in vars(self.holder).items() if _may_be_state(name, value)}

    def write(self, values: dict) -> None:
        for name, value in values.items():
            if value is not GONE:
                setattr(self.holder, name, value)
            elif name in vars(self.holder):
                delattr(self.holder, name)


class _Globals(_ClassAttributes):
    """Of the file that a class is written in."""


class _List(_Container):
    """A list, set or queue: its entries by position."""

    def read(self) -> dict:
        return dict(enumerate(self.holder))

    def write(self, values: dict) -> None:
        entries = self.read()
        _write(entries, values)
        self.holder.clear()
        (self.holder.update if isinstance(self.holder, set) else self.holder.extend)(entries.values())


def _write(held: dict, values: dict) -> None:
    for name, value in values.items():
        if value is GONE:
            held.pop(name, None)
        else:
            held[name] = value


def _container_of(value: object, name: str) -> _Container | None:
    kind = type(value)  # What isinstance asks an object about itself, one that stands for another may not answer.
    if issubclass(kind, dict):
        return _Container(value, name)
    if kind in _LISTS:
        return _List(value, name)
    if issubclass(kind, _CODE) or _root(kind) in _LIBRARIES or not kind.__dictoffset__:
        return None
    return _Attributes(value, name)


def _may_be_state(name: str, value: object) -> bool:
    """In a class or a file, all but code."""
    return not name.startswith("__") and (value is None or issubclass(type(value), (*_NUMBERS, torch.Tensor, dict, *_LISTS)))


def _differing(before: dict, now: dict) -> list:
    return [name for name in {**before, **now} if not _same(before.get(name, GONE), now.get(name, GONE))]


def _same(a: object, b: object) -> bool:
    return a is b or (type(a) is type(b) and type(a) in (*_NUMBERS, str, bytes) and a == b)


def _root(kind: type) -> str:
    return kind.__module__.partition(".")[0]
