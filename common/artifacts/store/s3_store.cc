#include "common/artifacts/store/s3_store.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/artifacts/content_hash.h"
#include "common/artifacts/store/s3_page.h"
#include "common/base/check.h"

namespace stagewright {
namespace {

constexpr int kTries = 3;
constexpr absl::Duration kBackOff = absl::Milliseconds(200);
constexpr long kConnectSeconds = 10;
// A connection that brings less than this many bytes a second for so long is given up.
constexpr long kLeastBytes = 1, kSilentSeconds = 15;
constexpr size_t kMostTold = 200;
// A thousand objects, which S3 lists at once, with keys of a kibibyte each and all that is said of
// them.
constexpr size_t kLongestPage = size_t{16} << 20;

// What a transfer has received, and why it ends early.
struct Transfer {
  std::string body;
  size_t most = 0;
  const GivenUp* given_up = nullptr;
  bool too_long = false;
};

size_t Receive(const char* data, size_t size, size_t count, void* to) {
  Transfer& transfer = *static_cast<Transfer*>(to);
  transfer.too_long = transfer.body.size() + size * count > transfer.most;
  if (transfer.too_long) return 0;
  transfer.body.append(data, size * count);
  return size * count;
}

int Progress(void* of, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  const Transfer& transfer = *static_cast<const Transfer*>(of);
  return *transfer.given_up && (*transfer.given_up)() ? 1 : 0;
}

// What stands in an element of an error's XML, as far as it can be shown to people.
std::string Element(const std::string& xml, const std::string& name) {
  const size_t begin = xml.find("<" + name + ">"), end = xml.find("</" + name + ">");
  if (begin == xml.npos || end == xml.npos || end < begin) return "";
  const size_t from = begin + name.size() + 2;
  std::string text = xml.substr(from, std::min(end - from, kMostTold));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = '?';
  return text;
}

void SetUpCurlOnce() {
  static const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);
  CHECK(code == CURLE_OK);
}

// Signatures cover the body if it is in memory, as that of a POST.
void SetMethod(CURL* curl, const char* method, absl::string_view body) {
  const absl::string_view name = method;
  if (name == "HEAD") {
    curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    return;
  }
  if (name == "PUT") {
    curl_easy_setopt(curl, CURLOPT_POST, 1L);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.data());
  }
  curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
}

// What holds for every transfer.
void SetLimits(CURL* curl) {
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, kLeastBytes);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, kSilentSeconds);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, Receive);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, Progress);
}

void SetCredentials(CURL* curl, const S3Settings& settings) {
  const std::string signing = absl::StrCat("aws:amz:", settings.region, ":s3");
  curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, signing.c_str());  // It copies texts.
  curl_easy_setopt(curl, CURLOPT_USERNAME, settings.access_key.c_str());
  curl_easy_setopt(curl, CURLOPT_PASSWORD, settings.secret_key.c_str());
  if (!settings.authorities.empty())
    curl_easy_setopt(curl, CURLOPT_CAINFO, settings.authorities.c_str());
}

bool MayBeTriedAgain(long status) { return status >= 500 || status == 429 || status == 408; }

}  // namespace

S3Store::S3Store(S3Settings settings)
    : settings_(std::move(settings)), where_(settings_.Describe()) {
  SetUpCurlOnce();
}

S3Store::~S3Store() {
  absl::MutexLock lock(&mutex_);
  for (CURL* curl : idle_) curl_easy_cleanup(curl);
}

absl::StatusOr<S3Store::Response> S3Store::SendOnce(const Request& request, CURL* curl) const {
  const std::string object = request.query.empty()
                                 ? absl::StrCat("/", settings_.prefix, request.key)
                                 : absl::StrCat("?", request.query);
  const std::string url = absl::StrCat(settings_.endpoint, "/", settings_.bucket, object);
  Transfer transfer;
  transfer.most = request.most;
  transfer.given_up = &request.given_up;
  curl_slist* headers = nullptr;
  const absl::Cleanup freed = [&headers] { curl_slist_free_all(headers); };
  const auto add = [&headers](const std::string& header) {
    headers = curl_slist_append(headers, header.c_str());
  };
  add(absl::StrCat("x-amz-content-sha256: ", ContentHash(request.body)));
  if (!settings_.session_token.empty())
    add(absl::StrCat("x-amz-security-token: ", settings_.session_token));
  if (!request.body.empty()) add("Content-Type: application/octet-stream");
  char error[CURL_ERROR_SIZE] = "";
  // The handle keeps its connection and outlives what it is told of here.
  const absl::Cleanup forgotten = [curl] { curl_easy_reset(curl); };
  SetMethod(curl, request.method, request.body);
  SetLimits(curl);
  SetCredentials(curl, settings_);
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);
  const CURLcode code = curl_easy_perform(curl);
  if (code == CURLE_ABORTED_BY_CALLBACK) return absl::CancelledError("given up");
  if (transfer.too_long) {
    return absl::DataLossError(
        absl::StrCat(where_, ": ", request.key, " has more than ", request.most, " bytes"));
  }
  if (code != CURLE_OK) {
    return absl::UnavailableError(
        absl::StrCat(where_, ": ", error[0] != '\0' ? error : curl_easy_strerror(code)));
  }
  Response response;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &response.status);
  response.body = std::move(transfer.body);
  return response;
}

