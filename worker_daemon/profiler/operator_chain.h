// One operator several times in a row, as a stage runs it: through OperatorCall (or KeyedDropout),
// under autocast where the precision is mixed, with autograd on, results dropped as soon as no
// backward pass needs them, and the gradients of parameters added up.
//
// Each time it reads the same operands, as tensors without history whose gradients are dropped
// where they arrive, as if handed on to the operator before. Backward passes start from as many
// made-up gradients of each result as come to it in the graph. What a pass costs beside its
// operators comes once a chain.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "common/base/status.h"
#include "common/graph/graph.h"
#include "common/training/precision.h"
#include "worker_daemon/profiler/operands.h"

namespace stagewright {

// What goes on around a link.
struct Surroundings {
  // Called before each link, forward and, for links apart, backward; may be empty.
  std::function<void()> before_link;
  // How many there are of the parameters with a gradient, which links take in turns: a link's are
  // not those that the one before left in the caches.
  int copies = 1;
};

class OperatorChain {
 public:
  // In a row, each time but the first reads the result of the time before in place of its operand
  // with a gradient: one operand, and a result of its type and shape.
  enum class Links { kApart, kInARow };

  // `graph` outlives it. Errors of OperatorCall::Bind and KeyedDropout::Create.
  static absl::StatusOr<std::unique_ptr<OperatorChain>> Create(
      const Graph& graph, NodeId node, int64_t samples, Operands operands, at::Device device,
      Precision precision, Links links = Links::kApart, Surroundings surroundings = {});
  virtual ~OperatorChain() = default;

  // Runs the operator `length` times. What backward passes need of an earlier call is dropped.
  // Errors of OperatorCall::Run.
  virtual absl::Status Forward(int length) = 0;

  // The backward pass of what Forward ran: in one go, or the input half and then the weight half.
  // Nothing happens where there is none. INTERNAL with LibTorch's message.
  enum class Part { kWhole, kInput, kWeight };
  virtual absl::Status Backward(Part part) = 0;

  virtual bool has_backward() const = 0;
  virtual bool trains_parameters() const = 0;
  // Both halves have something to do.
  virtual bool splits() const = 0;
};

}  // namespace stagewright
