#include "planner_service/planners/pfeife/chain_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace stagewright::pfeife {
namespace {

template <typename T>
void PushSum(std::vector<T>& sums, T item) {
  sums.push_back(sums.back() + item);
}

}  // namespace

ChainModel::ChainModel(const OperatorCosts& costs, std::vector<int32_t> order, int64_t samples,
                       ModelRules rules)
    : costs_(&costs), order_(std::move(order)), samples_(samples), rules_(rules) {
  const ShareTable& share = costs.Share(samples);
  for (const std::vector<OperatorTime>& times : share.time) {
    std::vector<double>& forward = forward_.emplace_back(1, 0.0);
    std::vector<double>& backward = backward_.emplace_back(1, 0.0);
    for (int32_t op : order_) {
      PushSum(forward, static_cast<double>(times[op].forward));
      PushSum(backward, static_cast<double>(times[op].backward));
    }
    if (rules.one_ratio && forward.back() > 0) {
      const double ratio = backward.back() / forward.back();
      for (size_t p = 0; p < backward.size(); ++p) backward[p] = forward[p] * ratio;
    }
    if (rules.recompute) {
      for (size_t p = 0; p < backward.size(); ++p) backward[p] += forward[p];
    }
  }
  saved_.assign(1, 0);
  resident_.assign(1, 0);
  for (int32_t op : order_) {
    PushSum(saved_, share.saved[op]);
    PushSum(resident_, costs.held(op).planned.resident);
    workspace_.push_back(share.workspace[op]);
  }
  std::vector<int32_t> position(order_.size());
  for (size_t p = 0; p < order_.size(); ++p) position[order_[p]] = static_cast<int32_t>(p);
  const auto scale = static_cast<double>(samples);
  for (const OperatorCosts::Value& value : costs.values()) {
    Value& own = values_.emplace_back();
    own.producer = position[value.producer];
    own.bytes = static_cast<double>(value.bytes_per_sample) * scale;
    own.held = static_cast<double>(value.held_per_sample) * scale;
    for (const OperatorCosts::Use& use : value.uses) {
      own.readers.push_back(position[use.consumer]);
      if (use.gradient) own.gradient.push_back(position[use.consumer]);
    }
    std::sort(own.readers.begin(), own.readers.end());
    std::sort(own.gradient.begin(), own.gradient.end());
  }
  crossing_.resize(order_.size() + 1);
  collected_.resize(order_.size() + 1);
}

const std::vector<int32_t>& ChainModel::Crossing(int32_t cut) {
  std::vector<int32_t>& crossing = crossing_[cut];
  if (collected_[cut]) return crossing;
  collected_[cut] = true;
  for (size_t v = 0; v < values_.size(); ++v) {
    if (values_[v].producer < cut && values_[v].readers.back() >= cut) {
      crossing.push_back(static_cast<int32_t>(v));
    }
  }
  std::stable_sort(crossing.begin(), crossing.end(),
                   [&](int32_t a, int32_t b) { return values_[a].producer > values_[b].producer; });
  return crossing;
}

void ChainModel::Times(const std::vector<int32_t>& cuts, const std::vector<int32_t>& devices,
                       SliceCosts& slices) const {
  const size_t count = cuts.size() - 1;
  slices.forward.resize(count);
  slices.backward.resize(count);
  for (size_t s = 0; s < count; ++s) {
    const int32_t kind = KindOf(devices[s % devices.size()]);
    slices.forward[s] = forward_[kind][cuts[s + 1]] - forward_[kind][cuts[s]];
    slices.backward[s] = backward_[kind][cuts[s + 1]] - backward_[kind][cuts[s]];
  }
}

