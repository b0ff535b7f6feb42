"""Tables and plots of what plan_bench measured (its JSON output).

  plan_report.py table FILE            one Markdown table of the searches ("Plan/...", "Shape/...", "Soon/...")
  plan_report.py growth FILE [SVG]     fitted exponents of search time ("Growth/..."), and a log-log plot
"""

import json
import math
import sys

COLOURS = ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2"]


def runs_of(report, prefix):
  """By name, in the order measured."""
  runs = (run for run in report["benchmarks"] if run.get("run_type") == "iteration" and run["name"].startswith(prefix))
  return {run["name"].removeprefix(prefix).split("/iterations:")[0]: run for run in runs}


def seconds(run):
  return run["real_time"] * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[run["time_unit"]]


def show(value):
  """A time with two or three digits."""
  for unit, name in [(1, "s"), (1e-3, "ms"), (1e-6, "us")]:
    if value >= unit:
      return f"{value / unit:.3g} {name}"
  return f"{value * 1e9:.0f} ns"


def table(report):
  lines = ["| problem | must | aim | ours | original | finds | peak memory |", "|---|---|---|---|---|---|---|"]
  for name, run in (runs_of(report, "Plan/") | runs_of(report, "Shape/") | runs_of(report, "Soon/")).items():
    if run.get("error_occurred"):
      lines.append(f"| {name} | | | not run: {run['error_message']} | | | |")
      continue
    problem, original, found = run["label"].split("|", 2)
    took = seconds(run)
    mark = "" if took <= run["aim"] else " (above the aim)" if took <= run["must"] else " (**too slow**)"
    lines.append(f"| {problem} | {show(run['must'])} | {show(run['aim'])} | {show(took)}{mark} | {original} | {found} | "
                 f"{run['peak_mib']:.0f} MiB |")
  return "\n".join(lines)


def curves(report):
  """{(planner, what): [(size, seconds)]}, sizes ascending."""
  found = {}
  for name, run in runs_of(report, "Growth/").items():
    if run.get("error_occurred"):
      continue
    planner, what, size = name.split("/")
    found.setdefault((planner, what), []).append((int(size), seconds(run)))
  return {key: sorted(points) for key, points in found.items()}


def exponent(points):
  """The slope of a least-squares line through the logarithms; the smallest size is left out where there are enough:
  there, fixed costs rule."""
  points = points[1:] if len(points) > 3 else points
  xs = [math.log(size) for size, _ in points]
  ys = [math.log(max(value, 1e-9)) for _, value in points]
  mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
  spread = sum((x - mean_x)**2 for x in xs)
  return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / spread if spread else float("nan")


def growth(report):
  lines = ["| planner | grows with | sizes | fastest to slowest search | exponent |", "|---|---|---|---|---|"]
  for (planner, what), points in curves(report).items():
    sizes = ", ".join(str(size) for size, _ in points)
    lines.append(f"| {planner} | {what} | {sizes} | {show(min(t for _, t in points))} to "
                 f"{show(max(t for _, t in points))} | {exponent(points):.2f} |")
  return "\n".join(lines)


def panel(parts, title, lines, left, width, height):
  """One log-log plot."""
  sizes = sorted({size for _, points in lines for size, _ in points})
  times = [value for _, points in lines for _, value in points]
  low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
  high = max(high, low + 1)
  span = max(math.log(sizes[-1] / sizes[0]), 1e-9)

  def x(size):
    return left + 50 + (width - 70) * math.log(size / sizes[0]) / span

  def y(value):
    return 30 + (height - 70) * (1 - (math.log10(value) - low) / (high - low))

  parts.append(f'<text x="{left + width / 2}" y="18" text-anchor="middle" font-weight="bold">{title}</text>')
  for power in range(low, high + 1):
    at = y(10**power)
    parts.append(f'<line x1="{left + 50}" x2="{left + width - 20}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
    parts.append(f'<text x="{left + 45}" y="{at + 4:.1f}" text-anchor="end">{show(10.0**power)}</text>')
  for size in sizes:
    parts.append(f'<text x="{x(size):.1f}" y="{height - 22}" text-anchor="middle">{size}</text>')
  for index, (name, points) in enumerate(lines):
    colour = COLOURS[index % len(COLOURS)]
    path = " ".join(f"{x(size):.1f},{y(value):.1f}" for size, value in points)
    parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
    for size, value in points:
      parts.append(f'<circle cx="{x(size):.1f}" cy="{y(value):.1f}" r="3" fill="{colour}"/>')


def plot(report):
  """Two panels side by side, and a legend with the exponents, as SVG."""
  found = curves(report)
  whats = list(dict.fromkeys(what for _, what in found))
  width, height = 380, 300
  planners = list(dict.fromkeys(planner for planner, _ in found))
  total = height + 18 * len(planners) + 10
  parts = [
      f'<svg xmlns="http://www.w3.org/2000/svg" width="{width * len(whats)}" height="{total}" '
      f'font-family="sans-serif" font-size="11">', '<rect width="100%" height="100%" fill="white"/>'
  ]
  for index, what in enumerate(whats):
    title = {"layers": "search time by layers of a branch", "branches": "search time by branches"}.get(what, what)
    lines = [(planner, found.get((planner, what), [])) for planner in planners]
    panel(parts, title, lines, index * width, width, height)
  for index, planner in enumerate(planners):
    at = height + 18 * index
    slopes = ", ".join(f"{what} {exponent(found[(planner, what)]):.2f}" for what in whats if (planner, what) in found)
    parts.append(f'<rect x="60" y="{at - 9}" width="14" height="10" fill="{COLOURS[index % len(COLOURS)]}"/>')
    parts.append(f'<text x="80" y="{at}">{planner}: exponents {slopes}</text>')
  parts.append("</svg>")
  return "\n".join(parts) + "\n"


def main(arguments):
  if len(arguments) < 2 or arguments[0] not in ("table", "growth"):
    sys.exit(__doc__)
  with open(arguments[1], encoding="utf-8") as file:
    report = json.load(file)
  if arguments[0] == "table":
    print(table(report))
    return
  print(growth(report))
  if len(arguments) > 2:
    with open(arguments[2], "w", encoding="utf-8") as file:
      file.write(plot(report))


if __name__ == "__main__":
  main(sys.argv[1:])
