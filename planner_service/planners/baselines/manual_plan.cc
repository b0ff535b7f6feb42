#include "planner_service/planners/baselines/manual_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/error_details.h"
#include "common/base/json_object.h"
#include "common/base/one_line.h"
#include "common/graph/coarsening/set_aside.h"
#include "common/strategy/in_flight.h"
#include "common/strategy/orders.h"
#include "common/strategy/stage_edges.h"

namespace stagewright {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kModule = "module:";
constexpr std::string_view kRange = "..";

class ManualReader {
 public:
  ManualReader(const Problem& problem, const Json& root)
      : problem_(problem),
        root_(root, "", error_,
              {"kind", "micro_batch", "asynchronous", "vertical_sync", "batch_statistics",
               "bucket_bytes", "optimizer_sharding", "stages", "orders"}),
        owner_(problem.graph->size(), -1) {
    for (int32_t v = 0; v < problem.graph->size(); ++v) {
      nodes_.emplace(problem.graph->node(NodeId(v)).name, v);
    }
    for (int32_t d = 0; placed() && d < problem.cluster->size(); ++d) {
      devices_.emplace(problem.cluster->device(DeviceId(d)).name, d);
    }
    shared_ = problem.operators == nullptr ? MayBeSetAside(*problem.graph)
                                           : problem.operators->replicated();
    is_shared_.assign(problem.graph->size(), false);
    for (NodeId node : shared_) is_shared_[node.index()] = true;
    const std::vector<int32_t>& order = problem.graph->dag().order();
    rank_.resize(order.size());
    for (size_t i = 0; i < order.size(); ++i) rank_[order[i]] = static_cast<int32_t>(i);
  }

  absl::StatusOr<Strategy> Read() {
    strategy_ = EmptyStrategy(problem_, StrategyKind::kGraph);
    const std::string graph = "graph";
    const std::string kind = root_.Text("kind", &graph);
    if (kind != "graph" && kind != "sequential")
      root_.Fail("kind", R"(is neither "graph" nor "sequential")");
    strategy_.kind = kind == "graph" ? StrategyKind::kGraph : StrategyKind::kSequential;
    strategy_.asynchronous = root_.Flag("asynchronous", false);
    strategy_.vertical_sync = root_.Flag("vertical_sync", false);
    if (strategy_.vertical_sync && !strategy_.asynchronous)
      root_.Fail("vertical_sync", "is of asynchronous plans only");
    ReadBatchStatistics();
    const int64_t asked = problem_.bucket_bytes.count();
    strategy_.bucket_bytes = Bytes(root_.Integer("bucket_bytes", &asked));
    if (strategy_.bucket_bytes < 0) root_.Fail("bucket_bytes", "is negative");
    ReadOptimizerSharding();
    const Json& stages = root_.Array("stages");
    if (stages.empty()) root_.Fail("stages", "is empty");
    for (size_t s = 0; s < stages.size() && error_.ok(); ++s) ReadStage(stages[s], s);
    if (error_.ok()) PlaceRest();
    RETURN_IF_ERROR(error_);
    Finish();
    ReadOrders();
    RETURN_IF_ERROR(error_);
    NumberFromZero();
    return std::move(strategy_);
  }

 private:
  void ReadOptimizerSharding() {
    const std::string asked = OptimizerShardingName(problem_.optimizer_sharding);
    const auto sharding = ParseOptimizerSharding(root_.Text("optimizer_sharding", &asked));
    if (!sharding.has_value()) {
      root_.Fail("optimizer_sharding", R"(is neither "none", "states" nor "gradients")");
    } else if (*sharding != OptimizerSharding::kNone && strategy_.asynchronous) {
      root_.Fail("optimizer_sharding", "is of synchronous plans only");
    } else {
      strategy_.optimizer_sharding = *sharding;
    }
  }

  void ReadBatchStatistics() {
    const std::string asked = BatchStatisticsName(problem_.batch_statistics);
    const std::string name = root_.Text("batch_statistics", &asked);
    for (const auto statistics :
         {BatchStatistics::kWhole, BatchStatistics::kMicro, BatchStatistics::kSynchronised}) {
      if (name != BatchStatisticsName(statistics)) continue;
      strategy_.batch_statistics = statistics;
      return;
    }
    root_.Fail("batch_statistics", R"(is neither "whole", "micro" nor "synchronised")");
  }

