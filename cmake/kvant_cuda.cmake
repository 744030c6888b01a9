# kvant_cuda_binaries: an ordinary target (part of ALL) that compiles src/cuda/*.cu with nvcc to
#   <build>/cuda/<name>.ptx            for compute_80, what the PTX interpreter runs
#   <build>/cuda/decode_fp8.compute_89.ptx  head_dim 128, by instructions that compute_80 lacks
#   <build>/cuda/<name>.sm_<N>.cubin   what the meter reads, for each of KVANT_CUDA_ARCHITECTURES:
#                                      all kernels for the first, those of head_dim 128 for the rest
# and sets KVANT_CUDA_BINARY_DIR to that folder, or to nothing where they are not built. No GPU is
# needed; what they are for is skipped, by name, where nvcc is missing.
#
# Only a release build has them: the other presets test the same source on the CPU.
set(KVANT_CUDA_ARCHITECTURES 80 89 90 100 CACHE STRING "Targets of the cubins that the meter reads")
find_program(KVANT_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
mark_as_advanced(KVANT_NVCC)

set(KVANT_CUDA_BINARY_DIR "")
set(kvant_cuda_reason "")
if(NOT KVANT_NVCC)
  set(kvant_cuda_reason "nvcc was not found")
elseif(NOT CMAKE_BUILD_TYPE STREQUAL "Release" OR KVANT_SCALAR_ONLY OR CMAKE_CROSSCOMPILING)
  set(kvant_cuda_reason "the release build has them")
elseif(NOT KVANT_BUILD_TESTS OR NOT "cuda" IN_LIST KVANT_MODULES)
  set(kvant_cuda_reason "nothing in this build reads them")
endif()
if(kvant_cuda_reason)
  message(STATUS "kvant: no PTX and no cubins: ${kvant_cuda_reason}")
  return()
endif()
message(STATUS "kvant: PTX and cubins by ${KVANT_NVCC}")

set(KVANT_CUDA_BINARY_DIR ${PROJECT_BINARY_DIR}/cuda)
file(MAKE_DIRECTORY ${KVANT_CUDA_BINARY_DIR})
file(GLOB kvant_cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cu)
file(GLOB kvant_cuda_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.h
     ${PROJECT_SOURCE_DIR}/tests/simt/staged.h)
set(kvant_cuda_outputs "")
# -fmad=false: kernels fuse by name, so that the SIMT shim and the PTX interpreter round alike.
set(kvant_nvcc_flags -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr -I ${PROJECT_SOURCE_DIR}/src)
function(kvant_nvcc source output)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${KVANT_NVCC} ${kvant_nvcc_flags} ${ARGN} -o ${output} ${source}
    DEPENDS ${source} ${kvant_cuda_headers}
    COMMENT "nvcc ${ARGN} ${output}"
    VERBATIM)
  set(kvant_cuda_outputs ${kvant_cuda_outputs} ${output} PARENT_SCOPE)
endfunction()
foreach(source ${kvant_cuda_sources})
  get_filename_component(name ${source} NAME_WE)
  kvant_nvcc(${source} ${KVANT_CUDA_BINARY_DIR}/${name}.ptx -ptx -arch=compute_80)
  set(only "")
  foreach(architecture ${KVANT_CUDA_ARCHITECTURES})
    if(only AND NOT name MATCHES "^decode_")  # the meter compares targets by the decode kernels
      continue()
    endif()
    kvant_nvcc(${source} ${KVANT_CUDA_BINARY_DIR}/${name}.sm_${architecture}.cubin
               -cubin -arch=sm_${architecture} ${only})
    set(only -DKVANT_HEAD_DIM_128_ONLY)
  endforeach()
endforeach()
kvant_nvcc(${PROJECT_SOURCE_DIR}/src/cuda/decode_fp8.cu
           ${KVANT_CUDA_BINARY_DIR}/decode_fp8.compute_89.ptx
           -ptx -arch=compute_89 -DKVANT_HEAD_DIM_128_ONLY)
# Kernels that only tests run, on the PTX interpreter.
file(GLOB kvant_cuda_test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/ptx/*.cu)
foreach(source ${kvant_cuda_test_sources})
  get_filename_component(name ${source} NAME_WE)
  kvant_nvcc(${source} ${KVANT_CUDA_BINARY_DIR}/${name}.ptx -ptx -arch=compute_80
             -I ${PROJECT_SOURCE_DIR}/tests)
endforeach()
add_custom_target(kvant_cuda_binaries ALL DEPENDS ${kvant_cuda_outputs})
