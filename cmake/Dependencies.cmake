# Every package is an imported target after this file. What trains needs the first group only; the services, from the
# wire to the clients, the second as well (STAGEWRIGHT_SERVICES). Debian's gRPC and protobuf come with CMake files.
find_package(Threads REQUIRED)
find_package(PkgConfig QUIET)
find_package(absl REQUIRED)
find_package(nlohmann_json 3 REQUIRED)
find_package(ZLIB REQUIRED)
if(STAGEWRIGHT_SERVICES)
  find_package(Protobuf REQUIRED)
  find_package(gRPC REQUIRED)
  find_package(CURL 7.85 REQUIRED)
  find_package(OpenSSL REQUIRED)
  find_package(SQLite3 REQUIRED)
  find_package(CLI11 REQUIRED)
  find_package(yaml-cpp REQUIRED)
  find_package(prometheus-cpp REQUIRED)
else()
  find_package(CLI11 QUIET)  # transport_bench is built if it is there.
endif()

# The virtual environment's Python, which has what tests and lints import; any other without it.
find_program(STAGEWRIGHT_PYTHON python3 HINTS ${CMAKE_SOURCE_DIR}/.venv/bin NO_DEFAULT_PATH)
if(NOT STAGEWRIGHT_PYTHON)
  find_program(STAGEWRIGHT_PYTHON python3 REQUIRED)
endif()

if(STAGEWRIGHT_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark QUIET)  # plan_bench is built if it is there.
endif()

# LibTorch comes from the project's virtual environment (scripts/setup.sh); -DSTAGEWRIGHT_TORCH_PYTHON names the Python of
# another environment, as preset cuda does, and -DSTAGEWRIGHT_TORCH_DIR the folder itself.
# Its include directories hold a second copy of the protobuf headers, so they go behind the system's (-idirafter).
if(STAGEWRIGHT_WITH_WORKER)
  if(NOT STAGEWRIGHT_TORCH_DIR)
    if(NOT STAGEWRIGHT_TORCH_PYTHON)
      set(STAGEWRIGHT_TORCH_PYTHON ${STAGEWRIGHT_PYTHON})
    endif()
    # find_spec finds the package without importing it, which would take seconds at every configure.
    execute_process(
      COMMAND ${STAGEWRIGHT_TORCH_PYTHON} -c
              "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
      OUTPUT_VARIABLE torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE result ERROR_QUIET)
    if(NOT result EQUAL 0)
      message(FATAL_ERROR "LibTorch not found: run scripts/setup.sh, set STAGEWRIGHT_TORCH_DIR, "
                          "or do without the worker (STAGEWRIGHT_WITH_WORKER=OFF)")
    endif()
    set(STAGEWRIGHT_TORCH_DIR ${torch_dir})
  endif()
  add_library(stagewright_torch INTERFACE)
  target_compile_options(stagewright_torch INTERFACE
    "SHELL:-idirafter ${STAGEWRIGHT_TORCH_DIR}/include"
    "SHELL:-idirafter ${STAGEWRIGHT_TORCH_DIR}/include/torch/csrc/api/include")
  target_link_directories(stagewright_torch INTERFACE ${STAGEWRIGHT_TORCH_DIR}/lib)
  target_link_options(stagewright_torch INTERFACE -Wl,-rpath,${STAGEWRIGHT_TORCH_DIR}/lib)
  # Without libtorch.so, an empty shell around these whose own copies of functions of libstdc++ may call nothing; libstdc++
  # goes first, so that no other's are taken.
  target_link_libraries(stagewright_torch INTERFACE stdc++ torch_cpu c10)
endif()

# UCX carries messages between processes; without it, devices of one process still reach each other. After this,
# stagewright_ucx is an interface target to link always; it defines STAGEWRIGHT_HAVE_UCX as 1 or 0.
if(STAGEWRIGHT_WITH_WORKER)
  set(STAGEWRIGHT_UCX OFF)
  if(STAGEWRIGHT_WITH_UCX AND PkgConfig_FOUND)
    pkg_check_modules(UCX QUIET IMPORTED_TARGET ucx)
    find_package(OpenSSL QUIET)  # Whose digests tell peers from strangers.
    if(UCX_FOUND AND OPENSSL_FOUND)
      set(STAGEWRIGHT_UCX ON)
    endif()
  endif()
  add_library(stagewright_ucx INTERFACE)
  if(STAGEWRIGHT_UCX)
    target_compile_definitions(stagewright_ucx INTERFACE STAGEWRIGHT_HAVE_UCX=1)
    target_link_libraries(stagewright_ucx INTERFACE PkgConfig::UCX)
  elseif(STAGEWRIGHT_WITH_UCX STREQUAL "ON" OR (STAGEWRIGHT_SERVICES AND STAGEWRIGHT_WITH_UCX STREQUAL "AUTO"))
    message(FATAL_ERROR "UCX (pkg-config ucx) or OpenSSL not found: install it, or build without messages between processes "
                        "(STAGEWRIGHT_WITH_UCX=OFF)")
  else()
    message(STATUS "Stagewright: no UCX; devices of different processes cannot exchange messages")
    target_compile_definitions(stagewright_ucx INTERFACE STAGEWRIGHT_HAVE_UCX=0)
  endif()
endif()
