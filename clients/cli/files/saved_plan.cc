#include "clients/cli/files/saved_plan.h"

#include <google/protobuf/util/json_util.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "clients/cli/files/write_file.h"
#include "common/wire/graph_proto.h"

namespace stagewright::cli {
namespace {

absl::StatusOr<std::string> ToJson(const google::protobuf::Message& message) {
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(message, &text);
  if (!status.ok()) return absl::InternalError(std::string(status.message()));
  return text;
}

absl::Status FromJson(const std::string& text, google::protobuf::Message& message,
                      const std::string& where) {
  const auto status = google::protobuf::util::JsonStringToMessage(text, &message);
  if (status.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", std::string(status.message())));
}

// Views follow indices, so those of a file must lie where they point.
absl::Status CheckIndices(const v1::Plan& plan, const std::string& where) {
  const int32_t stages = plan.strategy().stages_size();
  if (plan.evaluation().stages_size() != stages)
    return absl::InvalidArgumentError(absl::StrCat(where, ": a report per stage is missing"));
  for (const v1::StageEdge& edge : plan.strategy().edges()) {
    if (edge.from() < 0 || edge.from() >= edge.to() || edge.to() >= stages) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ".strategy.edges: no edge ", edge.from(), " -> ", edge.to()));
    }
  }
  for (const v1::Stage& stage : plan.strategy().stages()) {
    for (int32_t index : stage.devices()) {
      if (index < 0)
        return absl::InvalidArgumentError(absl::StrCat(where, ".strategy: no device ", index));
    }
    for (int32_t index : stage.nodes()) {
      if (index < 0)
        return absl::InvalidArgumentError(absl::StrCat(where, ".strategy: no node ", index));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SavePlan(const v1::PlanResponse& response, const v1::Graph& graph,
                      const std::string& path) {
  ASSIGN_OR_RETURN(std::string response_text, ToJson(response));
  ASSIGN_OR_RETURN(std::string graph_text, ToJson(NamesOf(graph)));
  return WriteFile(path,
                   absl::StrCat("{\"response\":", response_text, ",\"graph\":", graph_text, "}\n"));
}

absl::StatusOr<SavedPlan> LoadPlan(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno)));
  std::ostringstream buffer;
  buffer << in.rdbuf();
  const auto json =
      nlohmann::json::parse(std::move(buffer).str(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("response") || !json.contains("graph")) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a saved plan (or truncated)"));
  }
  SavedPlan saved;
  RETURN_IF_ERROR(FromJson(json["response"].dump(), saved.response, path));
  RETURN_IF_ERROR(FromJson(json["graph"].dump(), saved.graph, path));
  RETURN_IF_ERROR(CheckIndices(saved.response.best(), path + ": response.best"));
  RETURN_IF_ERROR(CheckIndices(saved.response.sequential(), path + ": response.sequential"));
  return saved;
}

}  // namespace stagewright::cli
