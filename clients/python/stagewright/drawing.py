"""A plan as SVG for notebooks: the DAG of its stages, and the timeline of a step with a row per device."""

import html
from collections.abc import Iterable

from .plans import Plan, Span, Stage

_WIDTH = 960
_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y = 190, 64, 46, 18
_MARGIN = 14
_ROW, _BAR, _LABEL = 26, 18, 150
# Rows and actions beyond these would be too fine to see and too many for a page.
_MOST_DEVICES, _MOST_SPANS = 64, 8000
_COLOURS = {
    "forward": "#4c8bdb",
    "recompute": "#9cc2ef",
    "backward": "#e08a3c",
    "backward_input": "#e08a3c",
    "backward_weight": "#f2bd8c",
    "optimizer_step": "#5aa469",
    "all_reduce": "#8d6cc0",
    "reduce_scatter": "#8d6cc0",
    "all_gather": "#b39ddb",
}
_LEGEND = {
    "forward": "forward",
    "recompute": "forward again",
    "backward": "backward",
    "backward_input": "backward (of inputs)",
    "backward_weight": "backward (of weights)",
    "all_reduce": "sum over replicas",
    "reduce_scatter": "sum of shares over replicas",
    "all_gather": "exchange of updated shares",
    "optimizer_step": "update",
}


def plan_svg(plan: Plan) -> str:
    graph, width, height = _stage_graph(plan, 34)
    parts = [_text(_MARGIN, 22, _title(plan), 14, bold=True), *graph]
    if plan.timeline:
        timeline, bottom = _timeline(plan, height + 12)
        parts += timeline
        width, height = max(width, _WIDTH), bottom
    width = max(width, 480)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" fill="#222">'
        '<defs><marker id="sw-arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#777"/></marker></defs>'
        f'<rect width="{width}" height="{height}" fill="#fff"/>{"".join(parts)}</svg>'
    )


def _title(plan: Plan) -> str:
    stages = f"{len(plan.stages)} stage{'' if len(plan.stages) == 1 else 's'}, depth {plan.depth}"
    return (
        f"{plan.model}: {stages}, {_duration(plan.step_seconds)} a step of {plan.mini_batch} samples, "
        f"bubble {plan.bubble_ratio:.1%}"
    )


def _levels(stages: tuple[Stage, ...]) -> list[int]:
    """The length of the longest path to each stage. Stages are in topological order."""
    levels = [0] * len(stages)
    for stage in stages:
        for successor in stage.successors:
            levels[successor] = max(levels[successor], levels[stage.index] + 1)
    return levels


def _layout(stages: tuple[Stage, ...]) -> tuple[list[list[tuple]], list[list[tuple]]]:
    """Columns by level, and the places that each edge goes through. A place is (stage,), or (from, to, level) where an
    edge passes a level, so that no edge runs behind a stage."""
    levels = _levels(stages)
    columns: list[list[tuple]] = [[] for _ in range(1 + max(levels, default=-1))]
    edges = []
    for stage in stages:
        columns[levels[stage.index]].append((stage.index,))
        for to in stage.successors:
            between = [(stage.index, to, level) for level in range(levels[stage.index] + 1, levels[to])]
            for place in between:
                columns[place[2]].append(place)
            edges.append([(stage.index,), *between, (to,)])
    for level in range(1, len(columns)):
        rows = {place: row for row, place in enumerate(columns[level - 1])}
        before: dict[tuple, list[int]] = {}
        for edge in edges:
            for source, target in zip(edge, edge[1:]):
                if source in rows:
                    before.setdefault(target, []).append(rows[source])
        columns[level].sort(key=lambda place: sum(before[place]) / len(before[place]))
    return columns, edges


def _stage_graph(plan: Plan, top: int) -> tuple[list[str], int, int]:
    """The drawing, its width and its bottom. Columns are levels; the stages of a level stand one below the other."""
    columns, edges = _layout(plan.stages)
    tallest = max(map(len, columns), default=0)
    points = {}
    for level, column in enumerate(columns):
        x = _MARGIN + level * (_BOX_WIDTH + _GAP_X)
        y = top + (tallest - len(column)) * (_BOX_HEIGHT + _GAP_Y) / 2
        for row, place in enumerate(column):
            points[place] = (x, y + row * (_BOX_HEIGHT + _GAP_Y))
    parts = [_edge([points[place] for place in edge]) for edge in edges]
    parts += [_stage_box(stage, *points[stage.index,]) for stage in plan.stages]
    width = 2 * _MARGIN + len(columns) * (_BOX_WIDTH + _GAP_X) - _GAP_X
    return parts, width, top + tallest * (_BOX_HEIGHT + _GAP_Y)


def _edge(points: list[tuple[float, float]]) -> str:
    """From the right side of the first box, across the places between, to the left side of the last."""
    half, middle = _BOX_HEIGHT / 2, _GAP_X / 2
    path = f"M{points[0][0] + _BOX_WIDTH:g},{points[0][1] + half:g}"
    for (x1, y1), (x2, y2) in zip(points, points[1:]):
        x1, y1, y2 = x1 + _BOX_WIDTH, y1 + half, y2 + half
        path += f" L{x1:g},{y1:g} C{x1 + middle:g},{y1:g} {x2 - middle:g},{y2:g} {x2:g},{y2:g}"
    return f'<path d="{path}" fill="none" stroke="#777" marker-end="url(#sw-arrow)"/>'


