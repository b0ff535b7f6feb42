"""Metric names and labels in the dashboard and the alerts are those of the sources; scrapes reach real ports."""

import json
import re
import shutil
import subprocess
import unittest

import yaml

import deployment

# The one list of metric names of each program.
SOURCES = ["planner_service/service", "worker_daemon/daemon"]
NAME = re.compile(r"\bstagewright_[a-z0-9_]+")
HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")
# Words that PromQL or Prometheus itself brings.
PROMETHEUS_LABELS = {"le", "instance"}


def sources():
  """The text of each program's files named like metrics.cc, None where there is none yet."""
  text = {}
  for folder in SOURCES:
    files = sorted((deployment.ROOT / folder).glob("*metrics.*"))
    text[folder] = "".join(p.read_text() for p in files) if files else None
  return text


def expressions():
  """(where, expression) of every PromQL expression under deploy/."""
  dashboard = json.loads((deployment.DEPLOY / "grafana" / "stagewright.json").read_text())
  found = []
  for panel in dashboard["panels"]:
    for target in panel.get("targets", []):
      found.append((f"panel '{panel['title']}'", target["expr"] + " " + target["legendFormat"]))
  for variable in dashboard["templating"]["list"]:
    if variable["type"] == "query":
      found.append((f"variable '{variable['name']}'", variable["query"]))
  for group in yaml.safe_load((deployment.DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]:
    for rule in group["rules"]:
      found.append((f"alert '{rule['alert']}'", rule["expr"]))
  return found


def labels_in(expression):
  by = re.findall(r"\bby \(([^)]*)\)", expression)
  matched = re.findall(r"[{,]\s*(\w+)\s*=~?", expression)
  shown = re.findall(r"{{\s*(\w+)\s*}}", expression)
  return {label.strip() for group in by for label in group.split(",")} | set(matched) | set(shown)


class MetricsTest(unittest.TestCase):

  def test_names_and_labels_are_those_of_the_sources(self):
    texts = sources()
    if None in texts.values():
      self.skipTest("a program has no metrics yet")
    literals = set(re.findall(r'"([a-z0-9_]+)"', "".join(texts.values())))
    used = set()
    for where, expression in expressions():
      for name in NAME.findall(expression):
        plain = next((name.removesuffix(s) for s in HISTOGRAM_SUFFIXES if name.removesuffix(s) in literals), name)
        self.assertIn(plain, literals, f"{where}: no program has the metric {name}")
        used.add(plain)
      for label in labels_in(expression) - PROMETHEUS_LABELS:
        self.assertIn(label, literals, f"{where}: no metric has the label {label}")
    unused = {name for name in literals if NAME.fullmatch(name)} - used
    self.assertEqual(unused, set(), "metrics that no panel and no alert shows")

  def test_the_check_itself_reads_expressions(self):
    self.assertEqual(labels_in('sum by (kind, le) (rate(x{job=~"$job"}[1m])) {{device}}'),
                     {"kind", "le", "job", "device"})
    self.assertGreater(len(expressions()), 15)

  def test_dashboard_is_well_formed(self):
    dashboard = json.loads((deployment.DEPLOY / "grafana" / "stagewright.json").read_text())
    ids = [panel["id"] for panel in dashboard["panels"]]
    self.assertEqual(len(ids), len(set(ids)))
    for panel in dashboard["panels"]:
      position = panel["gridPos"]
      self.assertLessEqual(position["x"] + position["w"], 24, panel["title"])
      if panel["type"] != "row":
        self.assertTrue(panel["targets"] and panel["description"], panel["title"])

  def test_scrapes_reach_services(self):
    config = yaml.safe_load((deployment.DEPLOY / "prometheus" / "prometheus.yml").read_text())
    services = {d["metadata"]["name"]: {p["name"]: p["port"] for p in d["spec"]["ports"]}
                for _, d in deployment.documents("kubernetes/base") if d["kind"] == "Service"}
    reached = set()
    for job in config["scrape_configs"]:
      self.assertTrue(job["honor_labels"], "our label `job` would become exported_job")
      for targets in job.get("static_configs", []):
        reached |= {tuple(target.split(":")) for target in targets["targets"]}
      for names in job.get("dns_sd_configs", []):
        reached |= {(name, str(names["port"])) for name in names["names"]}
    self.assertEqual(reached, {(name, str(ports["metrics"])) for name, ports in services.items()})
    for rule_file in config["rule_files"]:
      self.assertTrue((deployment.DEPLOY / "prometheus" / rule_file).exists())

  @unittest.skipUnless(shutil.which("promtool"), "no promtool")
  def test_promtool_accepts_the_configuration(self):
    result = subprocess.run(["promtool", "check", "config", deployment.DEPLOY / "prometheus" / "prometheus.yml"],
                            capture_output=True, text=True, check=False)
    self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
  unittest.main()
