#include "tests/golden/plans/file_cases.h"

#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/topology/presets.h"
#include "common/wire/graph_file.h"
#include "planner_service/front_door/planner_table.h"
#include "tests/golden/plans/answers.h"
#include "tests/support/checkout/source_path.h"
#include "tests/support/shared_graphs.h"

namespace stagewright::golden {
namespace {

constexpr int32_t kDevices[] = {2, 4, 8, 16, 32, 64};

struct GraphFile {
  std::string name;
  std::string path;
  std::optional<ProfileFormat> format;  // None: a graph file.
  int64_t samples_per_device = 2;
};

absl::StatusOr<Graph> Read(const GraphFile& file) {
  if (!file.format) return ReadGraphFile(file.path);
  ASSIGN_OR_RETURN(ImportedProfile profile, ReadProfile(*file.format, file.path));
  return std::move(profile.graph);
}

// Captured graphs take their times from rates, profiles bring them.
absl::StatusOr<Cluster> ClusterFor(const Graph& graph, int32_t devices) {
  if (!graph.executable()) return ClusterPreset(absl::StrCat("uniform:", devices, ",memory=16GiB"));
  ASSIGN_OR_RETURN(const Cluster cluster, ClusterPreset("summit:16"));
  return Subcluster(cluster, devices);
}

// In the order of the table, whether they are there or not: the short form goes by their number.
constexpr const char* kProfiles[] = {"dapple/bert-48-pbs-2.txt",
                                     "dapple/gnmt-16-pbs-64.txt",
                                     "dapple/vgg-19-pbs-32.txt",
                                     "pipedream/alexnet.graph.txt",
                                     "pipedream/gnmt.graph.txt",
                                     "pipedream/inception_v3.graph.txt",
                                     "pipedream/resnet50.graph.txt",
                                     "pipedream/resnext50.graph.txt",
                                     "pipedream/vgg16.graph.txt",
                                     "piper/gnmt.json",
                                     "piper/resnet.json",
                                     "synthetic/candle7.graph.txt",
                                     "synthetic/candle7.json",
                                     "synthetic/dlrm7x7.graph.txt",
                                     "synthetic/dlrm7x7.json",
                                     "synthetic/mmt2_layer.graph.txt",
                                     "synthetic/mmt2_layer.json",
                                     "synthetic/mmt4_layer.graph.txt",
                                     "synthetic/mmt4_layer.json",
                                     "synthetic/mmt4_op.graph.txt",
                                     "synthetic/mmt4_op.json"};

// What is asked of the file number `f` on kDevices[d]: in the short form one number of devices up
// to 16, in the long form all, and the default planner, which takes seconds, on every third.
bool IsWanted(Form form, const std::string& planner, size_t f, size_t d) {
  constexpr size_t kFewDevices = 4;
  if (form == Form::kShort) return planner != kDefaultPlanner && f % kFewDevices == d;
  return planner != kDefaultPlanner || (f + d) % 3 == 0;
}

absl::StatusOr<Cells> Ask(const GraphFile& file, int32_t devices, const Wanted& wanted) {
  ASSIGN_OR_RETURN(const Graph graph, Read(file));
  ASSIGN_OR_RETURN(const Cluster cluster, ClusterFor(graph, devices));
  PlanRequest request;
  request.graph = &graph;
  request.cluster = &cluster;
  request.mini_batch = file.samples_per_device * devices;
  return AskPlanners(request, wanted);
}

// Nothing of a file without a path.
Cases CasesOf(const std::vector<GraphFile>& files) {
  Cases cases{PlanColumns(), {}, ""};
  for (size_t f = 0; f < files.size(); ++f) {
    if (files[f].path.empty()) continue;
    for (size_t d = 0; d < std::size(kDevices); ++d) {
      const auto ask = [file = files[f], f, d](Form form) {
        return Ask(file, kDevices[d],
                   [=](const std::string& planner) { return IsWanted(form, planner, f, d); });
      };
      cases.cases.push_back({absl::StrFormat("%s/%02d", files[f].name, kDevices[d]), ask});
    }
  }
  return cases;
}

std::vector<GraphFile> RepositoryFiles() {
  const auto example = [](absl::string_view name) {
    return testing::SourcePath(absl::StrCat("examples/graphs/", name));
  };
  const auto seed = [](absl::string_view name) {
    return testing::SourcePath(absl::StrCat("tests/fuzz/corpus/", name));
  };
  return {{"candle-uno", example("candle-uno.swg"), {}, 1024},
          {"case-study", example("case-study.swg"), {}, 16},
          {"dlrm", example("dlrm.swg"), {}, 64},
          {"mmt", example("mmt.swg"), {}, 16},
          {"transformer", example("transformer.swg"), {}, 16},
          {"fuzz/dapple", seed("import_dapple/small"), ProfileFormat::kDapple},
          {"fuzz/pipedream", seed("import_pipedream/small"), ProfileFormat::kPipeDream},
          {"fuzz/piper", seed("import_piper/small"), ProfileFormat::kPiper}};
}

ProfileFormat FormatOf(const std::string& name) {
  if (absl::EndsWith(name, ".json")) return ProfileFormat::kPiper;
  return absl::StartsWith(name, "dapple/") ? ProfileFormat::kDapple : ProfileFormat::kPipeDream;
}

}  // namespace

Cases ExampleCases() { return CasesOf(RepositoryFiles()); }

Cases ProfileCases() {
  std::vector<GraphFile> files;
  std::vector<std::string> absent;
  for (const char* name : kProfiles) {
    files.push_back({name, SharedGraph(name), FormatOf(name)});
    if (files.back().path.empty()) absent.push_back(name);
  }
  Cases cases = CasesOf(files);
  if (!absent.empty()) {
    cases.absent =
        absl::StrCat("no profiles in ", SharedGraphs(), ": ", absl::StrJoin(absent, " "));
  }
  return cases;
}

}  // namespace stagewright::golden
