// Graph files with their frame, and, after a first byte of 1, payloads without it, which a checksum
// would keep the fuzzer from. What is accepted survives being written and read again.
#include <google/protobuf/stubs/logging.h>

#include "common/plan/plan.h"
#include "common/wire/graph_file.h"
#include "common/wire/graph_proto.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stagewright;
  static const google::protobuf::LogSilencer silence;  // What it refuses is not news.
  v1::Graph proto;
  if (size > 0 && data[0] == 1) {
    if (!proto.ParseFromArray(data + 1, static_cast<int>(size - 1))) return 0;
  } else {
    auto read = ParseGraphFile(std::string(fuzz::Text(data, size)), "graph");
    fuzz::CheckRefusal(read.status());
    if (!read.ok()) return 0;
    proto = *std::move(read);
  }
  const auto graph = FromProto(proto);
  fuzz::CheckRefusal(graph.status());
  if (!graph.ok()) return 0;
  const auto again = FromProto(ToProto(*graph));
  if (!again.ok()) fuzz::Fail("does not read its own: " + again.status().ToString());
  if (Fingerprint(*again) != Fingerprint(*graph)) fuzz::Fail("reads something else than it wrote");
  return 0;
}