void ChainModel::Messages(const std::vector<int32_t>& cuts, const std::vector<int32_t>& devices,
                          SliceCosts& slices) {
  const Cluster& cluster = *costs_->problem().cluster;
  const auto count = static_cast<int32_t>(cuts.size()) - 1;
  const auto on = [&](int32_t slice) { return devices[slice % devices.size()]; };
  slices.messages.clear();
  row_.assign(count, {});
  for (int32_t s = 0; s < count; ++s) {
    int32_t last = s;
    for (int32_t v : Crossing(cuts[s + 1])) {
      const Value& value = values_[v];
      if (value.producer < cuts[s]) break;
      // `to` advances with the readers, which ascend.
      const auto add = [&](const std::vector<int32_t>& readers, bool gradient) {
        int32_t to = s + 1;
        int32_t counted = -1;
        for (int32_t reader : readers) {
          if (reader < cuts[s + 1]) continue;
          while (cuts[to + 1] <= reader) ++to;
          if (counted == to && !rules_.per_reader) continue;
          counted = to;
          last = std::max(last, to);
          Traffic& traffic = row_[to];
          traffic.used = true;
          (gradient ? traffic.back : traffic.there) += value.bytes;
          traffic.gradient |= gradient;
        }
      };
      add(value.readers, false);
      add(value.gradient, true);
    }
    for (int32_t to = s + 1; to <= last; ++to) {
      Traffic& traffic = row_[to];
      if (traffic.used) {
        const auto time = [&](int32_t from, int32_t receiver, double bytes) {
          if (on(from) == on(receiver)) return 0.0;
          const Route& route = cluster.route(DeviceId(on(from)), DeviceId(on(receiver)));
          return static_cast<double>(route.latency) + bytes / route.bytes_per_second * 1e9;
        };
        slices.messages.push_back(
            {s, to, time(s, to, traffic.there), traffic.gradient ? time(to, s, traffic.back) : -1,
             static_cast<Bytes>(traffic.back), static_cast<Bytes>(traffic.there)});
      }
      traffic = {};
    }
  }
}

SliceMemory ChainModel::Memory(const std::vector<int32_t>& cuts) {
  const auto count = static_cast<int32_t>(cuts.size()) - 1;
  SliceMemory slices;
  for (int32_t s = 0; s < count; ++s) {
    double outputs = 0;
    for (int32_t v : Crossing(cuts[s + 1])) {
      if (values_[v].producer < cuts[s]) break;
      outputs += values_[v].held;
    }
    slices.resident.push_back(resident_[cuts[s + 1]] - resident_[cuts[s]]);
    slices.saved.push_back(saved_[cuts[s + 1]] - saved_[cuts[s]]);
    slices.outputs.push_back(static_cast<Bytes>(outputs));
    slices.workspace.push_back(
        *std::max_element(workspace_.begin() + cuts[s], workspace_.begin() + cuts[s + 1]));
  }
  return slices;
}

double ChainModel::LeastTime(const std::vector<int32_t>& devices) const {
  double rate = 0;  // Models per ns, all devices together, if each had the whole model at once.
  for (int32_t device : devices) {
    const int32_t kind = KindOf(device);
    const double whole = forward_[kind].back() + backward_[kind].back();
    if (whole <= 0) return 0;
    rate += 1 / whole;
  }
  return 1 / rate;
}

std::vector<int32_t> ChainModel::Even(const std::vector<double>& weight, int32_t slices) const {
  std::vector<double> sums(1, 0.0);
  for (double w : weight) PushSum(sums, w);
  std::vector<int32_t> cuts = {0};
  for (int32_t s = 1; s < slices; ++s) {
    const double target = sums.back() * s / slices;
    const auto nearest = std::lower_bound(sums.begin(), sums.end(), target);
    auto cut = static_cast<int32_t>(nearest - sums.begin());
    if (cut > 0 && target - sums[cut - 1] < sums[cut] - target) --cut;
    cuts.push_back(std::clamp(cut, cuts.back() + 1, size() - (slices - s)));
  }
  cuts.push_back(size());
  return cuts;
}

std::vector<int32_t> ChainModel::EvenTime(int32_t slices) const {
  std::vector<double> weight;
  for (int32_t p = 0; p < size(); ++p) {
    weight.push_back(forward_[0][p + 1] - forward_[0][p] + backward_[0][p + 1] - backward_[0][p]);
  }
  return Even(weight, slices);
}

std::vector<int32_t> ChainModel::EvenMemory(int32_t slices) const {
  std::vector<double> weight;
  for (int32_t p = 0; p < size(); ++p) {
    weight.push_back(
        static_cast<double>(resident_[p + 1] - resident_[p] + saved_[p + 1] - saved_[p]));
  }
  return Even(weight, slices);
}

}  // namespace stagewright::pfeife
