// The text form of programs; README.md explains it.
#include "common/program/text.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace stagewright {
namespace {

constexpr char kHeader[] = "program 1";

// "0-5,7"; "-" if empty. A run must ascend by one, so any order round-trips.
template <typename Id>
std::string Ids(const std::vector<Id>& ids) {
  if (ids.empty()) return "-";
  std::string text;
  for (size_t i = 0; i < ids.size();) {
    size_t j = i + 1;
    while (j < ids.size() && ids[j].value() == ids[j - 1].value() + 1) ++j;
    absl::StrAppend(&text, i == 0 ? "" : ",", ids[i].value());
    if (j - i > 1) absl::StrAppend(&text, "-", ids[j - 1].value());
    i = j;
  }
  return text;
}

std::string Values(const std::vector<ValueRef>& values) {
  if (values.empty()) return "-";
  return absl::StrJoin(values, ",", [](std::string* out, ValueRef value) {
    absl::StrAppend(out, value.node.value(), ".", value.output);
  });
}

// "<3,7^2"; empty if it waits for nothing.
std::string Waits(const ProgramAction& action) {
  std::vector<std::string> waits;
  for (int32_t before : action.after) waits.push_back(absl::StrCat(before));
  for (const PassMark& mark : action.after_marks)
    waits.push_back(absl::StrCat(mark.action, "^", mark.node));
  return waits.empty() ? "" : absl::StrCat(" <", absl::StrJoin(waits, ","));
}

void AppendSection(const char* name, const std::vector<ProgramAction>& section, std::string& text) {
  if (section.empty()) return;
  absl::StrAppend(&text, name, ":\n");
  for (size_t i = 0; i < section.size(); ++i) {
    const ProgramAction& action = section[i];
    absl::StrAppend(&text, i, " ", ToString(action.action), Waits(action));
    if (action.acquire != 0) absl::StrAppend(&text, " +", action.acquire);
    if (action.release != 0) absl::StrAppend(&text, " -", action.release);
    text += '\n';
  }
}

// One line of the text, split at spaces, with "key=value" fields.
class Line {
 public:
  Line(absl::string_view text, int64_t number)
      : number_(number), words_(absl::StrSplit(text, ' ', absl::SkipEmpty())) {}

  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", number_, ": ", what));
  }
  absl::Status Bad(absl::string_view what) const {
    return Error(absl::StrCat("\"", what, "\" is not valid in a \"", words_.front(), "\" line"));
  }
  const std::vector<absl::string_view>& words() const { return words_; }
  absl::string_view word(size_t i) const { return i < words_.size() ? words_[i] : ""; }

  // The value of "key=..."; empty if it is missing.
  absl::string_view Field(absl::string_view key) const {
    for (absl::string_view word : words_) {
      if (absl::ConsumePrefix(&word, key) && absl::ConsumePrefix(&word, "=")) return word;
    }
    return "";
  }

  template <typename Int>
  absl::Status Number(absl::string_view key, Int& value) const {
    int64_t wide = 0;
    if (!absl::SimpleAtoi(Field(key), &wide) || static_cast<Int>(wide) != wide)
      return Error(absl::StrCat(key, "= is missing or not a number"));
    value = static_cast<Int>(wide);
    return absl::OkStatus();
  }

  absl::Status Flag(absl::string_view key, bool& value) const {
    const absl::string_view text = Field(key);
    if (text != "0" && text != "1") return Error(absl::StrCat(key, "= is not 0 or 1"));
    value = text == "1";
    return absl::OkStatus();
  }

  template <typename Id>
  absl::Status IdList(absl::string_view key, std::vector<Id>& ids) const {
    const absl::string_view text = Field(key);
    if (text.empty()) return Error(absl::StrCat(key, "= is missing"));
    if (text == "-") return absl::OkStatus();
    for (absl::string_view range : absl::StrSplit(text, ',')) {
      const std::pair<absl::string_view, absl::string_view> ends =
          absl::StrSplit(range, absl::MaxSplits('-', 1));
      int32_t first = 0;
      if (!absl::SimpleAtoi(ends.first, &first) || first < 0) return Bad(range);
      int32_t last = first;
      if (ends.first.size() < range.size() && !absl::SimpleAtoi(ends.second, &last))
        return Bad(range);
      if (last < first || last - first > kMostIds) return Bad(range);
      for (int32_t id = first; id <= last; ++id) ids.push_back(Id(id));
    }
    return absl::OkStatus();
  }

  absl::Status ValueList(absl::string_view key, std::vector<ValueRef>& values) const {
    const absl::string_view text = Field(key);
    if (text.empty()) return Error(absl::StrCat(key, "= is missing"));
    if (text == "-") return absl::OkStatus();
    for (absl::string_view value : absl::StrSplit(text, ',')) {
      int32_t node = 0;
      int32_t output = 0;
      if (!Pair(value, '.', node, output)) return Bad(value);
      values.push_back({NodeId(node), output});
    }
    return absl::OkStatus();
  }

