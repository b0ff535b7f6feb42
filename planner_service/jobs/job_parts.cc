#include "planner_service/jobs/job_parts.h"

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

// Unless it was read before.
absl::Status Read(const Store& store, const std::string& hash, JobParts::Blobs& read,
                  google::protobuf::MessageLite& message) {
  const auto damaged = [&](absl::string_view how) {
    return absl::DataLossError(absl::StrCat("store: entry ", BlobKey(hash), " is ", how));
  };
  auto known = read.find(hash);
  if (known == read.end()) {
    auto bytes = store.Read(BlobKey(hash));
    if (absl::IsNotFound(bytes.status())) return damaged("missing");
    RETURN_IF_ERROR(bytes.status());
    if (ContentHash(*bytes) != hash) return damaged("damaged");
    known = read.emplace(hash, *std::move(bytes)).first;
  }
  return message.ParseFromString(known->second) ? absl::OkStatus() : damaged("damaged");
}

absl::Status JoinParts(const Store& store, int64_t number, const JobParts::Parts& parts,
                       JobParts::Blobs& read, v1::Job& job) {
  if (parts.empty()) {
    return job.spec().has_graph()
               ? absl::OkStatus()
               : absl::DataLossError(
                     absl::StrCat("store: entry ", PartsKey(number), " is missing or damaged"));
  }
  if (!parts[kGraph].empty())
    RETURN_IF_ERROR(Read(store, parts[kGraph], read, *job.mutable_spec()->mutable_graph()));
  if (!parts[kPlan].empty()) RETURN_IF_ERROR(Read(store, parts[kPlan], read, *job.mutable_plan()));
  if (!parts[kSequentialPlan].empty())
    RETURN_IF_ERROR(Read(store, parts[kSequentialPlan], read, *job.mutable_sequential_plan()));
  return absl::OkStatus();
}

// In a job's list of parts; none in a damaged one.
JobParts::Parts PartsIn(const std::string& list) {
  JobParts::Parts parts = absl::StrSplit(list, '\n');
  return parts.size() == kNumParts ? parts : JobParts::Parts();
}

}  // namespace

bool IsPartEntry(absl::string_view key) { return absl::StartsWith(key, kBlobs); }

bool IsWholePart(absl::string_view key, absl::string_view value) {
  return key.substr(kBlobs.size()) == ContentHash(value);
}

absl::Status JobParts::Load(const Store& store, const std::set<int64_t>& jobs) {
  ASSIGN_OR_RETURN(const auto entries, store.Scan(std::string(kParts)));
  for (const auto& [key, value] : entries) {
    int64_t job = 0;
    // A damaged one is as if it were missing, which Join says.
    if (!absl::SimpleAtoi(key.substr(kParts.size()), &job)) continue;
    Done({job, PartsIn(value), {}});
    if (!jobs.contains(job)) Rest(job);
  }
  return absl::OkStatus();
}

JobParts::Change JobParts::Split(int64_t number, const Seals& seals,
                                 std::vector<Mutation>& batch) const {
  const auto known = parts_.find(number);
  Change change{number, Parts(kNumParts), known == parts_.end() ? Parts() : known->second};
  std::set<std::string> added;
  for (size_t part = 0; part < seals.size(); ++part) {
    if (seals[part] == nullptr) continue;
    const std::string& hash = change.parts[part] = seals[part]->hash;
    if ((!jobs_.contains(IdOf(hash)) || doubtful_.contains(hash)) && added.insert(hash).second)
      batch.push_back({BlobKey(hash), seals[part]->bytes});
  }
  AddDifference(change, batch);
  return change;
}

absl::StatusOr<JobParts::Change> JobParts::Drop(const Store& store, int64_t number,
                                                std::vector<Mutation>& batch) const {
  Change change{number, {}, {}};
  if (const auto known = parts_.find(number); known != parts_.end()) {
    change.before = known->second;
  } else if (!unsure_.contains(number)) {  // One that is not known to be written was not counted.
    ASSIGN_OR_RETURN(change.before, PartsOf(store, number));
  }
  AddDifference(change, batch);
  return change;
}

void JobParts::AddDifference(const Change& change, std::vector<Mutation>& batch) const {
  const Parts& before = change.before;
  if (before == change.parts && !unsure_.contains(change.job)) return;
  batch.push_back({PartsKey(change.job), change.parts.empty()
                                             ? std::nullopt
                                             : std::optional(absl::StrJoin(change.parts, "\n"))});
  std::map<std::string, int> gone;
  for (const std::string& hash : before) ++gone[hash];
  for (const std::string& hash : change.parts) gone.erase(hash);
  for (const auto& [hash, uses] : gone) {
    const auto jobs = jobs_.find(IdOf(hash));
    if (!hash.empty() && jobs != jobs_.end() && jobs->second <= uses)
      batch.push_back({BlobKey(hash), std::nullopt});
  }
}

void JobParts::Doubt(const Change& change) {
  doubtful_.insert(change.before.begin(), change.before.end());
  if (!change.parts.empty()) unsure_.insert(change.job);
}

void JobParts::Done(const Change& change) {
  for (const std::string& hash : change.parts) doubtful_.erase(hash);
  for (const std::string& hash : change.parts) {
    if (!hash.empty()) ++jobs_[IdOf(hash)];
  }
  for (const std::string& hash : change.before) {
    const auto jobs = jobs_.find(IdOf(hash));
    if (jobs != jobs_.end() && --jobs->second <= 0) jobs_.erase(jobs);
  }
  unsure_.erase(change.job);
  if (change.parts.empty()) {
    parts_.erase(change.job);
  } else {
    parts_[change.job] = change.parts;
  }
}

JobParts::PartId JobParts::IdOf(const std::string& hash) {
  PartId id = {};
  hash.copy(id.data(), id.size());
  return id;
}

absl::StatusOr<JobParts::Parts> JobParts::PartsOf(const Store& store, int64_t number) {
  const auto stored = store.Read(PartsKey(number));
  if (absl::IsNotFound(stored.status())) return Parts();
  RETURN_IF_ERROR(stored.status());
  return PartsIn(*stored);
}

absl::Status JobParts::Join(const Store& store, int64_t number, v1::Job& job) {
  ASSIGN_OR_RETURN(const Parts parts, PartsOf(store, number));
  Blobs read;
  return JoinParts(store, number, parts, read, job);
}

absl::Status JobParts::JoinKnown(const Store& store, int64_t number, v1::Job& job,
                                 Blobs& read) const {
  const auto known = parts_.find(number);
  return JoinParts(store, number, known == parts_.end() ? Parts() : known->second, read, job);
}

}  // namespace stagewright
