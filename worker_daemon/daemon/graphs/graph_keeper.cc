#include "worker_daemon/daemon/graphs/graph_keeper.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace stagewright {
namespace {

Bytes SizeOf(const std::string& graph) { return Bytes(static_cast<int64_t>(graph.size())); }

}  // namespace

std::shared_ptr<const std::string> GraphKeeper::Find(const std::string& sha256) {
  const auto found = std::find_if(graphs_.begin(), graphs_.end(),
                                  [&](const Kept& kept) { return kept.sha256 == sha256; });
  if (found == graphs_.end()) return nullptr;
  graphs_.splice(graphs_.begin(), graphs_, found);
  return graphs_.front().graph;
}

void GraphKeeper::Keep(const std::string& sha256, std::shared_ptr<const std::string> graph) {
  const Bytes size = SizeOf(*graph);
  if (size > most_bytes_ || Find(sha256) != nullptr) return;
  while (!graphs_.empty() && (graphs_.size() >= most_graphs_ || bytes_ + size > most_bytes_)) {
    bytes_ -= SizeOf(*graphs_.back().graph);
    graphs_.pop_back();
  }
  graphs_.push_front({sha256, std::move(graph)});
  bytes_ += size;
}

}  // namespace stagewright