def _stage_box(stage: Stage, x: float, y: float) -> str:
    lines = [
        f"stage {stage.index}: {_names(stage.devices)}",
        stage.label,
        f"micro-batch {stage.micro_batch}, {_size(stage.memory_bytes)}{', recompute' if stage.recompute else ''}",
    ]
    more = [f"{stage.parts} parts of cut operators"] if stage.modules and stage.parts else []
    tip = [f"stage {stage.index}", *(stage.modules or stage.nodes), *more, "on " + ", ".join(stage.devices)]
    texts = (_text(x + 8, y + 19 + 17 * i, _cut(line, 26), 12, bold=i == 0) for i, line in enumerate(lines))
    return (
        f"<g><title>{_escape(chr(10).join(tip))}</title>"
        f'<rect x="{x:g}" y="{y:g}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="6" fill="#f3f6fb" '
        f'stroke="#8aa4c8"/>{"".join(texts)}</g>'
    )


def _timeline(plan: Plan, top: int) -> tuple[list[str], int]:
    devices = list(dict.fromkeys(device.name for device in plan.devices))
    shown = devices[:_MOST_DEVICES]
    rows = {name: top + 8 + i * _ROW for i, name in enumerate(shown)}
    end = max((span.end_seconds for span in plan.timeline), default=0.0) or 1.0
    scale = (_WIDTH - _LABEL - _MARGIN) / end
    spans = [span for span in plan.timeline if span.kind in _COLOURS and span.device in rows]
    parts = []
    for name, y in rows.items():
        parts.append(f"<g><title>{_escape(name)}</title>{_text(_MARGIN, y + 14, _cut(name, 20), 12)}</g>")
        parts.append(f'<rect x="{_LABEL}" y="{y}" width="{_WIDTH - _LABEL - _MARGIN}" height="{_BAR}" fill="#f3f3f3"/>')
    parts += [_bar(span, rows[span.device], scale) for span in spans[:_MOST_SPANS]]
    bottom = top + 8 + len(rows) * _ROW
    parts.append(_text(_LABEL, bottom + 12, "0", 11))
    parts.append(_text(_WIDTH - _MARGIN, bottom + 12, _duration(end), 11, anchor="end"))
    bottom += 18
    left_out = []
    if len(devices) > len(shown):
        left_out.append(f"{len(devices) - len(shown)} more devices")
    if len(spans) > _MOST_SPANS:
        left_out.append(f"{len(spans) - _MOST_SPANS} more actions")
    if left_out:
        parts.append(_text(_LABEL, bottom + 12, f"not shown: {', '.join(left_out)}", 11))
        bottom += 18
    return parts + _legend({span.kind for span in spans}, bottom + 4), bottom + 28


def _bar(span: Span, y: float, scale: float) -> str:
    x, width = _LABEL + span.start_seconds * scale, max((span.end_seconds - span.start_seconds) * scale, 0.4)
    samples = f", samples {span.begin} to {span.end - 1}" if span.end > span.begin else ""
    lasts = _duration(span.end_seconds - span.start_seconds)
    tip = f"{_LEGEND[span.kind]} of stage {span.stage}{samples}: {lasts}"
    label = _text(x + width / 2, y + 13, str(span.stage), 10, anchor="middle") if width > 14 else ""
    return (
        f'<g><title>{_escape(tip)}</title><rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_BAR}" '
        f'fill="{_COLOURS[span.kind]}" stroke="#fff" stroke-width="0.4"/>{label}</g>'
    )


def _legend(kinds: set[str], y: float) -> Iterable[str]:
    x = float(_LABEL)
    parts = []
    for kind, label in _LEGEND.items():
        if kind not in kinds:
            continue
        parts.append(f'<rect x="{x:g}" y="{y:g}" width="12" height="12" fill="{_COLOURS[kind]}"/>')
        parts.append(_text(x + 16, y + 10, label, 11))
        x += 34 + 6.2 * len(label)
    return parts


def _text(x: float, y: float, text: str, size: int, bold: bool = False, anchor: str = "start") -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{weight}>{_escape(text)}</text>'


def _escape(text: str) -> str:
    """As XML has it, which has no control characters."""
    return html.escape("".join(c if c.isprintable() or c == "\n" else "?" for c in text))


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) < 3 else f"{names[0]} and {len(names) - 1} more"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _size(count: int) -> str:
    units = ("B", "KiB", "MiB", "GiB")
    power = min(max(count.bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{count / 1024**power:.3g} {units[power]}"


def _duration(seconds: float) -> str:
    factor, unit = next((f, u) for f, u in ((1, "s"), (1e3, "ms"), (1e6, "us")) if seconds * f >= 1 or u == "us")
    return f"{seconds * factor:.3g} {unit}"
