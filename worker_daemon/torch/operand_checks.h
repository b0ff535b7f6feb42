// What some of LibTorch's operators take for granted of their arguments. Those that models do not
// call themselves, but that captured graphs hold, leave checks to their callers: with arguments
// that these would have refused they read beyond a tensor's memory or end the process.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <string>

#include "common/base/status.h"

namespace stagewright {

// INVALID_ARGUMENT names the argument that the operator must not be called with. `stack` holds a
// value for each argument of the schema.
using OperandCheck = absl::Status (*)(const c10::FunctionSchema& schema,
                                      const torch::jit::Stack& stack);

// That of the operator, by its name without overload ("aten::_stack"); null: it checks for itself.
OperandCheck OperandCheckOf(const std::string& name);

}  // namespace stagewright
