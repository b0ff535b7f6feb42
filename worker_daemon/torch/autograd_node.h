// Nodes of LibTorch's autograd graph that are ours.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <type_traits>

namespace stagewright {

// A node of type T, as edges hold it: LibTorch counted references to nodes by std::shared_ptr, and
// does by c10::intrusive_ptr since 2.13.
template <typename T>
auto MakeAutogradNode() {
  using Pointer = decltype(torch::autograd::Edge::function);
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>) {
    return std::make_shared<T>();
  } else {
    return c10::make_intrusive<T>();
  }
}

}  // namespace stagewright
