#include "tests/golden/plans/file_cases.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/topology/presets.h"
#include "common/wire/graph_file.h"
#include "planner_service/front_door/planner_table.h"
#include "tests/golden/plans/answers.h"
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
  ASSIGN_OR_RETURN(ImportedProfile profile, ImportProfileFile(*file.format, file.path));
  return std::move(profile.graph);
}

// Captured graphs take their times from rates, profiles bring them.
absl::StatusOr<Cluster> ClusterFor(const Graph& graph, int32_t devices) {
  if (!graph.executable()) return ClusterPreset(absl::StrCat("uniform:", devices, ",memory=16GiB"));
  ASSIGN_OR_RETURN(const Cluster cluster, ClusterPreset("summit:16"));
  return Subcluster(cluster, devices);
}

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

Cases CasesOf(const std::vector<GraphFile>& files) {
  Cases cases{PlanColumns(), {}, ""};
  for (size_t f = 0; f < files.size(); ++f) {
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
  const std::string root = std::string(STAGEWRIGHT_SOURCE_DIR) + "/";
  const std::string graphs = root + "examples/graphs/";
  const std::string corpus = root + "tests/fuzz/corpus/";
  return {{"candle-uno", graphs + "candle-uno.swg", {}, 1024},
          {"case-study", graphs + "case-study.swg", {}, 16},
          {"dlrm", graphs + "dlrm.swg", {}, 64},
          {"mmt", graphs + "mmt.swg", {}, 16},
          {"transformer", graphs + "transformer.swg", {}, 16},
          {"fuzz/dapple", corpus + "import_dapple/small", ProfileFormat::kDapple},
          {"fuzz/pipedream", corpus + "import_pipedream/small", ProfileFormat::kPipeDream},
          {"fuzz/piper", corpus + "import_piper/small", ProfileFormat::kPiper}};
}

ProfileFormat FormatOf(const std::string& name) {
  if (absl::EndsWith(name, ".json")) return ProfileFormat::kPiper;
  return absl::StartsWith(name, "dapple/") ? ProfileFormat::kDapple : ProfileFormat::kPipeDream;
}

}  // namespace

Cases ExampleCases() { return CasesOf(RepositoryFiles()); }

Cases ProfileCases() {
  namespace fs = std::filesystem;
  const fs::path folder = SharedGraphs();
  std::error_code error;
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder, error)) {
    if (entry.is_regular_file()) names.push_back(entry.path().lexically_relative(folder));
  }
  std::sort(names.begin(), names.end());
  std::vector<GraphFile> files;
  for (const std::string& name : names) files.push_back({name, folder / name, FormatOf(name)});
  Cases cases = CasesOf(files);
  if (files.empty()) cases.absent = absl::StrCat("no profiles in ", folder.string());
  return cases;
}

}  // namespace stagewright::golden
