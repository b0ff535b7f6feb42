// The text that PipeDream's profiler writes and DAPPLE's planner reads: nodes and edges, one a
// line, in any order as long as an edge comes after its nodes.
//
//   node:  ID -- DESC -- forward_compute_time=F, backward_compute_time=F, activation_size=A,
//          parameter_size=F[ -- stage_id=N]                      (one line)
//   A:     F | [F; F; ...]                                       summed
//   edge:  white space, SRC -- DST
//
// A node line is cut at " -- " first, because DESC holds commas and "="; then at ", ". Times are
// milliseconds, sizes bytes, decimal with or without a fraction or an exponent. Fields may come in
// any order; other fields, stage_id included, are ignored. Blank lines and carriage returns are
// skipped. The whole text must be UTF-8, at most 64 MiB, a line at most 1 MiB.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "planner_service/importers/profile.h"

namespace stagewright {

struct ProfileLine {
  std::string id;
  std::string description;
  ProfiledCost cost;  // For one sample.
};

struct ProfileText {
  std::vector<ProfileLine> nodes;                  // In order of the file; ids are unique.
  std::vector<std::pair<int32_t, int32_t>> edges;  // Indices in `nodes`, in order of the file.
};

// INVALID_ARGUMENT names file, line and field: a missing, negative, infinite or too large figure,
// an id that is used twice, an edge with an unknown end, no node at all. Edges given twice count
// once; cycles are found by MakeProfileGraph.
absl::StatusOr<ProfileText> ParseProfileText(std::string_view text, const std::string& file);

// The profile without the nodes marked in `removed` and their edges.
ProfileText Without(const ProfileText& profile, const std::vector<bool>& removed);

// Nodes are named after their ids; the description becomes the module path that people see.
// INVALID_ARGUMENT names a cycle's nodes, or says that no node is left.
absl::StatusOr<Graph> MakeProfileGraph(const ProfileText& profile, const std::string& file,
                                       int64_t samples);

// "bert-48" of "graphs/bert-48.graph.txt".
std::string GraphNameOfFile(const std::string& file);

// INVALID_ARGUMENT unless `profile_batch` is between 0 (the default) and 2^40.
absl::Status CheckImportOptions(const ImportOptions& options);

}  // namespace stagewright
