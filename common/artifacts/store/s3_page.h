// What a bucket answers when it is asked for its objects (ListObjectsV2): XML, of which only what
// is needed here is read.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"

namespace stagewright {

struct S3Page {
  std::vector<std::string> keys;  // Objects', and what keys begin with up to the delimiter.
  std::string next;               // What the page behind this one is asked for by; empty: none is.
};

// FAILED_PRECONDITION if it is no such answer. O(size).
absl::StatusOr<S3Page> ParseS3Page(const std::string& xml);

// A value as it stands in the query of a URL, and as signatures have it.
std::string QueryValue(const std::string& value);

}  // namespace stagewright
