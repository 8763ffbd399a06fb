// Runs a fuzz target over its kept inputs, without a fuzzer: what tests/CMakeLists.txt builds.
//
//   fuzz_TARGET FILE|DIRECTORY...
//
// Short inputs are run cut off at every byte too, so that a decoder is seen to stand any end.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "tests/fuzz/input.h"

namespace {

constexpr size_t kCutBytesMax = 512;

// A copy of exactly `size` bytes, so that a sanitizer sees a read past them.
void RunOne(const std::string& bytes, size_t size) {
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[size]);
  std::copy_n(bytes.begin(), size, exact.get());
  LLVMFuzzerTestOneInput(exact.get(), size);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> files;
  for (int i = 1; i < argc; ++i) {
    std::error_code none;
    if (!std::filesystem::is_directory(argv[i], none)) {
      files.emplace_back(argv[i]);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    std::fprintf(stderr, "no inputs: fuzz_TARGET FILE|DIRECTORY...\n");
    return 2;
  }
  size_t runs = 0;
  for (const std::filesystem::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    if (!in.good() && !in.eof()) {
      std::fprintf(stderr, "cannot read %s\n", file.c_str());
      return 2;
    }
    // Said before, for a broken property stops the process.
    std::printf("%s (%zu bytes)\n", file.c_str(), bytes.size());
    std::fflush(stdout);
    for (size_t size = bytes.size() <= kCutBytesMax ? 0 : bytes.size(); size <= bytes.size();
         ++size) {
      RunOne(bytes, size);
      ++runs;
    }
  }
  std::printf("%zu runs of %zu inputs\n", runs, files.size());
  return 0;
}
