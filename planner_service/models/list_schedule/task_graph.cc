#include "planner_service/models/list_schedule/task_graph.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "common/cost/collectives.h"
#include "common/cost/gradient_buckets.h"
#include "common/cost/update.h"

namespace stagewright {
namespace {

// What a replica does and holds with so many samples of a micro-batch.
struct ReplicaSums {
  int64_t samples = 0;
  int32_t kind = 0;
  OperatorTime time;
  Bytes saved = 0;
  Bytes workspace = 0;  // The largest.
};

struct StageSums {
  bool has_backward = false;
  HeldBytes parameters;
  Bytes in_per_sample = 0;  // Activations received, and gradients of them sent back.
  Bytes back_per_sample = 0;
  Bytes held_per_sample = 0;
  std::vector<int32_t> units;
  std::vector<ReplicaSums> replicas;  // Each kind and number of samples once.
};

class Builder {
 public:
  Builder(const OperatorCosts& costs, const Draft& draft) : costs_(costs), draft_(draft) {
    graph_.devices = costs.problem().cluster->size();
    graph_.cluster_links = costs.problem().cluster->links();
    graph_.micro_batches = static_cast<int32_t>(costs.problem().mini_batch / draft.micro_batch);
    graph_.device_units.resize(graph_.devices);
    graph_.device_updates.resize(graph_.devices);
    sums_.resize(draft.stages.size());
  }

  TaskGraph Build(double memory_share) {
    CollectEdges();
    for (size_t s = 0; s < draft_.stages.size(); ++s) AddStage(static_cast<int32_t>(s));
    AddLinks();
    AddUpdates();
    LeaveMemory(memory_share);
    return std::move(graph_);
  }

 private:
  SampleRange ShareOf(int32_t stage, int32_t replica) const {
    return ReplicaShare({0, draft_.micro_batch}, replica,
                        static_cast<int32_t>(draft_.stages[stage].devices.size()));
  }

  void CollectEdges() {
    std::vector<int32_t> stage(costs_.size(), 0);
    for (size_t s = 0; s < draft_.stages.size(); ++s) {
      for (int32_t op : draft_.stages[s].operators) stage[op] = static_cast<int32_t>(s);
    }
    for (const CostTable::Value& value : costs_.values()) {
      const int32_t from = stage[value.producer];
      const bool leaves = std::any_of(value.uses.begin(), value.uses.end(),
                                      [&](const auto& use) { return stage[use.consumer] != from; });
      if (leaves) sums_[from].held_per_sample += value.held_per_sample;
    }
    edges_ = costs_.Exchanges(stage);
    for (const CostTable::Exchange& edge : edges_) {
      sums_[edge.to].in_per_sample += edge.there;
      sums_[edge.to].back_per_sample += edge.back;
      sums_[edge.from].back_per_sample += edge.back;
    }
  }

  void AddStage(int32_t s) {
    const DraftStage& stage = draft_.stages[s];
    StageSums& sums = sums_[s];
    for (int32_t op : stage.operators) {
      sums.has_backward |= costs_.held(op).has_backward;
      sums.parameters += costs_.held(op).planned;
    }
    for (size_t r = 0; r < stage.devices.size(); ++r) AddUnit(s, static_cast<int32_t>(r));
  }

  // Most replicas of a stage are alike: its operators are gone through for the first of them.
  const ReplicaSums& SumsOf(int32_t s, int64_t samples, int32_t kind) {
    std::vector<ReplicaSums>& known = sums_[s].replicas;
    for (const ReplicaSums& sums : known) {
      if (sums.samples == samples && sums.kind == kind) return sums;
    }
    const ShareTable& share = costs_.Share(samples);
    ReplicaSums& sums = known.emplace_back(ReplicaSums{samples, kind});
    for (int32_t op : draft_.stages[s].operators) {
      sums.time += share.time[kind][op];
      sums.saved += share.saved[op];
      sums.workspace = std::max(sums.workspace, share.workspace[op]);
    }
    return sums;
  }

