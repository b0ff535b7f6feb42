#include "worker_daemon/profiler/cache_walk.h"

#include <unistd.h>

#include <algorithm>

namespace stagewright {
namespace {

constexpr size_t kLine = 64;             // Bytes that caches take at once.
constexpr Bytes kUsualCache = 1 * kMiB;  // A core's own, where the machine does not tell.

}  // namespace

Bytes BytesOfPass(const Graph& graph, const std::optional<GraphTypes>& types, int64_t samples) {
  Bytes bytes = 0;
  for (const Parameter& parameter : graph.parameters()) bytes += parameter.SizeBytes();
  for (int32_t v = 0; v < graph.size(); ++v) {
    const std::vector<TensorMeta>& outputs = graph.node(NodeId(v)).outputs;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const DType type = TypeOf(graph, types, {NodeId(v), static_cast<int32_t>(i)});
      bytes += outputs[i].Elements(samples) * SizeOf(type);
    }
  }
  return 2 * bytes;
}

Bytes BytesOfWalk() {
  const int64_t cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
  return (cache > 0 ? Bytes(cache) : kUsualCache) / 2;
}

CacheWalk::CacheWalk(Bytes bytes)
    : bytes_(static_cast<size_t>(static_cast<int64_t>(bytes))), walked_(Clock::now()) {}

void CacheWalk::Begin() {
  between_ = {};
  walks_ = 0;
}

void CacheWalk::Walk() {
  if (walks_ > 0) between_ += Clock::now() - walked_;
  ++walks_;
  for (size_t i = 0; i < bytes_.size(); i += kLine) ++bytes_[i];
  walked_ = Clock::now();
}

double CacheWalk::Nanos() const {
  const bool once = walks_ == 1;
  const std::chrono::duration<double, std::nano> time = once ? Clock::now() - walked_ : between_;
  return time.count() / std::max(once ? 1 : walks_ - 1, 1);
}

}  // namespace stagewright
