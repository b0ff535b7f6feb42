# Sources start from the set of precompiled headers that the folder names in STAGEWRIGHT_PRECOMPILED, else from "base" or, in
# tests, "testing" (Precompiled.cmake).

# stagewright_library(NAME n SOURCES ... [DEPS ...] [PRIVATE_DEPS ...])
function(stagewright_library)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${ARG_NAME} STATIC ${ARG_SOURCES})
  target_include_directories(${ARG_NAME} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(${ARG_NAME} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  stagewright_reuse(${ARG_NAME} base)
endfunction()

# stagewright_program(NAME n SOURCES ... [DEPS ...]): lands in build/<preset>/bin.
function(stagewright_program)
  cmake_parse_arguments(ARG "" "NAME" "SOURCES;DEPS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  target_include_directories(${ARG_NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS})
  stagewright_reuse(${ARG_NAME} base)
endfunction()

# Sanitizers need UCX's hooks on memory and signals out of the way, in every program that is linked with it.
set(STAGEWRIGHT_TEST_ENVIRONMENT "")
if(STAGEWRIGHT_SANITIZE)
  set(STAGEWRIGHT_TEST_ENVIRONMENT "UCX_MEM_MMAP_HOOK_MODE=none;UCX_MEM_EVENTS=n;UCX_ERROR_SIGNALS=")
endif()

# stagewright_test(NAME n SOURCES ... [DEPS ...] [LABELS ...] [TIMEOUT seconds] [COST seconds] [PUBLISHED SOME | ALL] [LONG]
# [GPU]): one CTest entry per program. COST: about how long it takes, where that is near a minute or more; the longest begin
# first, also on a machine that has not run them before. GPU: the entry has the label gpu, and CTest's summary has it as skipped
# where there is no GPU; with STAGEWRIGHT_REQUIRE_GPU=1 in the environment it fails there (tests/support/skips). PUBLISHED: tests
# read profiles that stay outside the repository (tests/README.md). Those, all of them or the ones with "Published" in their
# names, are an entry NAME_published, which CTest's summary has as skipped where a profile is absent. LONG: tests with "Long" in
# their names are an entry NAME_long of label long.
function(stagewright_test)
  cmake_parse_arguments(ARG "GPU;LONG" "NAME;TIMEOUT;COST;PUBLISHED" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_include_directories(${ARG_NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  set(main GTest::gtest_main)
  if(ARG_PUBLISHED)
    set(main stagewright_skipping_main stagewright_shared_graphs)
  elseif(ARG_GPU)
    set(main stagewright_gpu_main)
    list(APPEND ARG_LABELS gpu)
  endif()
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} ${main} GTest::gmock)
  stagewright_reuse(${ARG_NAME} testing)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)  # What hangs ends: a machine may be busy.
  endif()
  # What each entry runs, less what the entries after it run.
  set(entries ${ARG_NAME})
  set(runs_${ARG_NAME} "*")
  if(ARG_PUBLISHED STREQUAL "SOME")
    list(APPEND entries ${ARG_NAME}_published)
    set(runs_${ARG_NAME}_published "*Published*")
  elseif(ARG_PUBLISHED)
    set(entries ${ARG_NAME}_published)
    set(runs_${ARG_NAME}_published "*")
  endif()
  if(ARG_LONG)
    list(APPEND entries ${ARG_NAME}_long)
    set(runs_${ARG_NAME}_long "*Long*")
  endif()
  set(others ${entries})
  foreach(entry ${entries})
    list(POP_FRONT others)
    set(less "")
    foreach(other ${others})
      list(APPEND less "${runs_${other}}")
    endforeach()
    list(JOIN less ":" less)
    set(filter "")
    if(ARG_PUBLISHED STREQUAL "SOME" OR ARG_LONG)
      set(filter "--gtest_filter=${runs_${entry}}-${less}")
    endif()
    set(labels ${ARG_LABELS})
    if(entry MATCHES "_long$")
      list(APPEND labels long)
    endif()
    add_test(NAME ${entry} COMMAND ${ARG_NAME} ${filter} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${entry} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${labels}"
      ENVIRONMENT "${STAGEWRIGHT_TEST_ENVIRONMENT}")
    if(ARG_COST)
      set_tests_properties(${entry} PROPERTIES COST ${ARG_COST})
    endif()
    if(ARG_GPU OR (ARG_PUBLISHED AND NOT entry STREQUAL ARG_NAME))
      set_tests_properties(${entry} PROPERTIES SKIP_RETURN_CODE 77)
    endif()
  endforeach()
endfunction()

# stagewright_system_test(NAME): the test starts planners, workers and their like, which have a core's work now and wait then, for
# heartbeats, leases and restarts. Such tests begin first, as many at once as tests/systems.json has slots for, with others beside
# them. CMakePresets.json gives that file to CTest, which limits nothing without it.
function(stagewright_system_test NAME)
  set_tests_properties(${NAME} PROPERTIES RESOURCE_GROUPS systems:1 COST 1000)
endfunction()

# stagewright_add_subdirectories(a b c): each that has a CMakeLists.txt.
function(stagewright_add_subdirectories)
  foreach(dir ${ARGN})
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/CMakeLists.txt)
      add_subdirectory(${dir})
    endif()
  endforeach()
endfunction()
