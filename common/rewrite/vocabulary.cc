#include "common/rewrite/vocabulary.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace stagewright {

LocalWords AddLocalWords(const std::string& name, const std::string& module, const Argument& words,
                         const TensorMeta& meta, const WordRange& range, GraphEdit& edit) {
  const auto add = [&](const char* what, const char* target, std::vector<Argument> args,
                       DType dtype) {
    Node node;
    node.name = absl::StrCat(name, what);
    node.target = target;
    node.args = std::move(args);
    node.outputs = {meta};
    node.outputs.front().dtype = dtype;
    node.module = module;
    return edit.Add(std::move(node));
  };
  const auto integer = [](int64_t value) { return Argument{SymInt{0, value}}; };
  const bool first = range.index == 0, last = range.index + 1 == range.parts;
  const NodeId local = add("local", "aten.sub.Scalar", {words, integer(range.begin)}, meta.dtype);
  const NodeId clamped = add("clamped", "aten.clamp.default",
                             {{ValueRef{local, 0}},
                              first ? Argument{None()} : integer(0),
                              last ? Argument{None()} : integer(range.size - 1)},
                             meta.dtype);
  const NodeId outside = add("outside", "aten.ne.Tensor",
                             {{ValueRef{local, 0}}, {ValueRef{clamped, 0}}}, DType::kBool);
  return {clamped, outside};
}

}  // namespace stagewright
