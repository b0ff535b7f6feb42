#include "worker_daemon/daemon/logs/log_tails.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "common/base/check.h"
#include "common/wire/log_proto.h"

namespace stagewright {

void LogTails::Add(const LogLine& line) {
  Run run;
  for (const LogField& field : line.fields) {
    if (field.key == "job") run.first = field.value;
    if (field.key == "generation" && !absl::SimpleAtoi(field.value, &run.second)) return;
  }
  if (run.first.empty() || run.second <= 0) return;
  // Those that were told lately are here only to say when they may tell again.
  if (tails_.size() >= kMostJobs && !tails_.contains(run))
    std::erase_if(tails_, [&](const auto& entry) {
      return !Waits(entry.second) && entry.second.due <= line.time;
    });
  if (tails_.size() >= kMostJobs && !tails_.contains(run)) return;
  Tail& tail = tails_[run];
  v1::LogLines& lines = tail.lines;
  *lines.add_lines() = ToProto(line);
  tail.bytes += lines.lines().rbegin()->ByteSizeLong();
  int lost = 0;
  for (; lines.lines_size() - lost > kMostLines || tail.bytes > kMostBytes; ++lost)
    tail.bytes -= lines.lines(lost).ByteSizeLong();
  lines.mutable_lines()->DeleteSubrange(0, lost);
  lines.set_dropped(lines.dropped() + lost);
}

bool LogTails::Has(const std::string& job, int64_t generation) const {
  const auto found = tails_.find({job, generation});
  return found != tails_.end() && Waits(found->second);
}

absl::Time LogTails::due() const {
  absl::Time due = absl::InfiniteFuture();
  for (const auto& [run, tail] : tails_)
    if (Waits(tail)) due = std::min(due, tail.due);
  return due;
}

v1::ConnectRequest LogTails::TakeDue(absl::Time now) {
  const absl::Time first = due();
  CHECK(first <= now);
  const auto found = std::find_if(tails_.begin(), tails_.end(), [&](const auto& entry) {
    return Waits(entry.second) && entry.second.due == first;
  });
  const Run run = found->first;
  return Take(run.first, run.second, now);
}

v1::ConnectRequest LogTails::Take(const std::string& job, int64_t generation, absl::Time now) {
  Tail& tail = tails_.at({job, generation});
  v1::ConnectRequest message;
  message.mutable_log_lines()->Swap(&tail.lines);
  message.mutable_log_lines()->set_job(job);
  message.mutable_log_lines()->set_generation(generation);
  tail.bytes = 0;
  tail.due = now + kEvery;
  return message;
}

}  // namespace stagewright
