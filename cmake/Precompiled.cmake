# Headers of other projects that most sources parse, parsed once. A source still includes what it uses: without
# STAGEWRIGHT_PRECOMPILE all compiles the same.
#   stagewright_precompiled_<set>    base: the standard library and Abseil; testing: with GoogleTest; torch, torch_testing: with
#                                    ATen; services, services_testing: with CLI11, JSON, gRPC and the code that protoc makes
#                                    of protos/
option(STAGEWRIGHT_PRECOMPILE "Precompile the headers of other projects" ON)
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(STAGEWRIGHT_PRECOMPILE OFF)
endif()

# ccache reads the sources behind a precompiled header only if told to.
if(STAGEWRIGHT_PRECOMPILE AND CCACHE)
  add_compile_options(-fpch-preprocess)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()

set(STAGEWRIGHT_BASE_HEADERS
  <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <deque> <functional> <iostream> <limits> <map> <memory> <mutex>
  <numeric> <optional> <set> <span> <sstream> <string> <string_view> <thread> <tuple> <utility> <variant> <vector>
  <absl/container/flat_hash_map.h> <absl/status/status.h> <absl/status/statusor.h> <absl/strings/numbers.h>
  <absl/strings/str_cat.h> <absl/strings/str_format.h> <absl/strings/str_join.h> <absl/strings/str_split.h>
  <absl/synchronization/mutex.h> <absl/time/time.h>)

# stagewright_precompiled(SET headers... DEPS ...)
function(stagewright_precompiled SET)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  set(empty ${CMAKE_BINARY_DIR}/precompiled_${SET}.cc)
  file(WRITE ${empty}.new "// What the precompiled headers belong to.\n")
  file(COPY_FILE ${empty}.new ${empty} ONLY_IF_DIFFERENT)
  add_library(stagewright_precompiled_${SET} OBJECT ${empty})
  target_link_libraries(stagewright_precompiled_${SET} PRIVATE absl::strings absl::str_format absl::statusor ${ARG_DEPS})
  target_precompile_headers(stagewright_precompiled_${SET} PRIVATE ${STAGEWRIGHT_BASE_HEADERS} ${ARG_UNPARSED_ARGUMENTS})
endfunction()

# stagewright_reuse(target DEFAULT): the target's sources start from the set that STAGEWRIGHT_PRECOMPILED names, or the
# default.
function(stagewright_reuse TARGET DEFAULT)
  if(STAGEWRIGHT_PRECOMPILED)
    set(DEFAULT ${STAGEWRIGHT_PRECOMPILED})
  endif()
  if(STAGEWRIGHT_PRECOMPILE)
    target_precompile_headers(${TARGET} REUSE_FROM stagewright_precompiled_${DEFAULT})
  endif()
endfunction()

if(STAGEWRIGHT_PRECOMPILE)
  stagewright_precompiled(base)
  if(STAGEWRIGHT_BUILD_TESTS)
    stagewright_precompiled(testing <gmock/gmock.h> <gtest/gtest.h> DEPS GTest::gmock)
  endif()
  if(STAGEWRIGHT_SERVICES)
    set(STAGEWRIGHT_SERVICES_HEADERS <CLI/CLI.hpp> <grpcpp/grpcpp.h> <nlohmann/json.hpp>)
    foreach(proto job_service links planner_service profile worker_service)
      list(APPEND STAGEWRIGHT_SERVICES_HEADERS <stagewright/v1/${proto}.grpc.pb.h>)
    endforeach()
    set(deps CLI11::CLI11 nlohmann_json::nlohmann_json stagewright_services)
    stagewright_precompiled(services ${STAGEWRIGHT_SERVICES_HEADERS} DEPS ${deps})
    if(STAGEWRIGHT_BUILD_TESTS)
      stagewright_precompiled(services_testing ${STAGEWRIGHT_SERVICES_HEADERS} <gmock/gmock.h> <gtest/gtest.h>
        DEPS ${deps} GTest::gmock)
    endif()
  endif()
  if(STAGEWRIGHT_WITH_WORKER)
    stagewright_precompiled(torch <ATen/ATen.h> <ATen/Parallel.h> DEPS stagewright_torch)
    if(STAGEWRIGHT_BUILD_TESTS)
      stagewright_precompiled(torch_testing <ATen/ATen.h> <ATen/Parallel.h> <gmock/gmock.h> <gtest/gtest.h>
        DEPS stagewright_torch GTest::gmock)
    endif()
  endif()
endif()
