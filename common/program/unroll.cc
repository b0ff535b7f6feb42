#include "common/program/unroll.h"

#include <algorithm>

#include "common/base/check.h"

namespace stagewright {
namespace {

void Append(const std::vector<ProgramAction>& section, int64_t samples,
            std::vector<ProgramAction>& body) {
  const auto first = static_cast<int32_t>(body.size());
  for (const ProgramAction& item : section) {
    ProgramAction& copy = body.emplace_back(item);
    for (int32_t& before : copy.after) before += first;
    for (PassMark& mark : copy.after_marks) mark.action += first;
    if (copy.action.samples.empty()) continue;  // Updates have none.
    copy.action.samples.begin += samples;
    copy.action.samples.end += samples;
  }
}

}  // namespace

bool HasSections(const Program& program) {
  return program.asynchronous && std::any_of(program.devices.begin(), program.devices.end(),
                                             [](const DeviceProgram& device) {
                                               return !device.prologue.empty() ||
                                                      !device.epilogue.empty();
                                             });
}

DeviceProgram Unroll(const DeviceProgram& device, int64_t mini_batch, int64_t steps) {
  CHECK(steps >= 1);
  DeviceProgram unrolled;
  unrolled.device = device.device;
  unrolled.resident = device.resident;
  unrolled.body.reserve(device.prologue.size() + device.epilogue.size() +
                        device.body.size() * static_cast<size_t>(steps - 1));
  Append(device.prologue, 0, unrolled.body);
  for (int64_t step = 0; step + 1 < steps; ++step)
    Append(device.body, step * mini_batch, unrolled.body);
  Append(device.epilogue, (steps - 1) * mini_batch, unrolled.body);
  return unrolled;
}

Program Unroll(const Program& program, int64_t steps) {
  CHECK(HasSections(program));
  Program unrolled;
  unrolled.mini_batch = program.mini_batch * steps;
  unrolled.training = program.training;
  unrolled.asynchronous = true;
  unrolled.stages = program.stages;
  unrolled.channels = program.channels;
  unrolled.reductions = program.reductions;
  for (const DeviceProgram& device : program.devices)
    unrolled.devices.push_back(Unroll(device, program.mini_batch, steps));
  return unrolled;
}

}  // namespace stagewright
