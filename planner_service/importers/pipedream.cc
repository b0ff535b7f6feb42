// PipeDream's profiles (msr-fiddle/pipedream, profiler/*/profiles/*/graph.txt): grammar of
// profile_text.h.
//
// As the original's planner does before it plans, sources whose description starts with "Input" are
// removed, then sinks whose description starts with "__getitem__"; each once, so that what becomes
// a source or sink thereby stays. A sample of the graph is one profiled micro-batch unless
// ImportOptions::profile_batch says how many samples that held.
//
// Deviation: profiles with several sources are planned like all others; the original's planner
// silently mistakes them for chains.
#include "planner_service/importers/pipedream.h"

#include <string_view>

#include "planner_service/importers/profile_text.h"

namespace stagewright {
namespace {

bool StartsWith(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

ProfileText WithoutEnds(const ProfileText& profile, std::string_view start, bool sources) {
  std::vector<bool> removed(profile.nodes.size());
  for (size_t v = 0; v < removed.size(); ++v) {
    removed[v] = StartsWith(profile.nodes[v].description, start);
  }
  for (const auto& [from, to] : profile.edges) removed[sources ? to : from] = false;
  return Without(profile, removed);
}

}  // namespace

absl::StatusOr<ImportedProfile> ImportPipeDream(std::string_view text, const std::string& file,
                                                const ImportOptions& options) {
  RETURN_IF_ERROR(CheckImportOptions(options));
  ASSIGN_OR_RETURN(ProfileText profile, ParseProfileText(text, file));
  profile = WithoutEnds(profile, "Input", /*sources=*/true);
  profile = WithoutEnds(profile, "__getitem__", /*sources=*/false);
  const int64_t samples = options.profile_batch > 0 ? options.profile_batch : 1;
  ASSIGN_OR_RETURN(Graph graph, MakeProfileGraph(profile, file, samples));
  return ImportedProfile{std::move(graph), std::nullopt, {}};
}

}  // namespace stagewright
