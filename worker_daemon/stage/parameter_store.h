// The parameters and buffers that one device holds, once each, however many stages on it use them
// (tied weights).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/data/safetensors.h"
#include "common/graph/graph.h"

namespace stagewright {

class ParameterStore {
 public:
  // Loads `parameters` of the graph from a `.safetensors` file, under their name or one of their
  // aliases; of a slice, out of the whole tensor's. Constants are in the graph. Trainable ones
  // require a gradient. INVALID_ARGUMENT or NOT_FOUND names the file and the tensor that is missing
  // or has another type or shape than the graph says.
  static absl::StatusOr<ParameterStore> Load(const Graph& graph,
                                             const std::vector<ParameterId>& parameters,
                                             const std::string& path, at::Device device);

  // Load from any source, which gives a tensor by name or null; `where` names it in messages.
  using Source = std::function<const TensorView*(const std::string& name)>;
  static absl::StatusOr<ParameterStore> Load(const Graph& graph,
                                             const std::vector<ParameterId>& parameters,
                                             const Source& source, const std::string& where,
                                             at::Device device);

  // The tensor; undefined if the store does not hold it.
  const at::Tensor& operator[](ParameterId id) const { return tensors_[id.index()]; }
  const std::vector<ParameterId>& ids() const { return ids_; }  // Ascending.

  // Where replicas keep the gradients of their shares alone (Reduction::each_pass): the sum of that
  // of a parameter's share, its elements in a row, in the place of a gradient of the tensor.
  // Undefined if there is none. As gradients do, it changes in a store that does not.
  at::Tensor& share_gradient(ParameterId id) const { return share_gradients_[id.index()]; }

  // Begins a new version of `ids`: puts a copy in the place of each tensor and moves its gradient
  // there. Who holds the old tensor keeps that version, which changes no more.
  void Renew(const std::vector<ParameterId>& ids);

  // A new value of a buffer: in the place of the old one, or in a tensor of its own, so that who
  // holds the old one keeps it.
  void Assign(ParameterId id, const at::Tensor& value);
  void Replace(ParameterId id, at::Tensor value);

 private:
  std::vector<ParameterId> ids_;
  std::vector<at::Tensor> tensors_;                  // By ParameterId; undefined where not held.
  mutable std::vector<at::Tensor> share_gradients_;  // By ParameterId.
};

}  // namespace stagewright
