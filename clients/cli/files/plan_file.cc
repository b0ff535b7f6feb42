#include "clients/cli/files/plan_file.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "clients/cli/files/saved_plan.h"
#include "clients/cli/view/plan_context.h"
#include "clients/cli/view/plan_json.h"
#include "common/base/text_file.h"
#include "common/wire/strategy_proto.h"

namespace stagewright::cli {
namespace {

using Json = nlohmann::json;

struct Field {
  const char* shown;
  const char* by_hand;
};
constexpr Field kPlanFields[] = {{"kind", "kind"},
                                 {"asynchronous", "asynchronous"},
                                 {"vertical_sync", "vertical_sync"},
                                 {"batch_statistics", "batch_statistics"},
                                 {"bucket_bytes", "bucket_bytes"},
                                 {"optimizer_sharding", "optimizer_sharding"},
                                 {"orders", "orders"}};
constexpr Field kStageFields[] = {
    {"nodes", "nodes"}, {"devices", "devices"},     {"micro_batch_size", "micro_batch"},
    {"k", "k"},         {"in_flight", "in_flight"}, {"recompute", "recompute"}};

constexpr char kSplits[] = "split_operators";

std::string Text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <size_t n>
Json Renamed(const Json& shown, const Field (&fields)[n]) {
  if (!shown.is_object()) return shown;  // The reader of the plan says what is wrong.
  Json by_hand = Json::object();
  for (const Field& field : fields) {
    if (shown.contains(field.shown)) by_hand[field.by_hand] = shown[field.shown];
  }
  return by_hand;
}

// A plan as PlanJson writes it, by hand.
absl::StatusOr<std::string> ByHand(const Json& shown, const std::string& path) {
  if (!shown.contains("stages") || !shown["stages"].is_array())
    return absl::InvalidArgumentError(absl::StrCat(path, ": holds no plan"));
  Json plan = Renamed(shown, kPlanFields);
  plan["stages"] = Json::array();
  for (const Json& stage : shown["stages"]) plan["stages"].push_back(Renamed(stage, kStageFields));
  return Text(plan);
}

// {"top": 4, ...}
absl::StatusOr<std::vector<OperatorSplit>> SplitsIn(const Json& json, const std::string& path) {
  std::vector<OperatorSplit> splits;
  if (!json.contains(kSplits)) return splits;
  const Json& given = json[kSplits];
  bool good = given.is_object();
  for (auto it = given.begin(); good && it != given.end(); ++it) {
    good = it->is_number_integer() && it->get<int64_t>() >= 2 && it->get<int64_t>() <= 1024;
    if (good) splits.push_back({it.key(), it->get<int32_t>()});
  }
  if (good) return splits;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", kSplits, " is not an object of numbers of parts by node"));
}

// Those of a plan as PlanJson writes it.
std::vector<std::string> DevicesIn(const Json& shown) {
  std::vector<std::string> names;
  if (!shown.contains("devices")) return names;
  for (const Json& report : shown["devices"]) {
    if (report.is_object() && report.contains("device") && report["device"].is_string())
      names.push_back(report["device"].get<std::string>());
  }
  return names;
}

}  // namespace

absl::StatusOr<PlanFile> ReadPlanFile(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadTextFile(path));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return PlanFile{std::move(text), {}};
  if (json.contains("response")) {
    ASSIGN_OR_RETURN(const SavedPlan saved, LoadPlan(path));
    json = PlanJson(saved.response, ContextOf(saved.graph, saved.response.best()));
  }
  PlanFile file;
  ASSIGN_OR_RETURN(file.splits, SplitsIn(json, path));
  if (json.contains("termination")) {
    ASSIGN_OR_RETURN(file.plan, ByHand(json, path));
    file.found_for = DevicesIn(json);
  } else if (file.splits.empty()) {
    file.plan = std::move(text);
  } else {
    json.erase(kSplits);
    file.plan = Text(json);
  }
  return file;
}

absl::StatusOr<v1::PlanBasis> ReadPlanBasis(const std::string& path) {
  ASSIGN_OR_RETURN(const SavedPlan saved, LoadPlan(path));
  if (saved.response.has_basis()) return saved.response.basis();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": does not say what the plan was made from; plan --save writes it"));
}

absl::Status SetManualPlan(const std::string& path, v1::PlanOptions& options) {
  ASSIGN_OR_RETURN(PlanFile file, ReadPlanFile(path));
  options.set_manual(std::move(file.plan));
  options.mutable_found_for()->Assign(file.found_for.begin(), file.found_for.end());
  if (options.splits_size() > 0) return absl::OkStatus();
  for (const OperatorSplit& split : file.splits) *options.add_splits() = ToProto(split);
  return absl::OkStatus();
}

}  // namespace stagewright::cli
