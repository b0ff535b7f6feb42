#include "common/graph/series_parallel.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"

namespace stagewright {
namespace {

// A set of vertices that is convex in the DAG, in topological order. Covers (edges of the
// transitive reduction) within a convex set are covers of the whole DAG, so every question about a
// block is answered by the reduced edges between its own vertices.
using Block = std::vector<int32_t>;

// How a block splits: its parts and whether they follow each other or are independent.
struct Split {
  SpTree::Kind kind = SpTree::Kind::kSeries;
  std::vector<Block> parts;
  bool converted = false;
};

class Decomposer {
 public:
  explicit Decomposer(const Dag& dag)
      : reduced_(TransitiveReduction(dag, Reachability(dag))),
        block_of_(dag.size(), 0),
        position_(dag.size(), 0),
        label_(dag.size(), 0) {}

  SpTree Run(const Dag& dag) {
    // Top-down with an explicit stack (trees may be as deep as the graph is long), then renumbered
    // so that children stand before parents.
    drafts_.push_back({SpTree::Kind::kLeaf, -1, {}});
    std::vector<std::pair<int32_t, Block>> open;
    open.emplace_back(0, dag.order());
    int32_t converted = 0;
    while (!open.empty()) {
      auto [draft, block] = std::move(open.back());
      open.pop_back();
      if (block.size() == 1) {
        drafts_[draft].leaf = block[0];
        continue;
      }
      Split split = SplitBlock(block);
      converted += split.converted ? 1 : 0;
      drafts_[draft].kind = split.kind;
      for (Block& part : split.parts) {
        const auto child = static_cast<int32_t>(drafts_.size());
        drafts_.push_back({SpTree::Kind::kLeaf, -1, {}});
        drafts_[draft].children.push_back(child);
        ++last_block_;
        for (int32_t v : part) block_of_[v] = last_block_;
        open.emplace_back(child, std::move(part));
      }
    }
    SpTree tree = Finish();
    tree.converted_blocks = converted;
    return tree;
  }

 private:
  template <typename F>
  void ForEachSuccessor(int32_t v, F&& visit) const {
    for (int32_t w : reduced_.Successors(v)) {
      if (block_of_[w] == block_of_[v]) visit(w);
    }
  }

  template <typename F>
  void ForEachPredecessor(int32_t v, F&& visit) const {
    for (int32_t u : reduced_.Predecessors(v)) {
      if (block_of_[u] == block_of_[v]) visit(u);
    }
  }

  Split SplitBlock(const Block& block) {
    Split split;
    split.parts = Components(block);
    if (split.parts.size() > 1) {
      split.kind = SpTree::Kind::kParallel;
      return split;
    }
    split.parts = SeriesParts(block);
    if (split.parts.size() > 1) return split;
    split.parts = LevelCut(block);
    split.converted = true;
    return split;
  }

  // Weakly connected components, by smallest vertex.
  std::vector<Block> Components(const Block& block) {
    for (int32_t v : block) label_[v] = -1;
    std::vector<std::pair<int32_t, int32_t>> smallest;  // (smallest vertex, label)
    std::vector<int32_t> stack;
    for (int32_t root : block) {
      if (label_[root] >= 0) continue;
      const auto label = static_cast<int32_t>(smallest.size());
      smallest.emplace_back(root, label);
      label_[root] = label;
      stack.push_back(root);
      auto reach = [&](int32_t w) {
        if (label_[w] >= 0) return;
        label_[w] = label;
        stack.push_back(w);
      };
      while (!stack.empty()) {
        const int32_t v = stack.back();
        stack.pop_back();
        smallest[label].first = std::min(smallest[label].first, v);
        ForEachSuccessor(v, reach);
        ForEachPredecessor(v, reach);
      }
    }
    if (smallest.size() == 1) return {};
    std::sort(smallest.begin(), smallest.end());
    std::vector<int32_t> rank(smallest.size());
    for (size_t i = 0; i < smallest.size(); ++i) {
      rank[smallest[i].second] = static_cast<int32_t>(i);
    }
    std::vector<Block> parts(smallest.size());
    for (int32_t v : block) parts[rank[label_[v]]].push_back(v);
    return parts;
  }

