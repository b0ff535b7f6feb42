"""What forward leaves behind in Python is refused where later calls compute with it, and only there."""

import collections
import functools
import random
import time

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stagewright

calls = 0


class Body(nn.Module):
    """Two layers with `step(module, x)` between them, and state of every kind for it."""

    shared = 0

    def __init__(self, step):
        super().__init__()
        self.first, self.second, self.step = nn.Linear(4, 4), nn.Linear(4, 4), step
        self.count, self.scale, self.kept, self.seen, self.table = 0, 1.0, None, [], {}
        self.plain = torch.ones(4)
        self.own, self.of_numpy = random.Random(0), numpy.random.default_rng(0)
        self.register_buffer("mean", torch.zeros(4))
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.second(self.step(self, self.first(x)))


def exported(model, tmp_path, **options):
    options = {"loss": nn.MSELoss(), "targets": torch.randn(4, 4)} | options
    return stagewright.export(model, torch.randn(4, 4), path=tmp_path / "m.swg", **options)


def counting(module, x):
    module.count += 1
    return x / module.count


def warming_up(module, x):
    module.count += 1
    return x if module.count < 500 else x * 2


def one_in_a_hundred(module, x):
    module.count += 1
    return x * 2 if module.count % 100 == 0 else x


def cooling(module, x):
    module.scale *= 0.9
    return x * module.scale


def written_in_place(module, x):
    module.plain.mul_(0.9)
    return x * module.plain


def last_batch(module, x):
    y = x if module.kept is None else x + module.kept
    module.kept = x.detach()
    return y


def first_batch(module, x):
    if module.kept is None:
        module.kept = x.detach().mean(0)
    return x - module.kept


def appending(module, x):
    module.seen.append(x.detach())
    return x + module.seen[0].mean()


def by_key(module, x):
    module.table["times"] = module.table.get("times", 0) + 1
    return x * module.table["times"]


def of_the_file(module, x):
    global calls
    calls += 1
    return x * calls


def of_the_class(module, x):
    Body.shared += 1
    return x * Body.shared


def average(module, x):
    module.count += 1
    module.mean.add_(x.detach()[0] / module.count)
    return x


def switching_off(module, x):
    x = module.drop(x)
    module.drop.eval()
    return x


STATE = {
    counting: "count", warming_up: "count", one_in_a_hundred: "count", cooling: "scale", written_in_place: "plain",
    last_batch: "kept", first_batch: "kept", appending: "seen", by_key: "times", of_the_file: "calls",
    of_the_class: "shared", average: "count", switching_off: "training",
}  # fmt: skip


@pytest.mark.parametrize("step", STATE, ids=lambda step: step.__name__)
def test_state_that_later_calls_compute_with(step, tmp_path):
    model = Body(step)
    message = rf"forward changes '{STATE[step]}'.*\(.*test_repeated_calls.py:\d+: .*register_buffer\(\"{STATE[step]}\""
    with pytest.raises(stagewright.ExportError, match=message):
        exported(model, tmp_path)
    assert not list(tmp_path.iterdir())
    assert (model.count, model.scale, model.kept, model.seen, model.table) == (0, 1.0, None, [], {})
    assert torch.equal(model.plain, torch.ones(4))
    assert (calls, Body.shared) == (0, 0)


@pytest.mark.parametrize(
    "step",
    [
        lambda m, x: x * (time.perf_counter() % 1),
        lambda m, x: x * m.own.random(),
        lambda m, x: x * m.of_numpy.random(),
        functools.partial(lambda counter, m, x: x * next(counter), iter(range(1, 100))),
    ],
)
def test_what_is_read_from_elsewhere(step, tmp_path):
    message = r"on the same inputs, gives something else \(.*test_repeated_calls.py:\d+: .*Pass times and random numbers as inputs"
    with pytest.raises(stagewright.ExportError, match=message):
        exported(Body(step), tmp_path)


def test_a_loss_that_counts(tmp_path):
    class Annealed(nn.Module):
        steps = 0

        def forward(self, output, target):
            self.steps += 1
            return F.mse_loss(output, target) * min(1.0, self.steps / 10)

    with pytest.raises(stagewright.ExportError, match="forward changes 'steps'"):
        exported(Body(lambda m, x: x), tmp_path, loss=Annealed())


def logging(module, x):
    module.count += 1
    module.seen.append(module.count)
    if module.count % 100 == 0:
        print(module.count)
    return x


def filling_a_table(module, x):
    if "scales" not in module.table:
        module.table["scales"] = torch.arange(1.0, 5.0)
    return x * module.table["scales"]


def filling_an_attribute(module, x):
    if module.kept is None or module.count < x.shape[1]:
        module.count, module.kept = x.shape[1], torch.arange(1.0, 5.0)
    return x * module.kept[: x.shape[1]]


@functools.lru_cache
def scales(size):
    return torch.arange(1.0, size + 1)


def remembering(module, x):
    return x * scales(x.shape[1])


class MadeWhenAsked(collections.OrderedDict):
    def __getitem__(self, name):
        return super().__getitem__(name)()

    def get(self, name):
        return self[name]


activations = MadeWhenAsked(relu=nn.ReLU, broken=lambda: 1 / 0)


def looking_up(module, x):
    return activations["relu"](x)


def hooking_once(module, x):
    """As models of transformers do that can return inner values."""
    if not module.table.get("hooked"):
        module.second.register_forward_hook(lambda layer, inputs, output: output * 2)
        module.table["hooked"] = True
    return x


def last_activation(module, x):
    """For someone who looks at it after the step."""
    module.seen[:] = [x.detach()]
    return x


@pytest.mark.parametrize(
    "step",
    [logging, filling_a_table, filling_an_attribute, remembering, looking_up, hooking_once, last_activation],
    ids=lambda step: step.__name__,
)
def test_what_changes_no_result_may_stay(step, tmp_path):
    model = Body(step)
    exported(model, tmp_path)
    exported(model, tmp_path)
    assert (model.count, model.kept, model.seen, model.table) == (0, None, [], {}), "export left something in the model"
    assert type(model(torch.randn(4, 4))) is torch.Tensor
