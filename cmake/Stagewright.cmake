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

# stagewright_test(NAME n SOURCES ... [DEPS ...] [LABELS ...] [TIMEOUT seconds]): one CTest entry per program.
function(stagewright_test)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${ARG_NAME} ${ARG_SOURCES})
  set_target_properties(${ARG_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_include_directories(${ARG_NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${ARG_NAME} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  stagewright_reuse(${ARG_NAME} testing)
  target_compile_definitions(${ARG_NAME} PRIVATE STAGEWRIGHT_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${ARG_NAME} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${ARG_NAME} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
    ENVIRONMENT "${STAGEWRIGHT_TEST_ENVIRONMENT}")
endfunction()

# stagewright_add_subdirectories(a b c): each that has a CMakeLists.txt.
function(stagewright_add_subdirectories)
  foreach(dir ${ARGN})
    if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/CMakeLists.txt)
      add_subdirectory(${dir})
    endif()
  endforeach()
endfunction()
