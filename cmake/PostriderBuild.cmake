# Flags, tools and the two functions that every folder's CMakeLists.txt uses.

option(POSTRIDER_TESTS "Build the tests" ON)
option(POSTRIDER_WERROR "Warnings are errors" ON)
set(POSTRIDER_SANITIZE "" CACHE STRING "Empty, 'address' or 'thread'")
option(POSTRIDER_FUZZ "Build tests/fuzz for libFuzzer; needs clang" OFF)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_VERIFY_INTERFACE_HEADER_SETS ON)

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)

add_library(postrider_build_options INTERFACE)
target_include_directories(postrider_build_options INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(postrider_build_options INTERFACE
  -Wall -Wextra -Wshadow -Wconversion $<$<BOOL:${POSTRIDER_WERROR}>:-Werror>)
target_compile_definitions(postrider_build_options INTERFACE
  POSTRIDER_VERSION="${PROJECT_VERSION}")
if(MOLD_PROGRAM)
  target_link_options(postrider_build_options INTERFACE -fuse-ld=mold)
endif()
if(POSTRIDER_SANITIZE STREQUAL "address")
  set(sanitize -fsanitize=address,signed-integer-overflow,shift,bounds,null
      -fno-sanitize-recover=all -fno-omit-frame-pointer)
elseif(POSTRIDER_SANITIZE STREQUAL "thread")
  set(sanitize -fsanitize=thread -fno-omit-frame-pointer)
elseif(POSTRIDER_SANITIZE)
  message(FATAL_ERROR "POSTRIDER_SANITIZE=${POSTRIDER_SANITIZE}: want '', 'address' or 'thread'")
endif()
if(POSTRIDER_FUZZ)
  list(APPEND sanitize -fsanitize=fuzzer-no-link)
endif()
if(sanitize)
  target_compile_options(postrider_build_options INTERFACE ${sanitize})
  target_link_options(postrider_build_options INTERFACE ${sanitize})
endif()

# postrider_library(NAME [DEPS ...] [PRIVATE_DEPS ...])
# The library of the current folder: every *.cc here and in internal/; every *.h here is its face.
# DEPS are what its headers need, PRIVATE_DEPS only its sources.
function(postrider_library name)
  cmake_parse_arguments(ARG "" "" "DEPS;PRIVATE_DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cc internal/*.cc decoder/*.cc decoder/internal/*.cc)
  file(GLOB headers CONFIGURE_DEPENDS *.h decoder/*.h)
  add_library(${name} STATIC)
  if(NOT sources)
    file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/empty.cc "")
    set(sources ${CMAKE_CURRENT_BINARY_DIR}/empty.cc)
  endif()
  target_sources(${name} PRIVATE ${sources}
    PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${headers})
  target_link_libraries(${name} PUBLIC postrider_build_options ${ARG_DEPS}
    PRIVATE ${ARG_PRIVATE_DEPS})
endfunction()

# postrider_test(NAME RING unit|component|system [DEPS ...])
# One test binary of every *_test.cc of the current folder. Unit tests are listed one by one in
# ctest; a component or system binary is one entry, because its tests share a fixture.
function(postrider_test name)
  cmake_parse_arguments(ARG "" "RING;TIMEOUT" "DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *_test.cc)
  if(NOT sources)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE postrider_build_options ${ARG_DEPS}
    GTest::gmock GTest::gtest_main)
  # The optimiser earns nothing in test code and doubles the time to build it.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O0>)
  if(ARG_RING STREQUAL "unit")
    include(GoogleTest)
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST NO_PRETTY_VALUES
      PROPERTIES LABELS ${ARG_RING} TIMEOUT ${ARG_TIMEOUT})
  else()
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS ${ARG_RING} TIMEOUT ${ARG_TIMEOUT}
      RUN_SERIAL ON)
  endif()
endfunction()
