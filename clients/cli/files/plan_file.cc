#include "clients/cli/files/plan_file.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "clients/cli/files/saved_plan.h"
#include "clients/cli/view/plan_context.h"
#include "clients/cli/view/plan_json.h"
#include "common/base/text_file.h"

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
                                 {"orders", "orders"}};
constexpr Field kStageFields[] = {
    {"nodes", "nodes"}, {"devices", "devices"},     {"micro_batch_size", "micro_batch"},
    {"k", "k"},         {"in_flight", "in_flight"}, {"recompute", "recompute"}};

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
  return plan.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

absl::StatusOr<std::string> ReadPlanFile(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadTextFile(path));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return text;
  if (json.contains("response")) {
    ASSIGN_OR_RETURN(const SavedPlan saved, LoadPlan(path));
    return ByHand(PlanJson(saved.response, ContextOf(saved.graph, saved.response.best())), path);
  }
  if (json.contains("termination")) return ByHand(json, path);
  return text;
}

}  // namespace stagewright::cli
