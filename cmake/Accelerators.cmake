# CUDA and NCCL: found when present, and only then switched on. After this file
#   STAGEWRIGHT_CUDA    whether the worker drives GPUs: LibTorch is a CUDA build and the CUDA toolkit is there
#   STAGEWRIGHT_NCCL    whether the NCCL transport is built: CUDA, and NCCL's header and library are there
#   stagewright_cuda, stagewright_nccl   interface targets to link always; they define STAGEWRIGHT_HAVE_CUDA and
#                                        STAGEWRIGHT_HAVE_NCCL as 1 or 0
set(STAGEWRIGHT_WITH_CUDA AUTO CACHE STRING "Drive GPUs: AUTO (when found), ON (fail when not found) or OFF")
set_property(CACHE STAGEWRIGHT_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)

set(STAGEWRIGHT_CUDA OFF)
set(STAGEWRIGHT_NCCL OFF)
set(cuda_reason "switched off")
set(nccl_reason "needs CUDA")

if(STAGEWRIGHT_WITH_WORKER AND STAGEWRIGHT_WITH_CUDA)
  find_package(CUDAToolkit QUIET)
  if(NOT EXISTS ${STAGEWRIGHT_TORCH_DIR}/lib/libtorch_cuda.so)
    set(cuda_reason "LibTorch is a CPU build")
  elseif(NOT CUDAToolkit_FOUND)
    set(cuda_reason "no CUDA toolkit")
  else()
    set(STAGEWRIGHT_CUDA ON)
  endif()
  if(NOT STAGEWRIGHT_CUDA AND NOT STAGEWRIGHT_WITH_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "STAGEWRIGHT_WITH_CUDA=${STAGEWRIGHT_WITH_CUDA}, but ${cuda_reason}")
  endif()
endif()

# The system's NCCL, the toolkit's, or the one of the nvidia-nccl wheel beside the torch wheel. The wheel's is the one
# that LibTorch itself loads, so it goes first: one process must not hold two.
if(STAGEWRIGHT_CUDA)
  get_filename_component(site_packages ${STAGEWRIGHT_TORCH_DIR} DIRECTORY)
  find_path(STAGEWRIGHT_NCCL_INCLUDE nccl.h
    HINTS ${site_packages}/nvidia/nccl/include ${CUDAToolkit_INCLUDE_DIRS} $ENV{NCCL_HOME}/include)
  find_library(STAGEWRIGHT_NCCL_LIBRARY NAMES nccl libnccl.so.2
    HINTS ${site_packages}/nvidia/nccl/lib ${CUDAToolkit_LIBRARY_DIR} $ENV{NCCL_HOME}/lib)
  if(STAGEWRIGHT_NCCL_INCLUDE AND STAGEWRIGHT_NCCL_LIBRARY)
    set(STAGEWRIGHT_NCCL ON)
  else()
    set(nccl_reason "nccl.h or libnccl not found")
  endif()
endif()

add_library(stagewright_cuda INTERFACE)
add_library(stagewright_nccl INTERFACE)
if(STAGEWRIGHT_CUDA)
  target_compile_definitions(stagewright_cuda INTERFACE STAGEWRIGHT_HAVE_CUDA=1)
  target_link_libraries(stagewright_cuda INTERFACE stagewright_torch torch_cuda c10_cuda CUDA::cudart)
  set(cuda_reason "toolkit ${CUDAToolkit_VERSION}")
else()
  target_compile_definitions(stagewright_cuda INTERFACE STAGEWRIGHT_HAVE_CUDA=0)
endif()
if(STAGEWRIGHT_NCCL)
  target_compile_definitions(stagewright_nccl INTERFACE STAGEWRIGHT_HAVE_NCCL=1)
  target_include_directories(stagewright_nccl SYSTEM INTERFACE ${STAGEWRIGHT_NCCL_INCLUDE})
  target_link_libraries(stagewright_nccl INTERFACE stagewright_cuda ${STAGEWRIGHT_NCCL_LIBRARY})
  get_filename_component(nccl_dir ${STAGEWRIGHT_NCCL_LIBRARY} DIRECTORY)
  target_link_options(stagewright_nccl INTERFACE -Wl,-rpath,${nccl_dir})
  set(nccl_reason ${STAGEWRIGHT_NCCL_LIBRARY})
else()
  target_compile_definitions(stagewright_nccl INTERFACE STAGEWRIGHT_HAVE_NCCL=0)
endif()

message(STATUS "Stagewright: CUDA ${STAGEWRIGHT_CUDA} (${cuda_reason}), NCCL ${STAGEWRIGHT_NCCL} (${nccl_reason})")
