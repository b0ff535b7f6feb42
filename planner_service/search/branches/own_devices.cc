#include "planner_service/search/branches/own_devices.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "planner_service/planner/whole_batch.h"

namespace stagewright {
namespace {

// A part with less than this share of a device's work has none of its own.
constexpr double kWorthADevice = 0.5;

// A range of devices.
struct Block {
  int32_t begin = 0;
  int32_t size = 0;
};

// Devices for each by its work. REQUIRES: as many devices as `work` has values.
std::vector<Block> Deal(const std::vector<double>& work, const Block& devices) {
  std::vector<Block> blocks;
  int32_t begin = devices.begin;
  for (int32_t size : CountsByWork(work, devices.size)) {
    blocks.push_back({begin, size});
    begin += size;
  }
  return blocks;
}

// A run of operators, or a vertex of the tree with branches.
struct Part {
  int32_t vertex = -1;  // -1: a run.
  std::vector<int32_t> run;
  double work = 0;
};

class Dealer {
 public:
  Dealer(const OperatorCosts& costs, const SpTree& tree, int64_t micro_batch, Replicas replicas)
      : tree_(tree), replicas_(replicas), whole_(WholeOperators(costs.problem())) {
    draft_.micro_batch = micro_batch;
    for (const OperatorTime& time : costs.Share(micro_batch).time[0])
      work_.push_back(static_cast<double>(time.forward + time.backward));
    vertex_work_ = SumsBelow(tree, work_);
  }

  std::optional<Draft> Make(int32_t devices) {
    if (!Place(tree_.root(), {0, devices})) return std::nullopt;
    return std::move(draft_);
  }

 private:
  // False if there are more parts than devices somewhere.
  bool Place(int32_t vertex, const Block& block) {
    const SpTree::Vertex& v = tree_.vertices[vertex];
    if (v.kind == SpTree::Kind::kLeaf) {
      PlaceRun({v.leaf}, block);
      return true;
    }
    if (block.size == 1) {
      AddStage(LeavesOf(tree_, vertex), block, 1);
      return true;
    }
    std::vector<Part> parts = PartsOf(v);
    const double least = kWorthADevice * vertex_work_[vertex] / block.size;
    const auto middle = std::stable_partition(parts.begin(), parts.end(),
                                              [&](const Part& part) { return part.work >= least; });
    std::vector<Part> light(std::make_move_iterator(middle), std::make_move_iterator(parts.end()));
    parts.erase(middle, parts.end());
    if (parts.empty() || std::ssize(parts) > block.size || !PlaceEach(parts, block)) return false;
    const bool together = v.kind == SpTree::Kind::kSeries;
    for (int32_t i = 0; i < std::ssize(light); ++i) {
      std::vector<int32_t> operators =
          light[i].vertex < 0 ? std::move(light[i].run) : LeavesOf(tree_, light[i].vertex);
      const int32_t last = block.begin + block.size - 1;
      AddStage(std::move(operators), together ? block : Block{last - i % block.size, 1},
               replicas_.of_shared);
    }
    return true;
  }

  // Neighbours in a series that are leaves are one run.
  std::vector<Part> PartsOf(const SpTree::Vertex& vertex) const {
    std::vector<Part> parts;
    for (int32_t child : vertex.children) {
      const SpTree::Vertex& c = tree_.vertices[child];
      if (vertex.kind == SpTree::Kind::kParallel || c.kind != SpTree::Kind::kLeaf) {
        parts.push_back({child, {}, vertex_work_[child]});
        continue;
      }
      if (parts.empty() || parts.back().vertex >= 0) parts.emplace_back();
      parts.back().run.push_back(c.leaf);
      parts.back().work += work_[c.leaf];
    }
    return parts;
  }

  bool PlaceEach(const std::vector<Part>& parts, const Block& block) {
    std::vector<double> work;
    for (const Part& part : parts) work.push_back(part.work);
    const std::vector<Block> blocks = Deal(work, block);
    for (size_t i = 0; i < parts.size(); ++i) {
      if (parts[i].vertex < 0) {
        PlaceRun(parts[i].run, blocks[i]);
      } else if (!Place(parts[i].vertex, blocks[i])) {
        return false;
      }
    }
    return true;
  }

  // Slices of about equal time; where one has more to do, it has more devices.
  void PlaceRun(const std::vector<int32_t>& run, const Block& block) {
    const int32_t wanted = (block.size + replicas_.of_slice - 1) / replicas_.of_slice;
    const int32_t count = std::min(wanted, static_cast<int32_t>(run.size()));
    double left = 0;
    for (int32_t op : run) left += work_[op];
    std::vector<std::vector<int32_t>> slices(count);
    std::vector<double> work(count, 0);
    auto next = run.begin();
    for (int32_t i = 0; i < count; ++i) {
      const double due = left / (count - i);
      // One operator at least for each slice behind.
      while (run.end() - next >= count - i &&
             (slices[i].empty() || i + 1 == count || work[i] + work_[*next] / 2 <= due)) {
        work[i] += work_[*next];
        slices[i].push_back(*next++);
      }
      left -= work[i];
    }
    const std::vector<Block> blocks = Deal(work, block);
    for (int32_t i = 0; i < count; ++i)
      AddStage(std::move(slices[i]), blocks[i], replicas_.of_slice);
  }

  void AddStage(std::vector<int32_t> operators, const Block& block, int32_t most) {
    std::sort(operators.begin(), operators.end());
    const bool whole =
        std::any_of(operators.begin(), operators.end(), [&](int32_t op) { return whole_[op]; });
    std::vector<int32_t> devices(whole ? 1 : std::min(block.size, most));
    std::iota(devices.begin(), devices.end(), block.begin);
    draft_.stages.push_back({std::move(operators), std::move(devices), false});
  }

  const SpTree& tree_;
  const Replicas replicas_;
  const std::vector<bool> whole_;    // Operators that are not replicated.
  std::vector<double> work_;         // By operator.
  std::vector<double> vertex_work_;  // By vertex of the tree.
  Draft draft_;
};

}  // namespace

std::vector<int32_t> CountsByWork(const std::vector<double>& work, int32_t count) {
  std::vector<int32_t> counts(work.size(), 1);
  for (auto left = count - static_cast<int32_t>(work.size()); left > 0; --left) {
    size_t neediest = 0;
    for (size_t i = 1; i < work.size(); ++i) {
      if (work[i] / counts[i] > work[neediest] / counts[neediest] * (1 + 1e-9)) neediest = i;
    }
    ++counts[neediest];
  }
  return counts;
}

std::optional<Draft> DraftOnOwnDevices(const OperatorCosts& costs, const SpTree& tree,
                                       int64_t micro_batch, Replicas replicas) {
  return Dealer(costs, tree, micro_batch, replicas).Make(costs.problem().cluster->size());
}

}  // namespace stagewright
