# kvant_module(NAME): globs src/NAME/*.cc (tests and per-ISA files set apart) into the library.
#
#   x.cc          every build
#   x_avx2.cc     compiled with that level's flags only, and only on x86-64 builds that are not
#   x_avxvnni.cc  KVANT_SCALAR_ONLY; no inline function that other files share may be
#   x_avx512.cc   instantiated in them, or the linker may keep the AVX-512 copy
#   x_neon.cc     the same for aarch64 builds
#   x_test.cc     one test program a module: kvant_NAME_test

add_library(kvant_flags INTERFACE)
# -ffp-contract=off: every ISA must give the same bytes, so no compiler may fuse what we did not.
# -Wno-psabi: vectors wider than a level's registers pass between functions of one file only.
# -Wno-restrict: g++ 12 reports it falsely for literal + std::string (GCC bug 105651).
target_compile_options(kvant_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
                                             -Wno-psabi
                                             $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                                             -ffp-contract=off $<$<BOOL:${KVANT_WERROR}>:-Werror>)
target_include_directories(kvant_flags INTERFACE ${PROJECT_SOURCE_DIR}/src
                                                 $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
if(KVANT_SCALAR_ONLY)
  target_compile_definitions(kvant_flags INTERFACE KVANT_SCALAR_ONLY)
endif()
if(KVANT_COVERAGE)
  target_compile_options(kvant_flags INTERFACE --coverage -O1)
  target_link_options(kvant_flags INTERFACE --coverage)
endif()

set(KVANT_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(KVANT_FLAGS_avxvnni -mavx2 -mfma -mf16c -mbmi2 -mavxvnni)
set(KVANT_FLAGS_avx512 -march=x86-64-v4 -mavx512vnni -mprefer-vector-width=512)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # g++ 12 warns of its own AVX-512 header's undefined vectors (GCC bug 105593).
  list(APPEND KVANT_FLAGS_avx512 -Wno-uninitialized -Wno-maybe-uninitialized)
endif()

# -mtune: the default schedules for in-order cores and spills the larger tiles.
set(KVANT_FLAGS_neon -march=armv8.2-a+dotprod -mtune=neoverse-n1)

if(KVANT_SCALAR_ONLY)
  set(KVANT_LEVELS "")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(KVANT_LEVELS avx2 avxvnni avx512)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(KVANT_LEVELS neon)
endif()

# What attention's kernels are compiled with beyond their level's flags; each choice is g++ 12's time.
#   scalar: its lanes are loops, which -O3 unrolls for five minutes (310 s, 57 s at -O2), for code no faster.
#   sanitized: -O1, lines instead of variables for the debugger (with -g the scalar lanes take over 240 s, with -g1 116), and
#     undefined behaviour is looked for at one level, since all share their source
#     (avx2: 112 s with both sanitizers at -O1; over 300 s at -O2).
function(kvant_kernel_options)
  set(kernels ${ARGN})
  list(FILTER kernels INCLUDE REGEX "/attention/kernels_[a-z0-9]+\\.cc$")
  foreach(kernel ${kernels})
    if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=[a-z,]*undefined")
      set_property(SOURCE ${kernel} APPEND PROPERTY COMPILE_OPTIONS -O1 -g1)
      if(NOT kernel MATCHES "_(avx2|neon)\\.cc$")
        set_property(SOURCE ${kernel} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=undefined)
      endif()
    elseif(kernel MATCHES "_scalar\\.cc$")
      set_property(SOURCE ${kernel} APPEND PROPERTY COMPILE_OPTIONS "$<$<CONFIG:Release>:-O2>")
    endif()
  endforeach()
endfunction()

function(kvant_module name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cc)
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  foreach(level avx2 avxvnni avx512 neon)
    set(level_sources ${sources})
    list(FILTER level_sources INCLUDE REGEX "_${level}\\.cc$")
    if(NOT level IN_LIST KVANT_LEVELS)
      list(FILTER sources EXCLUDE REGEX "_${level}\\.cc$")
    elseif(level_sources)
      set_source_files_properties(${level_sources} PROPERTIES COMPILE_OPTIONS "${KVANT_FLAGS_${level}}")
    endif()
  endforeach()
  kvant_kernel_options(${sources})
  target_sources(kvant PRIVATE ${sources})
endfunction()
