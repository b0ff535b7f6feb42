#include "planner_service/jobs/request_book.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/error_details.h"
#include "stagewright/v1/job_service.pb.h"

namespace stagewright {
namespace {

// FNV-1a.
uint64_t Hash(absl::string_view bytes, uint64_t hash) {
  for (const char c : bytes) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3u;
  }
  return hash;
}

std::string Digest(absl::string_view bytes) {
  const uint64_t first = Hash(bytes, 0xcbf29ce484222325u);
  return absl::StrFormat("%016x%016x", first, Hash(bytes, ~first));
}

}  // namespace

std::string DigestOf(const v1::JobSpec& spec) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream out(&bytes);
    google::protobuf::io::CodedOutputStream coded(&out);
    coded.SetSerializationDeterministic(true);
    spec.SerializeToCodedStream(&coded);
  }
  return Digest(absl::StrCat("submit ", bytes));
}

std::string DigestOfCancel(absl::string_view job) { return Digest(absl::StrCat("cancel ", job)); }

std::string ToText(const KnownRequest& request) {
  return request.digest.empty() ? request.job : absl::StrCat(request.job, " ", request.digest);
}

KnownRequest RequestFromText(absl::string_view text) {
  const size_t blank = text.find(' ');
  if (blank == absl::string_view::npos) return {std::string(text), ""};
  return {std::string(text.substr(0, blank)), std::string(text.substr(blank + 1))};
}

void RequestBook::Load(const std::map<std::string, std::string>& stored) {
  requests_.clear();
  ids_of_.clear();
  for (const auto& [id, text] : stored) Add(id, RequestFromText(text));
}

absl::StatusOr<const KnownRequest*> RequestBook::Find(const std::string& id,
                                                      const std::string& digest) const {
  const auto it = id.empty() ? requests_.end() : requests_.find(id);
  if (it == requests_.end()) return nullptr;
  const KnownRequest& known = it->second;
  if (known.digest.empty() || known.digest == digest) return &known;
  return WithResource(
      WithReason(
          WithField(absl::AlreadyExistsError(absl::StrCat(
                        "request_id \"", id, "\" was that of another request, for ", known.job)),
                    "request_id"),
          "REQUEST_ID_REUSED"),
      known.job);
}

void RequestBook::Add(const std::string& id, KnownRequest request) {
  if (id.empty()) return;
  Forget({id});  // It may have been another job's.
  ids_of_[request.job].insert(id);
  requests_[id] = std::move(request);
}

std::vector<std::string> RequestBook::IdsOf(const std::string& job) const {
  const auto it = ids_of_.find(job);
  if (it == ids_of_.end()) return {};
  return {it->second.begin(), it->second.end()};
}

void RequestBook::Forget(const std::vector<std::string>& ids) {
  for (const std::string& id : ids) {
    const auto request = requests_.find(id);
    if (request == requests_.end()) continue;
    const auto job = ids_of_.find(request->second.job);
    job->second.erase(id);
    if (job->second.empty()) ids_of_.erase(job);
    requests_.erase(request);
  }
}

}  // namespace stagewright
