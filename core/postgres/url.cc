#include "core/postgres/url.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/hex.h"

namespace postrider {
namespace {

bool Decode(absl::string_view text, std::string* out) {
  out->clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out->push_back(text[i]);
      continue;
    }
    if (i + 2 >= text.size()) return false;
    const int high = HexDigit(text[i + 1]);
    const int low = HexDigit(text[i + 2]);
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return false;
    out->push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return true;
}

std::string Encode(absl::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~';
    if (plain) {
      out.push_back(c);
    } else {
      out.push_back('%');
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    }
  }
  return out;
}

absl::Status Fault(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("database URL: ", what));
}

}  // namespace

absl::StatusOr<DatabaseUrl> DatabaseUrl::Parse(absl::string_view text) {
  DatabaseUrl url;
  absl::string_view rest = text;
  if (absl::StartsWith(rest, "postgresql://")) {
    rest.remove_prefix(13);
  } else if (absl::StartsWith(rest, "postgres://")) {
    rest.remove_prefix(11);
  } else {
    return Fault("must begin with postgresql://");
  }
  for (const char c : rest) {
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f) {
      return Fault("has a space or a control character in it (write it as %XX)");
    }
  }
  const size_t question = rest.find('?');
  if (question != absl::string_view::npos) {
    url.parameters = std::string(rest.substr(question + 1));
    rest = rest.substr(0, question);
  }
  const size_t slash = rest.find('/');
  if (slash != absl::string_view::npos) {
    if (!Decode(rest.substr(slash + 1), &url.database)) return Fault("broken %XX in the database");
    rest = rest.substr(0, slash);
  }
  const size_t at = rest.rfind('@');
  if (at != absl::string_view::npos) {
    const absl::string_view who = rest.substr(0, at);
    const size_t colon = who.find(':');
    if (!Decode(who.substr(0, colon), &url.user)) return Fault("broken %XX in the user");
    if (colon != absl::string_view::npos && !Decode(who.substr(colon + 1), &url.password)) {
      return Fault("broken %XX in the password");
    }
    rest = rest.substr(at + 1);
  }
  url.hosts = std::string(rest);
  return url;
}

std::string DatabaseUrl::ToString() const {
  std::string out = "postgresql://";
  if (!user.empty()) {
    absl::StrAppend(&out, Encode(user));
    if (!password.empty()) absl::StrAppend(&out, ":", Encode(password));
    out.push_back('@');
  }
  absl::StrAppend(&out, hosts, "/", Encode(database));
  if (!parameters.empty()) absl::StrAppend(&out, "?", parameters);
  return out;
}

std::string DatabaseUrl::ForLog() const { return absl::StrCat(hosts, "/", database); }

absl::StatusOr<std::string> WithUser(absl::string_view url, absl::string_view user) {
  absl::StatusOr<DatabaseUrl> parsed = DatabaseUrl::Parse(url);
  if (!parsed.ok()) return std::move(parsed).status();
  parsed->user = std::string(user);
  return parsed->ToString();
}

absl::StatusOr<std::string> WithDatabase(absl::string_view url, absl::string_view database) {
  absl::StatusOr<DatabaseUrl> parsed = DatabaseUrl::Parse(url);
  if (!parsed.ok()) return std::move(parsed).status();
  parsed->database = std::string(database);
  return parsed->ToString();
}

}  // namespace postrider
