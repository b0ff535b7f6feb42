"""The table of results, as Markdown."""

import json
import pathlib
import re
from collections.abc import Iterable

SOURCES = {
    "transformers": "transformers",
    "diffusers": "diffusers",
    "torch.nn": "torch.nn",
    "written out": "Written out",
    "circumstance": "Circumstances",
}
VERDICTS = (
    "right",
    "rightly refused",
    "refused",
    "plan fails",
    "job fails",
    "checkpoint fails",
    "differs",
    "broken entry",
    "exported",
)
JOBS = ("own 2", "forced 2", "own 3", "forced 3", "uneven")


def load(folder: pathlib.Path, entries: Iterable) -> list[dict]:
    paths = (folder / f"{entry.key}.json" for entry in entries)
    return [json.loads(path.read_text()) for path in paths if path.is_file()]


def totals(results: list[dict]) -> str:
    """One row for each source, one for all."""
    lines = ["| source | models | " + " | ".join(VERDICTS) + " |", "|---" * (len(VERDICTS) + 2) + "|"]
    groups = [(title, [r for r in results if r["source"] == source]) for source, title in SOURCES.items()]
    for title, rows in [*groups, ("**all**", results)]:
        counts = [sum(r["verdict"] == verdict for r in rows) for verdict in VERDICTS]
        if rows:
            lines.append(f"| {title} | {len(rows)} | " + " | ".join(map(str, counts)) + " |")
    good = sum(r["verdict"] in VERDICTS[:2] for r in results)
    share = f"{100 * good / len(results):.1f} %" if results else "none"
    return "\n".join(lines) + f"\n\nRight or rightly refused: {good} of {len(results)} ({share})."


def table(results: list[dict]) -> str:
    parts = [_INTRODUCTION, totals(results), _COLUMNS]
    for source, title in SOURCES.items():
        rows = [r for r in results if r["source"] == source]
        if rows:
            parts.append("\n".join([f"## {title}\n", _HEAD, "|---" * 8 + "|", *map(_row, rows)]))
    return "\n\n".join(parts) + "\n"


def _row(result: dict) -> str:
    plans = ", ".join(f"{p['stages']}/{p['depth']} {p['gain']:.2f}" for p in result["plans"].values())
    jobs = ", ".join(_job(result["jobs"][name]) for name in JOBS if name in result["jobs"])
    trained = any("losses" in job for job in result["jobs"].values())
    error = f"{result['largest_error']:.0e}" if trained else ""
    cells = [result["name"], result["verdict"], result["nodes"] or "", f"{result['export_seconds']:.0f} s", plans, jobs]
    return "| " + " | ".join(str(cell) for cell in [*cells, error, _text(_reason(result))]) + " |"


def _reason(result: dict) -> str:
    """Why the verdict is not `right`; of a right one, which forced plans cannot be."""
    if result["reason"]:
        return result["reason"]
    return "; ".join(
        f"{name}: {job['remark'].removeprefix('n/a: ')}"
        for name, job in result["jobs"].items()
        if job["remark"].startswith("n/a") and name != "uneven"
    )


def _job(job: dict) -> str:
    if job["remark"].startswith("n/a"):
        return "n/a"
    if job["remark"]:
        return "**differs**" if "losses" in job else "fails"
    return str(job["stages"])


def _text(reason: str) -> str:
    """For a cell of a table, without the folders of this machine."""
    words = [re.sub(r"/\S*/(site-packages/|(?=tests/bench/coverage/))", "", word) for word in reason.split()]
    text = " ".join(words).replace("|", "\\|").replace("<", "&lt;")
    return text if len(text) <= 400 else text[:397] + "..."


_HEAD = "| model | verdict | nodes | export | plans | jobs | largest error | reason |"

_INTRODUCTION = """# Coverage: which models are trained right

`scripts/bench.sh coverage` tries the models of `tests/bench/coverage/zoo`, unmodified, tiny and random, without
dropout but where it is what an entry is about. Each is exported with one call, as a user writes it; planned for 2, 3
and 4 CPUs with a mini-batch of 8; and trained for four steps (SGD, learning rate 0.01, samples in their order) on two
and three worker processes of one planner. Every loss, every parameter and buffer of the final checkpoint and of the
one after three steps (both loaded with `load_state_dict(strict=True)`), and every change of a tensor relative to the
size of that change, are compared with PyTorch on the whole mini-batch at once. Right is below 1e-4, or 1e-2
(language models: 2e-2) for bfloat16."""

_COLUMNS = """\
*plans*: stages / depth of the plan for 2, 3 and 4 devices, and how much longer the best sequence of stages would
take. *jobs*: stages of the planner's own plan and of the forced one on two workers, the same on three, and of a plan
by hand whose second half has other micro-batches than its first and two replicas. Forced plans have as many stages as
workers, no replicas and micro-batches of 2 and 4 (of 8 where the samples of a mini-batch depend on each other).
*n/a*: such a plan cannot be, for the reason given. A verdict is that of the worst job."""
