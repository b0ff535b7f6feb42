# NCCL: the one of the nvidia-nccl wheel beside the torch wheel or in the virtual environment (scripts/setup.sh), the
# toolkit's, or the system's; NCCL_HOME names another. A CUDA build of LibTorch loads the wheel's, so it goes first: one
# process must not hold two.
#   NCCL_FOUND, NCCL_VERSION, NCCL_INCLUDE_DIR, NCCL_LIBRARY, and the target NCCL::nccl
set(nccl_places "")
if(STAGEWRIGHT_TORCH_DIR)
  get_filename_component(nccl_beside ${STAGEWRIGHT_TORCH_DIR} DIRECTORY)
  list(APPEND nccl_places ${nccl_beside}/nvidia/nccl)
endif()
file(GLOB nccl_in_venv ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/nccl)
list(APPEND nccl_places ${nccl_in_venv})
if(DEFINED ENV{NCCL_HOME})
  list(PREPEND nccl_places $ENV{NCCL_HOME})
endif()
if(CUDAToolkit_FOUND)
  get_filename_component(nccl_toolkit ${CUDAToolkit_LIBRARY_DIR} DIRECTORY)
  list(APPEND nccl_places ${nccl_toolkit})
endif()

find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${nccl_places} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${nccl_places} PATH_SUFFIXES lib lib64)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h nccl_version REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) +[0-9]+")
  list(TRANSFORM nccl_version REPLACE "[^0-9]" "")
  list(JOIN nccl_version "." NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl SHARED IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES
    IMPORTED_LOCATION ${NCCL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
