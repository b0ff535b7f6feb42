"""The same training in plain PyTorch: the whole mini-batch at once, plain SGD, samples in their order."""

import dataclasses

import torch
from torch.utils import _pytree as pytree
from zoo import MINI_BATCH, SAMPLES, Task

LEARNING_RATE, STEPS = 0.01, 4


@dataclasses.dataclass
class Trained:
    """The losses of all steps, and the state after some of them: names as in `state_dict`."""

    losses: list[float]
    states: dict[int, dict[str, torch.Tensor]]


def run(model: torch.nn.Module, inputs: object) -> object:
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)


def loss_of(task: Task, output: object, target: object) -> torch.Tensor:
    if task.loss is not None:
        return task.loss(output) if task.targets is None else task.loss(output, target)
    return output if isinstance(output, torch.Tensor) else output["loss"]


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    model = getattr(model, "_orig_mod", model)  # The module inside torch.compile's wrapper.
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def train(task: Task) -> Trained:
    parameters = [p for p in task.model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE)
    trained = Trained([], {0: state_of(task.model)})
    for step in range(STEPS):
        first = step * MINI_BATCH % SAMPLES
        inputs, targets = (
            pytree.tree_map_only(torch.Tensor, torch.clone, task.part(tree, first, MINI_BATCH))
            for tree in (task.inputs, task.targets)
        )
        loss = loss_of(task, run(task.model, inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trained.losses.append(loss.item())
        trained.states[step + 1] = state_of(task.model)
    return trained
