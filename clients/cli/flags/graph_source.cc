#include "clients/cli/flags/graph_source.h"

#include "common/config/number_checks.h"
#include "common/wire/graph_file.h"
#include "common/wire/graph_proto.h"

namespace stagewright::cli {

void AddGraphSource(CLI::App& command, GraphSource& source) {
  command.add_option("graph", source.path, "graph file (.swg), or with --from a profile");
  command.add_option("--from", source.from, "the file is a profile of pipedream, piper or dapple")
      ->check(CLI::IsMember({"pipedream", "piper", "dapple"}));
  command
      .add_option("--profile-batch", source.import.profile_batch,
                  "samples in the profiled micro-batch (default: 1; dapple: from the file's name)")
      ->check(Positive());
  command
      .add_option_function<std::string>(
          "--time-unit",
          [&source](const std::string& unit) {
            source.import.piper_time_unit =
                unit == "ms" ? ProfileTimeUnit::kMilliseconds : ProfileTimeUnit::kSeconds;
          },
          "unit of the times in a piper file: s (as Piper reads it, the default) or ms")
      ->check(CLI::IsMember({"s", "ms"}));
}

absl::StatusOr<SourceGraph> LoadSource(const GraphSource& source) {
  SourceGraph result;
  if (source.from.empty()) {
    ASSIGN_OR_RETURN(result.graph, ReadGraphProto(source.path));
    return result;
  }
  ASSIGN_OR_RETURN(const ProfileFormat format, ProfileFormatByName(source.from));
  ASSIGN_OR_RETURN(ImportedProfile profile, ImportProfileFile(format, source.path, source.import));
  result.graph = ToProto(profile.graph);
  result.piper = profile.piper;
  result.warnings = std::move(profile.warnings);
  return result;
}

absl::StatusOr<Graph> LoadGraph(const GraphSource& source, std::vector<std::string>& warnings) {
  if (source.from.empty()) return ReadGraphFile(source.path);
  ASSIGN_OR_RETURN(const ProfileFormat format, ProfileFormatByName(source.from));
  ASSIGN_OR_RETURN(ImportedProfile profile, ImportProfileFile(format, source.path, source.import));
  warnings = std::move(profile.warnings);
  return std::move(profile.graph);
}

}  // namespace stagewright::cli
