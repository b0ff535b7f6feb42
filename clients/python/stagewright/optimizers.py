"""Optimizers of workers, by name or as a `torch.optim.Optimizer` says."""

from collections.abc import Iterable

import torch
from torch import nn

from .errors import OptimizerError
from .proto import jobs_pb, pb, planner_pb

NAMES = ("sgd", "momentum", "adam", "adamw")
_KNOWN = "torch.optim.SGD, Adam and AdamW"
_KINDS = {torch.optim.SGD: "sgd", torch.optim.Adam: "adam", torch.optim.AdamW: "adam"}
# What workers do not have, with the value that means "off".
_OFF = {"amsgrad": False, "maximize": False, "dampening": 0}


def named_optimizer(
    name: str,
    lr: float | None,
    *,
    weight_decay: float = 0.0,
    momentum: float = 0.9,
    nesterov: bool = False,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    groups: Iterable[tuple[str, float, float]] = (),
) -> "jobs_pb.OptimizerConfig":
    """`groups`: (glob over parameter names, weight decay, factor of the learning rate); the first match holds."""
    if name not in NAMES:
        raise OptimizerError(f"there is no optimizer {name!r}; workers have {', '.join(NAMES)}")
    if lr is None:
        raise OptimizerError(f"optimizer {name!r} needs lr, the learning rate")
    kinds = {"sgd": planner_pb.OPTIMIZER_SGD, "momentum": planner_pb.OPTIMIZER_SGD_MOMENTUM}
    return jobs_pb.OptimizerConfig(
        kind=kinds.get(name, planner_pb.OPTIMIZER_ADAM),
        learning_rate=lr,
        momentum=momentum,
        weight_decay=weight_decay,
        beta1=betas[0],
        beta2=betas[1],
        epsilon=eps,
        decoupled_weight_decay=name == "adamw",
        nesterov=nesterov,
        groups=[
            jobs_pb.ParameterGroup(pattern=pattern, weight_decay=decay, learning_rate_scale=scale)
            for pattern, decay, scale in groups
        ],
    )


def check_torch(optimizer: torch.optim.Optimizer) -> None:
    """Raises OptimizerError for what workers do not have."""
    name = type(optimizer).__name__
    if type(optimizer) not in _KINDS:
        raise OptimizerError(f"workers have no {name}; they have {_KNOWN}")
    if optimizer.state:
        raise OptimizerError(
            f"the {name} has stepped already, and a job does not take over its state; make a new one, or train on with "
            "resume=<a job's output directory>"
        )
    _check_groups(name, optimizer.param_groups)


def from_torch(optimizer: torch.optim.Optimizer, model: nn.Module, graph: "pb.Graph") -> "jobs_pb.OptimizerConfig":
    """The constants of `optimizer`, whose groups hold parameters of `model`. Raises OptimizerError as check_torch."""
    check_torch(optimizer)
    groups = optimizer.param_groups
    base = groups[0]
    lr = float(base["lr"])
    common = dict(weight_decay=base["weight_decay"], groups=_overrides(groups, lr, model, graph))
    if _KINDS[type(optimizer)] == "sgd":
        with_momentum = "momentum" if base["momentum"] else "sgd"
        return named_optimizer(with_momentum, lr, momentum=base["momentum"], nesterov=base["nesterov"], **common)
    decoupled = base.get("decoupled_weight_decay", isinstance(optimizer, torch.optim.AdamW))
    betas = tuple(float(beta) for beta in base["betas"])
    return named_optimizer("adamw" if decoupled else "adam", lr, betas=betas, eps=base["eps"], **common)


def _check_groups(name: str, groups: list[dict]) -> None:
    if float(groups[0]["lr"]) <= 0:
        raise OptimizerError(f"the first group of the {name} has lr={groups[0]['lr']}; it must be positive")
    for index, group in enumerate(groups):
        for option, off in _OFF.items():
            if group.get(option, off) != off:
                raise OptimizerError(f"the {name} has {option}={group[option]!r}, which workers do not have")
        for option in ("momentum", "nesterov", "betas", "eps"):
            if group.get(option) != groups[0].get(option):
                raise OptimizerError(
                    f"group {index} of the {name} has {option}={group[option]!r}, the first group "
                    f"{groups[0][option]!r}; groups may differ in lr and weight_decay only"
                )


def _overrides(groups: list[dict], lr: float, model: nn.Module, graph: "pb.Graph") -> list[tuple[str, float, float]]:
    """A group for every trainable parameter of the graph that is not like the first group's; those that no group holds
    stay as they are."""
    constants = {id(p): (g["weight_decay"], float(g["lr"]) / lr) for g in groups for p in g["params"]}
    tensors = dict(model.named_parameters(remove_duplicate=False))
    unknown = set(constants) - {id(tensor) for tensor in tensors.values()}
    if unknown:
        raise OptimizerError(f"the optimizer holds {len(unknown)} parameters that the model does not have")
    base = (groups[0]["weight_decay"], 1.0)
    overrides = []
    for parameter in graph.parameters:
        of = constants.get(id(tensors.get(parameter.name)), (0.0, 0.0))
        if parameter.trainable and of != base:
            overrides.append((_literal(parameter.name), *of))
    return overrides


def _literal(name: str) -> str:
    """A glob that matches this name only."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