  void AddUnit(int32_t s, int32_t replica) {
    const DraftStage& stage = draft_.stages[s];
    const int64_t samples = ShareOf(s, replica).size();
    TaskGraph::Unit unit;
    unit.stage = s;
    unit.replica = replica;
    unit.device = stage.devices[replica];
    unit.has_backward = sums_[s].has_backward;
    unit.recompute = stage.recompute && unit.has_backward;
    const int32_t kind = costs_.problem().cluster->device(DeviceId(unit.device)).kind;
    const ReplicaSums& sums = SumsOf(s, samples, kind);
    OperatorTime time = sums.time;
    const Nanos fixed = costs_.problem().cluster->kinds()[kind].pass_overhead;
    time.forward += fixed;
    time.backward += fixed;
    time.backward_input += fixed;
    unit.forward = time.forward;
    if (unit.has_backward) {
      const Nanos again = unit.recompute ? time.forward : 0;
      unit.backward = again + time.backward;
      unit.input = again + time.backward_input;
      unit.kept = (unit.recompute ? 0 : sums.saved) +
                  (sums_[s].in_per_sample + sums_[s].held_per_sample) * samples;
    }
    const auto index = static_cast<int32_t>(graph_.units.size());
    sums_[s].units.push_back(index);
    graph_.device_units[unit.device].push_back(index);
    graph_.units.push_back(unit);
  }

  // A message of the forward pass and, with a gradient, one of the backward pass.
  void AddMessage(TaskGraph::Unit& unit, const TaskGraph::Link& link) const {
    const DeviceKind& kind = costs_.problem().cluster->kind_of(DeviceId(unit.device));
    const Nanos cost = MessageCost(kind, link.there_size);
    unit.forward += cost;
    const Nanos back =
        (link.gradient ? MessageCost(kind, link.back_size) : 0) + (unit.recompute ? cost : 0);
    unit.backward += back;
    unit.input += back;
  }

  void AddLink(int32_t from, int32_t to, int64_t samples, const CostTable::Exchange& load) {
    const Cluster& cluster = *costs_.problem().cluster;
    TaskGraph::Link link;
    link.from = from;
    link.to = to;
    const DeviceId source(graph_.units[from].device);
    const DeviceId target(graph_.units[to].device);
    link.gradient = load.gradient;
    link.local = source == target;
    if (!link.local) {
      link.there_size = load.there * samples;
      link.back_size = load.back * samples;
      AddMessage(graph_.units[from], link);
      AddMessage(graph_.units[to], link);
      const Route& there = cluster.route(source, target);
      const Route& back = cluster.route(target, source);
      link.there_latency = there.latency;
      link.there_bytes = TaskGraph::TransferTime(link.there_size, there.bytes_per_second);
      link.there_route = &there;
      link.back_latency = back.latency;
      link.back_bytes = TaskGraph::TransferTime(link.back_size, back.bytes_per_second);
      link.back_route = &back;
      TaskGraph::Unit& reader = graph_.units[to];
      reader.longest_in = std::max(reader.longest_in, link.there_latency + link.there_bytes);
      if (link.gradient) {
        TaskGraph::Unit& writer = graph_.units[from];
        writer.longest_back = std::max(writer.longest_back, link.back_latency + link.back_bytes);
      }
    }
    if (link.gradient) graph_.units[to].sends_gradients = true;
    graph_.links.push_back(link);
  }

  // From a unit to the replicas of a reading stage that share samples with it. Both stages' shares
  // ascend: `first` is the first reader that may, and moves on with the units.
  void AddLinks(int32_t from, const CostTable::Exchange& edge, size_t& first) {
    const std::vector<int32_t>& readers = sums_[edge.to].units;
    const SampleRange source = ShareOf(edge.from, graph_.units[from].replica);
    for (size_t t = first; t < readers.size(); ++t) {
      const SampleRange target = ShareOf(edge.to, graph_.units[readers[t]].replica);
      if (target.begin >= source.end) break;
      const SampleRange both = Intersect(source, target);
      if (!both.empty()) AddLink(from, readers[t], both.size(), edge);
      if (target.end <= source.end) first = t + 1;
    }
  }

