#include "common/cost/operations/contraction.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "common/cost/operations/operands.h"
#include "common/graph/aten.h"

namespace stagewright {
namespace {

using Sizes = std::vector<double>;

Sizes SizesOf(const TensorMeta& meta, int64_t samples) {
  Sizes sizes;
  for (const SymInt& dim : meta.shape) sizes.push_back(static_cast<double>(dim.At(samples)));
  return sizes;
}

// Dimensions of a term of an equation. Those that an ellipsis stands for count from the right, as
// they are broadcast: they are named by characters below all letters.
std::string Labels(std::string_view term, size_t rank) {
  const size_t dots = term.find("...");
  if (dots == std::string_view::npos) return std::string(term);
  const size_t letters = term.size() - 3;
  std::string labels(term.substr(0, dots));
  for (size_t left = rank > letters ? rank - letters : 0; left > 0; --left)
    labels.push_back(static_cast<char>(left));
  return labels.append(term.substr(dots + 3));
}

// Without "->", the labels that are there once are those of the result.
std::set<char> ResultOf(const std::vector<std::string>& sides,
                        const std::vector<std::string>& terms) {
  std::map<char, int> count;
  std::set<char> result;
  for (const std::string& term : terms)
    for (char label : term) ++count[label];
  for (const auto& [label, times] : count) {
    const bool dots = !absl::ascii_isalpha(static_cast<unsigned char>(label));
    const bool kept = sides.size() > 1 ? sides[1].find(label) != std::string::npos : times == 1;
    if (dots || kept) result.insert(label);
  }
  return result;
}

// Two at a time from the left: each takes as many products as all dimensions of both have places,
// and as many sums where a dimension is in no later operand and not in the result.
double EinsumFlops(std::string_view equation, const std::vector<TensorMeta>& operands,
                   int64_t samples) {
  std::string plain(equation);
  plain.erase(std::remove(plain.begin(), plain.end(), ' '), plain.end());
  const std::vector<std::string> sides = absl::StrSplit(plain, "->");
  std::vector<std::string> terms = absl::StrSplit(sides[0], ',');
  if (terms.size() != operands.size()) return 0;
  std::map<char, double> size;
  for (size_t i = 0; i < terms.size(); ++i) {
    terms[i] = Labels(terms[i], operands[i].shape.size());
    const Sizes sizes = SizesOf(operands[i], samples);
    if (sizes.size() != terms[i].size()) return 0;
    for (size_t d = 0; d < sizes.size(); ++d)
      size[terms[i][d]] = std::max(size[terms[i][d]], sizes[d]);
  }
  const std::set<char> result = ResultOf(sides, terms);
  std::set<char> held(terms[0].begin(), terms[0].end());
  double flops = 0;
  for (size_t i = 1; i < terms.size(); ++i) {
    held.insert(terms[i].begin(), terms[i].end());
    std::set<char> needed = result;
    for (size_t later = i + 1; later < terms.size(); ++later)
      needed.insert(terms[later].begin(), terms[later].end());
    double products = 1;
    for (char label : held) products *= size[label];
    const size_t before = held.size();
    for (auto it = held.begin(); it != held.end();)
      it = needed.count(*it) > 0 ? std::next(it) : held.erase(it);
    flops += held.size() < before ? 2 * products : products;
  }
  return flops;
}

double TensordotFlops(const Node& node, const Sizes& left, double outputs) {
  const auto* dims =
      node.args.size() > 2 ? std::get_if<Argument::List>(&node.args[2].value) : nullptr;
  if (dims == nullptr) return outputs;
  double inner = 1;
  for (const Argument& item : *dims) {
    const auto* number = std::get_if<SymInt>(&item.value);
    if (number == nullptr) return outputs;
    const auto rank = static_cast<int64_t>(left.size());
    const int64_t dim = number->offset < 0 ? number->offset + rank : number->offset;
    if (dim >= 0 && dim < rank) inner *= left[static_cast<size_t>(dim)];
  }
  return 2 * outputs * inner;
}

double ChainFlops(const std::vector<TensorMeta>& operands, int64_t samples) {
  std::vector<Sizes> sizes;
  for (const TensorMeta& operand : operands) sizes.push_back(SizesOf(operand, samples));
  const bool matrices =
      std::all_of(sizes.begin(), sizes.end(), [](const Sizes& each) { return !each.empty(); });
  if (!matrices || sizes.size() < 2) return 0;
  const double rows = sizes.front().size() > 1 ? sizes.front().front() : 1;
  const double columns = sizes.back().size() > 1 ? sizes.back().back() : 1;
  double from_left = 0, from_right = 0;
  for (size_t i = 1; i < sizes.size(); ++i) {
    const Sizes& last = sizes[i];
    from_left += 2 * rows * last.front() * (last.size() > 1 ? last.back() : 1);
    const Sizes& first = sizes[i - 1];
    from_right += 2 * (first.size() > 1 ? first.front() : 1) * first.back() * columns;
  }
  return std::min(from_left, from_right);
}

}  // namespace

double ContractionFlops(const Graph& graph, const Node& node, int64_t samples) {
  const std::string_view name = AtenName(node.target);
  const double outputs = OutputElements(node, samples);
  const std::vector<TensorMeta> operands = OperandsFrom(graph, node, 0);
  double flops = 0;
  if (name == "einsum") {
    const auto* equation =
        node.args.empty() ? nullptr : std::get_if<std::string>(&node.args[0].value);
    if (equation != nullptr) flops = EinsumFlops(*equation, operands, samples);
  } else if (name == "linalg_multi_dot" || name == "chain_matmul") {
    flops = ChainFlops(operands, samples);
  } else if (!operands.empty() && !operands[0].shape.empty()) {
    const Sizes left = SizesOf(operands[0], samples);
    if (name == "tensordot") flops = TensordotFlops(node, left, outputs);
    if (name == "cdist") flops = 2 * outputs * left.back();
    // Every result takes a product per pair of its operands' numbers.
    if (name == "bilinear" && operands.size() > 2)
      flops = 2 * outputs * left.back() * SizesOf(operands[1], samples).back();
  }
  return std::max(flops, outputs);
}

}  // namespace stagewright
