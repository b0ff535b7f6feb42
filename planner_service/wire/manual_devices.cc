#include "planner_service/wire/manual_devices.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/topology/cluster.h"

namespace stagewright {
namespace {

using Json = nlohmann::json;

constexpr char kOrderOf[] = "device ";

// "device NAME: F0.0 ...", with the device's number if it has one.
std::string OrderByNumber(const std::string& line, const std::map<std::string, size_t>& numbers) {
  const size_t begin = sizeof(kOrderOf) - 1, colon = line.rfind(": ");  // A name may have one, too.
  if (!absl::StartsWith(line, kOrderOf) || colon == std::string::npos) return line;
  const auto number = numbers.find(line.substr(begin, colon - begin));
  if (number == numbers.end()) return line;
  return absl::StrCat(kOrderOf, number->second, line.substr(colon));
}

}  // namespace

ManualDevices ManualDevicesOf(const std::string& plan) {
  const Json json = Json::parse(plan, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("stages") || !json["stages"].is_array()) return {};
  int64_t numbered = 0;
  std::set<std::string> named;
  for (const Json& stage : json["stages"]) {
    if (!stage.is_object() || !stage.contains("devices") || !stage["devices"].is_array()) return {};
    for (const Json& device : stage["devices"]) {
      if (device.is_string()) {
        named.insert(device.get<std::string>());
      } else if (device.is_number_integer()) {
        const auto number = device.get<int64_t>();
        if (number >= Cluster::kMostDevices) return {};
        numbered = std::max(numbered, number + 1);
      } else {
        return {};
      }
    }
  }
  if (numbered > 0 && !named.empty()) return {};
  return {static_cast<int32_t>(numbered), {named.begin(), named.end()}};
}

bool StandForOthers(const std::vector<std::string>& named, const std::set<std::string>& there) {
  return named.size() <= there.size() &&
         std::none_of(named.begin(), named.end(),
                      [&](const std::string& name) { return there.contains(name); });
}

std::string ByNumber(const std::string& plan, const std::vector<std::string>& found_for) {
  const std::vector<std::string> named = ManualDevicesOf(plan).named;
  if (named.empty()) return plan;
  std::map<std::string, size_t> numbers;
  for (const std::string& name : found_for) {
    if (std::binary_search(named.begin(), named.end(), name)) numbers.emplace(name, numbers.size());
  }
  for (const std::string& name : named) numbers.emplace(name, numbers.size());
  Json json = Json::parse(plan);
  for (Json& stage : json["stages"]) {
    for (Json& device : stage["devices"]) device = numbers.at(device.get<std::string>());
  }
  if (json.contains("orders") && json["orders"].is_array()) {
    for (Json& line : json["orders"]) {
      if (line.is_string()) line = OrderByNumber(line.get<std::string>(), numbers);
    }
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace stagewright
