// Piper's inputs (msr-fiddle/piper, *.json).
//
//   top     maxDevices, maxMemoryPerDevice (bytes), bandwidth (bytes/s), mbsInBatch (micro-batches
//           of a mini-batch), nodes, edges
//   node    id (any integer), name, TMPCs: {"degree of tensor parallelism": [configuration]}
//   configuration, at most one of each id per degree:
//           id ("vanilla", or "activation recomp": the forward pass is run again), timePerSample
//           (forward plus backward of one micro-batch), parameterSize (bytes), memoryUsageA (bytes
//           per micro-batch in flight), memoryUsageB (bytes whatever is in flight), syncTimeFw
//           ({"predecessor's id": bytes}), syncTimeBw ({"successor's id": bytes})
//   edge    sourceId, destId, communicationCost (bytes, each way); parallel edges add up
//
// Other fields are ignored. Sizes are rounded to bytes, times to nanoseconds. A sample of the graph
// is one micro-batch unless ImportOptions::profile_batch says how many samples that held.
//
// Every configuration is kept (ProfiledCost::configurations). The node's own cost is that of one
// device that keeps its tensors: "vanilla" at degree 1, memoryUsageA saved per micro-batch and
// memoryUsageB resident, whatever the optimizer. Where degree 1 is missing, the smallest degree's
// figures times the degree stand in, with a warning; likewise a node that only has "activation
// recomp". The file gives forward and backward as one sum: the forward time is what recomputing
// adds, where that is known and no more than the sum, else a third.
//
// The gnmt and resnet files give times in milliseconds while the bandwidth is in bytes per second.
// The original adds the two as they are, which makes communication a thousand times too cheap; so
// does the default here (ImportOptions::piper_time_unit), with a warning where times look like it.
#include "planner_service/importers/piper.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "common/base/json_object.h"
#include "common/base/one_line.h"
#include "planner_service/importers/profile_text.h"

namespace stagewright {
namespace {

using Json = nlohmann::json;

constexpr double kLargestFigure = static_cast<double>(int64_t{1} << 50);  // ns or bytes.
constexpr int32_t kMostTensorParallel = 1024;
constexpr double kSuspiciousSeconds = 0.05;  // Mean time of a node from which on ms are likely.

// Edges by source and destination, with their bytes.
using EdgeMap = std::map<std::pair<int32_t, int32_t>, Bytes>;

class PiperReader {
 public:
  PiperReader(const Json& root, const ImportOptions& options)
      : options_(options), top_(root, "", status_) {}

  absl::StatusOr<ImportedProfile> Read(const std::string& file) {
    PiperSettings settings;
    settings.max_devices = top_.Count("maxDevices");
    if (settings.max_devices < 1) top_.Fail("maxDevices", "is less than 1");
    settings.memory_per_device = Bytes(Figure(top_, "maxMemoryPerDevice", 1, kLargestFigure));
    settings.bytes_per_second = top_.Real("bandwidth");
    if (!(settings.bytes_per_second > 0) || !std::isfinite(settings.bytes_per_second))
      top_.Fail("bandwidth", "is not a positive number");
    settings.micro_batches = top_.Count("mbsInBatch");
    if (settings.micro_batches < 1) top_.Fail("mbsInBatch", "is less than 1");
    ReadIds();
    if (status_.ok()) ReadEdges();
    if (status_.ok()) ReadNodes();
    if (!status_.ok()) return OneLine(Annotate(status_, file));

    GraphData data;
    data.name = GraphNameOfFile(file);
    data.nodes = std::move(nodes_);
    auto graph = Graph::Create(std::move(data));
    if (!graph.ok()) return OneLine(Annotate(graph.status(), file));
    ImportedProfile result{*std::move(graph), settings, {}};
    for (const std::string& warning : Warnings()) {
      result.warnings.push_back(absl::StrCat(file, ": ", warning));
    }
    return result;
  }

 private:
  // A finite number of units from 0 to `most` / `scale`, times `scale`, rounded.
  int64_t Figure(JsonObject& object, const char* key, double scale, double most) {
    const double value = object.Real(key) * scale;
    if (value >= 0 && value <= most) return std::llround(value);
    object.Fail(key, value < 0 ? "is negative" : "is too large");
    return 0;
  }

  static std::string NodePath(size_t i) { return absl::StrCat("nodes[", i, "]"); }

  void ReadIds() {
    std::set<std::string> names;
    const Json& nodes = top_.Array("nodes");
    if (nodes.empty()) top_.Fail("nodes", "is empty");
    for (const Json& item : nodes) {
      JsonObject object(item, NodePath(nodes_.size()), status_);
      const int64_t id = object.Integer("id");
      if (!index_.emplace(id, static_cast<int32_t>(nodes_.size())).second)
        object.Fail("id", absl::StrCat(id, " is used twice"));
      const std::string unnamed;
      Node node;
      node.name = object.Text("name", &unnamed);
      node.module = node.name;
      if (node.name.empty() || !names.insert(node.name).second) {
        absl::StrAppend(&node.name, "#", id);
        if (!names.insert(node.name).second)
          object.Fail("name", "is used twice, and so is the name with its id");
      }
      nodes_.push_back(std::move(node));
      if (!status_.ok()) return;
    }
  }

