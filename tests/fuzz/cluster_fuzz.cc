// Cluster files and names of presets. What is accepted survives being written and read again.
#include <algorithm>
#include <cctype>

#include "common/topology/cluster.h"
#include "common/topology/cluster_json.h"
#include "common/topology/presets.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagewright;
  const std::string text(fuzz::Text(data, size));
  if (text.rfind("uniform:", 0) == 0) {
    // A thousand devices have a million links: right, but slow.
    const std::string devices = text.substr(0, text.find(','));
    if (std::count_if(devices.begin(), devices.end(), ::isdigit) > 2) return 0;
    fuzz::CheckRefusal(ClusterPreset(text).status());
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
