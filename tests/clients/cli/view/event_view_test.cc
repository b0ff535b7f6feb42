#include "clients/cli/view/event_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace stagewright::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Events Two() {
  Events events;
  v1::Event* lost = events.Add();
  lost->mutable_time()->set_seconds(86400);
  lost->mutable_last_time()->set_seconds(86460);
  lost->mutable_last_time()->set_nanos(250'000'000);
  lost->set_count(3);
  lost->set_kind(v1::EVENT_KIND_WORKER_LOST);
  lost->set_state(v1::JOB_STATE_RUNNING);
  lost->set_job("jobs/7");
  lost->set_worker("w0");
  lost->set_generation(2);
  lost->set_step(75);
  lost->set_message("no heartbeat for 10s");
  v1::Event* state = events.Add();
  state->mutable_time()->set_seconds(86500);
  state->mutable_last_time()->set_seconds(86500);
  state->set_count(1);
  state->set_kind(v1::EVENT_KIND_STATE);
  state->set_state(v1::JOB_STATE_WAITING_FOR_DEVICES);
  state->set_job("jobs/7");
  return events;
}

TEST(EventsText, HasALineForEachWithItsLastTime) {
  const std::string text = EventsText(Two());
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, HasSubstr("1970-01-02 00:01:00"));
  EXPECT_THAT(text, HasSubstr("worker_lost"));
  EXPECT_THAT(text, HasSubstr("no heartbeat for 10s"));
  EXPECT_THAT(text, HasSubstr("waiting_for_devices"));
  EXPECT_THAT(text, Not(HasSubstr(" state ")));
}

TEST(EventsJson, HasTimesThatProgramsRead) {
  const nlohmann::json json = EventsJson(Two());
  EXPECT_EQ(json[0]["time"], "1970-01-02T00:00:00Z");
  EXPECT_EQ(json[0]["last_time"], "1970-01-02T00:01:00.250Z");
  EXPECT_EQ(json[0]["kind"], "worker_lost");
  EXPECT_EQ(json[0]["count"], 3);
  EXPECT_EQ(json[0]["worker"], "w0");
  EXPECT_EQ(json[0]["generation"], 2);
  EXPECT_EQ(json[1]["state"], "waiting_for_devices");
  EXPECT_FALSE(json[1].contains("worker"));
}

TEST(Times, AreRfc3339OrNone) {
  google::protobuf::Timestamp time;
  EXPECT_EQ(TimeText(time), "-");
  EXPECT_EQ(TimeJson(time), nullptr);
  time.set_seconds(1'764'000'000);
  EXPECT_EQ(TimeText(time), "2025-11-24 16:00:00");
  EXPECT_EQ(TimeJson(time), "2025-11-24T16:00:00Z");
}

}  // namespace
}  // namespace stagewright::cli
