#include "worker_daemon/daemon/graphs/named_graphs.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/artifacts/content_hash.h"

namespace stagewright {
namespace {

// False: it is no graph.
bool SetGraph(const std::string& graph, v1::Prepare& message) {
  message.clear_graph_sha256();
  return message.mutable_spec()->mutable_graph()->ParseFromString(graph);
}

v1::ConnectRequest Failure(const v1::Prepare& message, const std::string& sha256) {
  v1::ConnectRequest report;
  report.mutable_failed()->set_job(message.job());
  report.mutable_failed()->set_generation(message.generation());
  report.mutable_failed()->set_code(static_cast<int32_t>(absl::StatusCode::kDataLoss));
  report.mutable_failed()->set_message(
      absl::StrCat("the planner sent another graph than that of sha256:", sha256));
  return report;
}

}  // namespace

std::optional<v1::Prepare> NamedGraphs::Complete(v1::Prepare message) {
  waiting_.erase(message.job());
  const std::string sha256 = message.graph_sha256();
  if (sha256.empty()) return message;
  const std::shared_ptr<const std::string> known = keeper_.Find(sha256);
  if (known != nullptr && SetGraph(*known, message)) return message;
  v1::ConnectRequest question;
  question.mutable_graph_needed()->set_job(message.job());
  question.mutable_graph_needed()->set_generation(message.generation());
  question.mutable_graph_needed()->set_graph_sha256(sha256);
  const std::string job = message.job();
  waiting_[job] = std::move(message);
  say_(std::move(question));
  return std::nullopt;
}

std::vector<v1::Prepare> NamedGraphs::Take(const v1::NeededGraph& answer) {
  const std::string& sha256 = answer.graph_sha256();
  const bool right = ContentHash(answer.graph()) == sha256;
  if (right) keeper_.Keep(sha256, std::make_shared<const std::string>(answer.graph()));
  std::vector<v1::Prepare> complete;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    if (it->second.graph_sha256() != sha256) {
      ++it;
      continue;
    }
    v1::Prepare message = std::move(it->second);
    it = waiting_.erase(it);
    if (right && SetGraph(answer.graph(), message)) {
      complete.push_back(std::move(message));
    } else {
      say_(Failure(message, sha256));
    }
  }
  return complete;
}

void NamedGraphs::Drop(const std::string& job, int64_t generation) {
  const auto found = waiting_.find(job);
  if (found != waiting_.end() && found->second.generation() <= generation) waiting_.erase(found);
}

int64_t NamedGraphs::Waiting(const std::string& job) const {
  const auto found = waiting_.find(job);
  return found == waiting_.end() ? -1 : found->second.generation();
}

}  // namespace stagewright
