#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

namespace postrider::delivery {

// The memory of one shard for what is read back from the backlog: contents that wait for their
// turn, and requests that are made of them or whose messages were parked meanwhile. (What pends in
// the log has the shard's own bounds.) A count, nothing else: who is refused waits in the program's
// line.
//
// An endpoint takes at most an eighth of it, and those whose last request failed at most half of it
// together, so that receivers that hang keep nobody else's backlog waiting. But an endpoint that
// has nothing always gets one batch, whatever its size, when its side has nothing either.
//
// Threads: the shard's. Bounds: bytes_max, and a batch more for each side.
class BacklogRoom {
 public:
  // What one endpoint has of it; it must outlive its holds, or these leave it.
  struct Owner {
    size_t bytes = 0;
    bool failing = false;  // see SetFailing()
  };

  // So much of the room; given back when it ends.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept { *this = std::move(other); }
    Hold& operator=(Hold&& other) noexcept {
      std::swap(room_, other.room_);
      std::swap(owner_, other.owner_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Hold() { Release(); }

    size_t bytes() const { return bytes_; }
    void Release() {
      if (bytes_ > 0) room_->Give(owner_, std::exchange(bytes_, 0));
    }
    // A part of it, or all that it has.
    Hold Split(size_t bytes) {
      const size_t part = std::min(bytes, bytes_);
      bytes_ -= part;
      return Hold(room_, owner_, part);
    }
    // `other` is of the same room and owner.
    void Merge(Hold&& other) {
      if (bytes_ == 0) {
        *this = std::move(other);
      } else {
        bytes_ += std::exchange(other.bytes_, 0);
      }
    }
    // It counts no longer as the owner's, only as the room's.
    void LeaveOwner() {
      if (owner_ != nullptr && bytes_ > 0) room_->Leave(*owner_, bytes_);
      owner_ = nullptr;
    }

   private:
    friend class BacklogRoom;
    Hold(BacklogRoom* room, Owner* owner, size_t bytes)
        : room_(room), owner_(owner), bytes_(bytes) {}
    BacklogRoom* room_ = nullptr;
    Owner* owner_ = nullptr;
    size_t bytes_ = 0;
  };

  explicit BacklogRoom(size_t bytes_max) : bytes_max_(bytes_max) {}
  BacklogRoom(const BacklogRoom&) = delete;
  BacklogRoom& operator=(const BacklogRoom&) = delete;

  size_t share() const { return bytes_max_ / 8; }
  bool InShare(const Owner& owner, size_t bytes) const {
    return owner.bytes == 0 || owner.bytes + bytes <= share();
  }
  // Whether the owner's side has so much left.
  bool HasRoom(const Owner& owner, size_t bytes) const {
    const size_t side = owner.failing ? failing_ : used_ - failing_;
    if (side == 0) return true;
    if (owner.failing && side + bytes > bytes_max_ / 2) return false;
    return used_ + bytes <= bytes_max_;
  }
  // False: `hold` is as it was. Otherwise it has so much more.
  [[nodiscard]] bool Take(Owner& owner, size_t bytes, Hold& hold) {
    if (!InShare(owner, bytes) || !HasRoom(owner, bytes)) return false;
    hold.Merge(TakeAnyway(owner, bytes));
    return true;
  }
  // For what is in memory already.
  Hold TakeAnyway(Owner& owner, size_t bytes) {
    used_ += bytes;
    owner.bytes += bytes;
    if (owner.failing) failing_ += bytes;
    return Hold(this, &owner, bytes);
  }
  void SetFailing(Owner& owner, bool failing) {
    if (std::exchange(owner.failing, failing) == failing) return;
    if (failing) {
      failing_ += owner.bytes;
    } else {
      failing_ -= owner.bytes;
      ++given_;  // the side has more
    }
  }

  size_t used() const { return used_; }
  // Changes whenever there may be more room than before.
  size_t given() const { return given_; }

 private:
  void Give(Owner* owner, size_t bytes) {
    if (owner != nullptr) Leave(*owner, bytes);
    used_ -= bytes;
    ++given_;
  }
  void Leave(Owner& owner, size_t bytes) {
    owner.bytes -= bytes;
    if (owner.failing) failing_ -= bytes;
    ++given_;
  }

  const size_t bytes_max_;
  size_t used_ = 0;
  size_t failing_ = 0;  // of used_: of owners that fail
  size_t given_ = 0;
};

}  // namespace postrider::delivery
