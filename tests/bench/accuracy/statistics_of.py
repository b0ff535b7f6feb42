"""Errors of predictions, and whether they put plans in the right order."""

import statistics


def error(predicted: float, measured: float) -> float:
    return abs(predicted - measured) / measured


def ranks(values: list[float]) -> list[float]:
    """1 for the least; equal values share the mean of their ranks."""
    return [1 + sum(b < a for b in values) + (sum(b == a for b in values) - 1) / 2 for a in values]


def spearman(first: list[float], second: list[float]) -> float:
    """The correlation of the ranks, from -1 to 1; 1 where all of one side are equal."""
    a, b = ranks(first), ranks(second)
    if len(set(a)) == 1 or len(set(b)) == 1:
        return 1.0
    return statistics.correlation(a, b)
