"""torch.optim optimizers as workers take them."""

import pytest
import torch
from torch import nn

import stagewright
from stagewright.errors import OptimizerError
from stagewright.optimizers import from_torch, named_optimizer
from stagewright.proto import jobs_pb, pb, planner_pb


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.norm, self.frozen = nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4).requires_grad_(False)

    def forward(self, x):
        return self.norm(self.body(self.frozen(x)))


def graph_of(model) -> "pb.Graph":
    parameters = [pb.Parameter(name=name, trainable=p.requires_grad) for name, p in model.named_parameters()]
    return pb.Graph(name="model", parameters=parameters)


def groups_of(config: "jobs_pb.OptimizerConfig") -> dict[str, tuple[float, float]]:
    return {group.pattern: (group.weight_decay, group.learning_rate_scale) for group in config.groups}


def test_adamw_with_groups():
    model = Model()
    decayed = [model.body.weight]
    plain = [model.body.bias, *model.norm.parameters()]
    optimizer = torch.optim.AdamW(
        [{"params": decayed}, {"params": plain, "weight_decay": 0.0, "lr": 5e-4}],
        lr=1e-3, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1,
    )  # fmt: skip
    config = from_torch(optimizer, model, graph_of(model))
    assert (config.kind, config.decoupled_weight_decay) == (planner_pb.OPTIMIZER_ADAM, True)
    assert (config.learning_rate, config.weight_decay, config.epsilon) == (1e-3, 0.1, 1e-6)
    assert (config.beta1, config.beta2) == (0.8, 0.9)
    names = ["body.bias", "norm.weight", "norm.bias"]
    assert groups_of(config) == {name: (0.0, pytest.approx(0.5)) for name in names}


def test_parameters_that_the_optimizer_does_not_hold_are_frozen():
    model = Model()
    config = from_torch(torch.optim.Adam(model.norm.parameters(), lr=0.01), model, graph_of(model))
    assert not config.decoupled_weight_decay
    assert groups_of(config) == {"body.weight": (0.0, 0.0), "body.bias": (0.0, 0.0)}


@pytest.mark.parametrize(
    ("momentum", "kind"), [(0, planner_pb.OPTIMIZER_SGD), (0.5, planner_pb.OPTIMIZER_SGD_MOMENTUM)]
)
def test_sgd(momentum, kind):
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum, nesterov=momentum > 0, weight_decay=0.01)
    config = from_torch(optimizer, model, graph_of(model))
    assert (config.kind, config.momentum, config.nesterov) == (kind, momentum, momentum > 0)
    assert (config.weight_decay, len(config.groups)) == (0.01, 0)


def stepped(model):
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return optimizer


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda m: torch.optim.RMSprop(m.parameters()),
            "workers have no RMSprop; they have torch.optim.SGD, Adam and AdamW",
        ),
        (lambda m: torch.optim.Adam(m.parameters(), amsgrad=True), "amsgrad=True, which workers do not have"),
        (lambda m: torch.optim.SGD(m.parameters(), momentum=0.9, dampening=0.1), "dampening=0.1"),
        (lambda m: torch.optim.SGD(m.parameters(), lr=0.0), "lr=0.0; it must be positive"),
        (lambda m: torch.optim.SGD(nn.Linear(2, 2).parameters()), "2 parameters that the model does not have"),
        (stepped, "has stepped already"),
        (
            lambda m: torch.optim.Adam(
                [{"params": m.body.parameters()}, {"params": m.norm.parameters(), "betas": (0.5, 0.5)}]
            ),
            "group 1 of the Adam has betas=(0.5, 0.5), the first group (0.9, 0.999)",
        ),
    ],
)
def test_what_workers_do_not_have_is_refused(make, says):
    model = Model()
    with pytest.raises(OptimizerError) as error:
        from_torch(make(model), model, graph_of(model))
    assert says in str(error.value)
    assert isinstance(error.value, stagewright.StagewrightError)


def test_optimizers_by_name():
    assert named_optimizer("adamw", 0.1, weight_decay=0.2).decoupled_weight_decay
    assert named_optimizer("momentum", 0.1).momentum == 0.9
    with pytest.raises(OptimizerError, match="there is no optimizer 'lamb'; workers have sgd, momentum, adam, adamw"):
        named_optimizer("lamb", 0.1)
    with pytest.raises(OptimizerError, match="needs lr"):
        named_optimizer("sgd", None)
