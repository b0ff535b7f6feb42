#include "planner_service/planners/pipedream/recurrence.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "common/base/check.h"

namespace stagewright::pipedream {
namespace {

// Sums of the same numbers in another order.
constexpr double kRounding = 1 + 1e-12;
// Entry 0 of a row, which no pipeline has: the state does not contain the start.
constexpr double kOutside = -1;
// States of the chain that the first bound comes from.
constexpr size_t kCoarseChain = 64;
// Pairs of states between two polls; a power of two.
constexpr int64_t kPairsPerPoll = 64;
// Numbers of machines that take as long as the rest of a number of replicas.
constexpr int32_t kMachinesPerChoice = 4;

// Machines that `work` keeps busy for `limit` seconds.
double MachinesFor(double work, double limit) {
  return limit > 0 ? std::ceil(work / limit - 1e-9) : 0;
}

}  // namespace

StateCosts StateCosts::Of(const LayerProfile& profile, const States& states) {
  StateCosts costs;
  costs.whole = {states.Sum(profile.seconds)};
  costs.least = costs.whole[0];
  costs.parameters = states.Sum(profile.parameters);
  costs.boundary = states.Boundary(profile.dag, profile.output);
  return costs;
}

Recurrence::Recurrence(const States& states, const StateCosts& costs, const Rules& rules,
                       const Level& level, double links, const Limits& limits,
                       const SearchContext& context)
    : states_(states),
      costs_(costs),
      rules_(rules),
      limits_(limits),
      context_(context),
      machines_(level.machines),
      most_replicas_(std::min(level.machines, limits.most_replicas)),
      last_(states.size() - 1),
      bandwidth_(level.bandwidth),
      links_(links),
      per_replica_(machines_ + 1),
      sync_(machines_ + 1),
      first_sync_(machines_ + 1),
      transfer_(machines_ + 1) {
  CHECK(machines_ >= 1 && most_replicas_ >= 1);
  for (int32_t m = 1; m <= machines_; ++m) {
    per_replica_[m] = 1.0 / m;
    sync_[m] = StageSeconds(rules, 0, 1, m, level.bandwidth);
    first_sync_[m] = rules.first_stage_has_all_links
                         ? StageSeconds(rules, 0, 1, m, level.bandwidth, links)
                         : sync_[m];
    transfer_[m] = TransferSeconds(rules, 1, m, level.bandwidth);
  }
}

double Recurrence::Stage(int32_t from, int32_t to, int32_t replicas, bool first) const {
  double compute;
  if (!costs_.inner.empty()) {
    compute = costs_.inner[static_cast<size_t>(from) * states_.size() + to];
  } else {
    const std::vector<double>& whole =
        costs_.whole.size() == 1 ? costs_.whole[0] : costs_.whole[replicas - 1];
    compute = whole[to] - whole[from];
  }
  compute *= per_replica_[replicas];
  const double parameters = costs_.parameters[to] - costs_.parameters[from];
  const double sync = parameters * (first ? first_sync_[replicas] : sync_[replicas]);
  double seconds = rules_.overlapped_sync ? std::max(compute, sync) : compute + sync;
  if (first) return seconds;
  double bytes = costs_.boundary[from];
  if (rules_.divided_transfers && to != last_) bytes = std::max(bytes, costs_.boundary[to]);
  return std::max(seconds, bytes * transfer_[replicas]);
}

int32_t Recurrence::LeastMachines(int32_t from, int32_t to, int32_t replicas) const {
  const MemoryLimits& memory = limits_.memory;
  if (memory.resident.empty()) return replicas;
  const int64_t share = (memory.mini_batch + replicas - 1) / replicas;
  const double resident = memory.resident[to] - memory.resident[from];
  const double input = costs_.boundary[from] / static_cast<double>(memory.mini_batch);
  const double saved = memory.saved_per_sample[to] - memory.saved_per_sample[from] + input;
  const double parameters = costs_.parameters[to] - costs_.parameters[from];
  const double kept = saved * static_cast<double>(share);
  const double per_mini_batch = kept + memory.versions * parameters;
  const double room =
      memory.budget - resident - memory.workspace_per_sample * static_cast<double>(share);
  // n mini-batches in flight need n * kept + max(n * versions, least_versions) * parameters.
  const double left = room - memory.least_versions * parameters;
  if (room < per_mini_batch || left < kept) return machines_ + 1;
  double most = per_mini_batch > 0 ? std::floor(room / per_mini_batch) : 1e9;
  if (kept > 0) most = std::min(most, std::floor(left / kept));
  if (most >= static_cast<double>(memory.most_in_flight)) return replicas;
  // Noam(machines - m + replicas, replicas) <= most.
  const double least = machines_ + replicas - most * replicas;
  return least <= replicas ? replicas : static_cast<int32_t>(least);
}

int32_t Recurrence::LeastReplicas(int32_t from, int32_t to) const {
  if (limit_ == kNever || limit_ <= 0) return 1;
  double least = costs_.boundary[from] * transfer_[1];
  if (!rules_.divided_transfers && least > limit_) return machines_ + 1;
  if (!rules_.divided_transfers) least = 0;
  if (!costs_.least.empty()) least = std::max(least, costs_.least[to] - costs_.least[from]);
  if (least <= limit_) return 1;
  const double replicas = std::ceil(least / limit_ - 1e-9);
  return replicas > machines_ ? machines_ + 1 : static_cast<int32_t>(replicas);
}

void Recurrence::Windows(double bound) {
  limit_ = bound * kRounding;
  low_.assign(states_.size(), 1);
  high_.assign(states_.size(), machines_);
  if (bound == kNever || costs_.least.empty()) return;
  const double total = costs_.least[last_];
  for (int32_t j = 0; j < states_.size(); ++j) {
    const double before = costs_.least[j] - costs_.least[start_];
    const double after = total - costs_.least[j];
    const double least = std::min<double>(machines_ + 1, MachinesFor(before, limit_));
    const double later = std::min<double>(machines_, MachinesFor(after, limit_));
    low_[j] = std::max(1, static_cast<int32_t>(least));
    high_[j] = machines_ - (j == last_ ? 0 : std::max(1, static_cast<int32_t>(later)));
  }
  low_[last_] = machines_;
}

void Recurrence::RelaxPair(int32_t k, int32_t j, const double* before, double* after, int32_t low,
                           int32_t high) {
  // `last` stage machines m' for which some m is in both windows.
  const int32_t first = std::max(low - high_[k], LeastReplicas(k, j));
  const int32_t most = std::min(most_replicas_, high - low_[k]);
  for (int32_t replicas = first; replicas <= most; ++replicas) {
    const double stage = Stage(k, j, replicas, /*first=*/false);
    int32_t begin = std::max(low, low_[k] + replicas);
    int32_t end = std::min(high, high_[k] + replicas);
    while (end >= begin && after[end] <= stage) --end;
    if (end < begin) continue;
    begin = std::max(begin, LeastMachines(k, j, replicas));
    for (int32_t m = begin; m <= end; ++m) {
      after[m] = std::min(after[m], std::max(before[m - replicas], stage));
    }
    ++visited_;
    choices_ += 1 + (end - begin) / kMachinesPerChoice;
  }
}

void Recurrence::Relax(int32_t from_table, int32_t to_table, const std::vector<bool>* only) {
  int64_t polled = 0;
  int64_t told = choices_;
  for (int32_t j = start_ + 1; j < states_.size(); ++j) {
    if (only != nullptr && !(*only)[j]) continue;
    if (low_[j] > high_[j] || Row(0, j)[0] == kOutside) continue;
    double* after = Row(to_table, j);
    for (int32_t k : states_.Before(j)) {
      if (k <= start_) break;
      if (low_[k] > high_[k] || (only != nullptr && !(*only)[k])) continue;
      if (Row(0, k)[0] == kOutside) continue;
      if ((++polled & (kPairsPerPoll - 1)) == 0) {
        const int64_t choices = choices_ - std::exchange(told, choices_);
        if (context_.Expired(work::kStatePair * kPairsPerPoll + work::kStageChoice * choices))
          return;
      }
      RelaxPair(k, j, Row(from_table, k), after, low_[j], high_[j]);
    }
  }
}

void Recurrence::Prepare(const std::vector<bool>* only) {
  const int32_t tables = limits_.most_stages > 0 ? std::min(limits_.most_stages, machines_) : 1;
  tables_.resize(tables);
  for (auto& table : tables_) {
    table.assign(static_cast<size_t>(states_.size()) * (machines_ + 1), kNever);
  }
  for (int32_t j = start_ + 1; j < states_.size(); ++j) {
    if (only != nullptr && !(*only)[j]) continue;
    const auto& before = states_.Before(j);
    const bool inside = start_ == 0 || std::binary_search(before.rbegin(), before.rend(), start_);
    Row(0, j)[0] = inside ? kNever : kOutside;
    for (int32_t m = 1; inside && m <= most_replicas_; ++m) {
      if (LeastMachines(start_, j, m) <= m) Row(0, j)[m] = Stage(start_, j, m, /*first=*/true);
    }
  }
}

void Recurrence::Run(int32_t start, double bound) {
  start_ = start;
  Prepare(nullptr);
  Windows(bound);
  if (limits_.most_stages == 0) Relax(0, 0, nullptr);
  for (size_t t = 1; t < tables_.size(); ++t) {
    Relax(static_cast<int32_t>(t) - 1, static_cast<int32_t>(t), nullptr);
  }
}

double Recurrence::ChainBound() {
  if (limits_.most_stages > 0) return kNever;
  start_ = 0;
  std::vector<int32_t> chain;
  for (int32_t j = last_; j > 0;) {
    chain.push_back(j);
    j = states_.Before(j).empty() ? 0 : states_.Before(j).front();
  }
  const bool one_stage =
      most_replicas_ == machines_ && LeastMachines(0, last_, machines_) <= machines_;
  double bound = one_stage ? Stage(0, last_, machines_, /*first=*/true) : kNever;
  for (const size_t wanted : {kCoarseChain, chain.size()}) {
    const size_t step = std::max<size_t>(1, chain.size() / wanted);
    std::vector<bool> chosen(states_.size(), false);
    for (size_t i = 0; i < chain.size(); i += step) chosen[chain[i]] = true;
    Prepare(&chosen);
    Windows(bound);
    Relax(0, 0, &chosen);
    bound = std::min(bound, Row(0, last_)[machines_]);
  }
  return bound;
}

double Recurrence::At(int32_t j, int32_t m) const {
  if (limits_.exact_stages) {
    const bool enough = static_cast<int32_t>(tables_.size()) == limits_.most_stages;
    return enough ? Row(limits_.most_stages - 1, j)[m] : kNever;
  }
  double best = kNever;
  for (size_t t = 0; t < tables_.size(); ++t) {
    best = std::min(best, Row(static_cast<int32_t>(t), j)[m]);
  }
  return best;
}

std::vector<Split> Recurrence::Backtrack(int32_t j, int32_t m) const {
  int32_t table = static_cast<int32_t>(tables_.size()) - 1;
  if (!limits_.exact_stages) {
    for (int32_t t = table; t >= 0; --t) {
      if (Row(t, j)[m] <= Row(table, j)[m]) table = t;
    }
  }
  std::vector<Split> splits;
  double bound = Row(table, j)[m];
  if (bound == kNever) return {};
  while (table > 0) {
    Split found;
    for (int32_t k : states_.Before(j)) {
      if (k <= start_) break;
      for (int32_t r = 1; r < m && r <= most_replicas_ && found.to == 0; ++r) {
        if (Row(table - 1, k)[m - r] > bound || Stage(k, j, r, false) > bound) continue;
        if (LeastMachines(k, j, r) > m) continue;
        found = {k, j, r};
      }
      if (found.to != 0) break;
    }
    if (found.to == 0) return {};
    splits.push_back(found);
    j = found.from;
    m -= found.replicas;
    --table;
  }
  splits.push_back({start_, j, m});
  std::reverse(splits.begin(), splits.end());
  return splits;
}

std::vector<Split> Recurrence::Fewest(int32_t end, int32_t machines, double bound) {
  if (limits_.most_stages > 0) return Backtrack(end, machines);
  struct Best {
    int32_t stages = std::numeric_limits<int32_t>::max();
    int32_t from = -1;
    int32_t replicas = 0;
    double transfers = 0;  // Seconds over all cuts.
    auto Key() const { return std::tie(stages, transfers); }
  };
  limit_ = bound * kRounding;
  const size_t width = machines_ + 1;
  std::vector<Best> best(states_.size() * width);
  for (int32_t j = start_ + 1; j <= end; ++j) {
    if (Row(0, j)[0] == kOutside) continue;
    Best* row = best.data() + j * width;
    for (int32_t m = 1; m <= std::min(most_replicas_, machines); ++m) {
      if (LeastMachines(start_, j, m) <= m && Stage(start_, j, m, true) <= limit_) {
        row[m] = {1, start_, m, 0};
      }
    }
    if (context_.Expired(work::kStageChoice * std::ssize(states_.Before(j)))) continue;
    const double least = costs_.least.empty() ? 0 : costs_.least[end] - costs_.least[j];
    const int32_t spare =
        machines - static_cast<int32_t>(std::min<double>(machines, MachinesFor(least, limit_)));
    for (int32_t k : states_.Before(j)) {
      if (k <= start_) break;
      if (Row(0, k)[0] == kOutside) continue;
      const Best* before = best.data() + k * width;
      for (int32_t r = LeastReplicas(k, j); r <= most_replicas_ && r < spare; ++r) {
        if (Stage(k, j, r, false) > limit_) continue;
        const double transfers = costs_.boundary[k] * transfer_[1];
        for (int32_t m = std::max(r + 1, LeastMachines(k, j, r)); m <= spare; ++m) {
          if (before[m - r].from < 0) continue;
          const Best next{before[m - r].stages + 1, k, r, before[m - r].transfers + transfers};
          if (next.Key() < row[m].Key()) row[m] = next;
        }
      }
    }
  }
  std::vector<Split> splits;
  for (int32_t j = end, m = machines; j != start_;) {
    const Best& at = best[j * width + m];
    if (at.from < 0) return {};
    splits.push_back({at.from, j, at.replicas});
    j = at.from;
    m -= at.replicas;
  }
  std::reverse(splits.begin(), splits.end());
  return splits;
}

}  // namespace stagewright::pipedream