  // Series cuts. A set that precedes all others is a prefix of every topological order, so only
  // prefixes of the block are candidates. The cut after s vertices is one exactly if the covers
  // that cross it join every maximal vertex of the prefix with every minimal vertex of the rest.
  std::vector<Block> SeriesParts(const Block& block) {
    const auto n = static_cast<int64_t>(block.size());
    std::vector<int32_t> missing(n);  // Predecessors outside the prefix.
    std::vector<bool> covered(n);     // Has a successor in the prefix: not maximal.
    for (int64_t i = 0; i < n; ++i) position_[block[i]] = static_cast<int32_t>(i);
    int64_t minimal = 0;
    for (int64_t i = 0; i < n; ++i) {
      ForEachPredecessor(block[i], [&](int32_t) { ++missing[i]; });
      minimal += missing[i] == 0;
    }
    std::vector<Block> parts;
    int64_t maximal = 0;
    int64_t crossing = 0;
    int64_t begin = 0;
    for (int64_t i = 0; i + 1 < n; ++i) {
      --minimal;
      ++maximal;
      ForEachPredecessor(block[i], [&](int32_t u) {
        --crossing;
        if (!covered[position_[u]]) --maximal;
        covered[position_[u]] = true;
      });
      ForEachSuccessor(block[i], [&](int32_t w) {
        ++crossing;
        if (--missing[position_[w]] == 0) ++minimal;
      });
      if (crossing != maximal * minimal) continue;
      if (!IsComplete(block, i + 1, begin, covered, missing, minimal)) continue;
      parts.emplace_back(block.begin() + begin, block.begin() + i + 1);
      begin = i + 1;
    }
    if (begin > 0) parts.emplace_back(block.begin() + begin, block.end());
    return parts;
  }

  // Every maximal vertex of the prefix of length `end` has all `minimal` minimal vertices of the
  // rest as successors. Maximal vertices lie behind the last cut, `begin`. A cover crosses at most
  // one true cut, so all successful calls together visit each edge once.
  bool IsComplete(const Block& block, int64_t end, int64_t begin, const std::vector<bool>& covered,
                  const std::vector<int32_t>& missing, int64_t minimal) const {
    for (int64_t i = begin; i < end; ++i) {
      if (covered[i]) continue;
      int64_t found = 0;
      ForEachSuccessor(block[i], [&](int32_t w) { found += missing[position_[w]] == 0; });
      if (found != minimal) return false;
    }
    return true;
  }

  // Two halves at the best level boundary, as the header defines it.
  std::vector<Block> LevelCut(const Block& block) {
    std::vector<std::vector<int32_t>> levels;
    for (int32_t v : block) {
      int32_t level = 0;
      ForEachPredecessor(v, [&](int32_t u) { level = std::max(level, label_[u] + 1); });
      label_[v] = level;
      if (level == static_cast<int32_t>(levels.size())) levels.emplace_back();
      levels[level].push_back(v);
    }
    const auto depth = static_cast<int32_t>(levels.size());
    CHECK(depth >= 2);
    const std::vector<bool> head_connected = ConnectedPrefixes(levels);
    std::reverse(levels.begin(), levels.end());
    const std::vector<bool> tail_connected = ConnectedPrefixes(levels);
    std::vector<int64_t> change(depth, 0);
    for (int32_t v : block) {
      ForEachSuccessor(v, [&](int32_t w) {
        ++change[label_[v]];
        --change[label_[w]];
      });
    }
    std::tuple<int32_t, int32_t, int64_t, int32_t> best = {3, 0, 0, 0};
    int64_t crossing = 0;
    for (int32_t level = 0; level + 1 < depth; ++level) {  // Boundary behind `level`.
      crossing += change[level];
      const int32_t connected = head_connected[level] + tail_connected[depth - 2 - level];
      best = std::min(best, {connected, std::abs(2 * (level + 1) - depth), crossing, level});
    }
    std::vector<Block> halves(2);
    for (int32_t v : block) halves[label_[v] <= std::get<3>(best) ? 0 : 1].push_back(v);
    return halves;
  }

