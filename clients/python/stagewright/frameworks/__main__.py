"""python -m stagewright.frameworks FRAMEWORK PLAN GRAPH -o FILE"""

import argparse
import pathlib
import sys

from ..errors import FrameworkError, StagewrightError
from ..graph_file import load_graph
from . import deepspeed, graphviz, megatron, pipelining, torchtitan
from .expression import Expressed, Judge, advice, report
from .plan import read_plan

_EXPRESS = {
    "pipelining": pipelining.express,
    "megatron": megatron.express,
    "torchtitan": torchtitan.express,
    "deepspeed": deepspeed.express,
    "graphviz": graphviz.express,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m stagewright.frameworks", description="Write a plan in the terms of another framework."
    )
    parser.add_argument("framework", choices=_EXPRESS)
    parser.add_argument("plan", help="file of `stagewright plan --save`, or what `plan -o json` printed")
    parser.add_argument("graph", help="the graph file that was planned")
    parser.add_argument("-o", "--out", required=True, type=pathlib.Path, help="file to write")
    parser.add_argument("--cluster", help="to simulate on, as `stagewright plan` takes it (default: the plan's)")
    parser.add_argument("--optimizer", choices=["sgd", "momentum", "adam"], default="sgd", help="whose state counts")
    options = parser.parse_args(arguments)
    judge = None
    try:
        graph = load_graph(options.graph)
        plan = read_plan(options.plan, graph)
        judge = Judge(plan, graph, options.cluster or plan.cluster, options.optimizer)
        expressed = _EXPRESS[options.framework](judge, options.out)
        _write(expressed, options.out)
    except FrameworkError as error:
        print("; ".join([f"stagewright: {error}", *(advice(judge) if judge else [])]), file=sys.stderr)
        return 1
    except StagewrightError as error:
        print(f"stagewright: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"stagewright: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    print(report(expressed, judge, str(options.out)))
    return 0


def _write(expressed: Expressed, path: pathlib.Path) -> None:
    for suffix, content in expressed.files.items():
        target = path.with_suffix(suffix) if suffix else path
        scratch = target.with_name(target.name + ".partial")
        scratch.write_text(content)
        scratch.replace(target)


if __name__ == "__main__":
    sys.exit(main())