  void ReadStage(const Json& json, size_t index) {
    JsonObject object(json, absl::StrCat("stages[", index, "]"), error_,
                      {"nodes", "devices", "micro_batch", "k", "in_flight", "recompute"});
    Stage stage;
    const int64_t all = root_.Has("micro_batch") ? root_.Integer("micro_batch") : 0;
    stage.micro_batch = object.Integer("micro_batch", all > 0 ? &all : nullptr);
    if (stage.micro_batch < 1 || problem_.mini_batch % stage.micro_batch != 0) {
      object.Fail("micro_batch", absl::StrCat("is ", stage.micro_batch, ", which does not divide ",
                                              problem_.mini_batch, " samples"));
    }
    const int64_t one = 1;
    stage.schedule.k = object.Count("k", &one);
    if (stage.schedule.k < 1) object.Fail("k", "is less than 1");
    stage.recompute = object.Flag("recompute", false);
    in_flight_.push_back(object.Has("in_flight") ? std::optional(object.Integer("in_flight"))
                                                 : std::nullopt);
    if (in_flight_.back().value_or(1) < 1) object.Fail("in_flight", "is less than 1");
    const Json& devices = object.Array("devices");
    if (devices.empty()) object.Fail("devices", "is empty");
    for (size_t i = 0; i < devices.size() && error_.ok(); ++i) {
      stage.devices.push_back(ReadDevice(devices[i], absl::StrCat("devices[", i, "]"), object));
    }
    const Json& nodes = object.Array("nodes");
    if (nodes.empty()) object.Fail("nodes", "is empty");
    for (size_t i = 0; i < nodes.size() && error_.ok(); ++i) {
      ReadSelector(nodes[i], absl::StrCat("nodes[", i, "]"), static_cast<int32_t>(index), object);
    }
    strategy_.stages.push_back(std::move(stage));
  }

  // Whether it is known which devices there are.
  bool placed() const { return problem_.cluster != nullptr; }

  // What stands for a name where that is not known.
  int32_t NumberOf(const std::string& name) {
    const auto next = static_cast<int32_t>(Cluster::kMostDevices + devices_.size());
    return devices_.emplace(name, next).first->second;
  }

  DeviceId ReadDevice(const Json& json, const std::string& key, JsonObject& object) {
    if (json.is_number_integer()) {
      const int64_t number = json.get<int64_t>();
      const int64_t most = placed() ? problem_.cluster->size() : Cluster::kMostDevices;
      numbered_ = true;
      if (number >= 0 && number < most) return DeviceId(number);
      object.Fail(key, absl::StrCat("is ", number,
                                    placed() ? "; the cluster has" : "; the largest clusters have",
                                    " devices 0 to ", most - 1));
      return DeviceId(0);
    }
    if (!json.is_string()) {
      object.Fail(key, "is neither a number nor a name of a device");
      return DeviceId(0);
    }
    const std::string name = json.get<std::string>();
    if (!placed()) {
      const DeviceId device(NumberOf(name));
      if (device.value() >= 2 * Cluster::kMostDevices) {
        object.Fail(key, absl::StrCat("is one device more than the ", Cluster::kMostDevices,
                                      " of the largest clusters"));
      }
      return device;
    }
    const auto known = devices_.find(name);
    if (known != devices_.end()) return DeviceId(known->second);
    object.Fail(key, absl::StrCat("names the unknown device \"", name, "\""));
    return DeviceId(0);
  }

  // A name, "first..last" in topological order, "module:path" or "*".
  void ReadSelector(const Json& json, const std::string& key, int32_t stage, JsonObject& object) {
    if (!json.is_string()) {
      object.Fail(key, "is not a text");
      return;
    }
    const std::string text = json.get<std::string>();
    const size_t range = text.find(kRange);
    if (text == "*") {
      if (rest_ >= 0) object.Fail(key, "is the second \"*\"");
      rest_ = stage;
    } else if (const auto node = nodes_.find(text); node != nodes_.end()) {
      Take(node->second, stage, key, object);
    } else if (text.substr(0, kModule.size()) == kModule) {
      TakeModule(text.substr(kModule.size()), stage, key, object);
    } else if (range != std::string::npos) {
      const auto first = nodes_.find(text.substr(0, range));
      const auto last = nodes_.find(text.substr(range + kRange.size()));
      if (first == nodes_.end() || last == nodes_.end()) {
        object.Fail(key, absl::StrCat("\"", text, "\": there is no such node as its ",
                                      first == nodes_.end() ? "first" : "last"));
        return;
      }
      if (rank_[first->second] > rank_[last->second])
        object.Fail(key, absl::StrCat("\"", text, "\" ends before it begins"));
      const std::vector<int32_t>& order = problem_.graph->dag().order();
      for (int32_t i = rank_[first->second]; i <= rank_[last->second] && error_.ok(); ++i) {
        Take(order[i], stage, key, object);
      }
    } else {
      object.Fail(key, absl::StrCat("names the unknown node \"", text, "\""));
    }
  }

  void TakeModule(const std::string& module, int32_t stage, const std::string& key,
                  JsonObject& object) {
    const std::string inside = module + ".";
    bool found = false;
    for (int32_t v = 0; v < problem_.graph->size() && error_.ok(); ++v) {
      const std::string& path = problem_.graph->node(NodeId(v)).module;
      if (path != module && path.compare(0, inside.size(), inside) != 0) continue;
      found = true;
      Take(v, stage, key, object);
    }
    if (!found) object.Fail(key, absl::StrCat("names the unknown module \"", module, "\""));
  }

