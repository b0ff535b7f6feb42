#include "worker_daemon/daemon/logs/log_tails.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "common/base/check.h"
#include "common/wire/log_proto.h"

namespace stagewright {

void LogTails::Add(const LogLine& line, absl::Time now) {
  Run run;
  for (const LogField& field : line.fields) {
    if (field.key == "job") run.first = field.value;
    if (field.key == "generation" && !absl::SimpleAtoi(field.value, &run.second)) return;
  }
  if (run.first.empty() || run.second <= 0) return;
  // Those that were told lately are here only to say when they may tell again.
  if (tails_.size() >= kMostJobs && !tails_.contains(run))
    std::erase_if(
        tails_, [&](const auto& entry) { return !Waits(entry.second) && entry.second.due <= now; });
  if (tails_.size() >= kMostJobs && !tails_.contains(run)) return;
  Tail& tail = tails_[run];
  if (tail.last_number == 0) tail.numbering = absl::ToUnixNanos(line.time);
  *tail.lines.Add() = ToProto(line);
  ++tail.last_number;
  tail.bytes += tail.lines.rbegin()->ByteSizeLong();
  int gone = 0;
  for (; tail.lines.size() - gone > kMostLines || tail.bytes > kMostBytes; ++gone)
    tail.bytes -= tail.lines[gone].ByteSizeLong();
  tail.lines.DeleteSubrange(0, gone);
  tail.lost += std::max(0, gone - tail.told);
  tail.told = std::max(0, tail.told - gone);
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
  v1::LogLines& lines = *message.mutable_log_lines();
  lines.set_job(job);
  lines.set_generation(generation);
  lines.mutable_lines()->Add(tail.lines.begin() + tail.told, tail.lines.end());
  lines.set_dropped(std::exchange(tail.lost, 0));
  lines.set_first_number(tail.last_number - lines.lines_size() + 1);
  lines.set_numbering(tail.numbering);
  tail.told = tail.lines.size();
  tail.due = now + kEvery;
  return message;
}

void LogTails::TellAgain() {
  for (auto& [run, tail] : tails_) tail.told = 0;
}

}  // namespace stagewright
