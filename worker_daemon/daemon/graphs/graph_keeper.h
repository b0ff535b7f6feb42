// The graphs that a worker had last, by what is in them, so that a job that starts again, or
// another one with the same graph, needs it sent no more.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <string>

#include "common/base/units.h"

namespace stagewright {

// Graphs as they travel. Not thread-safe.
class GraphKeeper {
 public:
  static constexpr size_t kMostGraphs = 8;
  static constexpr Bytes kMostBytes = 256 * kMiB;

  explicit GraphKeeper(size_t most_graphs = kMostGraphs, Bytes most_bytes = kMostBytes)
      : most_graphs_(most_graphs), most_bytes_(most_bytes) {}

  // Null if it is not there. It is the newest from now on. O(graphs).
  std::shared_ptr<const std::string> Find(const std::string& sha256);
  // Forgets those that were not used for the longest, as long as there are too many, or too large
  // ones, beside this one. One that is larger than all may be is not kept. O(graphs).
  void Keep(const std::string& sha256, std::shared_ptr<const std::string> graph);

  size_t size() const { return graphs_.size(); }
  Bytes bytes() const { return bytes_; }

 private:
  struct Kept {
    std::string sha256;
    std::shared_ptr<const std::string> graph;
  };

  const size_t most_graphs_;
  const Bytes most_bytes_;
  std::list<Kept> graphs_;  // The newest first.
  Bytes bytes_ = 0;
};

}  // namespace stagewright
