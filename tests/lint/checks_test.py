"""Each lint finds the violation it is for, and is silent without it."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import check_clocks
import check_comments
import check_deviations
import check_files
import check_format
import check_includes
import check_layout
import check_protos
import check_shell
import check_wire
import tree


class LintTest(unittest.TestCase):

  def setUp(self):
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.root = pathlib.Path(folder.name)

  def findings(self, check, files):
    for path, text in files.items():
      (self.root / path).parent.mkdir(parents=True, exist_ok=True)
      (self.root / path).write_text(text, encoding="utf-8")
    return check(tree.Tree(self.root))

  def assert_one(self, findings, *words):
    self.assertEqual(len(findings), 1, findings)
    for word in words:
      self.assertIn(word, findings[0])


class ClocksTest(LintTest):

  def test_a_deadline_by_the_machines_clock(self):
    for line in ("const auto end = absl::Now() + wait;", "mutex_.AwaitWithTimeout(condition, wait);",
                 "stop_.WaitForNotificationWithTimeout(wait);", "std::chrono::system_clock::now();"):
      with self.subTest(line=line):
        self.assert_one(self.findings(check_clocks.check, {"worker_daemon/step/step.cc": line + "\n"}), "step.cc:1", "SteadyNow")

  def test_steady_time_dates_and_comments_are_fine(self):
    self.assertEqual(
        self.findings(check_clocks.check, {
            "worker_daemon/step/step.cc": "SteadyNow();  // Not absl::Now().\nabsl::Milliseconds(5);\n",
            "common/log/log.cc": "Write(absl::Now());\n",
            "tests/common/log/log_test.cc": "absl::Now();\n",
        }), [])

  def test_a_permission_that_nobody_uses(self):
    self.assert_one(self.findings(check_clocks.check, {"common/log/log.cc": "\n"}), "common/log/log.cc", "allows")


class IncludesTest(LintTest):

  def check_one(self, path, header):
    return self.findings(check_includes.check, {path: f'#include <vector>\n\n#include {header}\n'})

  def test_downward_and_inside_is_fine(self):
    for path, header in [
        ("common/plan/plan.cc", '"common/base/units.h"'),
        ("common/plan/plan.cc", '"common/plan/plan.h"'),
        ("planner_service/planners/x/x.cc", '"planner_service/evaluator/evaluator.h"'),
        ("planner_service/service/server.cc", "<grpcpp/grpcpp.h>"),
        ("common/wire/wire.cc", '"stagewright/v1/graph.pb.h"'),
        ("worker_daemon/executor/executor.cc", "<torch/torch.h>"),
        ("clients/cli/plan/plan_commands.cc", '"planner_service/front_door/front_door.h"'),
        ("planner_service/front_door/planner_table.cc", '"planner_service/planners/x/x.h"'),
        ("planner_service/planners/x/x.cc", '"planner_service/planners/x/y.h"'),
        ("planner_service/planners/auto/members.cc", '"planner_service/planners/x/x.h"'),
        ("common/base/status.h", '"absl/status/status.h"'),
    ]:
      with self.subTest(path=path, header=header):
        self.assertEqual(self.check_one(path, header), [])
        (self.root / path).unlink()

  def test_upward_or_sideways_is_found(self):
    for path, header in [
        ("common/graph/graph.cc", '"common/cost/cost.h"'),
        ("common/graph/graph.cc", '"common/topology/topology.h"'),
        ("common/plan/plan.cc", '"planner_service/simulator/simulator.h"'),
        ("common/plan/plan.cc", '"common/wire/wire.h"'),
        ("planner_service/service/server.cc", '"worker_daemon/executor/executor.h"'),
        ("worker_daemon/daemon/daemon.cc", '"planner_service/simulator/simulator.h"'),
        ("worker_daemon/daemon/daemon.cc", '"clients/cli/view/table.h"'),
        ("clients/cli/jobs/watch.cc", '"clients/cli/plan/measure.h"'),
        ("clients/cli/connection.cc", '"clients/cli/jobs/watch.h"'),
        ("planner_service/evaluator/judge.cc", '"planner_service/planner/planner.h"'),
        ("planner_service/planner/planner.cc", '"planner_service/planners/x/x.h"'),
        ("planner_service/planners/x/x.cc", '"planner_service/front_door/front_door.h"'),
        ("common/graph/graph.cc", '"tests/common/graph/random.h"'),
    ]:
      with self.subTest(path=path, header=header):
        self.assert_one(self.check_one(path, header), f"{path}:3:", header.strip('"'))
        (self.root / path).unlink()

  def test_planner_beside_its_door_is_found(self):
    for path, header, words in [
        ("planner_service/planners/x/x.cc", '"planner_service/planners/y/y.h"', "sibling y"),
        ("planner_service/planners/x/x.cc", '"planner_service/planners/auto/auto.h"', "sibling auto"),
        ("planner_service/front_door/front_door.cc", '"planner_service/planners/x/x.h"', "only"),
        ("planner_service/jobs/jobs.cc", '"planner_service/planners/x/x.h"', "only"),
        ("clients/cli/plan/plan_commands.cc", '"planner_service/planners/x/x.h"', "only"),
    ]:
      with self.subTest(path=path, header=header):
        self.assert_one(self.check_one(path, header), f"{path}:3:", words)
        (self.root / path).unlink()

  def test_restricted_library_is_found(self):
    for path, header, library in [
        ("planner_service/planners/x/x.cc", "<grpcpp/grpcpp.h>", "gRPC"),
        ("common/wire/wire.cc", '"stagewright/v1/planner.grpc.pb.h"', "gRPC"),
        ("common/plan/plan.cc", '"stagewright/v1/plan.pb.h"', "protobuf"),
        ("worker_daemon/executor/executor.cc", "<google/protobuf/message.h>", "protobuf"),
        ("planner_service/simulator/s.cc", "<ATen/ATen.h>", "LibTorch"),
        ("planner_service/simulator/s.cc", "<nccl.h>", "NCCL"),
        ("worker_daemon/executor/executor.cc", "<ucp/api/ucp.h>", "UCX"),
        ("planner_service/jobs/jobs.cc", "<sqlite3.h>", "SQLite"),
        ("worker_daemon/executor/executor.cc", "<prometheus/counter.h>", "prometheus"),
    ]:
      with self.subTest(path=path, header=header):
        self.assert_one(self.check_one(path, header), library)
        (self.root / path).unlink()

  def test_torch_beside_protobuf_is_found(self):
    text = '#include <torch/torch.h>\n#include "stagewright/v1/plan.pb.h"\n'
    findings = self.findings(check_includes.check, {"worker_daemon/daemon/d.cc": text})
    self.assertIn("keep them apart", findings[-1])

  def test_include_not_from_root_is_found(self):
    self.assert_one(self.check_one("common/base/units.cc", '"units.h"'), "root")

  def test_unknown_component_is_found(self):
    self.assert_one(self.check_one("common/misc/misc.cc", "<string>"), "no known component")


class CommentsTest(LintTest):
  LINE = "// A line that is as long as the columns of this tree let it be, which is a hundred, or nearly so.\n"

  def check_one(self, text):
    return self.findings(check_comments.check, {"a.h": text})

  def test_statements_are_fine(self):
    for text in [
        "// The bytes of a message.\nint a = 0;  // Samples of a micro-batch.\n",
        "int a = 0;  // \"Of\" is a word.\n",
        "// Offers a plan.\nint a;\n",
        'const char* a = "// Of a string";\nchar b = \'"\';\nconst char* c = R"(\n  // Of a text\n)";\n',
        "int64_t a = 2\'000\'000;  // Vertices.\n",
        "int a;  // Where it lies,\n        // and when.\n",
        self.LINE + "// REQUIRES: something.\n" + self.LINE,
        self.LINE + "// A sentence that ends early.\n" + self.LINE,
        self.LINE + "//\n// Short\n//\n" + self.LINE,
        "// The form:\n//\n//   batch samples=4\n//   stage 0 nodes=0-5,9 replicated=- devices=0 micro_batch=2\n//   end\n",
        "// | here | there |\n// |------|-------|\n// | a    | what the paper calls the set of all operators of a stage |\n",
        "//  1. An item of a list, which\n//     goes on.\n//  2. Another\n//     item.\n",
        "void F() {\n  if (a)\n    b(" + "c" * 90 + ");  // A call.\n}\n",
        "int a = F(1,\n          2);\nint b = 0;  // A number.\n",
        "template <typename T>\nclass A;  // Declared only.\n",
    ]:
      with self.subTest(text=text):
        self.assertEqual(self.check_one(text), [])

  def test_fragment_is_found(self):
    for text, words in [("int a = 0;  // Of a message.\n", 'a.h:1: begins with "Of"'),
                        ("// A whole.\n\n// Ditto, again.\n", 'a.h:3: begins with "Ditto"'),
                        ("  // Likewise the other.\n", '"Likewise"'),
                        ("// As above.\n", '"As above"'),
                        ("std::string job;  // That holds it.\n", '"That"'),
                        ("double per_byte = 0;  // and ns per byte.\n", '"and"'),
                        ("double latency = 0;  // Gradient sum, ns,\ndouble b = 0;  // ns per byte.\n", 'ends with ","'),
                        ("int a;  // Sent;\nint b;  // received.\n", 'ends with ";"')]:
      with self.subTest(text=text):
        self.assert_one(self.check_one(text), words)

  def test_torn_line_is_found(self):
    for text, words in [(self.LINE + "// This one goes\n" + self.LINE, "a.h:2:"),
                        (self.LINE + "// of\n// what was there, and more.\n", "a.h:2:"),
                        ("//  1. Devices. " + "x " * 42 + "\n//     too\n//     many of these.\n", "a.h:2:"),
                        ("// Fill. Let this be the longest path of\n// forward\n//   passes into it.\n", '"forward"')]:
      with self.subTest(text=text):
        self.assert_one(self.check_one(text), words, "wrap")

  def test_broken_declaration_is_found(self):
    for text in ["struct A {\n  int64_t micro_batch =\n      1;  // Samples.\n};\n",
                 "  int b = 0;  // A number.\n  std::vector<int32_t>\n      after;  // Actions.\n",
                 "{\n  if (a <= 6)\n    return false;  // Few.\n"]:
      with self.subTest(text=text):
        self.assert_one(self.check_one(text), "a.h:3:", "above")


class DeviationsTest(LintTest):
  ESSAYS = {
      "planner_service/planners/x/search.h": "// A search.\n//\n// Deviations from the paper (2: x.cc):\n"
                                             "//  1. Idle devices. Some stay idle,\n//     2. of three.\n//\n// Reference: P.\n",
      "planner_service/planners/x/x.cc": "// Deviations from the paper:\n//  2. Less memory. None.\n#include <string>\n",
  }
  PAGE = "# X\n\n1. *No deviation.* At all.\n\n## Deviations from the paper\n\n1. *Idle devices.* May be.\n2. *Less memory.* So.\n"

  def check_page(self, page, essays=None):
    return self.findings(check_deviations.check, {**(essays or self.ESSAYS), "docs/planners/x.md": page})

  def test_equal_lists_are_fine(self):
    self.assertEqual(self.check_page(self.PAGE), [])
    self.assertEqual(self.check_page(self.PAGE + "\n## Measured\n\n3. *Nothing.* Yet.\n"), [])

  def test_planner_without_deviations_needs_no_page(self):
    self.assertEqual(self.findings(check_deviations.check, {"planner_service/planners/y/y.cc": "int y;\n"}), [])

  def test_lists_that_differ_are_found(self):
    for page, words in [
        (self.PAGE.replace("2. *Less memory.* So.\n", ""), 'does not quote deviation 2, "Less memory"'),
        (self.PAGE + "3. *Spare time.* Much.\n", "is in no essay"),
        (self.PAGE.replace("*Idle devices.*", "Idle devices."), "1 has no title"),
        (self.PAGE.replace("*Idle devices.*", "*Lazy devices.*"), '"Idle devices"'),
        (self.PAGE.replace("1. *Idle devices.* May be.\n2. *Less memory.* So.\n",
                           "2. *Less memory.* So.\n1. *Idle devices.* May be.\n"), "not in order"),
    ]:
      with self.subTest(words=words):
        self.assertIn(words, "\n".join(self.check_page(page)))

  def test_number_that_is_missing_or_double_is_found(self):
    essays = dict(self.ESSAYS)
    essays["planner_service/planners/x/x.cc"] = essays["planner_service/planners/x/x.cc"].replace(" 2. ", " 3. ")
    page = self.PAGE.replace("2. *Less", "3. *Less")
    self.assert_one(self.check_page(page, essays), "[1, 3]")

  def test_essay_without_title_is_found(self):
    essays = dict(self.ESSAYS)
    essays["planner_service/planners/x/x.cc"] = "// Deviations from the paper:\n//  2. Less memory, or\n//     none.\n"
    self.assertIn("x.cc: deviation 2 has no title", "\n".join(self.check_page(self.PAGE, essays)))


class LayoutTest(LintTest):

  def test_readmes(self):
    story = "# Python\n\nWhat it is.\nWhat it is not.\n"
    files = {"clients/README.md": story, "clients/python/README.md": story, "clients/python/a.py": "a = 1\n"}
    self.assertEqual(self.findings(check_layout.check, files), [])
    self.assert_one(self.findings(check_layout.check, {"clients/web/b.py": "b = 1\n"}), "clients/web/README.md")
    self.assert_one(self.findings(check_layout.check, {"clients/web/README.md": "# Web\n"}), "too little")

  def test_rooms(self):
    def rooms(readme):
      return self.findings(check_layout.check_rooms, {"common/a/deep/dag.h": "", "common/a/deep/README.md": readme})

    self.assertEqual(rooms("# Deep\n\nShapes: `dag.h`, for `tests/x.h`.\n".replace("tests/x.h", "common/a/deep/dag.h")), [])
    self.assert_one(rooms("# Deep\n\nNothing of `dag`s.\n".replace("dag", "trees")), "does not name dag.h")
    self.assert_one(rooms("# Deep\n\n`dag.h`, `gone.cc`\n"), "names gone.cc")
    self.assert_one(rooms("# Deep: `dag.h`\n" + "more\n" * 15), "16 lines")
    self.assert_one(self.findings(check_layout.check_rooms, {"common/b/x.h": "", "common/a/deep/README.md": "`dag.h`"}),
                    "common/b/README.md: missing")

  def test_long_file(self):
    self.assertEqual(self.findings(check_layout.check_sizes, {"a.cc": "\n" * 600}), [])
    self.assert_one(self.findings(check_layout.check_sizes, {"a.cc": "\n" * 601}), "601 lines")

  def test_mirror(self):
    files = {"common/graph/dag.h": "", "tests/common/graph/dag_test.cc": "",
             "tests/common/graph/dag_property_test.cc": "", "tests/common/graph/graph_round_trip_test.cc": "",
             "tests/integration/train_test.cc": ""}
    self.assertEqual(self.findings(check_layout.check_mirror, files), [])
    self.assert_one(self.findings(check_layout.check_mirror, {"tests/common/graph/gone_test.cc": ""}), "gone")

  def test_sources_without_a_test_of_their_name(self):
    def covered(*lines, more=()):
      table = {"tests/covered_by.txt": "".join(f"{line}\n" for line in lines)} if lines else {}
      return self.findings(check_layout.check_covered, table | dict.fromkeys(more, ""))

    head = "# What covers what."
    self.assertEqual(covered(more=["common/graph/dag.cc", "tests/common/graph/dag_test.cc", "common/graph/cut.cc",
                                   "tests/common/graph/cut_property_test.cc", "clients/cli/main.cc",
                                   "tests/support/cases.cc"]), [])
    self.assert_one(covered(more=["common/graph/cu.cc"]), "common/graph/cu.cc: no test is named after it")
    line = "common/graph/cu.cc  tests/common/graph/cut_property_test.cc"
    self.assertEqual(covered(head, line), [])
    self.assertEqual(covered(head, line.replace("cu.cc", "*.cc")), [])
    self.assert_one(covered(line), ":1: does not begin with a comment")
    self.assert_one(covered(head, line, line), ":3: is not sorted")
    self.assert_one(covered(head, line.replace("cut_", "gone_")), ":2: there is no tests/common/graph/gone_property")
    self.assert_one(covered(head, line, line.replace("cu.cc", "dag.cc")), ":3: no source without a test", "graph/dag.cc")
    wide = covered(head, line.replace("graph/cu.cc", "*.cc", 1))
    self.assertEqual(len(wide), 2, wide)
    self.assertEqual(len(covered(head, line.split()[0])), 2)

  def test_test_beside_source(self):
    self.assert_one(self.findings(check_layout.check_mirror, {"common/graph/dag_test.cc": ""}), "under tests/")

  def test_text(self):
    work, root = "/" + "work", "/" + "root"  # In parts, or this file would be a finding itself.
    clean = {"a.md": f"See common{work}/x, ${{ROOT}}{work} and https://example.org{root}/x.\n"}
    self.assertEqual(self.findings(check_layout.check_text, clean), [])
    for text, words in [(f"at {work}/main\n", "machine"), (f"cd {root}\n", "machine"), ("a\n# TODO: b\n", ":2: unfinished"),
                        ("from https://pypi.org/simple\n", "registry"), ("a \n", "white space"), ("a", "newline")]:
      with self.subTest(text=text):
        self.assert_one(self.findings(check_layout.check_text, {"a.md": text}), words)


class FilesTest(LintTest):

  def check_paths(self, files, headerless=(), pending=()):
    return self.findings(lambda sources: check_files.check_with(sources, headerless, set(pending)), files)

  def test_source_without_a_header_is_found(self):
    whole = {"common/graph/dag.cc": "", "common/graph/dag.h": "", "clients/cli/main.cc": "", "tests/common/a_test.cc": ""}
    self.assertEqual(self.check_paths(whole), [])
    alone = {**whole, "common/graph/cut.cc": "", "planner_service/cut.h": ""}
    self.assert_one(self.check_paths(alone), "common/graph/cut.cc: has no header", "common/graph/cut.h")
    self.assertEqual(self.check_paths(alone, headerless=["common/graph/cut.cc"]), [])
    self.assert_one(self.check_paths({**alone, "common/graph/cut.h": ""}, headerless=["common/graph/cut.cc"]), "strike")
    self.assert_one(self.check_paths(whole, headerless=["common/graph/gone.cc"]), "gone.cc: is no source", "HEADERLESS")

  def test_long_header_is_found(self):
    self.assertEqual(self.check_paths({"common/a.h": "\n" * 150, "common/a.cc": "\n" * 151}), [])
    self.assert_one(self.check_paths({"tests/support/b.h": "\n" * 151}), "tests/support/b.h: 151 lines")

  def test_full_folder_is_found(self):
    files = {f"tests/common/{i}_test.cc": "" for i in range(26)} | {"tests/common/README.md": "", "tests/common/a/a.h": ""}
    self.assertEqual(self.check_paths(files), [])
    self.assert_one(self.check_paths({**files, "tests/common/b.h": ""}), "tests/common: 27 sources")

  def test_what_is_pending_is_silent_until_it_is_done(self):
    files = {"common/graph/cut.cc": ""}
    self.assertEqual(self.check_paths(files, pending=["common/graph/cut.cc"]), [])
    self.assert_one(self.check_paths({**files, "common/graph/cut.h": ""}, pending=["common/graph/cut.cc"]),
                    "common/graph/cut.cc: is as it should be", "PENDING")


class ToolsTest(LintTest):

  def test_format(self):
    self.assertEqual(self.findings(check_format.check, {".clang-format": "BasedOnStyle: Google\n", "a.cc": "int a;\n"}),
                     [])
    self.assert_one(self.findings(check_format.check, {"a.cc": "int  a ;\n"}), "a.cc:1")

  def test_protos(self):
    head = '// Words.\nsyntax = "proto3";\n\npackage stagewright.v1;\n\n'
    path = "protos/stagewright/v1/a.proto"
    good = head + "// A thing.\nmessage Thing {\n  // Its size in bytes.\n  int64 size_bytes = 1;\n}\n"
    self.assertEqual(self.findings(check_protos.check, {path: good}), [])
    for bad, words in [(good.replace("  // Its size in bytes.\n", ""), "documentation"),
                       (good.replace("size_bytes", "sizeBytes"), "size_bytes"),
                       (good.replace("stagewright.v1", "stagewright.v2"), "v2"),
                       (head + "// How.\nenum How {\n  HOW_GOOD = 0;\n}\n", "UNSPECIFIED")]:
      with self.subTest(words=words):
        self.assertIn(words, "\n".join(self.findings(check_protos.check, {path: bad})))

  def test_wire(self):
    path, released = "protos/stagewright/v1/a.proto", check_wire.RELEASED
    good = ('syntax = "proto3";\npackage stagewright.v1;\nenum How {\n  HOW_UNSPECIFIED = 0;\n  HOW_GOOD = 1;\n}\n'
            'message Thing {\n  int64 size_bytes = 1;\n  How how = 2;\n}\n'
            'service Things {\n  rpc Get(Thing) returns (Thing);\n}\n')
    self.assert_one(self.findings(check_wire.check, {path: good}), "missing")
    (self.root / released).parent.mkdir(parents=True)
    buf = pathlib.Path(sys.executable).parent / "buf"
    subprocess.run([buf, "build", "protos", "-o", released], cwd=self.root, check=True)
    self.assertEqual(self.findings(check_wire.check, {path: good}), [])
    grown = good.replace("How how = 2;", "How how = 2;\n  bool new = 3;").replace("HOW_GOOD = 1;", "HOW_GOOD = 1;\n  HOW_BAD = 2;")
    self.assertEqual(self.findings(check_wire.check, {path: grown}), [])
    gone = good.replace("int64 size_bytes = 1;", 'reserved 1;\n  reserved "size_bytes";')
    self.assertEqual(self.findings(check_wire.check, {path: gone}), [])
    for old, new, words in [("int64 size_bytes = 1;", "int64 size_bytes = 3;", "reserving"),
                            ("int64 size_bytes", "string size_bytes", "type"),
                            ("size_bytes", "bytes_of_it", "name"),
                            ("HOW_GOOD = 1;", "", "HOW_GOOD"),
                            ("  rpc Get(Thing) returns (Thing);\n", "", "Get"),
                            ("int64 size", "repeated int64 size", "cardinality")]:
      with self.subTest(words=words):
        self.assertIn(words, "\n".join(self.findings(check_wire.check, {path: good.replace(old, new)})))

  def test_shell(self):
    self.assertEqual(self.findings(check_shell.check, {"a.sh": '#!/bin/bash\necho "$1"\n'}), [])
    self.assert_one(self.findings(check_shell.check, {"run": "#!/usr/bin/env bash\ncd $1 || exit\n"}), "SC2086")


if __name__ == "__main__":
  unittest.main()
