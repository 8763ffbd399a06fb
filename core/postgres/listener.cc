#include "core/postgres/listener.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace postrider {

Listener::Listener(EventLoop& loop, ConnectionOptions options, std::string channel, uint64_t seed,
                   absl::AnyInvocable<void()> wake)
    : wake_(std::move(wake)) {
  options.setup_sql = absl::StrCat("LISTEN ", QuoteIdentifier(channel));
  connection_ = std::make_unique<Connection>(loop, std::move(options), seed);
  connection_->SetOnReady([this](bool ready) {
    if (ready) wake_();
  });
  connection_->SetOnNotify([this](absl::string_view, absl::string_view) { wake_(); });
}

Listener::~Listener() = default;

}  // namespace postrider
