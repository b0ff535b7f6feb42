// Published profiles as planning-only graphs: nodes with measured costs and no arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/status.h"
#include "common/base/units.h"
#include "common/graph/graph.h"

namespace stagewright {

enum class ProfileFormat { kPipeDream, kPiper, kDapple };

// "pipedream", "piper", "dapple". INVALID_ARGUMENT lists them.
absl::StatusOr<ProfileFormat> ProfileFormatByName(std::string_view name);
const char* ProfileFormatName(ProfileFormat format);

enum class ProfileTimeUnit { kSeconds, kMilliseconds };

struct ImportOptions {
  // Samples that one profiled micro-batch held; what a sample is in the graph. 0: the format's own
  // default, which is 1, and for DAPPLE the number after "pbs-" in the file's name if there is one.
  int64_t profile_batch = 0;
  // The unit of `timePerSample` in Piper's files. The original divides bytes by bytes per second
  // and adds the result to it, so it reads seconds. The other formats are in milliseconds always.
  ProfileTimeUnit piper_time_unit = ProfileTimeUnit::kSeconds;
};

// What Piper's files say beside the graph.
struct PiperSettings {
  int32_t max_devices = 0;
  Bytes memory_per_device = 0;
  double bytes_per_second = 0;
  int64_t micro_batches = 0;  // "mbsInBatch": micro-batches of a mini-batch.
};

struct ImportedProfile {
  Graph graph;
  std::optional<PiperSettings> piper;
  std::vector<std::string> warnings;  // For people.
};

// `file` names the text in messages and, without folders and extensions, the graph.
// INVALID_ARGUMENT: one message with the file, the line or the path in the JSON, and the field.
// Never more than a few hundred bytes of memory per byte of text. O(n log n). The formats are
// documented in docs/importers.md.
absl::StatusOr<ImportedProfile> ImportProfile(ProfileFormat format, std::string_view text,
                                              const std::string& file,
                                              const ImportOptions& options = {});
// ImportProfile from a file. NOT_FOUND if it cannot be read.
absl::StatusOr<ImportedProfile> ImportProfileFile(ProfileFormat format, const std::string& path,
                                                  const ImportOptions& options = {});

}  // namespace stagewright