absl::StatusOr<S3Store::Response> S3Store::Send(const Request& request) const {
  CURL* curl = nullptr;
  {
    absl::MutexLock lock(&mutex_);
    if (!idle_.empty()) {
      curl = idle_.back();
      idle_.pop_back();
    }
  }
  if (curl == nullptr) curl = curl_easy_init();
  CHECK(curl != nullptr);
  absl::StatusOr<Response> response;
  for (int tried = 0; tried < kTries; ++tried) {
    if (tried > 0) absl::SleepFor(kBackOff * (1 << (tried - 1)));
    response = SendOnce(request, curl);
    const bool again =
        response.ok() ? MayBeTriedAgain(response->status) : absl::IsUnavailable(response.status());
    if (!again) break;
  }
  absl::MutexLock lock(&mutex_);
  idle_.push_back(curl);
  return response;
}

absl::Status S3Store::Refusal(const Request& request, const Response& response) const {
  const std::string code = Element(response.body, "Code");
  const std::string told = Element(response.body, "Message");
  const std::string message = absl::StrCat(
      where_, ": ", request.method, " ", request.query.empty() ? request.key : "of its list",
      ": HTTP ", response.status, code.empty() ? "" : " ", code, told.empty() ? "" : ": ", told);
  if (code == "NoSuchBucket")
    return absl::FailedPreconditionError(absl::StrCat(where_, ": there is no such bucket"));
  if (response.status == 404) return absl::NotFoundError(message);
  if (response.status == 401 || response.status == 403)
    return absl::PermissionDeniedError(
        absl::StrCat(message, " (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN)"));
  if (MayBeTriedAgain(response.status)) return absl::UnavailableError(message);
  if (response.status >= 300 && response.status < 400)
    return absl::FailedPreconditionError(
        absl::StrCat(message, "; AWS_REGION or AWS_ENDPOINT_URL may be another's"));
  return absl::FailedPreconditionError(message);
}

absl::StatusOr<std::string> S3Store::Read(const std::string& key, size_t most,
                                          const GivenUp& given_up) const {
  Request request = {"GET", key};
  // An error may be longer than what is asked for.
  request.most = std::max(most, request.most);
  request.given_up = given_up;
  ASSIGN_OR_RETURN(Response response, Send(request));
  if (response.status != 200) return Refusal(request, response);
  if (response.body.size() > most) {
    return absl::DataLossError(absl::StrCat(where_, ": ", key, " has more than ", most, " bytes"));
  }
  return std::move(response.body);
}

absl::StatusOr<bool> S3Store::Has(const std::string& key) const {
  const Request request = {"HEAD", key};
  ASSIGN_OR_RETURN(const Response response, Send(request));
  if (response.status == 200) return true;
  if (response.status == 404) return false;
  return Refusal(request, response);
}

absl::StatusOr<std::vector<std::string>> S3Store::List(const std::string& prefix) const {
  const std::string begin = absl::StrCat(settings_.prefix, prefix);
  std::set<std::string> names;
  for (std::string next;;) {
    Request request;
    request.most = kLongestPage;
    if (!next.empty()) request.query = absl::StrCat("continuation-token=", QueryValue(next), "&");
    // Sorted, as signatures have them.
    absl::StrAppend(&request.query, "delimiter=%2F&list-type=2&prefix=", QueryValue(begin));
    ASSIGN_OR_RETURN(const Response response, Send(request));
    if (response.status != 200) return Refusal(request, response);
    absl::StatusOr<S3Page> page = ParseS3Page(response.body);
    if (!page.ok()) return Annotate(page.status(), where_);
    for (absl::string_view key : page->keys)
      if (absl::ConsumePrefix(&key, begin) && !key.empty()) names.emplace(key);
    if (page->next.empty()) return std::vector<std::string>(names.begin(), names.end());
    if (page->next == next)
      return absl::FailedPreconditionError(absl::StrCat(where_, ": its list does not end"));
    next = std::move(page->next);
  }
}

absl::Status S3Store::Write(const std::string& key, absl::string_view bytes) {
  const Request request = {"PUT", key, bytes};
  ASSIGN_OR_RETURN(const Response response, Send(request));
  return response.status == 200 ? absl::OkStatus() : Refusal(request, response);
}

absl::Status S3Store::Remove(const std::string& key) {
  const Request request = {"DELETE", key};
  ASSIGN_OR_RETURN(const Response response, Send(request));
  const bool gone = response.status / 100 == 2 || response.status == 404;
  return gone ? absl::OkStatus() : Refusal(request, response);
}

}  // namespace stagewright
