"""Tries every model of the zoo: exports it, plans it, trains it on workers, and compares all of it with PyTorch.

Results are JSON files in a folder, one per model; what has one is not tried again. The table of all results, with the
reason of every failure, is written as Markdown.
"""

import argparse
import dataclasses
import fnmatch
import json
import multiprocessing
import os
import pathlib
import sys
import tempfile
import time

import report
import torch
import zoo
from trial import BROKEN, EXPORT_ONLY, EXPORTED, QUICK, RIGHT, RIGHTLY_REFUSED, Options, Result, attempt

# Of a model, however busy the machine is.
TIMEOUT = 1800.0


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", action="append", default=[], help="models whose name or source matches, e.g. 'gpt*'; may be repeated"
    )
    parser.add_argument("--quick", action="store_true", help="export, one plan, and training on two workers only")
    parser.add_argument("--export-only", action="store_true", help="neither plans nor jobs; needs no programs")
    parser.add_argument(
        "--own", action="store_true", help="only the models that need neither transformers nor diffusers"
    )
    parser.add_argument("--jobs", type=int, default=1, help="models at a time")
    parser.add_argument("--time-limit", type=float, default=20.0, help="seconds of a search for a plan")
    parser.add_argument(
        "--results", type=pathlib.Path, default=pathlib.Path("build/coverage"), help="folder of the results"
    )
    parser.add_argument(
        "--again", action="append", default=[], metavar="VERDICT", help="try models with this verdict again"
    )
    parser.add_argument("--table", type=pathlib.Path, help="write the table of all results here")
    parser.add_argument("--list", action="store_true", help="only the names of the models")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> list[zoo.Entry]:
    def wanted(entry: zoo.Entry) -> bool:
        names = [text.lower() for text in (entry.key, entry.name, entry.source)]
        return not options.only or any(fnmatch.fnmatch(name, p.lower()) for p in options.only for name in names)

    return [entry for entry in zoo.ENTRIES.values() if wanted(entry)]


def to_do(entries: list[zoo.Entry], options: argparse.Namespace) -> list[zoo.Entry]:
    """Those without a result, and those that are to be tried again."""

    def open_(entry: zoo.Entry) -> bool:
        path = options.results / f"{entry.key}.json"
        if not path.is_file():
            return True
        verdict = json.loads(path.read_text())["verdict"]
        return verdict in options.again or (verdict == EXPORTED and not options.export_only)

    return [entry for entry in entries if open_(entry)]


def child(entry: zoo.Entry, system, options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    asked = EXPORT_ONLY if options.export_only else QUICK if options.quick else Options()
    asked = dataclasses.replace(asked, time_limit=options.time_limit)
    with tempfile.TemporaryDirectory(prefix="stagewright_coverage_") as folder:
        write(attempt(entry, system, pathlib.Path(folder), asked), options)


def write(result: Result, options: argparse.Namespace) -> None:
    key = next(key for key, entry in zoo.ENTRIES.items() if entry.name == result.name)
    path = options.results / f"{key}.json"
    path.with_suffix(".part").write_text(json.dumps(dataclasses.asdict(result), indent=1))
    path.with_suffix(".part").rename(path)


def try_all(entries: list[zoo.Entry], system, options: argparse.Namespace) -> None:
    """Each in a process of its own, so that one that crashes or hangs costs only itself."""
    context = multiprocessing.get_context("fork")
    waiting, running = list(entries), {}
    while waiting or running:
        while waiting and len(running) < options.jobs:
            entry = waiting.pop(0)
            if system is not None and not running:
                system.replace_lost()
            process = context.Process(target=child, args=(entry, system, options))
            process.start()
            running[entry.key] = (entry, process, time.monotonic())
        for key, (entry, process, start) in list(running.items()):
            process.join(0.2)
            seconds = time.monotonic() - start
            if process.exitcode is None and seconds < TIMEOUT:
                continue
            if process.exitcode != 0:
                end = f"ended with {process.exitcode}" if process.exitcode is not None else f"took over {TIMEOUT:.0f} s"
                process.kill()
                process.join()
                write(Result(entry.name, entry.source, BROKEN, f"the attempt {end}"), options)
            del running[key]
            told = json.loads((options.results / f"{key}.json").read_text())
            print(f"{told['verdict']:16} {seconds:4.0f} s  {entry.name}: {told['reason'][:160]}", flush=True)


def main() -> int:
    options = parsed()
    os.nice(10 - os.nice(0))
    torch.set_num_threads(1)
    if not options.own:
        zoo.add_libraries()
    entries = chosen(options)
    if options.list:
        print("\n".join(entry.name for entry in entries))
        return 0
    options.results.mkdir(parents=True, exist_ok=True)
    left = to_do(entries, options)
    if left and options.export_only:
        try_all(left, None, options)
    elif left:
        from system import System

        with System(workers=3) as system:
            try_all(left, system, options)
    results = report.load(options.results, entries)
    if options.table is not None:
        options.table.write_text(report.table(results))
    print(report.totals(results))
    good = (EXPORTED, RIGHT, RIGHTLY_REFUSED) if options.export_only else (RIGHT, RIGHTLY_REFUSED)
    return 0 if all(result["verdict"] in good for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
