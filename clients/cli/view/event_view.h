// What happened to jobs and workers, for people and for programs.
#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <nlohmann/json.hpp>
#include <string>

#include "stagewright/v1/job_service.pb.h"

namespace stagewright::cli {

using Events = google::protobuf::RepeatedPtrField<v1::Event>;

// A table, oldest first; of several in a row the time of the last one.
std::string EventsText(const Events& events);
nlohmann::json EventsJson(const Events& events);

// Times as people read them, "2026-11-22 02:27:03" in UTC, and as programs do, RFC 3339
// ("2026-11-22T02:27:03Z"); "-" and null for none.
std::string TimeText(const google::protobuf::Timestamp& time);
nlohmann::json TimeJson(const google::protobuf::Timestamp& time);

}  // namespace stagewright::cli
