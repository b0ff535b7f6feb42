// Cluster files. docs/clusters.md describes both forms; unknown fields are errors, so that a typing
// mistake never silently becomes a default.
#include "common/topology/cluster_json.h"

#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_join.h"
#include "common/base/json_object.h"
#include "common/base/one_line.h"
#include "common/base/text_file.h"
#include "common/topology/cluster.h"
#include "common/topology/presets.h"

namespace stagewright {
namespace {

using Json = nlohmann::json;

// Names of what efficiency curves are for.
constexpr std::pair<const char*, ProductKind> kProductKinds[] = {
    {"matmul", ProductKind::kMatmul},
    {"convolution", ProductKind::kConvolution},
    {"attention", ProductKind::kAttention}};
constexpr std::pair<const char*, ProductType> kProductTypes[] = {{"fp32", ProductType::kFloat32},
                                                                 {"tf32", ProductType::kTF32},
                                                                 {"bf16", ProductType::kBFloat16},
                                                                 {"fp16", ProductType::kFloat16}};

template <typename T, size_t N>
std::optional<T> ReadNamed(JsonObject& object, const char* key,
                           const std::pair<const char*, T> (&names)[N]) {
  if (!object.Has(key)) return std::nullopt;
  const std::string given = object.Text(key);
  std::vector<std::string> known;
  for (const auto& [name, value] : names) {
    if (given == name) return value;
    known.emplace_back(name);
  }
  object.Fail(key, absl::StrCat("is none of ", absl::StrJoin(known, ", ")));
  return std::nullopt;
}

template <typename T, size_t N>
const char* NameOf(T value, const std::pair<const char*, T> (&names)[N]) {
  for (const auto& [name, known] : names) {
    if (known == value) return name;
  }
  return "";
}

EfficiencyCurve ReadCurve(const Json& json, const std::string& path, absl::Status& status) {
  JsonObject object(json, path, status, {"operators", "type", "points"});
  EfficiencyCurve curve;
  curve.operators = ReadNamed(object, "operators", kProductKinds);
  curve.type = ReadNamed(object, "type", kProductTypes);
  for (const Json& item : object.Array("points")) {
    JsonObject point(item, absl::StrCat(path, ".points[", curve.points.size(), "]"), status,
                     {"flops", "share"});
    curve.points.push_back({point.Real("flops"), point.Real("share")});
  }
  return curve;
}

Json CurvesToJson(const std::vector<EfficiencyCurve>& curves) {
  Json list = Json::array();
  for (const EfficiencyCurve& curve : curves) {
    Json json;
    if (curve.operators) json["operators"] = NameOf(*curve.operators, kProductKinds);
    if (curve.type) json["type"] = NameOf(*curve.type, kProductTypes);
    for (const EfficiencyPoint& point : curve.points)
      json["points"].push_back({{"flops", point.flops}, {"share", point.share}});
    list.push_back(std::move(json));
  }
  return list;
}

DeviceKind ReadKind(const Json& json, const std::string& path, absl::Status& status) {
  JsonObject object(json, path, status,
                    {"name",
                     "flops_per_second",
                     "memory_bytes_per_second",
                     "update_bytes_per_second",
                     "kernel_overhead_ns",
                     "half_efficiency_flops",
                     "pass_overhead_ns",
                     "message_overhead_ns",
                     "step_overhead_ns",
                     "parameter_overhead_ns",
                     "reduction_overhead_ns",
                     "message_bytes_per_second",
                     "product_slowdown",
                     "memory_slowdown",
                     "adds_gradients",
                     "asynchronous",
                     "tf32_flops_per_second",
                     "bf16_flops_per_second",
                     "fp16_flops_per_second",
                     "unaligned_slowdown",
                     "efficiency"});
  const int64_t no_overhead = 0;
  const double none = 0, alone = 1;
  DeviceKind kind;
  kind.name = object.Text("name");
  kind.flops_per_second = object.Real("flops_per_second");
  kind.memory_bytes_per_second = object.Real("memory_bytes_per_second");
  kind.update_bytes_per_second = object.Real("update_bytes_per_second", &none);
  kind.kernel_overhead = Nanos(object.Integer("kernel_overhead_ns", &no_overhead));
  kind.half_efficiency_flops = object.Real("half_efficiency_flops", &none);
  kind.pass_overhead = Nanos(object.Integer("pass_overhead_ns", &no_overhead));
  kind.message_overhead = Nanos(object.Integer("message_overhead_ns", &no_overhead));
  kind.step_overhead = Nanos(object.Integer("step_overhead_ns", &no_overhead));
  kind.parameter_overhead = Nanos(object.Integer("parameter_overhead_ns", &no_overhead));
  kind.reduction_overhead = Nanos(object.Integer("reduction_overhead_ns", &no_overhead));
  kind.message_bytes_per_second = object.Real("message_bytes_per_second", &none);
  kind.adds_gradients = object.Flag("adds_gradients", false);
  kind.asynchronous = object.Flag("asynchronous", false);
  kind.product_slowdown = object.Real("product_slowdown", &alone);
  kind.memory_slowdown = object.Real("memory_slowdown", &alone);
  kind.tf32_flops_per_second = object.Real("tf32_flops_per_second", &none);
  kind.bf16_flops_per_second = object.Real("bf16_flops_per_second", &none);
  kind.fp16_flops_per_second = object.Real("fp16_flops_per_second", &none);
  kind.unaligned_slowdown = object.Real("unaligned_slowdown", &alone);
  for (const Json& curve : object.Array("efficiency", /*optional=*/true)) {
    kind.efficiency.push_back(
        ReadCurve(curve, absl::StrCat(path, ".efficiency[", kind.efficiency.size(), "]"), status));
  }
  return kind;
}

Link ReadRates(const Json& json, const std::string& path, absl::Status& status) {
  JsonObject object(json, path, status, {"latency_ns", "bytes_per_second"});
  return {"", Nanos(object.Integer("latency_ns")), object.Real("bytes_per_second")};
}

absl::StatusOr<Cluster> ReadHierarchical(const Json& json, const std::string& default_name) {
  absl::Status status;
  JsonObject object(json, "", status,
                    {"name", "nodes", "devices_per_node", "kind", "memory_bytes", "inside",
                     "outside", "uplinks_per_node"});
  const int64_t one = 1;
  HierarchicalSpec spec;
  spec.name = object.Text("name", &default_name);
  spec.nodes = object.Count("nodes");
  spec.devices_per_node = object.Count("devices_per_node");
  spec.uplinks_per_node = object.Count("uplinks_per_node", &one);
  spec.kind = ReadKind(object.Child("kind"), "kind", status);
  spec.memory = Bytes(object.Integer("memory_bytes"));
  spec.inside = ReadRates(object.Child("inside"), "inside", status);
  spec.outside = ReadRates(object.Child("outside"), "outside", status);
  RETURN_IF_ERROR(status);
  return MakeHierarchical(spec);
}

using Index = std::map<std::string, int32_t>;

template <typename T>
Index IndexByName(const std::vector<T>& items) {
  Index index;
  for (size_t i = 0; i < items.size(); ++i) index.emplace(items[i].name, static_cast<int32_t>(i));
  return index;
}

// The number of `name`; fails on `object` if there is none.
int32_t Lookup(const Index& index, const std::string& name, absl::string_view what,
               JsonObject& object, const char* key) {
  const auto it = index.find(name);
  if (it != index.end()) return it->second;
  object.Fail(key, absl::StrCat("names the unknown ", what, " \"", name, "\""));
  return 0;
}

void ReadRoute(const Json& json, const std::string& path, const Index& devices, const Index& links,
               ClusterData& data, absl::Status& status) {
  JsonObject object(json, path, status, {"from", "to", "links", "both_ways"});
  const int32_t from = Lookup(devices, object.Text("from"), "device", object, "from");
  const int32_t to = Lookup(devices, object.Text("to"), "device", object, "to");
  std::vector<int32_t> route;
  for (const Json& link : object.Array("links")) {
    if (!link.is_string()) object.Fail("links", "is not a list of link names");
    const std::string name = link.is_string() ? link.get<std::string>() : "";
    route.push_back(Lookup(links, name, "link", object, "links"));
  }
  if (!status.ok()) return;
  const auto n = static_cast<int32_t>(data.devices.size());
  auto set = [&](int32_t a, int32_t b) {
    if (!data.routes[a * n + b].empty()) {
      object.Fail("", absl::StrCat("gives a second route from \"", data.devices[a].name, "\" to \"",
                                   data.devices[b].name, "\""));
    }
    data.routes[a * n + b] = route;
  };
  set(from, to);
  if (object.Flag("both_ways", false)) set(to, from);
}

absl::StatusOr<Cluster> ReadExplicit(const Json& json, const std::string& default_name) {
  absl::Status status;
  JsonObject object(json, "", status, {"name", "kinds", "devices", "links", "routes"});
  ClusterData data;
  data.name = object.Text("name", &default_name);
  for (const Json& kind : object.Array("kinds")) {
    data.kinds.push_back(ReadKind(kind, absl::StrCat("kinds[", data.kinds.size(), "]"), status));
  }
  const Index kinds = IndexByName(data.kinds);
  for (const Json& item : object.Array("devices")) {
    JsonObject device(item, absl::StrCat("devices[", data.devices.size(), "]"), status,
                      {"name", "kind", "node", "memory_bytes"});
    const int64_t first_node = 0;
    Device read;
    read.name = device.Text("name");
    read.kind = Lookup(kinds, device.Text("kind"), "kind", device, "kind");
    read.node = device.Count("node", &first_node);
    read.memory = Bytes(device.Integer("memory_bytes"));
    data.devices.push_back(std::move(read));
  }
  for (const Json& item : object.Array("links")) {
    JsonObject link(item, absl::StrCat("links[", data.links.size(), "]"), status,
                    {"name", "latency_ns", "bytes_per_second"});
    data.links.push_back(
        {link.Text("name"), Nanos(link.Integer("latency_ns")), link.Real("bytes_per_second")});
  }
  if (status.ok() && data.devices.size() > static_cast<size_t>(Cluster::kMostDevices)) {
    object.Fail("devices", absl::StrCat("has ", data.devices.size(), " entries; ",
                                        Cluster::kMostDevices, " are supported"));
  }
  RETURN_IF_ERROR(status);
  data.routes.resize(data.devices.size() * data.devices.size());
  const Index devices = IndexByName(data.devices);
  const Index links = IndexByName(data.links);
  int32_t number = 0;
  for (const Json& route : object.Array("routes")) {
    ReadRoute(route, absl::StrCat("routes[", number++, "]"), devices, links, data, status);
  }
  RETURN_IF_ERROR(status);
  return Cluster::Create(std::move(data));
}

}  // namespace

absl::StatusOr<Cluster> ParseCluster(const std::string& json, const std::string& file_name) {
  const std::string where = absl::StrCat("cluster file ", file_name);
  ASSIGN_OR_RETURN(const Json root, ParseJson(json, where));
  const bool hierarchical = root.is_object() && !root.contains("devices");
  auto cluster = hierarchical ? ReadHierarchical(root, file_name) : ReadExplicit(root, file_name);
  if (!cluster.ok()) return OneLine(Annotate(cluster.status(), where));
  return cluster;
}

std::string ClusterToJson(const Cluster& cluster) {
  Json root;
  root["name"] = cluster.name();
  root["kinds"] = Json::array();
  for (const DeviceKind& kind : cluster.kinds()) {
    root["kinds"].push_back({{"name", kind.name},
                             {"flops_per_second", kind.flops_per_second},
                             {"memory_bytes_per_second", kind.memory_bytes_per_second},
                             {"update_bytes_per_second", kind.update_bytes_per_second},
                             {"kernel_overhead_ns", kind.kernel_overhead.count()},
                             {"half_efficiency_flops", kind.half_efficiency_flops},
                             {"pass_overhead_ns", kind.pass_overhead.count()},
                             {"message_overhead_ns", kind.message_overhead.count()},
                             {"step_overhead_ns", kind.step_overhead.count()},
                             {"parameter_overhead_ns", kind.parameter_overhead.count()},
                             {"reduction_overhead_ns", kind.reduction_overhead.count()},
                             {"message_bytes_per_second", kind.message_bytes_per_second},
                             {"adds_gradients", kind.adds_gradients},
                             {"asynchronous", kind.asynchronous},
                             {"product_slowdown", kind.product_slowdown},
                             {"memory_slowdown", kind.memory_slowdown},
                             {"tf32_flops_per_second", kind.tf32_flops_per_second},
                             {"bf16_flops_per_second", kind.bf16_flops_per_second},
                             {"fp16_flops_per_second", kind.fp16_flops_per_second},
                             {"unaligned_slowdown", kind.unaligned_slowdown},
                             {"efficiency", CurvesToJson(kind.efficiency)}});
  }
  root["devices"] = Json::array();
  for (const Device& device : cluster.devices()) {
    root["devices"].push_back({{"name", device.name},
                               {"kind", cluster.kinds()[device.kind].name},
                               {"node", device.node},
                               {"memory_bytes", device.memory.count()}});
  }
  root["links"] = Json::array();
  for (const Link& link : cluster.links()) {
    root["links"].push_back({{"name", link.name},
                             {"latency_ns", link.latency.count()},
                             {"bytes_per_second", link.bytes_per_second}});
  }
  root["routes"] = Json::array();
  for (int32_t a = 0; a < cluster.size(); ++a) {
    for (int32_t b = 0; b < cluster.size(); ++b) {
      if (a == b) continue;
      Json names = Json::array();
      for (int32_t link : cluster.route(DeviceId(a), DeviceId(b)).links) {
        names.push_back(cluster.links()[link].name);
      }
      root["routes"].push_back({{"from", cluster.devices()[a].name},
                                {"to", cluster.devices()[b].name},
                                {"links", std::move(names)}});
    }
  }
  return root.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<Cluster> LoadCluster(const std::string& preset_or_path) {
  auto preset = ClusterPreset(preset_or_path);
  if (!absl::IsNotFound(preset.status())) return preset;
  const auto text = ReadTextFile(preset_or_path);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(
        absl::StrCat(preset.status().message(), "; and no file of that name can be read"));
  }
  if (!text.ok()) return Annotate(text.status(), "cluster file");
  return ParseCluster(*text, preset_or_path);
}

}  // namespace stagewright