  // "first<separator>second", both non-negative.
  template <typename Int>
  static bool Pair(absl::string_view text, char separator, Int& first, Int& second) {
    const std::vector<absl::string_view> parts = absl::StrSplit(text, separator);
    return parts.size() == 2 && absl::SimpleAtoi(parts[0], &first) &&
           absl::SimpleAtoi(parts[1], &second) && first >= 0 && second >= 0;
  }

 private:
  static constexpr int32_t kMostIds = 10'000'000;  // In one range.
  int64_t number_;
  std::vector<absl::string_view> words_;
};

class Parser {
 public:
  absl::StatusOr<Program> Parse(const std::string& text) {
    int64_t number = 0;
    bool header = false;
    for (absl::string_view raw : absl::StrSplit(text, '\n')) {
      ++number;
      const Line line(raw, number);
      if (line.words().empty()) continue;
      if (!header) {
        if (absl::StripAsciiWhitespace(raw) != kHeader)
          return line.Error(absl::StrCat("a program starts with \"", kHeader, "\""));
        header = true;
        continue;
      }
      RETURN_IF_ERROR(ParseLine(line));
    }
    if (!header) return absl::InvalidArgumentError("line 1: the text is empty");
    return std::move(program_);
  }

 private:
  absl::Status ParseLine(const Line& line) {
    const absl::string_view first = line.word(0);
    if (first == "batch") {
      RETURN_IF_ERROR(line.Number("samples", program_.mini_batch));
      if (!line.Field("asynchronous").empty())
        RETURN_IF_ERROR(line.Flag("asynchronous", program_.asynchronous));
      return line.Flag("training", program_.training);
    }
    if (first == "stage") return ParseStage(line);
    if (first == "channel") return ParseChannel(line);
    if (first == "reduction") return ParseReduction(line);
    if (first == "device") return ParseDevice(line);
    if (first == "prologue:" || first == "body:" || first == "epilogue:") {
      if (program_.devices.empty()) return line.Error("a section before the first device");
      DeviceProgram& device = program_.devices.back();
      section_ = first == "body:"       ? &device.body
                 : first == "prologue:" ? &device.prologue
                                        : &device.epilogue;
      if (!section_->empty()) return line.Error("the section is there twice");
      return absl::OkStatus();
    }
    if (section_ != nullptr) return ParseActionLine(line);
    return line.Error(absl::StrCat("\"", first, "\" is not a kind of line"));
  }

  // Items are numbered, so that people find them.
  static absl::Status CheckNumber(const Line& line, size_t expected) {
    if (line.word(1) == absl::StrCat(expected)) return absl::OkStatus();
    return line.Error(absl::StrCat("expected ", line.word(0), " ", expected));
  }

  absl::Status ParseStage(const Line& line) {
    RETURN_IF_ERROR(CheckNumber(line, program_.stages.size()));
    ProgramStage& stage = program_.stages.emplace_back();
    RETURN_IF_ERROR(line.IdList("nodes", stage.nodes));
    RETURN_IF_ERROR(line.IdList("replicated", stage.replicated));
    RETURN_IF_ERROR(line.IdList("devices", stage.devices));
    RETURN_IF_ERROR(line.Number("micro_batch", stage.micro_batch));
    if (!line.Field("version_lag").empty())
      RETURN_IF_ERROR(line.Number("version_lag", stage.version_lag));
    return line.Flag("backward", stage.has_backward);
  }

  absl::Status ParseChannel(const Line& line) {
    RETURN_IF_ERROR(CheckNumber(line, program_.channels.size()));
    Channel& channel = program_.channels.emplace_back();
    int32_t from = 0, to = 0, source = 0, target = 0;
    if (!Line::Pair(line.Field("stages"), '>', from, to)) return line.Bad(line.Field("stages"));
    if (!Line::Pair(line.Field("devices"), '>', source, target))
      return line.Bad(line.Field("devices"));
    if (!Line::Pair(line.Field("bytes"), '/', channel.activation_bytes_per_sample,
                    channel.gradient_bytes_per_sample)) {
      return line.Bad(line.Field("bytes"));
    }
    channel.from = StageId(from);
    channel.to = StageId(to);
    channel.source = DeviceId(source);
    channel.target = DeviceId(target);
    RETURN_IF_ERROR(line.ValueList("values", channel.values));
    RETURN_IF_ERROR(line.ValueList("gradients", channel.gradient_values));
    return line.Flag("backward", channel.has_gradient);
  }