  void AddLinks() {
    // The chain of a sequential pipeline: empty messages where no data flows.
    const auto before = [](const auto& a, const auto& b) {
      return std::tie(a.from, a.to) < std::tie(b.from, b.to);
    };
    for (size_t s = 1; draft_.kind == StrategyKind::kSequential && s < sums_.size(); ++s) {
      CostTable::Exchange chain{static_cast<int32_t>(s) - 1, static_cast<int32_t>(s)};
      chain.gradient = sums_[s - 1].has_backward && sums_[s].has_backward;
      const auto place = std::lower_bound(edges_.begin(), edges_.end(), chain, before);
      if (place == edges_.end() || before(chain, *place)) edges_.insert(place, chain);
    }
    // Two rows of shares meet at most as often as there are shares in both, less one.
    size_t most = 0;
    for (const CostTable::Exchange& edge : edges_)
      most += sums_[edge.from].units.size() + sums_[edge.to].units.size() - 1;
    graph_.links.reserve(most);
    std::vector<size_t> first;  // By edge of a stage.
    for (size_t begin = 0, end = 0; begin < edges_.size(); begin = end) {
      while (end < edges_.size() && edges_[end].from == edges_[begin].from) ++end;
      first.assign(end - begin, 0);
      for (int32_t from : sums_[edges_[begin].from].units) {
        for (size_t e = begin; e < end; ++e) AddLinks(from, edges_[e], first[e - begin]);
      }
    }
    FillRanges();
  }

  void FillRanges() {
    const auto n = static_cast<int32_t>(graph_.units.size());
    std::vector<int32_t> out(n + 1, 0), in(n + 1, 0);
    for (const auto& link : graph_.links) {
      ++out[link.from + 1];
      ++in[link.to + 1];
    }
    for (int32_t u = 0; u < n; ++u) {
      out[u + 1] += out[u];
      in[u + 1] += in[u];
      graph_.units[u].out_begin = out[u];
      graph_.units[u].in_begin = in[u];
    }
    graph_.links_in.resize(graph_.links.size());
    for (size_t l = 0; l < graph_.links.size(); ++l) {
      graph_.links_in[in[graph_.links[l].to]++] = static_cast<int32_t>(l);
    }
  }

  void AddUpdates() {
    const Cluster& cluster = *costs_.problem().cluster;
    for (size_t i = draft_.stages.size(); i-- > 0;) {
      const auto s = static_cast<int32_t>(i);
      const DraftStage& stage = draft_.stages[s];
      if (!sums_[s].has_backward) continue;
      TaskGraph::Sum sum{s, stage.devices};
      double early_share = 0;
      if (stage.devices.size() > 1 && sums_[s].parameters.gradients > 0) {
        early_share = FillSum(sum);
        graph_.sums.push_back(sum);
      }
      // Replicas may each update a share; the all-gather behind that is left out.
      const bool shared = costs_.problem().optimizer_sharding != OptimizerSharding::kNone;
      const Bytes trained = sums_[s].parameters.trained / (shared ? std::ssize(stage.devices) : 1);
      for (int32_t u : sums_[s].units) {
        TaskGraph::Unit& unit = graph_.units[u];
        AwaitSums(sum, unit);
        const Nanos update = OptimizerStepTime(cluster.kind_of(DeviceId(unit.device)), trained,
                                               sums_[s].parameters.updated);
        const auto early = static_cast<Nanos>(early_share * static_cast<double>(update));
        const Nanos before = std::max<Nanos>(sum.exposed - sum.last, 0);
        unit.tail = std::max(before + early, sum.exposed) + update - early;
        graph_.device_updates[unit.device].push_back({s, update, early, sum.last});
      }
    }
  }

  // Where every micro-batch's gradients are summed, the next pass waits for that. A sum is the half
  // of an all-reduce.
  void AwaitSums(const TaskGraph::Sum& sum, TaskGraph::Unit& unit) const {
    if (costs_.problem().optimizer_sharding != OptimizerSharding::kGradients) return;
    if (graph_.micro_batches > 1) unit.backward += sum.exposed / 2;
  }

