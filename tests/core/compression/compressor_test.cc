#include "core/compression/compressor.h"

#include <zlib.h>
#include <zstd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace postrider {
namespace {

// One whole member, and nothing behind it.
std::string Gunzip(absl::string_view bytes, size_t size) {
  std::string text(size + 1, '\0');
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  EXPECT_EQ(stream.avail_in, 0u);
  text.resize(stream.total_out);
  inflateEnd(&stream);
  return text;
}

std::string Unzstd(absl::string_view bytes, size_t size) {
  std::string text(size + 1, '\0');
  const size_t got = ZSTD_decompress(text.data(), text.size(), bytes.data(), bytes.size());
  EXPECT_FALSE(ZSTD_isError(got)) << ZSTD_getErrorName(got);
  EXPECT_EQ(ZSTD_findFrameCompressedSize(bytes.data(), bytes.size()), bytes.size());
  text.resize(ZSTD_isError(got) ? 0 : got);
  return text;
}

std::vector<std::string> Texts() {
  std::string large;
  for (int i = 0; large.size() < 3'000'000; ++i) absl::StrAppend(&large, "{\"n\":", i * 7919, "},");
  std::string noise;
  uint32_t state = 1;
  for (int i = 0; i < 100'000; ++i) {
    state = state * 1'664'525 + 1'013'904'223;
    noise.push_back(static_cast<char>(state >> 24));
  }
  return {"", "{}", std::string(1, '\0'), large, noise, "{\"a\":1}"};
}

TEST(CompressorTest, GzipComesBackAsItWas) {
  Compressor compressor;
  for (const std::string& text : Texts()) {
    EXPECT_EQ(Gunzip(compressor.Compress(Compression::kGzip, text), text.size()), text);
  }
}

TEST(CompressorTest, ZstdComesBackAsItWas) {
  Compressor compressor;
  for (const std::string& text : Texts()) {
    EXPECT_EQ(Unzstd(compressor.Compress(Compression::kZstd, text), text.size()), text);
  }
}

TEST(CompressorTest, TheSameTextGivesTheSameBytesWhateverCameBefore) {
  for (const Compression kind : {Compression::kGzip, Compression::kZstd}) {
    Compressor used;
    for (const std::string& text : Texts()) used.Compress(kind, text);
    Compressor fresh;
    EXPECT_EQ(used.Compress(kind, "{\"a\":1}"), fresh.Compress(kind, "{\"a\":1}"));
  }
}

TEST(CompressorTest, ALongTextBecomesShorter) {
  Compressor compressor;
  const std::string text = Texts()[3];
  for (const Compression kind : {Compression::kGzip, Compression::kZstd}) {
    const std::string bytes = compressor.Compress(kind, text);
    EXPECT_LT(bytes.size(), text.size() / 2);
    EXPECT_LE(bytes.capacity(), bytes.size() + bytes.size() / 4 + 64);
  }
}

}  // namespace
}  // namespace postrider
