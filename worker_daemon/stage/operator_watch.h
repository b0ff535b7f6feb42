// Times the operators of a device's passes, forward and backward, while training goes on.
//
// Forward, a stage runs operator by operator. Backward, LibTorch does: it numbers the nodes of its
// autograd graph as operators make them, and says that number when it runs one. What it adds up at
// the parameters has no number and is nobody's. A clock is read twice for an operator, which is
// nothing beside it; without a scope nothing is read at all.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "worker_daemon/stage/operator_times.h"

namespace stagewright {

// For operators that have run when they return, as on a CPU. Not thread-safe.
class OperatorWatch {
 public:
  enum class Pass { kForward, kBackward, kFirstHalf };

  // Watches what the thread runs while it lives: one pass of a stage over some samples. The first
  // half of a backward pass is followed by the other, a kBackward.
  class Scope {
   public:
    // Null: watches nothing.
    Scope(OperatorWatch* watch, StageId stage, int64_t samples, Pass pass);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    OperatorWatch* const watch_;
    uint64_t callback_ = 0;
  };

  // Runs `run`, which runs a node of the graph forward, and times it if a scope is open.
  template <typename F>
  static auto Forward(NodeId node, F&& run) {
    const Running running(node);
    return run();
  }

  // What was seen since the last call, by stage, node and samples.
  std::vector<OperatorTimes> Take();

 private:
  using Key = std::tuple<StageId, NodeId, int64_t>;

  class Running {
   public:
    explicit Running(NodeId node);
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;
    ~Running();

   private:
    const NodeId node_;
    int64_t start_ = 0;
    uint64_t first_ = 0;  // Number of the next autograd node.
  };
  friend class Scope;
  friend class BackwardTimer;

  void EndForward(NodeId node, Nanos time, uint64_t first, uint64_t end);
  void EndBackward(int64_t number, Nanos time);

  StageId stage_;
  int64_t samples_ = 0;
  std::map<Key, OperatorTimes> times_;
  std::unordered_map<uint64_t, Key> made_by_;  // By number of the autograd node.
  std::map<std::pair<StageId, int64_t>, int64_t> backwards_;
};

}  // namespace stagewright
