"""What is refused says where in the user's code it stands, and what to write instead."""

import pytest
import torch
from torch import nn

import stagewright
from graph_interpreter import Interpreter


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Inner(nn.Module):
    def forward(self, x):
        return Doubled.apply(x)


def refused(model, inputs, message, tmp_path, **options):
    options.setdefault("loss", nn.MSELoss())
    with pytest.raises(stagewright.ExportError, match=message):
        stagewright.export(model, inputs, path=tmp_path / "model.swg", **options)
    assert not list(tmp_path.iterdir()), "an export that failed left files"


def test_an_autograd_function_names_its_module_and_line(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), Inner())
    refused(
        model, torch.randn(4, 4), r"module '1': .*Doubled has its own backward.*test_refusals.py:\d+: return Doubled",
        tmp_path,
    )  # fmt: skip


class Body(nn.Module):
    """A linear layer, then `step(module, x)`."""

    def __init__(self, step):
        super().__init__()
        self.linear, self.step = nn.Linear(4, 4), step

    def forward(self, x):
        return self.step(self, self.linear(x))


def branch(m, x):
    if not torch.isfinite(x).all():
        x = x.clamp(-1, 1)
    return x * 2


def branch_on_a_number(m, x):
    far = (x.abs() > 1e6).any().item()
    if far:
        return x
    return x * 2


def asserting(m, x):
    assert x.abs().max() < 1e6, "too large"
    return x * 2


def test_a_branch_on_values_names_its_line_and_what_to_write(tmp_path):
    message = (
        r"values of a tensor \(.*test_refusals.py:(\d+): if not torch.isfinite\(x\).all\(\):\); write .*torch.where.*"
        r'assume=\{"test_refusals.py:\1": True\}'
    )
    refused(Body(branch), torch.randn(4, 4), message, tmp_path)


def checking(m, x):
    if not (torch.isfinite(x).all()):
        hint = "scale it"
        raise ValueError(f"not finite, {hint}")
    if x is not None and x.max() > 1e6 or x.min() < -1e6:
        raise ValueError("too large")
    if any((part > 1e6).any() for part in x.unbind(1)):
        raise ValueError("too large")
    return x * 2


def checking_first(m, x):
    if x.max() > 1e6:
        raise ValueError("too large")
    elif x.min() < -1e6:
        return x
    return x * 2


def warning(m, x):
    if x.max() > 1e6:
        print("large")
    return x * 2


def unclear(m, x):
    if x.max() > 1e6 and not x.min() < 0:
        raise ValueError("which of both was asked for is not known")
    return x * 2


@pytest.mark.parametrize("step", [checking_first, warning, unclear])
def test_branches_that_do_more_than_raise_are_refused(step, tmp_path):
    refused(Body(step), torch.randn(4, 4), r"values of a tensor \(.*test_refusals.py:\d+: (el)?if", tmp_path)


@pytest.mark.parametrize(
    "loss, place",
    [
        (lambda o, t: nn.GaussianNLLLoss()(o, t, o.square() + 0.1), "functional.py:"),
        (lambda o, t: -torch.distributions.Normal(o, o.square() + 0.1, validate_args=True).log_prob(t).mean(), "distribution.py:"),
    ],
)  # fmt: skip
def test_checks_of_pytorch_itself_are_assumed_to_hold(loss, place, tmp_path):
    model = nn.Linear(4, 4)
    exported = stagewright.export(
        model, torch.randn(4, 4), loss=loss, targets=torch.randn(4, 4), path=tmp_path / "model.swg"
    )
    x, target = torch.randn(3, 4), torch.randn(3, 4)
    actual, _ = Interpreter.load(exported).run({"input": x, "target": target}, 3)
    torch.testing.assert_close(actual, loss(model(x), target))
    assert f"; assumed {place}" in exported.graph.producer


