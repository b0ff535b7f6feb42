# CUDA and NCCL: found when present, and only then switched on. After this file
#   STAGEWRIGHT_CUDA    whether the worker drives GPUs: LibTorch is a CUDA build and the CUDA toolkit is there
#   STAGEWRIGHT_NCCL    whether the NCCL transport is built: the CUDA toolkit and NCCL are there, whatever LibTorch is
#   stagewright_cuda, stagewright_nccl   interface targets to link always; they define STAGEWRIGHT_HAVE_CUDA and
#                                        STAGEWRIGHT_HAVE_NCCL as 1 or 0
set(STAGEWRIGHT_WITH_CUDA AUTO CACHE STRING "Drive GPUs: AUTO (when found), ON (fail when not found) or OFF")
set_property(CACHE STAGEWRIGHT_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)

set(STAGEWRIGHT_CUDA OFF)
set(STAGEWRIGHT_NCCL OFF)
set(cuda_reason "switched off")
set(nccl_reason "")

if(STAGEWRIGHT_WITH_WORKER AND STAGEWRIGHT_WITH_CUDA)
  find_package(CUDAToolkit QUIET)
  if(NOT EXISTS ${STAGEWRIGHT_TORCH_DIR}/lib/libtorch_cuda.so)
    set(cuda_reason "LibTorch is a CPU build")
  elseif(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
    set(cuda_reason "no CUDA toolkit with nvcc")
  else()
    set(STAGEWRIGHT_CUDA ON)
  endif()
  if(NOT STAGEWRIGHT_CUDA AND NOT STAGEWRIGHT_WITH_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "STAGEWRIGHT_WITH_CUDA=${STAGEWRIGHT_WITH_CUDA}, but ${cuda_reason}")
  endif()
endif()

if(STAGEWRIGHT_WITH_WORKER AND STAGEWRIGHT_WITH_CUDA)
  find_package(NCCL QUIET)
  if(NOT CUDAToolkit_FOUND OR NOT CUDAToolkit_NVCC_EXECUTABLE)
    set(nccl_reason "no CUDA toolkit with nvcc")
  elseif(NOT NCCL_FOUND)
    set(nccl_reason "nccl.h or libnccl not found")
  else()
    set(STAGEWRIGHT_NCCL ON)
  endif()
else()
  set(nccl_reason "switched off")
endif()

add_library(stagewright_cuda INTERFACE)
add_library(stagewright_nccl INTERFACE)
if(STAGEWRIGHT_CUDA)
  target_compile_definitions(stagewright_cuda INTERFACE STAGEWRIGHT_HAVE_CUDA=1)
  # Nothing names a symbol of torch_cuda: it registers itself when it is loaded. A linker that leaves out what it does not
  # need would leave it out, and LibTorch would have no CUDA; one item, so that CMake does not part it.
  target_link_libraries(stagewright_cuda INTERFACE stagewright_torch
    -Wl,--push-state,--no-as-needed,-ltorch_cuda,--pop-state c10_cuda CUDA::cudart)
  set(cuda_reason "toolkit ${CUDAToolkit_VERSION}")
else()
  target_compile_definitions(stagewright_cuda INTERFACE STAGEWRIGHT_HAVE_CUDA=0)
endif()
if(STAGEWRIGHT_NCCL)
  target_compile_definitions(stagewright_nccl INTERFACE STAGEWRIGHT_HAVE_NCCL=1)
  target_link_libraries(stagewright_nccl INTERFACE NCCL::nccl CUDA::cudart)
  set(nccl_reason "${NCCL_VERSION}, ${NCCL_LIBRARY}")
else()
  target_compile_definitions(stagewright_nccl INTERFACE STAGEWRIGHT_HAVE_NCCL=0)
endif()

message(STATUS "Stagewright: CUDA ${STAGEWRIGHT_CUDA} (${cuda_reason}), NCCL ${STAGEWRIGHT_NCCL} (${nccl_reason})")