  void ReadEdges() {
    size_t number = 0;
    for (const Json& item : top_.Array("edges")) {
      JsonObject object(item, absl::StrCat("edges[", number++, "]"), status_);
      const int32_t from = Known(object, "sourceId", object.Integer("sourceId"));
      const int32_t to = Known(object, "destId", object.Integer("destId"));
      const Bytes bytes = Bytes(Figure(object, "communicationCost", 1, kLargestFigure));
      if (!status_.ok()) return;
      Bytes& sum = edges_[{from, to}];
      sum += bytes;
      if (static_cast<double>(sum) > kLargestFigure) object.Fail("communicationCost", "overflows");
    }
    for (const auto& [edge, bytes] : edges_) {
      nodes_[edge.second].after.push_back(NodeId(edge.first));
      outgoing_[edge.first].push_back({NodeId(edge.second), bytes});
    }
  }

  int32_t Known(JsonObject& object, std::string_view key, int64_t id) {
    const auto it = index_.find(id);
    if (it != index_.end()) return it->second;
    object.Fail(key, absl::StrCat("names the unknown node ", id));
    return 0;
  }

  void ReadNodes() {
    size_t i = 0;
    for (const Json& item : top_.Array("nodes")) {
      JsonObject object(item, NodePath(i), status_);
      ProfiledCost cost;
      cost.samples = options_.profile_batch > 0 ? options_.profile_batch : 1;
      ReadConfigurations(object, static_cast<int32_t>(i), cost);
      if (!status_.ok()) return;
      SetOwnCost(nodes_[i].name, cost);
      SetEdges(static_cast<int32_t>(i), cost);
      nodes_[i++].cost = std::move(cost);
    }
  }

  void ReadConfigurations(JsonObject& node, int32_t index, ProfiledCost& cost) {
    const Json& degrees = node.Child("TMPCs");
    if (!degrees.is_object() || degrees.empty()) {
      node.Fail("TMPCs", "is not an object with a configuration in it");
      return;
    }
    for (const auto& [key, list] : degrees.items()) {
      const std::string path = node.PathTo(absl::StrCat("TMPCs.", key));
      int32_t degree = 0;
      const auto parsed = std::from_chars(key.data(), key.data() + key.size(), degree);
      if (parsed.ec != std::errc() || parsed.ptr != key.data() + key.size() || degree < 1 ||
          degree > kMostTensorParallel) {
        node.Fail(absl::StrCat("TMPCs.", key), "is no degree of tensor parallelism");
      }
      if (!list.is_array() || list.empty() || list.size() > 2)
        node.Fail(absl::StrCat("TMPCs.", key), "is not a list of one or two configurations");
      if (!status_.ok()) return;
      for (size_t i = 0; i < list.size(); ++i) {
        JsonObject object(list[i], absl::StrCat(path, "[", i, "]"), status_);
        cost.configurations.push_back(ReadConfiguration(object, index, degree));
      }
    }
    std::sort(cost.configurations.begin(), cost.configurations.end(), Before);
    const auto twice =
        std::adjacent_find(cost.configurations.begin(), cost.configurations.end(),
                           [](const auto& a, const auto& b) { return !Before(a, b); });
    if (twice != cost.configurations.end()) {
      node.Fail(
          absl::StrCat("TMPCs.", twice->tensor_parallel),
          absl::StrCat("gives \"", twice->recompute ? "activation recomp" : "vanilla", "\" twice"));
    }
  }

  static bool Before(const ProfiledConfiguration& a, const ProfiledConfiguration& b) {
    return std::pair(a.tensor_parallel, a.recompute) < std::pair(b.tensor_parallel, b.recompute);
  }

  ProfiledConfiguration ReadConfiguration(JsonObject& object, int32_t index, int32_t degree) {
    const double nanos = options_.piper_time_unit == ProfileTimeUnit::kMilliseconds ? 1e6 : 1e9;
    ProfiledConfiguration way;
    way.tensor_parallel = degree;
    const std::string id = object.Text("id");
    way.recompute = id == "activation recomp";
    if (!way.recompute && id != "vanilla")
      object.Fail("id", R"(is neither "vanilla" nor "activation recomp")");
    way.time = Nanos(Figure(object, "timePerSample", nanos, kLargestFigure));
    way.parameter_bytes = Bytes(Figure(object, "parameterSize", 1, kLargestFigure));
    way.saved_bytes = Bytes(Figure(object, "memoryUsageA", 1, kLargestFigure));
    way.resident_bytes = Bytes(Figure(object, "memoryUsageB", 1, kLargestFigure));
    way.sync_from = ReadSync(object, "syncTimeFw", [&](int32_t other) {
      return edges_.count({other, index}) > 0;
    });
    way.sync_to = ReadSync(object, "syncTimeBw", [&](int32_t other) {
      return edges_.count({index, other}) > 0;
    });
    return way;
  }

