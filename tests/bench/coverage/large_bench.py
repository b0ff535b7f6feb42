"""A Llama of 70 billion parameters, captured without its weights and planned for a cluster: what that takes."""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import tempfile
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import stagewright

# Llama 3 70B, as its configuration is published.
SHAPE = LlamaConfig(
    hidden_size=8192,
    intermediate_size=28672,
    num_hidden_layers=80,
    num_attention_heads=64,
    num_key_value_heads=8,
    vocab_size=128256,
    max_position_embeddings=8192,
    use_cache=False,
)


def capture(path: pathlib.Path, length: int) -> None:
    begin = time.monotonic()
    with torch.device("meta"):
        model = LlamaForCausalLM(SHAPE)
        tokens = torch.zeros(2, length, dtype=torch.int64)
    batch = {"input_ids": tokens, "labels": tokens}
    graph = stagewright.export(model, batch, weights=False, path=path).graph
    parameters = sum(parameter.numel() for parameter in model.parameters())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"captured: {parameters / 1e9:.1f} billion parameters, {len(graph.nodes)} operators, "
          f"{time.monotonic() - begin:.0f} s, {peak:.2f} GB of memory, {path.stat().st_size / 1e6:.1f} MB of graph")


def plan(path: pathlib.Path, cluster: str, mini_batch: int, planner: str) -> None:
    begin = time.monotonic()
    program = pathlib.Path(os.environ["STAGEWRIGHT_BIN"]) / "stagewright"
    command = [program, "plan", path, "--local", "--cluster", cluster, "--planner", planner]
    answer = subprocess.run(
        [*map(str, command), "--mini-batch", str(mini_batch), "--precision", "bf16", "-o", "json"], check=True, capture_output=True, text=True
    )
    found = json.loads(answer.stdout)
    memory = [stage["memory_bytes"] / 2**30 for stage in found["stages"]]
    print(f"planned by {planner} for {found['devices_used']} devices: {len(memory)} stages, {min(memory):.1f} to "
          f"{max(memory):.1f} GiB a device, {found['samples_per_second']:.1f} samples/s, {time.monotonic() - begin:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", default="dgx-h100:8", help="64 H100")
    parser.add_argument("--length", type=int, default=4096, help="tokens of a sample")
    parser.add_argument("--mini-batch", type=int, default=128, help="samples")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "llama.swg"
        capture(path, options.length)
        for planner in ("auto", "graphpipe"):
            plan(path, options.cluster, options.mini_batch, planner)


if __name__ == "__main__":
    main()
