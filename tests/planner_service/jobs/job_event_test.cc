#include "planner_service/jobs/job_event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner_service/jobs/job.h"

namespace stagewright {
namespace {

using ::testing::HasSubstr;

Event EventAt(int64_t second, EventKind kind, std::string message = "") {
  Event event;
  event.first = event.last = absl::FromUnixSeconds(second);
  event.kind = kind;
  event.message = std::move(message);
  event.job = "jobs/7";
  return event;
}

void Add(Event event, std::vector<Event>& events) {
  Append(std::move(event), /*most=*/4, /*keep=*/1, events);
}

TEST(Event, EqualOnesInARowAreCounted) {
  std::vector<Event> events;
  Add(EventAt(1, EventKind::kCheckpoint, "step 10"), events);
  Add(EventAt(2, EventKind::kCheckpoint, "step 20"), events);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].count, 2);
  EXPECT_EQ(events[0].first, absl::FromUnixSeconds(1));
  EXPECT_EQ(events[0].last, absl::FromUnixSeconds(2));
  EXPECT_EQ(events[0].message, "step 20");
  Event other = EventAt(3, EventKind::kCheckpoint);
  other.generation = 1;
  Add(std::move(other), events);
  EXPECT_EQ(events.size(), 2u);
}

TEST(Event, WhatIsTriedAgainAndAgainTakesNoRoom) {
  std::vector<Event> events;
  Add(EventAt(0, EventKind::kSubmitted), events);
  for (int i = 1; i <= 100; ++i) {
    Add(EventAt(i, EventKind::kState), events);
    Add(EventAt(i, EventKind::kRefused), events);
  }
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[1].kind, EventKind::kState);
  EXPECT_EQ(events[2].kind, EventKind::kRefused);
  EXPECT_EQ(events[2].count, 100);
  EXPECT_EQ(events[2].first, absl::FromUnixSeconds(1));
}

TEST(Event, TheFirstAndTheNewestStay) {
  std::vector<Event> events;
  for (int i = 0; i < 10; ++i) {
    Event event = EventAt(i, EventKind::kCheckpoint);
    event.generation = i;
    Add(std::move(event), events);
  }
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].first, absl::FromUnixSeconds(0));
  EXPECT_EQ(events[1].first, absl::FromUnixSeconds(7));
  EXPECT_EQ(events[3].first, absl::FromUnixSeconds(9));
}

TEST(Event, IsLoggedWithWhatItIsAbout) {
  Event event = EventAt(1, EventKind::kWorkerLost, "no heartbeat for 10s");
  event.worker = "w0";
  event.state = JobState::kRunning;
  event.generation = 2;
  event.step = 75;
  ::testing::internal::CaptureStderr();
  LogEvent(event);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr(" warning worker_lost job=jobs/7 state=running worker=w0 generation=2 "
                        "step=75 why=\"no heartbeat for 10s\"\n"));
}

TEST(Event, AFailedJobIsAnError) {
  Event event = EventAt(1, EventKind::kState, "disk full");
  event.state = JobState::kFailed;
  ::testing::internal::CaptureStderr();
  LogEvent(event);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(" error job changed its state"));
}

}  // namespace
}  // namespace stagewright
