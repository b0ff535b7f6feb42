#include "worker_daemon/stage/parameter_store.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/data/sliced_tensors.h"
#include "common/data/weights_check.h"
#include "worker_daemon/torch/tensor_types.h"

namespace stagewright {
namespace {

const TensorView* FindAny(const ParameterStore::Source& source, const Parameter& parameter) {
  if (const TensorView* found = source(parameter.name)) return found;
  for (const std::string& alias : parameter.aliases) {
    if (const TensorView* found = source(alias)) return found;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<ParameterStore> ParameterStore::Load(const Graph& graph,
                                                    const std::vector<ParameterId>& parameters,
                                                    const std::string& path, at::Device device) {
  ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  for (ParameterId id : parameters)
    RETURN_IF_ERROR(CheckParameter(graph.parameter(id), file.header()));
  return Load(
      graph, parameters, [&](const std::string& name) { return file.Find(name); }, path, device);
}

absl::StatusOr<ParameterStore> ParameterStore::Load(const Graph& graph,
                                                    const std::vector<ParameterId>& parameters,
                                                    const Source& source, const std::string& where,
                                                    at::Device device) {
  ParameterStore store;
  store.ids_ = parameters;
  std::sort(store.ids_.begin(), store.ids_.end());
  store.ids_.erase(std::unique(store.ids_.begin(), store.ids_.end()), store.ids_.end());
  store.tensors_.resize(graph.parameters().size());
  store.share_gradients_.resize(graph.parameters().size());
  for (ParameterId id : store.ids_) {
    const Parameter& parameter = graph.parameter(id);
    if (parameter.data.has_value()) {
      at::Tensor constant = at::empty(parameter.shape, ToScalarType(parameter.dtype));
      if (!parameter.data->empty())
        std::memcpy(constant.data_ptr(), parameter.data->data(), parameter.data->size());
      store.tensors_[id.index()] = constant.to(device);
      continue;
    }
    const Parameter said = StoredTensor(parameter);
    const TensorView* stored = FindAny(source, said);
    if (stored == nullptr) {
      return absl::NotFoundError(absl::StrCat(where, ": there is no tensor \"", said.name, "\""));
    }
    if (stored->dtype != said.dtype || stored->shape != said.shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": tensor \"", stored->name, "\" is ", Describe(stored->dtype, stored->shape),
          ", the graph says ", Describe(said.dtype, said.shape)));
    }
    at::Tensor tensor = at::empty(parameter.shape, ToScalarType(parameter.dtype));
    RETURN_IF_ERROR(ReadParameter(*stored, parameter,
                                  {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()}));
    store.tensors_[id.index()] = tensor.to(device).requires_grad_(parameter.trainable);
  }
  return store;
}

void ParameterStore::Assign(ParameterId id, const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  tensors_[id.index()].copy_(value);
}

void ParameterStore::Replace(ParameterId id, at::Tensor value) {
  tensors_[id.index()] = std::move(value);
}

void ParameterStore::Renew(const std::vector<ParameterId>& ids) {
  for (ParameterId id : ids) {
    at::Tensor& current = tensors_[id.index()];
    at::Tensor next = current.detach().clone().requires_grad_(current.requires_grad());
    next.mutable_grad() = current.grad();
    current.mutable_grad() = at::Tensor();
    current = std::move(next);
  }
}

}  // namespace stagewright
