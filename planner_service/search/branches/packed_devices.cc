#include "planner_service/search/branches/packed_devices.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "planner_service/planner/whole_batch.h"

namespace stagewright {
namespace {

// Branches side by side are one piece up to this share of what a device should do.
constexpr double kLight = 0.1;
// Replicas of all pieces, for each device.
constexpr size_t kMostEach = 4;

struct Piece {
  std::vector<int32_t> operators;
  double work = 0;  // On the first kind of device.
};

class Packer {
 public:
  Packer(const OperatorCosts& costs, const SpTree& tree, int64_t micro_batch,
         const Packing& packing)
      : tree_(tree), packing_(packing), whole_(WholeOperators(costs.problem())) {
    draft_.micro_batch = micro_batch;
    const std::vector<std::vector<OperatorTime>>& times = costs.Share(micro_batch).time;
    std::vector<double> work, totals;  // By operator on the first kind; by kind of device.
    for (const auto& on_kind : times) {
      double total = 0;
      for (const OperatorTime& time : on_kind)
        total += static_cast<double>(time.forward + time.backward);
      totals.push_back(total);
    }
    for (const OperatorTime& time : times[0])
      work.push_back(static_cast<double>(time.forward + time.backward));
    work_ = SumsBelow(tree, work);
    const Cluster& cluster = *costs.problem().cluster;
    for (int32_t d = 0; d < cluster.size(); ++d) {
      const double total = totals[cluster.device(DeviceId(d)).kind];
      speeds_.push_back(total > 0 ? totals[0] / total : 1);
    }
    share_ = totals[0] / std::accumulate(speeds_.begin(), speeds_.end(), 0.0);
    loads_.assign(speeds_.size(), 0);
  }

  std::optional<Draft> Make() {
    Cut(tree_.root());
    Flush();
    std::stable_sort(pieces_.begin(), pieces_.end(),
                     [](const Piece& a, const Piece& b) { return a.work > b.work; });
    for (Piece& piece : pieces_) {
      if (replicas_ >= kMostEach * loads_.size()) return std::nullopt;
      Place(std::move(piece));
    }
    return std::move(draft_);
  }

 private:
  // What follows one another is a piece as long as that is short enough, branches if they are
  // light.
  void Cut(int32_t vertex) {
    const SpTree::Vertex& v = tree_.vertices[vertex];
    const double most = packing_.longest * share_ * (1 + 1e-9);
    if (piece_.work + work_[vertex] > most) Flush();
    if (work_[vertex] <= most || v.kind == SpTree::Kind::kLeaf) {
      const std::vector<int32_t> leaves = LeavesOf(tree_, vertex);
      piece_.operators.insert(piece_.operators.end(), leaves.begin(), leaves.end());
      piece_.work += work_[vertex];
      return;
    }
    const bool parallel = v.kind == SpTree::Kind::kParallel;
    if (parallel) Flush();
    for (int32_t child : v.children) {
      if (parallel && piece_.work + work_[child] > kLight * share_) Flush();
      Cut(child);
    }
    if (parallel) Flush();
  }

  void Flush() {
    if (!piece_.operators.empty()) pieces_.push_back(std::exchange(piece_, {}));
  }

  void Place(Piece piece) {
    std::vector<int32_t> devices(loads_.size());  // Those with least to do first.
    std::iota(devices.begin(), devices.end(), 0);
    std::stable_sort(devices.begin(), devices.end(), [&](int32_t a, int32_t b) {
      return loads_[a] / speeds_[a] < loads_[b] / speeds_[b];
    });
    const int32_t replicas = Replicas(piece, devices);
    devices.resize(replicas);
    for (int32_t d : devices) loads_[d] += piece.work / replicas;
    replicas_ += devices.size();
    std::sort(devices.begin(), devices.end());
    std::sort(piece.operators.begin(), piece.operators.end());
    draft_.stages.push_back({std::move(piece.operators), std::move(devices), false});
  }

  // As few as fit, or as many as end soonest.
  int32_t Replicas(const Piece& piece, const std::vector<int32_t>& devices) const {
    const bool whole = std::any_of(piece.operators.begin(), piece.operators.end(),
                                   [&](int32_t op) { return whole_[op]; });
    const auto most = whole ? 1 : std::min(packing_.replicas, static_cast<int32_t>(devices.size()));
    int32_t best = 1;
    double soonest = End(piece, devices, 1);
    for (int32_t r = 2; r <= most && soonest > (1 + packing_.slack) * share_; ++r) {
      const double end = End(piece, devices, r);
      if (end >= soonest) continue;
      soonest = end;
      best = r;
    }
    return best;
  }

  // When the last of the first `replicas` devices has done the piece as well.
  double End(const Piece& piece, const std::vector<int32_t>& devices, int32_t replicas) const {
    double end = 0;
    for (int32_t r = 0; r < replicas; ++r) {
      const int32_t d = devices[r];
      end = std::max(end, (loads_[d] + piece.work / replicas) / speeds_[d]);
    }
    return end;
  }

  const SpTree& tree_;
  const Packing packing_;
  const std::vector<bool> whole_;  // Operators that are not replicated.
  std::vector<double> work_;       // By vertex of the tree, on the first kind of device.
  std::vector<double> speeds_;     // By device, over the first kind's.
  std::vector<double> loads_;      // By device.
  double share_ = 0;               // What a device of the first kind should do.
  std::vector<Piece> pieces_;
  Piece piece_;  // The one that is being cut.
  size_t replicas_ = 0;
  Draft draft_;
};

}  // namespace

std::optional<Draft> DraftOnPackedDevices(const OperatorCosts& costs, const SpTree& tree,
                                          int64_t micro_batch, const Packing& packing) {
  return Packer(costs, tree, micro_batch, packing).Make();
}

}  // namespace stagewright
