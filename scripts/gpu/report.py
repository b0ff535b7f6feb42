"""What a part of a proof found, and the table of all of them."""

import dataclasses
import enum
from collections.abc import Sequence


class Verdict(enum.Enum):
    PROVED = "proved"
    FAILED = "failed"
    NOT_PROVED = "not proved"  # It could not be tried: no GPU, no time.


@dataclasses.dataclass(frozen=True)
class Finding:
    """One claim: true, false or open, and what shows it."""

    claim: str
    verdict: Verdict
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Result:
    """Of a part. `must`: the proof as a whole fails with it."""

    part: str
    must: bool
    findings: tuple[Finding, ...]
    figures: dict
    seconds: float

    @property
    def verdict(self) -> Verdict:
        """The worst of its findings; without any it proves nothing."""
        verdicts = {finding.verdict for finding in self.findings}
        for worst in (Verdict.FAILED, Verdict.NOT_PROVED):
            if worst in verdicts:
                return worst
        return Verdict.PROVED if verdicts else Verdict.NOT_PROVED


def proved(claim: str, why: str = "") -> Finding:
    return Finding(claim, Verdict.PROVED, why)


def failed(claim: str, why: str) -> Finding:
    return Finding(claim, Verdict.FAILED, why)


def not_proved(claim: str, why: str) -> Finding:
    return Finding(claim, Verdict.NOT_PROVED, why)


def judge(claim: str, holds: bool, why: str) -> Finding:
    return proved(claim, why) if holds else failed(claim, why)


def whole(results: Sequence[Result], dry: bool) -> bool:
    """Whether every part that must hold is proved. Without a GPU nothing may have failed; what is open is only said."""
    if dry:
        return bool(results) and all(result.verdict is not Verdict.FAILED for result in results)
    return bool(results) and all(result.verdict is Verdict.PROVED for result in results if result.must)


def as_json(results: Sequence[Result]) -> list[dict]:
    return [
        {
            "part": result.part,
            "must": result.must,
            "verdict": result.verdict.value,
            "seconds": round(result.seconds, 1),
            "findings": [
                {"claim": finding.claim, "verdict": finding.verdict.value, "why": finding.why}
                for finding in result.findings
            ],
            "figures": result.figures,
        }
        for result in results
    ]


def cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")


def as_markdown(results: Sequence[Result]) -> str:
    """A row for each claim, and below it the figures of each part that has some."""
    lines = ["| part | claim | verdict | shown by |", "|---|---|---|---|"]
    for result in results:
        name = result.part if result.must else f"{result.part} (reported only)"
        for finding in result.findings or (not_proved("anything", "the part found nothing"),):
            lines.append(f"| {name} | {cell(finding.claim)} | {finding.verdict.value} | {cell(finding.why)} |")
            name = ""
    rows = [(name, values) for result in results for name, values in result.figures.get("rows", {}).items()]
    if rows:
        columns = list(dict.fromkeys(column for _, values in rows for column in values))
        lines += ["", "| run | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
        for name, values in rows:
            shown = [value_text(values.get(column)) for column in columns]
            lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def value_text(value) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