  // For every l, whether levels 0 to l form one component of at least two vertices.
  std::vector<bool> ConnectedPrefixes(const std::vector<std::vector<int32_t>>& levels) {
    std::vector<bool> connected;
    int64_t size = 0;
    int64_t components = 0;
    // Union-find over position_; a vertex that is not yet in the prefix has none.
    for (const auto& level : levels) {
      for (int32_t v : level) position_[v] = -1;
    }
    auto find = [&](int32_t v) {
      while (position_[v] != v) v = position_[v] = position_[position_[v]];
      return v;
    };
    for (const auto& level : levels) {
      for (int32_t v : level) {
        position_[v] = v;
        ++size;
        ++components;
        auto unite = [&](int32_t w) {
          if (position_[w] < 0 || find(v) == find(w)) return;
          position_[find(w)] = find(v);
          --components;
        };
        ForEachSuccessor(v, unite);
        ForEachPredecessor(v, unite);
      }
      connected.push_back(components == 1 && size > 1);
    }
    return connected;
  }

  // Renumbers the drafts, children first, and merges series into series (a converted block within a
  // chain).
  SpTree Finish() const {
    SpTree tree;
    struct Frame {
      int32_t draft;
      size_t next;
      std::vector<int32_t> children;
    };
    std::vector<Frame> path;
    path.push_back({0, 0, {}});
    while (!path.empty()) {
      Frame& frame = path.back();
      const SpTree::Vertex& draft = drafts_[frame.draft];
      if (frame.next < draft.children.size()) {
        path.push_back({draft.children[frame.next++], 0, {}});
        continue;
      }
      Frame done = std::move(frame);
      path.pop_back();
      if (!path.empty() && draft.kind != SpTree::Kind::kLeaf &&
          drafts_[path.back().draft].kind == draft.kind) {
        auto& into = path.back().children;
        into.insert(into.end(), done.children.begin(), done.children.end());
        continue;
      }
      tree.vertices.push_back({draft.kind, draft.leaf, std::move(done.children)});
      if (!path.empty()) path.back().children.push_back(tree.root());
    }
    return tree;
  }

  const Dag reduced_;
  std::vector<SpTree::Vertex> drafts_;
  std::vector<int32_t> block_of_;  // The innermost block of each vertex.
  std::vector<int32_t> position_;  // Scratch: index within the block, or union-find parent.
  std::vector<int32_t> label_;     // Scratch: component or level within the block.
  int32_t last_block_ = 0;
};

}  // namespace

SpTree Decompose(const Dag& dag) {
  CHECK(dag.size() > 0);
  return Decomposer(dag).Run(dag);
}

std::string ToString(const SpTree& tree) {
  std::string text;
  std::vector<std::pair<int32_t, size_t>> path = {{tree.root(), 0}};
  while (!path.empty()) {
    auto& [index, next] = path.back();
    const SpTree::Vertex& vertex = tree.vertices[index];
    if (vertex.kind == SpTree::Kind::kLeaf) {
      absl::StrAppend(&text, vertex.leaf);
      path.pop_back();
    } else if (next == vertex.children.size()) {
      text += ')';
      path.pop_back();
    } else {
      text += next > 0 ? " " : vertex.kind == SpTree::Kind::kSeries ? "S(" : "P(";
      path.emplace_back(vertex.children[next++], 0);
    }
  }
  return text;
}

std::vector<int32_t> LeavesOf(const SpTree& tree, int32_t vertex) {
  std::vector<int32_t> leaves;
  std::vector<int32_t> stack = {vertex};
  while (!stack.empty()) {
    const SpTree::Vertex& next = tree.vertices[stack.back()];
    stack.pop_back();
    if (next.kind == SpTree::Kind::kLeaf) leaves.push_back(next.leaf);
    stack.insert(stack.end(), next.children.rbegin(), next.children.rend());
  }
  return leaves;
}

std::vector<double> SumsBelow(const SpTree& tree, const std::vector<double>& values) {
  std::vector<double> sums;
  for (const SpTree::Vertex& vertex : tree.vertices) {
    double sum = vertex.kind == SpTree::Kind::kLeaf ? values[vertex.leaf] : 0;
    for (int32_t child : vertex.children) sum += sums[child];
    sums.push_back(sum);
  }
  return sums;
}

std::vector<int32_t> Linearize(const SpTree& tree) { return LeavesOf(tree, tree.root()); }

}  // namespace stagewright
