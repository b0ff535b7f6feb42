#include "common/topology/uniform.h"

#include <charconv>
#include <cmath>
#include <initializer_list>
#include <string_view>

#include "common/base/one_line.h"
#include "common/topology/preset_device.h"

namespace stagewright {
namespace {

// No profile is fast enough to notice.
constexpr double kUnlimited = 1e24;

enum class Least { kZero, kAboveZero };

struct Unit {
  std::string_view suffix;
  double scale;
};

// A number and a unit; without one, the number counts the first unit of the list.
absl::StatusOr<double> Quantity(std::string_view text, Least least,
                                std::initializer_list<Unit> units) {
  double value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view suffix = text.substr(parsed.ptr - text.data());
  const bool in_range = least == Least::kZero ? value >= 0 : value > 0;
  if (parsed.ec == std::errc() && std::isfinite(value) && in_range) {
    if (suffix.empty()) return value * units.begin()->scale;
    for (const Unit& unit : units) {
      if (suffix == unit.suffix) return value * unit.scale;
    }
  }
  std::string known;
  for (const Unit& unit : units)
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(unit.suffix));
  return absl::InvalidArgumentError(absl::StrCat("\"", std::string(text), "\" is not a number, ",
                                                 least == Least::kZero ? "0 or more" : "above 0",
                                                 ", in ", known));
}

absl::StatusOr<int32_t> Count(std::string_view text) {
  int32_t count = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), count);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || count < 1) {
    return absl::InvalidArgumentError(
        "give the number of devices, as in \"uniform:8\", or of nodes and devices a node, as in "
        "\"uniform:4x8\"");
  }
  return count;
}

absl::Status ReadOption(std::string_view key, std::string_view value, UniformSpec& spec,
                        bool& outside_bandwidth, bool& outside_latency) {
  if (key == "bandwidth" || key == "outside-bandwidth") {
    ASSIGN_OR_RETURN(const double rate,
                     Quantity(value, Least::kAboveZero,
                              {{"B/s", 1}, {"MB/s", 1e6}, {"GB/s", 1e9}, {"GiB/s", 0x1p30}}));
    outside_bandwidth = outside_bandwidth || key != "bandwidth";
    (key == "bandwidth" ? spec.inside : spec.outside).bytes_per_second = rate;
    return absl::OkStatus();
  }
  if (key == "latency" || key == "outside-latency") {
    ASSIGN_OR_RETURN(
        const double seconds,
        Quantity(value, Least::kZero, {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}}));
    if (seconds > 3600) return absl::InvalidArgumentError("is over an hour");
    outside_latency = outside_latency || key != "latency";
    (key == "latency" ? spec.inside : spec.outside).latency = Nanos(std::llround(seconds * 1e9));
    return absl::OkStatus();
  }
  if (key == "memory") {
    ASSIGN_OR_RETURN(const double bytes, Quantity(value, Least::kAboveZero,
                                                  {{"B", 1},
                                                   {"MB", 1e6},
                                                   {"GB", 1e9},
                                                   {"TB", 1e12},
                                                   {"MiB", 0x1p20},
                                                   {"GiB", 0x1p30},
                                                   {"TiB", 0x1p40}}));
    if (bytes > 0x1p60) return absl::InvalidArgumentError("is over 1 EiB");
    spec.memory = Bytes(std::llround(bytes));
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "is not known; there are bandwidth, latency, memory, outside-bandwidth, outside-latency");
}

absl::StatusOr<UniformSpec> ReadSpec(std::string_view text) {
  UniformSpec spec;
  spec.name = std::string(text);
  const size_t colon = text.find(':');
  text = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  size_t comma = text.find(',');
  const std::string_view size = text.substr(0, comma);
  const size_t times = size.find('x');
  ASSIGN_OR_RETURN(spec.devices_per_node,
                   Count(times == std::string_view::npos ? size : size.substr(times + 1)));
  if (times != std::string_view::npos) {
    ASSIGN_OR_RETURN(spec.nodes, Count(size.substr(0, times)));
  }
  bool outside_bandwidth = false, outside_latency = false;
  while (comma != std::string_view::npos) {
    text.remove_prefix(comma + 1);
    comma = text.find(',');
    const std::string_view option = text.substr(0, comma);
    const size_t equals = option.find('=');
    const std::string_view key = option.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : option.substr(equals + 1);
    const absl::Status status = ReadOption(key, value, spec, outside_bandwidth, outside_latency);
    if (!status.ok()) return Annotate(status, std::string(key));
  }
  if (!outside_bandwidth) spec.outside.bytes_per_second = spec.inside.bytes_per_second;
  if (!outside_latency) spec.outside.latency = spec.inside.latency;
  return spec;
}

}  // namespace

absl::StatusOr<Cluster> MakeUniform(const UniformSpec& spec) {
  const int64_t n = int64_t{spec.nodes} * spec.devices_per_node;
  if (spec.nodes < 1 || spec.devices_per_node < 1 || n > Cluster::kMostDevices) {
    return absl::InvalidArgumentError(absl::StrCat("devices: ", spec.nodes, " x ",
                                                   spec.devices_per_node, " are not between 1 and ",
                                                   Cluster::kMostDevices));
  }
  ClusterData data;
  data.name = spec.name;
  data.kinds = {{"profiled", kUnlimited, kUnlimited, 0, 0}};
  for (int32_t d = 0; d < n; ++d) {
    const int32_t node = d / spec.devices_per_node;
    data.devices.push_back({PresetDevice(node, d % spec.devices_per_node), 0, node, spec.memory});
  }
  data.routes.resize(n * n);
  data.links.reserve(n * (n - 1));
  for (int64_t a = 0; a < n; ++a) {
    for (int64_t b = 0; b < n; ++b) {
      if (a == b) continue;
      Link link = data.devices[a].node == data.devices[b].node ? spec.inside : spec.outside;
      link.name = absl::StrCat(data.devices[a].name, "->", data.devices[b].name);
      data.routes[a * n + b] = {static_cast<int32_t>(data.links.size())};
      data.links.push_back(std::move(link));
    }
  }
  return Cluster::Create(std::move(data));
}

bool OnlyForMeasuredTimes(const DeviceKind& kind) {
  return kind.flops_per_second >= kUnlimited && kind.memory_bytes_per_second >= kUnlimited;
}

absl::StatusOr<Cluster> UniformPreset(const std::string& text) {
  const auto fail = [&](const absl::Status& status) {
    return OneLine(Annotate(status, absl::StrCat("cluster preset \"", text, "\"")));
  };
  const auto spec = ReadSpec(text);
  if (!spec.ok()) return fail(spec.status());
  auto cluster = MakeUniform(*spec);
  if (!cluster.ok()) return fail(cluster.status());
  return cluster;
}

}  // namespace stagewright
