// What planning needs to know about ATen operators, by name. Unknown operators are treated as
// elementwise: one floating-point operation per output element, inputs and outputs kept for the
// backward pass.
#pragma once

#include <string>
#include <string_view>

#include "common/graph/graph.h"

namespace stagewright {

enum class AtenKind {
  kElementwise,  // Also for reductions, copies and everything unknown.
  kView,         // No work and no memory of its own.
  kMatmul,       // 2 * output elements * length of the inner dimension.
  kConvolution,
  kAttention,    // Fused scaled dot-product attention.
  kEmbedding,    // A gather: bytes only.
  kContraction,  // Any other sum of products: einsum, tensordot, bilinear.
  kRecurrent,    // Layers or cells with a state: LSTM, GRU and simple ones.
};

// "linear" of "aten.linear.default".
std::string_view AtenName(std::string_view target);

AtenKind KindOfTarget(std::string_view target);

// Sums of products: matrix products, convolutions, attention, recurrent layers: work that grows
// faster than the bytes it touches.
bool IsMatmulLike(AtenKind kind);

}  // namespace stagewright
