// Which operators of LibTorch graphs may name: the list that scripts/allowed_operators.py writes.
#pragma once

#include "absl/strings/string_view.h"

namespace stagewright {

// Whether running "aten.linear.default" computes tensors from tensors and does nothing else: it
// reads and writes no file, changes nothing but running statistics that it is given, and gives out
// no memory that it has not written. O(length).
bool IsAllowedOperator(absl::string_view target);

}  // namespace stagewright
