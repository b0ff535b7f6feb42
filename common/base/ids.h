// Strong, dense ids. An id is an index into the vector that owns the thing, so it converts to
// size_t on request, and never to another kind of id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>

namespace stagewright {

template <typename Tag>
class Id {
 public:
  constexpr Id() = default;  // The invalid id.
  constexpr explicit Id(int64_t value) : value_(static_cast<int32_t>(value)) {}

  constexpr int32_t value() const { return value_; }
  constexpr size_t index() const { return static_cast<size_t>(value_); }
  constexpr bool valid() const { return value_ >= 0; }

  friend constexpr auto operator<=>(Id, Id) = default;
  friend std::ostream& operator<<(std::ostream& out, Id id) { return out << id.value_; }
  template <typename H>
  friend H AbslHashValue(H h, Id id) {
    return H::combine(std::move(h), id.value_);
  }

 private:
  int32_t value_ = -1;
};

using NodeId = Id<struct NodeTag>;            // Graph::nodes()
using ParameterId = Id<struct ParameterTag>;  // Graph::parameters()
using InputId = Id<struct InputTag>;          // Graph::inputs()
using TotalId = Id<struct TotalTag>;          // Graph::totals()
using OperatorId = Id<struct OperatorTag>;    // OperatorGraph::operators()
using DeviceId = Id<struct DeviceTag>;        // Cluster::devices()
using StageId = Id<struct StageTag>;          // Strategy::stages, Program::stages
using ChannelId = Id<struct ChannelTag>;      // Program::channels
using ReductionId = Id<struct ReductionTag>;  // Program::reductions

}  // namespace stagewright
