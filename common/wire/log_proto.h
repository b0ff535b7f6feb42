// Lines of a log <-> stagewright.v1.
#pragma once

#include <cstddef>

#include "common/log/log.h"
#include "stagewright/v1/job_logs.pb.h"

namespace stagewright {

// A line is cut so that its texts have at most so many bytes together, and at most so many keys.
inline constexpr size_t kMostLineBytes = 1024;
inline constexpr int kMostLineFields = 32;

// Without the keys job and generation, which stand beside a line. What a terminal would obey
// becomes "?", but for line ends and tabs, and so does what is not UTF-8.
v1::JobLogLine ToProto(const LogLine& line);

// As its program wrote it: with worker and generation among its keys.
LogLine FromProto(const v1::JobLogLine& line);

}  // namespace stagewright
