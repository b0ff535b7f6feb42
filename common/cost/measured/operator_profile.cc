#include "common/cost/measured/operator_profile.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "common/base/json_object.h"
#include "common/base/one_line.h"

namespace stagewright {
namespace {

using Json = nlohmann::json;

constexpr int64_t kVersion = 1;
constexpr int64_t kLongest = 1'000'000'000'000'000;  // Nanoseconds.
constexpr int64_t kLargest = int64_t{1} << 60;       // Bytes.

std::string PathOf(const ProfiledDevice& device, const std::string& signature) {
  return absl::StrCat("device kind \"", device.kind, "\", software \"", device.software,
                      "\", operator \"", signature, "\"");
}

absl::Status CheckMeasurement(const OperatorMeasurement& measured, const std::string& path) {
  const std::string where = absl::StrCat(path, ", ", measured.samples, " samples: ");
  const struct {
    const char* field;
    int64_t value, most;
  } figures[] = {{"forward_ns", measured.forward.count(), kLongest},
                 {"backward_ns", measured.backward.count(), kLongest},
                 {"backward_input_ns", measured.backward_input.count(), kLongest},
                 {"backward_weight_ns", measured.backward_weight.count(), kLongest},
                 {"kept_bytes", measured.kept.count(), kLargest},
                 {"workspace_bytes", measured.workspace.count(), kLargest}};
  for (const auto& figure : figures) {
    if (figure.value < 0 || figure.value > figure.most) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, figure.field, " is ", figure.value,
                       figure.value < 0 ? ", which is negative" : ", which is too large"));
    }
  }
  if (measured.backward_input + measured.backward_weight != measured.backward) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, "backward_ns is not the sum of backward_input_ns and backward_weight_ns"));
  }
  return absl::OkStatus();
}

absl::Status CheckOperator(const MeasuredOperator& measured, const std::string& path) {
  absl::CivilDay day;
  if (!absl::ParseCivilTime(measured.measured_on, &day)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": measured_on \"", measured.measured_on,
                                                   "\" is not a date like 2026-11-22"));
  }
  if (measured.samples.empty())
    return absl::InvalidArgumentError(absl::StrCat(path, ": samples is empty"));
  int64_t before = 0;
  for (const OperatorMeasurement& at : measured.samples) {
    if (at.samples <= before) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": samples must be positive and ascend, but ", at.samples, " follows ", before));
    }
    before = at.samples;
    RETURN_IF_ERROR(CheckMeasurement(at, path));
  }
  return absl::OkStatus();
}

OperatorMeasurement ReadMeasurement(const Json& json, const std::string& path,
                                    absl::Status& status) {
  JsonObject object(json, path, status,
                    {"samples", "forward_ns", "backward_ns", "backward_input_ns",
                     "backward_weight_ns", "kept_bytes", "workspace_bytes"});
  OperatorMeasurement measured;
  measured.samples = object.Integer("samples");
  measured.forward = Nanos(object.Integer("forward_ns"));
  measured.backward = Nanos(object.Integer("backward_ns"));
  measured.backward_input = Nanos(object.Integer("backward_input_ns"));
  measured.backward_weight = Nanos(object.Integer("backward_weight_ns"));
  measured.kept = Bytes(object.Integer("kept_bytes"));
  measured.workspace = Bytes(object.Integer("workspace_bytes"));
  return measured;
}