  absl::Status ParseReduction(const Line& line) {
    RETURN_IF_ERROR(CheckNumber(line, program_.reductions.size()));
    Reduction& reduction = program_.reductions.emplace_back();
    RETURN_IF_ERROR(line.IdList("stages", reduction.stages));
    RETURN_IF_ERROR(line.IdList("devices", reduction.devices));
    RETURN_IF_ERROR(line.IdList("parameters", reduction.parameters));
    if (!line.Field("norm").empty()) RETURN_IF_ERROR(line.Flag("norm", reduction.gradient_norm));
    if (!line.Field("sharded").empty()) RETURN_IF_ERROR(line.Flag("sharded", reduction.sharded));
    if (!line.Field("each_pass").empty())
      RETURN_IF_ERROR(line.Flag("each_pass", reduction.each_pass));
    return line.Number("bytes", reduction.bytes);
  }

  absl::Status ParseDevice(const Line& line) {
    DeviceProgram& device = program_.devices.emplace_back();
    section_ = nullptr;
    int32_t id = 0;
    if (!absl::SimpleAtoi(line.word(1), &id) || id < 0) return line.Bad(line.word(1));
    device.device = DeviceId(id);
    return line.Number("resident", device.resident);
  }

  static bool TakeWait(absl::string_view text, ProgramAction& action) {
    if (!absl::StrContains(text, '^')) return absl::SimpleAtoi(text, &action.after.emplace_back());
    PassMark& mark = action.after_marks.emplace_back();
    return Line::Pair(text, '^', mark.action, mark.node);
  }

  absl::Status ParseActionLine(const Line& line) {
    if (line.word(0) != absl::StrCat(section_->size())) {
      return line.Error(
          absl::StrCat("expected action ", section_->size(), ", not \"", line.word(0), "\""));
    }
    ProgramAction& action = section_->emplace_back();
    auto parsed = ParseAction(std::string(line.word(1)));
    if (!parsed.ok()) return line.Error(parsed.status().message());
    action.action = *parsed;
    for (size_t i = 2; i < line.words().size(); ++i) {
      absl::string_view word = line.word(i);
      bool ok = true;
      if (absl::ConsumePrefix(&word, "<")) {
        for (absl::string_view before : absl::StrSplit(word, ','))
          ok = ok && TakeWait(before, action);
      } else if (absl::ConsumePrefix(&word, "+")) {
        ok = absl::SimpleAtoi(word, &action.acquire);
      } else if (absl::ConsumePrefix(&word, "-")) {
        ok = absl::SimpleAtoi(word, &action.release);
      } else {
        ok = false;
      }
      if (!ok)
        return line.Error(absl::StrCat("\"", line.word(i),
                                       "\" is not <after, +acquire or "
                                       "-release"));
    }
    return absl::OkStatus();
  }

  Program program_;
  std::vector<ProgramAction>* section_ = nullptr;
};

}  // namespace

std::string ToText(const Program& program) {
  std::string text = absl::StrCat(kHeader, "\nbatch samples=", program.mini_batch,
                                  " training=", program.training ? 1 : 0,
                                  program.asynchronous ? " asynchronous=1" : "", "\n");
  for (size_t s = 0; s < program.stages.size(); ++s) {
    const ProgramStage& stage = program.stages[s];
    absl::StrAppend(&text, "stage ", s, " nodes=", Ids(stage.nodes),
                    " replicated=", Ids(stage.replicated));
    absl::StrAppend(&text, " devices=", Ids(stage.devices), " micro_batch=", stage.micro_batch,
                    " backward=", stage.has_backward ? 1 : 0);
    if (stage.version_lag != 0) absl::StrAppend(&text, " version_lag=", stage.version_lag);
    text += '\n';
  }
  for (size_t c = 0; c < program.channels.size(); ++c) {
    const Channel& channel = program.channels[c];
    absl::StrAppend(&text, "channel ", c, " stages=", channel.from.value(), ">",
                    channel.to.value());
    absl::StrAppend(&text, " devices=", channel.source.value(), ">", channel.target.value());
    absl::StrAppend(&text, " values=", Values(channel.values),
                    " gradients=", Values(channel.gradient_values));
    absl::StrAppend(&text, " bytes=", channel.activation_bytes_per_sample, "/",
                    channel.gradient_bytes_per_sample, " backward=", channel.has_gradient ? 1 : 0,
                    "\n");
  }
  for (size_t r = 0; r < program.reductions.size(); ++r) {
    const Reduction& reduction = program.reductions[r];
    absl::StrAppend(&text, "reduction ", r, " stages=", Ids(reduction.stages),
                    " devices=", Ids(reduction.devices), " parameters=", Ids(reduction.parameters),
                    " bytes=", reduction.bytes, reduction.gradient_norm ? " norm=1" : "",
                    reduction.sharded ? " sharded=1" : "",
                    reduction.each_pass ? " each_pass=1\n" : "\n");
  }
  for (const DeviceProgram& device : program.devices) {
    absl::StrAppend(&text, "device ", device.device.value(), " resident=", device.resident, "\n");
    AppendSection("prologue", device.prologue, text);
    AppendSection("body", device.body, text);
    AppendSection("epilogue", device.epilogue, text);
  }
  return text;
}

absl::StatusOr<Program> ParseProgram(const std::string& text) { return Parser().Parse(text); }

}  // namespace stagewright