@pytest.mark.parametrize(
    "step, assume",
    [
        (checking, None),
        (branch, {"if not torch.isfinite(x).all()": True}),
        (branch_on_a_number, {"test_refusals.py:LINE": False}),
        (asserting, None),
    ],
)
def test_a_branch_may_be_assumed(step, assume, tmp_path):
    line = next(i for i, text in enumerate(open(__file__), 1) if text.strip() == "if far:")
    assume = None if assume is None else {key.replace("LINE", str(line)): value for key, value in assume.items()}
    model = Body(step)
    exported = stagewright.export(
        model, torch.randn(4, 4), loss=nn.MSELoss(), reduction="mean", path=tmp_path / "model.swg", assume=assume
    )
    x, target = torch.randn(3, 4), torch.randn(3, 4)
    loss, _ = Interpreter.load(exported).run({"x": x, "target": target}, 3)
    torch.testing.assert_close(loss, nn.functional.mse_loss(model(x), target))
    assert "; assumed" in exported.graph.producer and "test_refusals.py:" in exported.graph.producer


def test_assumptions_that_nothing_asks_for_are_refused(tmp_path):
    for key in ("nothing.py:3", "test_refusals.py:1"):
        refused(Body(branch_on_a_number), torch.randn(4, 4), f"assume= names '{key}'|values of a tensor", tmp_path,
                assume={key: True})  # fmt: skip
    refused(nn.Linear(4, 4), torch.randn(4, 4), "assume= names 'x.py:3', where forward does not branch", tmp_path,
            assume={"x.py:3": True})  # fmt: skip


def test_a_selection_by_values_says_what_to_write(tmp_path):
    def step(m, x):
        chosen = x[:, 0] > 0
        result = torch.zeros_like(x)
        result[chosen] = x[chosen] * 2
        return result

    message = r"test_refusals.py:\d+: .*depends on the values of a tensor; .*torch.where\(mask, a, b\)"
    refused(Body(step), torch.randn(4, 4), message, tmp_path)


def test_control_flow_inside_the_graph_is_refused(tmp_path):
    def step(m, x):
        return torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y * 3, (x,))

    refused(Body(step), torch.randn(4, 4), r"cond.*test_refusals.py:\d+.*torch.where", tmp_path)


def test_wrappers_of_data_parallel_training_are_taken_off(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        wrapped = [nn.DataParallel(nn.Linear(4, 3)), nn.parallel.DistributedDataParallel(nn.Linear(4, 3))]
    finally:
        torch.distributed.destroy_process_group()
    for model in wrapped:
        with pytest.warns(UserWarning, match=f"{type(model).__name__}: the module inside is exported"):
            exported = stagewright.export(model, torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "model.swg")
        assert [p.name for p in exported.graph.parameters] == ["weight", "bias"]


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)

    def forward(self, x, cache=None, mask=None):
        y = self.body(x) + (cache.length() if cache is not None else 0)
        return y if mask is None else y * mask


def test_inputs_in_the_wrong_place_are_named(tmp_path):
    inputs = (torch.randn(4, 4), torch.ones(4, 4))
    message = r"Cached.* fails on the example inputs.*test_refusals.py:\d+.*read as 'x', 'cache'; pass a dictionary"
    refused(Cached(), inputs, message, tmp_path, targets=torch.zeros(4, 4))


def test_a_model_that_fails_by_itself_is_told_so(tmp_path):
    refused(
        Body(lambda m, x: x @ torch.ones(5, 5)), torch.randn(4, 4),
        r"Body itself fails on the example inputs.*mat1 and mat2.*test_refusals.py:\d+", tmp_path,
        targets=torch.zeros(4, 4),
    )  # fmt: skip


def test_a_loss_that_fails_by_itself_is_told_so(tmp_path):
    refused(
        nn.Linear(4, 3), torch.randn(4, 4), r"the loss itself fails on the model's output.*test_refusals.py:\d+",
        tmp_path, loss=lambda output, target: (output @ target).mean(), targets=torch.zeros(4, 4),
    )  # fmt: skip


def test_moves_between_devices_are_refused(tmp_path):
    def step(m, x):
        return x + torch.ones(4, device="meta")

    refused(Body(step), torch.randn(4, 4), r"device of its own choice.*test_refusals.py:\d+.*x.device", tmp_path)


def test_state_of_wrappers_is_imported_under_the_modules_names(tmp_path):
    model = nn.Linear(4, 3)
    torch.save({f"module._orig_mod.{name}": t for name, t in model.state_dict().items()}, tmp_path / "ddp.pt")
    assert stagewright.import_state_dict(tmp_path / "ddp.pt", tmp_path / "w.safetensors") == ["bias", "weight"]
