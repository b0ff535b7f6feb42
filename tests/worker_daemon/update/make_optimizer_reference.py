"""Writes optimizer_reference.json: what torch.optim makes of given parameters and gradients.

    python tests/worker_daemon/update/make_optimizer_reference.py
"""

import json
import pathlib

import torch

CASES = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "sgd_decay": (torch.optim.SGD, {"lr": 0.05, "weight_decay": 0.01}),
    "sgd_momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    "sgd_nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "adam": (torch.optim.Adam, {}),
    "adam_decay": (torch.optim.Adam, {"lr": 0.01, "weight_decay": 0.1}),
    "adam_betas": (torch.optim.Adam, {"lr": 0.01, "betas": (0.7, 0.9), "eps": 1e-4}),
    "adamw": (torch.optim.AdamW, {}),
    "adamw_decay": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.95)}),
}
# Schedules as torch.optim.lr_scheduler has them: the learning rate of each step.
SCHEDULES = {
    "linear": (torch.optim.lr_scheduler.LinearLR, {"start_factor": 1.0, "end_factor": 0.1, "total_iters": 12}),
    "cosine": (torch.optim.lr_scheduler.CosineAnnealingLR, {"T_max": 20, "eta_min": 0.03}),
    "step": (torch.optim.lr_scheduler.StepLR, {"step_size": 4, "gamma": 0.5}),
}
SCHEDULE_RATE, SCHEDULE_STEPS = 0.3, 20
STEPS, SIZE = 7, 5
SKIPPED = 3  # The step in which the parameter has no gradient.


def run(dtype: torch.dtype, kind: type, options: dict) -> dict:
    generator = torch.Generator().manual_seed(3)
    start = torch.randn(SIZE, generator=generator, dtype=torch.float64).to(dtype)
    gradients = torch.randn(STEPS, SIZE, generator=generator, dtype=torch.float64).to(dtype)
    parameter = torch.nn.Parameter(start.clone())
    optimizer = kind([parameter], **options)
    for step in range(STEPS):
        parameter.grad = None if step == SKIPPED else gradients[step].clone()
        optimizer.step()
    return {"start": start.tolist(), "gradients": gradients.tolist(), "end": parameter.detach().tolist()}


def rates(kind: type, options: dict) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=SCHEDULE_RATE)
    scheduler = kind(optimizer, **options)
    result = []
    for _ in range(SCHEDULE_STEPS):
        result.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return result


def main() -> None:
    torch.set_num_threads(1)
    result = {"skipped": SKIPPED, "cases": {}}
    for name, (kind, options) in CASES.items():
        for dtype in (torch.float64, torch.float32):
            case = run(dtype, kind, options)
            case["kind"] = kind.__name__
            case["options"] = options
            case["dtype"] = str(dtype).removeprefix("torch.")
            result["cases"][f"{name}_{case['dtype']}"] = case
    result["schedules"] = {
        name: {"learning_rate": SCHEDULE_RATE, "options": options, "rates": rates(kind, options)}
        for name, (kind, options) in SCHEDULES.items()
    }
    path = pathlib.Path(__file__).with_name("optimizer_reference.json")
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
