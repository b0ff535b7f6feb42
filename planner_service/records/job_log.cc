#include "planner_service/records/job_log.h"

#include <algorithm>
#include <utility>

#include "common/wire/log_proto.h"

namespace stagewright {

namespace {

// Whatever a worker says.
constexpr int64_t kMostDropped = int64_t{1} << 40;

}  // namespace

int64_t JobLog::DropKnown(const std::string& worker, v1::LogLines& message) {
  const int64_t first = message.first_number();
  if (first <= 0 || first > kMostDropped) return message.dropped();
  Told& told = told_[worker];
  // Late lines of an attempt before the newest one.
  if (message.generation() < told.generation) return message.dropped();
  if (message.generation() > told.generation || message.numbering() != told.numbering)
    told = {message.generation(), message.numbering(), 1};
  const int64_t lines = message.lines_size();
  const int64_t known = std::clamp<int64_t>(told.next_number - first, 0, lines);
  const int64_t lost = std::max<int64_t>(0, first - told.next_number);
  told.next_number = std::max(told.next_number, first + lines);
  message.mutable_lines()->DeleteSubrange(0, static_cast<int>(known));
  return lost;
}

void JobLog::Add(const std::string& worker, v1::LogLines message, absl::Time now) {
  const int64_t lost = DropKnown(worker, message);
  dropped_ = std::min(dropped_ + std::clamp<int64_t>(lost, 0, kMostDropped), kMostDropped);
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
