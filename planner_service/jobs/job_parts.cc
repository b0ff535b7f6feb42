#include "planner_service/jobs/job_parts.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/artifacts/content_hash.h"

namespace stagewright {
namespace {

constexpr absl::string_view kBlobs = "blobs/";
constexpr absl::string_view kParts = "parts/";
// In a job's list of parts.
enum Part { kGraph, kPlan, kSequentialPlan, kNumParts };

std::string BlobKey(const std::string& hash) { return absl::StrCat(kBlobs, hash); }
std::string PartsKey(int64_t job) { return absl::StrFormat("%s%012d", kParts, job); }

// The same bytes for the same message, as far as one version of protobuf goes; where they differ, a
// part is kept twice.
std::string Bytes(const google::protobuf::MessageLite& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  return bytes;
}

absl::Status Read(const Store& store, const std::string& hash,
                  google::protobuf::MessageLite& message) {
  const auto bytes = store.Read(BlobKey(hash));
  if (absl::IsNotFound(bytes.status()))
    return absl::DataLossError(absl::StrCat("store: entry ", BlobKey(hash), " is missing"));
  RETURN_IF_ERROR(bytes.status());
  if (ContentHash(*bytes) == hash && message.ParseFromString(*bytes)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("store: entry ", BlobKey(hash), " is damaged"));
}

}  // namespace

bool IsPartEntry(absl::string_view key) { return absl::StartsWith(key, kBlobs); }

bool IsWholePart(absl::string_view key, absl::string_view value) {
  return key.substr(kBlobs.size()) == ContentHash(value);
}

absl::Status JobParts::Load(const Store& store) {
  ASSIGN_OR_RETURN(const auto entries, store.Scan(std::string(kParts)));
  for (const auto& [key, value] : entries) {
    int64_t job = 0;
    std::vector<std::string> parts = absl::StrSplit(value, '\n');
    // A damaged one is as if it were missing, which Join says.
    if (absl::SimpleAtoi(key.substr(kParts.size()), &job) && parts.size() == kNumParts)
      Done({job, std::move(parts)});
  }
  return absl::OkStatus();
}

JobParts::Change JobParts::Split(int64_t number, v1::Job& job, std::vector<Mutation>& batch) const {
  Change change{number, std::vector<std::string>(kNumParts)};
  std::set<std::string> added;
  const auto take = [&](Part part, const google::protobuf::MessageLite& message) {
    std::string bytes = Bytes(message);
    std::string& hash = change.parts[part] = ContentHash(bytes);
    if ((!jobs_.contains(hash) || doubtful_.contains(hash)) && added.insert(hash).second)
      batch.push_back({BlobKey(hash), std::move(bytes)});
  };
  if (job.spec().has_graph()) take(kGraph, job.spec().graph());
  if (job.has_plan()) take(kPlan, job.plan());
  if (job.has_sequential_plan()) take(kSequentialPlan, job.sequential_plan());
  job.mutable_spec()->clear_graph();
  job.clear_plan();
  job.clear_sequential_plan();
  AddDifference(change, batch);
  return change;
}

JobParts::Change JobParts::Drop(int64_t number, std::vector<Mutation>& batch) const {
  Change change{number, {}};
  AddDifference(change, batch);
  return change;
}

void JobParts::AddDifference(const Change& change, std::vector<Mutation>& batch) const {
  const std::vector<std::string> before = Of(change.job);
  if (before == change.parts) return;
  batch.push_back({PartsKey(change.job), change.parts.empty()
                                             ? std::nullopt
                                             : std::optional(absl::StrJoin(change.parts, "\n"))});
  std::map<std::string, int> gone;
  for (const std::string& hash : before) ++gone[hash];
  for (const std::string& hash : change.parts) gone.erase(hash);
  for (const auto& [hash, uses] : gone) {
    if (!hash.empty() && jobs_.at(hash) == uses) batch.push_back({BlobKey(hash), std::nullopt});
  }
}

void JobParts::Doubt(const Change& change) {
  if (const auto it = parts_.find(change.job); it != parts_.end())
    doubtful_.insert(it->second.begin(), it->second.end());
}

void JobParts::Done(const Change& change) {
  for (const std::string& hash : change.parts) doubtful_.erase(hash);
  for (const std::string& hash : change.parts) {
    if (!hash.empty()) ++jobs_[hash];
  }
  std::vector<std::string>& present = parts_[change.job];
  for (const std::string& hash : present) {
    if (!hash.empty() && --jobs_.at(hash) == 0) jobs_.erase(hash);
  }
  present = change.parts;
  if (present.empty()) parts_.erase(change.job);
}

std::vector<std::string> JobParts::Of(int64_t number) const {
  const auto it = parts_.find(number);
  return it == parts_.end() ? std::vector<std::string>() : it->second;
}

absl::Status JobParts::Join(const Store& store, const Change& change, v1::Job& job) {
  const std::vector<std::string>& parts = change.parts;
  if (parts.empty()) {
    return job.spec().has_graph()
               ? absl::OkStatus()
               : absl::DataLossError(
                     absl::StrCat("store: entry ", PartsKey(change.job), " is missing or damaged"));
  }
  if (!parts[kGraph].empty())
    RETURN_IF_ERROR(Read(store, parts[kGraph], *job.mutable_spec()->mutable_graph()));
  if (!parts[kPlan].empty()) RETURN_IF_ERROR(Read(store, parts[kPlan], *job.mutable_plan()));
  if (!parts[kSequentialPlan].empty())
    RETURN_IF_ERROR(Read(store, parts[kSequentialPlan], *job.mutable_sequential_plan()));
  return absl::OkStatus();
}

}  // namespace stagewright
