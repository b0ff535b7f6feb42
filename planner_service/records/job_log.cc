#include "planner_service/records/job_log.h"

#include <algorithm>
#include <utility>

#include "common/wire/log_proto.h"

namespace stagewright {

void JobLog::Add(const std::string& worker, v1::LogLines message, absl::Time now) {
  // Whatever a worker says.
  constexpr int64_t kMostDropped = int64_t{1} << 40;
  dropped_ =
      std::min(dropped_ + std::clamp<int64_t>(message.dropped(), 0, kMostDropped), kMostDropped);
  for (v1::JobLogLine& line : *message.mutable_lines()) {
    line.set_worker(worker);
    line.set_generation(message.generation());
    Append(std::move(line), now);
  }
}

void JobLog::Add(const LogLine& line, int64_t generation) {
  v1::JobLogLine proto = stagewright::ToProto(line);
  proto.set_generation(generation);
  Append(std::move(proto), line.time);
}

void JobLog::Append(v1::JobLogLine line, absl::Time now) {
  // By the clock, so that lines that a planner hears after a restart are later ones, too.
  last_ = std::max(last_ + 1, absl::ToUnixNanos(now));
  line.set_position(last_);
  bytes_ += line.ByteSizeLong();
  lines_.push_back(std::move(line));
  while (lines_.size() > kMostLines || bytes_ > kMostBytes) {
    bytes_ -= lines_.front().ByteSizeLong();
    lines_.pop_front();
    ++dropped_;
  }
}

v1::ListJobLogsResponse JobLog::ToProto(int64_t after_position) const {
  v1::ListJobLogsResponse log;
  log.set_dropped(dropped_);
  for (const v1::JobLogLine& line : lines_)
    if (line.position() > after_position) *log.add_lines() = line;
  std::stable_sort(
      log.mutable_lines()->begin(), log.mutable_lines()->end(),
      [](const v1::JobLogLine& a, const v1::JobLogLine& b) { return a.time_ns() < b.time_ns(); });
  return log;
}

}  // namespace stagewright
