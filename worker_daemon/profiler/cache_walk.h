// Takes the caches from an operator before it is timed, as the rest of a pass does: an operator
// that is run again and again finds its parameters, what it keeps and its results in the nearest
// cache, one of a training pass where all that was gone over since left them.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "common/base/units.h"
#include "common/cost/measured/operator_signature.h"
#include "common/graph/graph.h"

namespace stagewright {

// What a forward and a backward pass over so many samples go over: parameters, results of operators
// and the gradients of both. `types` as in TypeOf. O(graph).
Bytes BytesOfPass(const Graph& graph, const std::optional<GraphTypes>& types, int64_t samples);

// Half of what a core's own cache holds: the other half is left to the code of operators and to
// what LibTorch keeps of them, which a pass uses again and again.
Bytes BytesOfWalk();

// Not thread-safe.
class CacheWalk {
 public:
  explicit CacheWalk(Bytes bytes);

  // Forgets what was timed.
  void Begin();
  // Ends what is timed, reads and writes its bytes, and goes on timing.
  void Walk();
  // Nanoseconds from a walk to the next, their mean; of what came after the only walk, until now.
  double Nanos() const;

 private:
  using Clock = std::chrono::steady_clock;

  std::vector<char> bytes_;
  Clock::time_point walked_;      // When the last walk ended.
  Clock::duration between_ = {};  // From walks to the next.
  int walks_ = 0;
};

}  // namespace stagewright