  template <typename F>
  std::vector<NeighborBytes> ReadSync(JsonObject& object, const char* key, F&& is_neighbor) {
    std::vector<NeighborBytes> result;
    const Json& sync = object.Child(key);
    JsonObject entries(sync, object.PathTo(key), status_);
    if (!sync.is_object()) return result;
    for (const auto& [name, value] : sync.items()) {
      int64_t id = 0;
      const auto parsed = std::from_chars(name.data(), name.data() + name.size(), id);
      if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size())
        entries.Fail(name, "is not the id of a node");
      const int32_t other = Known(entries, name, id);
      if (!is_neighbor(other)) entries.Fail(name, "is not joined to the node by such an edge");
      const Bytes bytes = Bytes(Figure(entries, name.c_str(), 1, kLargestFigure));
      if (!status_.ok()) return {};
      if (bytes > 0) result.push_back({NodeId(other), bytes});
    }
    std::sort(result.begin(), result.end(),
              [](const auto& a, const auto& b) { return a.node < b.node; });
    return result;
  }

  static const ProfiledConfiguration* Find(const ProfiledCost& cost, int32_t degree,
                                           bool recompute) {
    for (const ProfiledConfiguration& way : cost.configurations) {
      if (way.tensor_parallel == degree && way.recompute == recompute) return &way;
    }
    return nullptr;
  }

  // What one device needs that keeps its tensors.
  void SetOwnCost(const std::string& name, ProfiledCost& cost) {
    const int32_t degree = cost.configurations.front().tensor_parallel;
    const ProfiledConfiguration* kept = Find(cost, degree, false);
    const ProfiledConfiguration* again = Find(cost, degree, true);
    const ProfiledConfiguration& way = kept != nullptr ? *kept : *again;
    if (degree > 1 || kept == nullptr) odd_.push_back(name);
    const Nanos time = way.time * degree;
    const Nanos added =
        kept != nullptr && again != nullptr ? (again->time - kept->time) * degree : -1;
    cost.forward = added > 0 && added <= time ? added : time / 3;
    cost.backward = time - cost.forward;
    cost.parameter_bytes = way.parameter_bytes * degree;
    cost.saved_bytes = way.saved_bytes * degree;
    cost.resident_bytes = way.resident_bytes * degree;
    total_seconds_ += ToSeconds(time);
  }

  void SetEdges(int32_t index, ProfiledCost& cost) const {
    const auto it = outgoing_.find(index);
    if (it == outgoing_.end()) return;
    bool differ = false;
    for (const NeighborBytes& edge : it->second) {
      cost.activation_bytes = std::max(cost.activation_bytes, edge.bytes);
      differ = differ || edge.bytes != it->second.front().bytes;
    }
    if (differ) cost.edge_bytes = it->second;
  }

  std::vector<std::string> Warnings() const {
    std::vector<std::string> warnings;
    const double mean = total_seconds_ / static_cast<double>(index_.size());
    if (options_.piper_time_unit == ProfileTimeUnit::kSeconds && mean > kSuspiciousSeconds) {
      warnings.push_back(absl::StrCat(
          "timePerSample is read as seconds, as Piper does, and a node takes ", mean,
          " s on average; if the times are milliseconds, communication counts a thousand times "
          "too little: --time-unit ms corrects it"));
    }
    if (!odd_.empty()) {
      warnings.push_back(absl::StrCat(
          odd_.size(), " nodes (\"", odd_.front(),
          "\" first) have no \"vanilla\" configuration for one device; the smallest they have, "
          "times its degree, stands in"));
    }
    return warnings;
  }

  const ImportOptions& options_;
  absl::Status status_;
  JsonObject top_;
  std::vector<Node> nodes_;
  std::map<int64_t, int32_t> index_;  // By id of the file.
  EdgeMap edges_;
  std::map<int32_t, std::vector<NeighborBytes>> outgoing_;
  std::vector<std::string> odd_;  // Nodes without a "vanilla" configuration at degree 1.
  double total_seconds_ = 0;
};

}  // namespace

absl::StatusOr<ImportedProfile> ImportPiper(std::string_view text, const std::string& file,
                                            const ImportOptions& options) {
  RETURN_IF_ERROR(CheckImportOptions(options));
  ASSIGN_OR_RETURN(const Json root, ParseJson(text, file));
  return PiperReader(root, options).Read(file);
}

}  // namespace stagewright
