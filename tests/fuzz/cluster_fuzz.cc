// Cluster files and names of presets. What is accepted survives being written and read again.
#include "common/topology/cluster.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagewright;
  const std::string text(fuzz::Text(data, size));
  if (text.rfind("uniform:", 0) == 0) {
    // A thousand devices have a million links: right, and slow.
    const auto preset = text.size() < 60 ? ClusterPreset(text)
                                         : absl::StatusOr<Cluster>(absl::OutOfRangeError("long"));
    fuzz::CheckRefusal(preset.status());
    return 0;
  }
  const auto cluster = ParseCluster(text, "cluster");
  fuzz::CheckRefusal(cluster.status());
  if (!cluster.ok() || cluster->size() > 32) return 0;
  const auto again = ParseCluster(ClusterToJson(*cluster), "again");
  if (!again.ok()) fuzz::Fail("does not read its own: " + again.status().ToString());
  if (again->size() != cluster->size()) fuzz::Fail("reads something else than it wrote");
  return 0;
}
