#include "common/program/run_cursor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "common/program/unroll.h"

namespace stagewright {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ProgramAction Make(const std::string& text, std::vector<int32_t> after = {}) {
  return {*ParseAction(text), std::move(after), 0, 0};
}

TEST(RunCursor, LanesGoOnFromSectionToSectionWithoutABarrier) {
  const std::vector<ProgramAction> first = {Make("F0[0,1)"), Make("SA0[0,1)@0", {0})};
  const std::vector<ProgramAction> second = {Make("B0[0,1)", {1}), Make("RG0[0,1)@0"),
                                             Make("SA0[1,2)@0")};
  RunCursor cursor;
  EXPECT_THAT(cursor.Append(first), ElementsAre(RunAction{0, 0}));
  // The lane of the gradient is free; compute and the sends wait for the first section.
  EXPECT_THAT(cursor.Append(second), ElementsAre(RunAction{1, 1}));
  cursor.Start({0, 0});
  EXPECT_THAT(cursor.Finish({0, 0}), ElementsAre(RunAction{0, 1}));
  cursor.Start({1, 1});
  cursor.Start({0, 1});
  EXPECT_THAT(cursor.Finish({1, 1}), ElementsAre(RunAction{1, 0}));
  EXPECT_FALSE(cursor.done(0));
  EXPECT_THAT(cursor.Finish({0, 1}), ElementsAre(RunAction{1, 2}));
  EXPECT_TRUE(cursor.done(0));
  EXPECT_FALSE(cursor.done());
  for (int32_t index : {0, 2}) {
    cursor.Start({1, index});
    EXPECT_THAT(cursor.Finish({1, index}), IsEmpty());
  }
  EXPECT_TRUE(cursor.done());
  EXPECT_EQ(cursor.sections(), 2);
}

TEST(RunCursor, AnEmptySectionIsDoneAtOnce) {
  const std::vector<ProgramAction> none, one = {Make("F0[0,1)")};
  RunCursor cursor;
  EXPECT_THAT(cursor.Append(none), IsEmpty());
  EXPECT_TRUE(cursor.done(0));
  EXPECT_THAT(cursor.Append(one), ElementsAre(RunAction{1, 0}));
  cursor.Start({1, 0});
  cursor.Finish({1, 0});
  EXPECT_TRUE(cursor.done());
}

// Random sections: at every moment what is ready is what one cursor over the unrolled body lets
// run, in whichever order actions end.
TEST(RunCursor, LetsRunWhatOneCursorOverTheUnrolledBodyDoes) {
  std::mt19937_64 random(3);
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  for (int trial = 0; trial < 200; ++trial) {
    const auto section = [&](const std::vector<int>& channels) {
      std::vector<ProgramAction> actions;
      const size_t size = 1 + below(12);
      for (size_t i = 0; i < size; ++i) {
        Action action{ActionKind::kForward, StageId(0), {0, 1}, -1};
        if (below(2) == 0 && !channels.empty()) {
          action.kind = below(2) == 0 ? ActionKind::kSendActivation : ActionKind::kReceiveGradient;
          action.channel = channels[below(channels.size())];
        }
        std::vector<int32_t> after;
        if (i > 0 && below(2) == 0) after.push_back(static_cast<int32_t>(below(i)));
        actions.push_back({action, std::move(after), 0, 0});
      }
      return actions;
    };
    DeviceProgram program;
    program.prologue = section({0});
    program.body = section({0, 1, 2});
    // No lane of the epilogue is without an action in the body.
    for (const char* text : {"F0[0,1)", "SA0[0,1)@0", "RG0[0,1)@0", "SA0[0,1)@1", "RG0[0,1)@1"})
      program.body.push_back(Make(text));
    program.epilogue = section({0, 1});
    const int64_t steps = 1 + static_cast<int64_t>(below(5));
    const DeviceProgram unrolled = Unroll(program, 1, steps);
    std::vector<const std::vector<ProgramAction>*> sections = {&program.prologue};
    for (int64_t step = 0; step + 1 < steps; ++step) sections.push_back(&program.body);
    sections.push_back(&program.epilogue);
    std::vector<int32_t> begin = {0};
    for (const auto* of : sections)
      begin.push_back(begin.back() + static_cast<int32_t>(of->size()));

    Cursor whole(unrolled.body);
    RunCursor run;
    std::vector<int32_t> ready, running;
    const auto note = [&](const std::vector<RunAction>& actions) {
      for (RunAction action : actions)
        ready.push_back(begin[static_cast<size_t>(action.section)] + action.index);
      std::sort(ready.begin(), ready.end());
    };
    const auto place = [&](int32_t index) {
      const auto next = std::upper_bound(begin.begin(), begin.end(), index);
      const auto number = next - begin.begin() - 1;
      return RunAction{number, index - begin[static_cast<size_t>(number)]};
    };
    const auto append = [&] { note(run.Append(*sections[static_cast<size_t>(run.sections())])); };
    append();
    append();
    while (!whole.done()) {
      ASSERT_EQ(ready, whole.Ready());
      if (!ready.empty() && (running.empty() || below(2) == 0)) {
        const size_t chosen = below(ready.size());
        const int32_t index = ready[chosen];
        ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(chosen));
        running.push_back(index);
        whole.Start(index);
        run.Start(place(index));
        if (place(index).section + 1 == run.sections() &&
            run.sections() < static_cast<int64_t>(sections.size()))
          append();
      } else {
        const size_t chosen = below(running.size());
        const int32_t index = running[chosen];
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(chosen));
        whole.Finish(index);
        note(run.Finish(place(index)));
      }
    }
    EXPECT_TRUE(run.done());
  }
}

}  // namespace
}  // namespace stagewright