  // Constants that every reader recomputes belong to no stage, whoever names them.
  void Take(int32_t node, int32_t stage, const std::string& key, JsonObject& object) {
    if (is_shared_[node]) return;
    int32_t& mine = owner_[node];
    if (mine >= 0 && mine != stage) {
      object.Fail(key, absl::StrCat("names node \"", problem_.graph->node(NodeId(node)).name,
                                    "\", which stages[", mine, "] has already"));
    }
    mine = stage;
  }

  void PlaceRest() {
    for (int32_t v = 0; v < problem_.graph->size(); ++v) {
      if (owner_[v] >= 0 || is_shared_[v]) continue;
      owner_[v] = rest_;
      if (rest_ < 0) {
        root_.Fail("stages",
                   absl::StrCat("leaves out node \"", problem_.graph->node(NodeId(v)).name, "\""));
        return;
      }
    }
  }

  void Finish() {
    const Graph& graph = *problem_.graph;
    for (int32_t v : graph.dag().order()) {
      if (owner_[v] >= 0) strategy_.stages[owner_[v]].nodes.push_back(NodeId(v));
    }
    for (Stage& stage : strategy_.stages) {
      stage.replicated = SharedInto(graph, shared_, stage.nodes);
    }
    strategy_.edges = StageEdges(graph, strategy_.kind, strategy_.stages);
    for (const StageEdge& edge : strategy_.edges) {
      if (edge.to < edge.from) {
        root_.Fail("stages", absl::StrCat("is not in order: stages[", edge.to.value(),
                                          "] reads from stages[", edge.from.value(), "]"));
        return;
      }
    }
    AssignInFlight(strategy_);
    for (size_t s = 0; s < in_flight_.size(); ++s) {
      if (in_flight_[s]) strategy_.stages[s].schedule.in_flight = *in_flight_[s];
    }
  }

  // The same line with the number of the device that it may name instead.
  std::string WithNumber(const std::string& line) {
    const std::string device = "device ";
    const size_t colon = line.rfind(": ");  // A name may have one, too.
    if (!absl::StartsWith(line, device) || colon == std::string::npos) return line;
    const std::string name = line.substr(device.size(), colon - device.size());
    int32_t number = 0;
    if (!placed() && !absl::SimpleAtoi(name, &number)) NumberOf(name);
    const auto known = devices_.find(name);
    if (known == devices_.end()) return line;
    return absl::StrCat(device, known->second, line.substr(colon));
  }

  void ReadOrders() {
    if (!error_.ok() || !root_.Has("orders")) return;
    std::string text;
    for (const Json& line : root_.Array("orders")) {
      if (!line.is_string() || line.get<std::string>().find('\n') != std::string::npos) {
        root_.Fail("orders", "is not a list of lines");
        return;
      }
      const std::string given = line.get<std::string>(), numbered = WithNumber(given);
      numbered_ = numbered_ || numbered == given;
      absl::StrAppend(&text, numbered, "\n");
    }
    auto orders = ParseOrders(text);
    if (!orders.ok()) {
      root_.Fail("orders", absl::StrCat(": ", std::string(orders.status().message())));
      return;
    }
    if (!placed() && !devices_.empty()) {
      if (numbered_) return;
      // By the numbers that the cluster will have they may be in order.
      std::sort(orders->begin(), orders->end(),
                [](const DeviceOrder& a, const DeviceOrder& b) { return a.device < b.device; });
    }
    SetOrders(*problem_.graph, *std::move(orders), strategy_);
  }

  // What stands for names, where there are no numbers that may mean the same devices.
  void NumberFromZero() {
    if (placed() || numbered_) return;
    const auto shift = [](DeviceId& device) {
      device = DeviceId(device.value() - Cluster::kMostDevices);
    };
    for (Stage& stage : strategy_.stages)
      std::for_each(stage.devices.begin(), stage.devices.end(), shift);
    for (DeviceOrder& order : strategy_.orders) shift(order.device);
  }

  const Problem& problem_;
  absl::Status error_;
  JsonObject root_;
  Strategy strategy_;
  std::map<std::string, int32_t> nodes_, devices_;
  std::vector<int32_t> rank_;   // Position of each node in the topological order.
  std::vector<int32_t> owner_;  // The stage that names each node, -1 where none does.
  std::vector<NodeId> shared_;  // Those that belong to no stage, in topological order.
  std::vector<bool> is_shared_;
  bool numbered_ = false;  // Some device is named by its number.
  std::vector<std::optional<int64_t>> in_flight_;
  int32_t rest_ = -1;  // The stage that takes all other nodes.
};

}  // namespace

absl::StatusOr<Strategy> ParseManualPlan(const Problem& problem, const std::string& text) {
  if (text.empty()) {
    return WithField(absl::InvalidArgumentError(absl::StrCat(
                         kManualField, ": the planner \"manual\" needs a plan (--plan-file)")),
                     kManualField);
  }
  const absl::StatusOr<Json> root = ParseJson(text, kManualField);
  if (!root.ok()) return WithField(root.status(), kManualField);
  auto strategy = ManualReader(problem, *root).Read();
  if (strategy.ok()) return strategy;
  return WithField(OneLine(Annotate(strategy.status(), kManualField)), kManualField);
}

}  // namespace stagewright
