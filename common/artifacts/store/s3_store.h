// Objects of a bucket that speaks S3: Amazon's, or MinIO, Ceph and the like. Requests are signed by
// libcurl (AWS Signature Version 4) and name the bucket in the path. Redirects are not followed.
// What a server refuses for the moment is tried three times.
#pragma once

#include <curl/curl.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/artifacts/store/artifact_store.h"
#include "common/artifacts/store/s3_settings.h"

namespace stagewright {

class S3Store : public ArtifactStore {
 public:
  explicit S3Store(S3Settings settings);
  ~S3Store() override;

  const std::string& where() const override { return where_; }
  absl::StatusOr<std::string> Read(const std::string& key, size_t most,
                                   const GivenUp& given_up) const override;
  absl::StatusOr<bool> Has(const std::string& key) const override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& prefix) const override;
  absl::Status Write(const std::string& key, absl::string_view bytes) override;
  absl::Status Remove(const std::string& key) override;

 private:
  struct Request {
    const char* method = "GET";
    std::string key;
    absl::string_view body;  // PUT
    size_t most = size_t{64} << 10;
    GivenUp given_up;
    std::string query;  // What the bucket itself is asked, without a key.
  };
  struct Response {
    long status = 0;  // HTTP's.
    std::string body;
  };

  // The response, or what kept it from coming. UNAVAILABLE, CANCELLED, DATA_LOSS.
  absl::StatusOr<Response> Send(const Request& request) const;
  absl::StatusOr<Response> SendOnce(const Request& request, CURL* curl) const;
  // Why the server has not done it.
  absl::Status Refusal(const Request& request, const Response& response) const;

  const S3Settings settings_;
  const std::string where_;
  // Open connections that nobody uses now.
  mutable absl::Mutex mutex_;
  mutable std::vector<CURL*> idle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagewright
