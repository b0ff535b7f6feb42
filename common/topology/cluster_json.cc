// Cluster files. docs/clusters.md describes both forms; unknown fields are errors, so that a typing
// mistake never silently becomes a default.
#include <cmath>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <map>
#include <sstream>

#include "absl/strings/str_join.h"
#include "common/topology/cluster.h"
#include "nlohmann/json.hpp"

namespace stagewright {
namespace {

using Json = nlohmann::json;

constexpr size_t kLargestFile = size_t{64} << 20;

// One JSON object with the path that leads to it; remembers the first error and then answers with
// defaults, so that readers need no check per field.
class Object {
 public:
  Object(const Json& json, std::string path, absl::Status& status,
         std::initializer_list<const char*> known)
      : json_(json), path_(std::move(path)), status_(status) {
    if (!json.is_object()) {
      Fail("", "is not an object");
      return;
    }
    for (const auto& [key, value] : json.items()) {
      bool found = false;
      for (const char* name : known) found = found || key == name;
      if (!found) {
        Fail(key, absl::StrCat("is not a known field (", absl::StrJoin(known, ", "), ")"));
      }
    }
  }

  std::string Text(const char* key, const std::string* fallback = nullptr) {
    const Json* value = Get(key, fallback != nullptr);
    if (value == nullptr) return fallback != nullptr ? *fallback : "";
    if (value->is_string()) return value->get<std::string>();
    Fail(key, "is not a text");
    return "";
  }

  double Real(const char* key, const double* fallback = nullptr) {
    const Json* value = Get(key, fallback != nullptr);
    if (value == nullptr) return fallback != nullptr ? *fallback : 0;
    if (value->is_number()) return value->get<double>();
    Fail(key, "is not a number");
    return 0;
  }

  // Accepts 16e9 as well as 16000000000.
  int64_t Integer(const char* key, const int64_t* fallback = nullptr) {
    const Json* value = Get(key, fallback != nullptr);
    if (value == nullptr) return fallback != nullptr ? *fallback : 0;
    const double real = value->is_number() ? value->get<double>() : 0.5;
    if (std::floor(real) == real && std::fabs(real) < 9e18) {
      return value->is_number_float() ? static_cast<int64_t>(real) : value->get<int64_t>();
    }
    Fail(key, "is not an integer");
    return 0;
  }

  int32_t Count(const char* key, const int64_t* fallback = nullptr) {
    const int64_t value = Integer(key, fallback);
    if (value >= std::numeric_limits<int32_t>::min() &&
        value <= std::numeric_limits<int32_t>::max()) {
      return static_cast<int32_t>(value);
    }
    Fail(key, absl::StrCat("is ", value, ", which is out of range"));
    return 0;
  }

  bool Flag(const char* key, bool fallback) {
    const Json* value = Get(key, true);
    if (value == nullptr) return fallback;
    if (value->is_boolean()) return value->get<bool>();
    Fail(key, "is neither true nor false");
    return fallback;
  }

  const Json& Child(const char* key) {
    static const Json kEmptyObject = Json::object();
    const Json* value = Get(key, false);
    return value == nullptr ? kEmptyObject : *value;
  }

  const Json& Array(const char* key) {
    static const Json kEmptyArray = Json::array();
    const Json* value = Get(key, false);
    if (value == nullptr) return kEmptyArray;
    if (value->is_array()) return *value;
    Fail(key, "is not a list");
    return kEmptyArray;
  }

  std::string PathTo(absl::string_view key) const {
    return path_.empty() ? std::string(key) : key.empty() ? path_ : absl::StrCat(path_, ".", key);
  }

  void Fail(absl::string_view key, absl::string_view what) {
    if (!status_.ok()) return;
    const std::string path = PathTo(key);
    status_ = absl::InvalidArgumentError(absl::StrCat(path.empty() ? "the file" : path, " ", what));
  }

 private:
  const Json* Get(const char* key, bool optional) {
    if (!json_.is_object()) return nullptr;
    const auto it = json_.find(key);
    if (it != json_.end()) return &*it;
    if (!optional) Fail(key, "is missing");
    return nullptr;
  }

