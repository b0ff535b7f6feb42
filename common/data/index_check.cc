#include "common/data/index_check.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/graph/aten.h"

namespace stagewright {
namespace {

std::string Takes(const Graph& graph, const IndexBounds& bounds) {
  const Node& node = graph.node(bounds.node);
  const std::string& name = node.module.empty() ? node.name : node.module;
  if (AtenName(node.target) == "embedding") {
    return absl::StrCat("the table of \"", name, "\" has rows ", bounds.least, " to ", bounds.most);
  }
  return absl::StrCat("the loss \"", name, "\" has classes ", bounds.least, " to ", bounds.most,
                      bounds.ignored.has_value() ? absl::StrCat(" and leaves out ", *bounds.ignored)
                                                 : std::string());
}

bool IsWhole(const std::vector<Extent>& box) {
  return std::all_of(box.begin(), box.end(), [](const Extent& e) { return e == Extent(); });
}

// The place of an entry of a sample.
std::vector<int64_t> IndexIn(const std::vector<int64_t>& shape, int64_t flat) {
  std::vector<int64_t> index(shape.size());
  for (size_t i = shape.size(); i-- > 0; flat /= shape[i]) index[i] = flat % shape[i];
  return index;
}

}  // namespace

IndexCheck::IndexCheck(const Graph& graph) {
  inputs_.resize(graph.inputs().size());
  for (IndexBounds& bounds : FindIndexBounds(graph)) {
    const TensorMeta& meta = graph.input(bounds.input).meta;
    // Samples of a file follow each other along the first dimension.
    if (meta.shape.empty() || meta.shape[0].scale < 1 || meta.shape[0].offset != 0) continue;
    OfInput& of = inputs_[bounds.input.index()];
    of.dtype = meta.dtype;
    of.rows = meta.shape[0].scale;
    of.shape.clear();
    for (size_t i = 1; i < meta.shape.size(); ++i) of.shape.push_back(meta.shape[i].offset);
    of.rules.push_back({bounds, Takes(graph, bounds), IsWhole(bounds.box)});
  }
}

bool IndexCheck::Applies(InputId input) const {
  return input.index() < inputs_.size() && !inputs_[input.index()].rules.empty();
}

template <typename Element>
IndexCheck::Finding IndexCheck::CheckRule(const OfInput& of, const Rule& rule, int64_t samples,
                                          const std::byte* data) const {
  int64_t entries = of.rows;
  for (const int64_t size : of.shape) entries *= size;
  const IndexBounds& bounds = rule.bounds;
  for (int64_t i = 0; i < samples * entries; ++i) {
    Element element;  // Files do not align.
    std::memcpy(&element, data + i * static_cast<int64_t>(sizeof(Element)), sizeof(Element));
    const auto value = static_cast<int64_t>(element);
    if ((value >= bounds.least && value <= bounds.most) || value == bounds.ignored) continue;
    const std::vector<int64_t> index = IndexIn(of.shape, i % entries);
    bool used = true;
    for (size_t d = 0; d < index.size() && !rule.whole; ++d) {
      const Extent& extent = bounds.box[d + 1];
      used = used && index[d] >= extent.begin && index[d] < extent.end;
    }
    if (!used) continue;
    const std::string place =
        index.empty() ? std::string() : absl::StrCat(" at [", absl::StrJoin(index, ", "), "]");
    return {i / entries, absl::StrCat("holds ", value, place, ", ", rule.takes)};
  }
  return {};
}

IndexCheck::Finding IndexCheck::Check(InputId input, int64_t samples, const std::byte* data) const {
  if (!Applies(input)) return {};
  const OfInput& of = inputs_[input.index()];
  Finding first;
  for (const Rule& rule : of.rules) {
    Finding finding;
    if (of.dtype == DType::kInt64) finding = CheckRule<int64_t>(of, rule, samples, data);
    if (of.dtype == DType::kInt32) finding = CheckRule<int32_t>(of, rule, samples, data);
    if (of.dtype == DType::kInt16) finding = CheckRule<int16_t>(of, rule, samples, data);
    if (of.dtype == DType::kInt8) finding = CheckRule<int8_t>(of, rule, samples, data);
    if (of.dtype == DType::kUInt8) finding = CheckRule<uint8_t>(of, rule, samples, data);
    if (!finding.what.empty() && (first.what.empty() || finding.sample < first.sample))
      first = std::move(finding);
  }
  return first;
}

}  // namespace stagewright