void ReadDevice(const Json& json, const std::string& path, OperatorProfile& profile,
                absl::Status& status) {
  JsonObject object(json, path, status, {"device_kind", "software", "operators"});
  const ProfiledDevice device = {object.Text("device_kind"), object.Text("software")};
  const auto [entry, added] = profile.devices.try_emplace(device);
  if (!added) object.Fail("", "repeats an earlier device kind and software");
  size_t number = 0;
  for (const Json& item : object.Array("operators")) {
    // The signature says more than the number, where there is one.
    const auto named = item.is_object() ? item.find("signature") : item.end();
    const bool is_named = item.is_object() && named != item.end() && named->is_string();
    const std::string where =
        is_named ? absl::StrCat(path, ".operators[\"", named->get<std::string>(), "\"]")
                 : absl::StrCat(path, ".operators[", number, "]");
    ++number;
    JsonObject fields(item, where, status, {"signature", "measured_on", "samples", "job"});
    const std::string signature = fields.Text("signature");
    MeasuredOperator measured;
    measured.measured_on = fields.Text("measured_on");
    const std::string by_itself;
    measured.job = fields.Text("job", &by_itself);
    for (const Json& at : fields.Array("samples")) {
      measured.samples.push_back(ReadMeasurement(
          at, absl::StrCat(where, ".samples[", measured.samples.size(), "]"), status));
    }
    if (!entry->second.emplace(signature, std::move(measured)).second)
      fields.Fail("", "is given twice");
  }
}

absl::StatusOr<OperatorProfile> Read(const Json& root) {
  absl::Status status;
  JsonObject object(root, "", status, {"version", "devices"});
  const int64_t version = object.Integer("version");
  if (version != kVersion) {
    object.Fail("version",
                absl::StrCat("is ", version, ", but this program reads version ", kVersion));
  }
  OperatorProfile profile;
  size_t number = 0;
  for (const Json& device : object.Array("devices"))
    ReadDevice(device, absl::StrCat("devices[", number++, "]"), profile, status);
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(Check(profile));
  return profile;
}

}  // namespace

absl::Status Check(const OperatorProfile& profile) {
  for (const auto& [device, operators] : profile.devices) {
    if (device.kind.empty()) return absl::InvalidArgumentError("device_kind is empty");
    if (device.software.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("device kind \"", device.kind, "\": software is empty"));
    }
    for (const auto& [signature, measured] : operators) {
      const std::string path = PathOf(device, signature);
      if (signature.empty())
        return absl::InvalidArgumentError(absl::StrCat(path, ": signature is empty"));
      RETURN_IF_ERROR(CheckOperator(measured, path));
    }
  }
  return absl::OkStatus();
}

void Merge(const OperatorProfile& newer, OperatorProfile& profile) {
  for (const auto& [device, operators] : newer.devices) {
    MeasuredOperators& known = profile.devices[device];
    for (const auto& [signature, measured] : operators) {
      const auto before = known.find(signature);
      if (before != known.end() && before->second.job.empty() && !measured.job.empty()) continue;
      known[signature] = measured;
    }
  }
}

absl::StatusOr<OperatorProfile> ParseOperatorProfile(const std::string& json,
                                                     const std::string& file_name) {
  const std::string where = absl::StrCat("operator profile ", file_name);
  ASSIGN_OR_RETURN(const Json root, ParseJson(json, where));
  absl::StatusOr<OperatorProfile> profile = Read(root);
  if (!profile.ok()) return OneLine(Annotate(profile.status(), where));
  return profile;
}

std::string OperatorProfileToJson(const OperatorProfile& profile) {
  Json devices = Json::array();
  for (const auto& [device, measured_operators] : profile.devices) {
    Json operators = Json::array();
    for (const auto& [signature, measured] : measured_operators) {
      Json samples = Json::array();
      for (const OperatorMeasurement& at : measured.samples) {
        samples.push_back({{"samples", at.samples},
                           {"forward_ns", at.forward.count()},
                           {"backward_ns", at.backward.count()},
                           {"backward_input_ns", at.backward_input.count()},
                           {"backward_weight_ns", at.backward_weight.count()},
                           {"kept_bytes", at.kept.count()},
                           {"workspace_bytes", at.workspace.count()}});
      }
      operators.push_back({{"signature", signature},
                           {"measured_on", measured.measured_on},
                           {"samples", std::move(samples)}});
      if (!measured.job.empty()) operators.back()["job"] = measured.job;
    }
    devices.push_back({{"device_kind", device.kind},
                       {"software", device.software},
                       {"operators", std::move(operators)}});
  }
  return Json({{"version", kVersion}, {"devices", std::move(devices)}}).dump(1) + "\n";
}

}  // namespace stagewright
