// Arguments of the graph as the boxed values of LibTorch's dispatcher.
//
// The kinds follow the operator's schema, as Python's argument parser does: a number where a tensor
// is wanted becomes a wrapped number, an integer where a float is wanted becomes a float, a single
// integer where a list of known length is wanted is repeated, and None is an absent optional.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <functional>

#include "common/base/status.h"
#include "common/graph/graph.h"

namespace stagewright {

// Where the tensors named by arguments come from; `argument` holds a ValueRef, ParameterId or
// InputId.
using TensorSource = std::function<const at::Tensor&(const Argument& argument)>;

// Whether the argument is the same in every call: it names no tensor, and no size in it depends on
// the number of samples. (Parameters have versions, see ParameterStore::Renew.)
bool IsConstant(const Argument& argument);

// Whether its only tensors are parameters, so that it can be converted before anything runs.
bool IsKnown(const Argument& argument);

// The argument as a value of the schema's type. INVALID_ARGUMENT if it is of another kind; the
// message names the schema's argument.
absl::StatusOr<c10::IValue> ToIValue(const Argument& argument, const c10::Argument& schema,
                                     int64_t samples, const TensorSource& tensors);

}  // namespace stagewright
