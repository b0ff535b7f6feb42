#include "clients/cli/view/event_view.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "clients/cli/view/table.h"
#include "common/wire/job_state.h"

namespace stagewright::cli {
namespace {

std::string KindName(v1::EventKind kind) {
  return absl::AsciiStrToLower(v1::EventKind_Name(kind).substr(std::string("EVENT_KIND_").size()));
}

absl::Time TimeOf(const google::protobuf::Timestamp& time) {
  return absl::FromUnixSeconds(time.seconds()) + absl::Nanoseconds(time.nanos());
}

// "running" says more than "state".
std::string WhatText(const v1::Event& event) {
  return event.kind() == v1::EVENT_KIND_STATE ? JobStateName(event.state())
                                              : KindName(event.kind());
}

}  // namespace

std::string TimeText(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0) return "-";
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", TimeOf(time), absl::UTCTimeZone());
}

nlohmann::json TimeJson(const google::protobuf::Timestamp& time) {
  if (time.seconds() == 0) return nullptr;
  return absl::FormatTime(time.nanos() == 0 ? "%Y-%m-%dT%H:%M:%SZ" : "%Y-%m-%dT%H:%M:%E3SZ",
                          TimeOf(time), absl::UTCTimeZone());
}

std::string EventsText(const Events& events) {
  Table table({"time (UTC)", ">count", "event", "worker", ">run", ">step", "message"});
  for (const v1::Event& event : events) {
    table.Add({TimeText(event.last_time()), absl::StrCat(event.count()), WhatText(event),
               event.worker().empty() ? "-" : event.worker(),
               event.generation() > 0 ? absl::StrCat(event.generation()) : "-",
               event.step() > 0 ? absl::StrCat(event.step()) : "-", event.message()});
  }
  return table.ToString();
}

nlohmann::json EventsJson(const Events& events) {
  nlohmann::json list = nlohmann::json::array();
  for (const v1::Event& event : events) {
    nlohmann::json json = {{"time", TimeJson(event.time())},
                           {"last_time", TimeJson(event.last_time())},
                           {"count", event.count()},
                           {"kind", KindName(event.kind())},
                           {"message", event.message()}};
    if (!event.job().empty()) {
      json["job"] = event.job();
      json["state"] = JobStateName(event.state());
      json["generation"] = event.generation();
      json["step"] = event.step();
    }
    if (!event.worker().empty()) json["worker"] = event.worker();
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace stagewright::cli
