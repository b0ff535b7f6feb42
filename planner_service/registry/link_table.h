// What was measured of the links between workers, and of machines whose devices all work at once.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "common/base/units.h"
#include "stagewright/v1/links.pb.h"
#include "stagewright/v1/worker_service.pb.h"

namespace stagewright {

// One direction between two workers, or between the devices of one.
struct LinkFigure {
  Nanos latency = 0;
  double bytes_per_second = 0;
  absl::Time measured = absl::InfinitePast();
  std::string failure;  // Why nothing was measured; empty if it was.

  bool ok() const { return failure.empty(); }
};

// So many devices of a machine, of so many threads each.
struct Crowd {
  std::string host_address;
  int32_t devices = 0;
  int32_t threads_per_device = 0;

  friend auto operator<=>(const Crowd&, const Crowd&) = default;
};

// What they do while all of them work. Caches and memory that they share show in the ratios of two
// crowds' figures; cores that they share do not.
struct CrowdFigure {
  Nanos product = 0;            // Processor time of a unit of matrix products.
  Nanos copy = 0;               // Processor time of a unit of copies in memory.
  Nanos latency = 0;            // A small message; 0 for one device.
  double bytes_per_second = 0;  // All messages together; 0 for one device.
  absl::Time measured = absl::InfinitePast();
  std::string failure;  // Why nothing was measured; empty if it was.
  Nanos message = 0;    // By how much one makes work longer, at each of its ends; 0: not measured.
  double message_bytes_per_second = 0;  // How fast its bytes do so; 0: they do not.
  Nanos reduction = 0;  // A hop of an all-reduce while all compute; 0: not measured.

  bool ok() const { return failure.empty(); }
};

struct LinkTable {
  // By the names of the workers that send and receive.
  std::map<std::pair<std::string, std::string>, LinkFigure> links;
  std::map<Crowd, CrowdFigure> crowds;
  // What each worker was when it was measured: where it runs, and on what.
  std::map<std::string, std::string> workers;
  // What each machine was when its crowds were measured, by host address: processor and cores.
  std::map<std::string, std::string> machines;
};

// A worker registers: drops what was measured of one of its name that was another, of a machine at
// its address that was another, and failures of its own, which are worth another try.
void Meet(const v1::Register& worker, LinkTable& table);

// So many workers, and machines, that are not there have their figures kept.
inline constexpr size_t kMostAbsent = 64;

// Forgets workers and machines that are not `present`, beyond kMostAbsent of each those that were
// measured the longest ago: names that never come again must not fill the table. O(table).
void Bound(const std::set<std::string>& present_workers, const std::set<std::string>& present_hosts,
           LinkTable& table);

// The largest measured crowd of up to `crowd.devices`; null if there is none.
const CrowdFigure* Find(const LinkTable& table, const Crowd& crowd);

v1::MeasuredLinks ToProto(const LinkTable& table);
// Leaves out figures that cannot be.
LinkTable FromProto(const v1::MeasuredLinks& proto);

}  // namespace stagewright
