"""Flags and ports in deploy/ are those of the programs."""

import re
import unittest

import deployment

PORTS = {"stagewright-planner": {"--listen": "7070", "--metrics-listen": "9070"},
         "stagewright-worker": {"--metrics-listen": "9071"}}


class FlagsTest(unittest.TestCase):

  def test_every_flag_is_in_the_programs_help(self):
    checked = 0
    for where, program, flags in deployment.command_lines():
      text = deployment.help_text(program)
      if text is None:
        continue
      known = set(re.findall(r"--[a-z][a-z-]*", text))
      checked += 1
      for flag in flags:
        self.assertIn(flag, known, f"{where}: {program} has no {flag}")
    if not checked:
      self.skipTest("no program is built here")

  def test_default_ports_are_those_of_the_deployment(self):
    text = deployment.help_text("stagewright-planner")
    if text is None:
      self.skipTest("no program is built here")
    for port in PORTS["stagewright-planner"].values():
      self.assertIn(f"127.0.0.1:{port}", text)

  def test_listening_ports(self):
    lines = deployment.command_lines()
    self.assertEqual(len(lines), 5, "planner and worker in Kubernetes, three Dockerfiles")
    for where, program, flags in lines:
      for flag, port in PORTS[program].items():
        with self.subTest(where=where, flag=flag):
          self.assertEqual(flags[flag], f"0.0.0.0:{port}")

  def test_workers_find_the_planner(self):
    services = {d["metadata"]["name"]: d for _, d in deployment.documents() if d["kind"] == "Service"}
    for where, program, flags in deployment.command_lines():
      if "--planner" in flags:
        with self.subTest(where=where):
          host, port = flags["--planner"].rsplit(":", 1)
          self.assertIn(int(port), [p["port"] for p in services[host]["spec"]["ports"]])

  def test_docker_exposes_what_it_listens_on(self):
    for path, dockerfile in deployment.dockerfiles().items():
      with self.subTest(path=path.name):
        program, flags = dockerfile.start()
        listening = {flags[flag].rsplit(":", 1)[1] for flag in PORTS[program]}
        self.assertEqual(set(" ".join(dockerfile.all("EXPOSE")).split()), listening)


if __name__ == "__main__":
  unittest.main()