  const Json& json_;
  const std::string path_;
  absl::Status& status_;
};

DeviceKind ReadKind(const Json& json, const std::string& path, absl::Status& status) {
  Object object(json, path, status,
                {"name", "flops_per_second", "memory_bytes_per_second", "kernel_overhead_ns",
                 "half_efficiency_flops"});
  const int64_t no_overhead = 0;
  const double no_half = 0;
  DeviceKind kind;
  kind.name = object.Text("name");
  kind.flops_per_second = object.Real("flops_per_second");
  kind.memory_bytes_per_second = object.Real("memory_bytes_per_second");
  kind.kernel_overhead = object.Integer("kernel_overhead_ns", &no_overhead);
  kind.half_efficiency_flops = object.Real("half_efficiency_flops", &no_half);
  return kind;
}

Link ReadRates(const Json& json, const std::string& path, absl::Status& status) {
  Object object(json, path, status, {"latency_ns", "bytes_per_second"});
  return {"", object.Integer("latency_ns"), object.Real("bytes_per_second")};
}

absl::StatusOr<Cluster> ReadHierarchical(const Json& json, const std::string& default_name) {
  absl::Status status;
  Object object(json, "", status,
                {"name", "nodes", "devices_per_node", "kind", "memory_bytes", "inside", "outside",
                 "uplinks_per_node"});
  const int64_t one = 1;
  HierarchicalSpec spec;
  spec.name = object.Text("name", &default_name);
  spec.nodes = object.Count("nodes");
  spec.devices_per_node = object.Count("devices_per_node");
  spec.uplinks_per_node = object.Count("uplinks_per_node", &one);
  spec.kind = ReadKind(object.Child("kind"), "kind", status);
  spec.memory = object.Integer("memory_bytes");
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
int32_t Lookup(const Index& index, const std::string& name, absl::string_view what, Object& object,
               const char* key) {
  const auto it = index.find(name);
  if (it != index.end()) return it->second;
  object.Fail(key, absl::StrCat("names the unknown ", what, " \"", name, "\""));
  return 0;
}

void ReadRoute(const Json& json, const std::string& path, const Index& devices, const Index& links,
               ClusterData& data, absl::Status& status) {
  Object object(json, path, status, {"from", "to", "links", "both_ways"});
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
  Object object(json, "", status, {"name", "kinds", "devices", "links", "routes"});
  ClusterData data;
  data.name = object.Text("name", &default_name);
  for (const Json& kind : object.Array("kinds")) {
    data.kinds.push_back(ReadKind(kind, absl::StrCat("kinds[", data.kinds.size(), "]"), status));
  }
  const Index kinds = IndexByName(data.kinds);
  for (const Json& item : object.Array("devices")) {
    Object device(item, absl::StrCat("devices[", data.devices.size(), "]"), status,
                  {"name", "kind", "node", "memory_bytes"});
    const int64_t first_node = 0;
    Device read;
    read.name = device.Text("name");
    read.kind = Lookup(kinds, device.Text("kind"), "kind", device, "kind");
    read.node = device.Count("node", &first_node);
    read.memory = device.Integer("memory_bytes");
    data.devices.push_back(std::move(read));
  }
  for (const Json& item : object.Array("links")) {
    Object link(item, absl::StrCat("links[", data.links.size(), "]"), status,
                {"name", "latency_ns", "bytes_per_second"});
    data.links.push_back(
        {link.Text("name"), link.Integer("latency_ns"), link.Real("bytes_per_second")});
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
  if (json.size() > kLargestFile) {
    return absl::InvalidArgumentError(absl::StrCat(where, " is larger than 64 MiB"));
  }
  Json root;
  try {
    root = Json::parse(json);
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(where, " is not JSON: ", error.what()));
  }
  const bool hierarchical = root.is_object() && !root.contains("devices");
  auto cluster = hierarchical ? ReadHierarchical(root, file_name) : ReadExplicit(root, file_name);
  if (!cluster.ok()) return Annotate(cluster.status(), where);
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
                             {"kernel_overhead_ns", kind.kernel_overhead},
                             {"half_efficiency_flops", kind.half_efficiency_flops}});
  }
  root["devices"] = Json::array();
  for (const Device& device : cluster.devices()) {
    root["devices"].push_back({{"name", device.name},
                               {"kind", cluster.kinds()[device.kind].name},
                               {"node", device.node},
                               {"memory_bytes", device.memory}});
  }
  root["links"] = Json::array();
  for (const Link& link : cluster.links()) {
    root["links"].push_back({{"name", link.name},
                             {"latency_ns", link.latency},
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
  std::ifstream file(preset_or_path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat(preset.status().message(), "; and no file of that name can be read"));
  }
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad() || text.fail()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cluster file ", preset_or_path, " cannot be read, or is empty"));
  }
  return ParseCluster(text.str(), preset_or_path);
}

}  // namespace stagewright