  // As MakeReductions cuts it, by operators. Returns the share that is summed before the last
  // bucket.
  double FillSum(TaskGraph::Sum& sum) const {
    const DraftStage& stage = draft_.stages[sum.stage];
    const Cluster& cluster = *costs_.problem().cluster;
    const ShareTable& share = costs_.Share(ShareOf(sum.stage, 0).size());
    const int32_t kind = cluster.device(DeviceId(stage.devices[0])).kind;
    std::vector<Bytes> gradients;
    std::vector<double> backward;
    for (int32_t op : stage.operators) {
      gradients.push_back(costs_.held(op).planned.gradients);
      backward.push_back(static_cast<double>(share.time[kind][op].backward));
    }
    const AllReduceLines& lines = costs_.SumsOver(stage.devices);
    const std::vector<double> left = TimeLeftAt(backward);
    const std::vector<GradientBucket> buckets =
        BestBuckets(gradients, left, lines, costs_.problem().bucket_bytes);
    Bytes all = 0;
    double time = 0;
    for (const GradientBucket& bucket : buckets) {
      all += bucket.bytes;
      time += lines.Time(bucket.bytes);
    }
    sum.time = static_cast<Nanos>(time);
    sum.exposed = static_cast<Nanos>(ExposedSums(buckets, left, lines));
    if (buckets.size() < 2) return 0;
    sum.last = static_cast<Nanos>(lines.Time(buckets.back().bytes));
    return 1 - static_cast<double>(buckets.back().bytes) / static_cast<double>(all);
  }

  // What is there all the time, and what comes and goes around one pass: the largest workspace, or
  // what is recomputed, a received input ahead, and gradients that wait to be sent.
  void LeaveMemory(double memory_share) {
    graph_.memory.assign(graph_.devices, 0);
    for (int32_t d = 0; d < graph_.devices; ++d) {
      const auto budget =
          static_cast<double>(costs_.problem().cluster->device(DeviceId(d)).memory) * memory_share;
      Bytes resident = 0;
      Bytes passing = 0;
      for (int32_t u : graph_.device_units[d]) {
        const TaskGraph::Unit& unit = graph_.units[u];
        const int64_t samples = ShareOf(unit.stage, unit.replica).size();
        const int32_t kind = costs_.problem().cluster->device(DeviceId(d)).kind;
        const ReplicaSums& own = SumsOf(unit.stage, samples, kind);
        const Bytes saved = unit.recompute || !unit.has_backward ? own.saved : Bytes(0);
        const StageSums& sums = sums_[unit.stage];
        const int64_t replicas = std::ssize(draft_.stages[unit.stage].devices);
        const OptimizerSharding sharding = costs_.problem().optimizer_sharding;
        resident += sums.parameters.ResidentOn(replicas, sharding);
        if (sharding == OptimizerSharding::kGradients)
          resident -= PassingSaves(sums.parameters.gradients, own.saved, replicas);
        passing = std::max(passing, own.workspace + saved +
                                        (sums.in_per_sample + 2 * sums.back_per_sample) * samples);
      }
      graph_.memory[d] = static_cast<Bytes>(budget) - resident - passing;
    }
  }

  const OperatorCosts& costs_;
  const Draft& draft_;
  std::vector<CostTable::Exchange> edges_;
  std::vector<StageSums> sums_;
  TaskGraph graph_;
};

}  // namespace

double Promise(const TaskGraph& graph) {
  std::vector<double> busy(graph.devices, 0);
  std::vector<Nanos> tail(graph.devices, std::numeric_limits<Nanos>::max());  // The shortest.
  std::vector<double> before(graph.units.size(), 0);  // The longest way that leads to a unit.
  double longest = 0;
  // Units are in topological order of their stages.
  for (size_t u = 0; u < graph.units.size(); ++u) {
    const TaskGraph::Unit& unit = graph.units[u];
    const auto own = static_cast<double>(unit.forward + unit.backward);
    busy[unit.device] += own;
    tail[unit.device] = std::min(tail[unit.device], unit.tail);
    const double end = before[u] + own;
    longest = std::max(longest, end + static_cast<double>(unit.tail));
    for (int32_t l = unit.out_begin; l < graph.out_end(static_cast<int32_t>(u)); ++l) {
      const TaskGraph::Link& link = graph.links[l];
      const Nanos messages =
          link.there_latency + link.there_bytes + link.back_latency + link.back_bytes;
      before[link.to] = std::max(before[link.to], end + static_cast<double>(messages));
    }
  }
  double least = 0;
  for (int32_t d = 0; d < graph.devices; ++d) {
    if (busy[d] == 0) continue;
    const double others = busy[d] * (graph.micro_batches - 1);
    least = std::max(least, others + std::max(longest, busy[d] + static_cast<double>(tail[d])));
  }
  return least;
}

TaskGraph MakeTaskGraph(const OperatorCosts& costs, const Draft& draft, double memory_share) {
  return Builder(costs, draft).Build(memory_share);
}

}  // namespace stagewright
