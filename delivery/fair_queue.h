#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "subscriptions/registry/ids.h"

namespace postrider::delivery {

class EndpointFunction;

// Who of a shard sends next: the line of its endpoints with something to send, fair over customers
// first and then over the endpoints of each, by the bytes that they send. Whoever asks for less
// than its share is next at once, however much the others have waiting.
//
// It is start-time fair queueing (Goyal, Vin, Cheng 1996): a turn's cost moves its customer's (and
// its endpoint's) tag on, and the lowest tag is next. Unlike with deficit round robin nobody waits
// for a round.
//
// The slots of the sink: while others wait a customer has at most a tenth of them, or an equal part
// when fewer than ten have work.
//
// Threads: the shard's. Bounds: each endpoint stands in it once, by its function; a customer is
// forgotten when it has neither work nor a debt.
class FairQueue {
 public:
  // What a turn costs beside its bytes.
  static constexpr uint64_t kTurnCost = 2048;

  explicit FairQueue(size_t slots) : slots_(slots) {}

  void Enqueue(subscriptions::CustomerId customer, EndpointFunction* function,
               absl::string_view key);
  // Gives the next one its turn. `serve` returns the bytes that it sent; it may enqueue.
  // Returns what is charged; 0: nobody stands in line.
  uint64_t Serve(
      absl::FunctionRef<size_t(EndpointFunction* function, const std::string& key)> serve);
  void Forget(EndpointFunction* function);

  // A request of this customer's begins, and has ended.
  void TakeSlot(subscriptions::CustomerId customer);
  void GiveSlot(subscriptions::CustomerId customer);
  bool HasFreeSlot() const { return slots_used_ < slots_; }

  // Endpoints in line.
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  // Customers that it remembers.
  size_t customers() const { return customers_.size(); }

 private:
  using Place = std::pair<uint64_t, uint64_t>;  // the tag, and who came first
  using Owner = std::pair<EndpointFunction*, std::string>;
  struct Customer {
    uint64_t tag = 0;
    size_t slots = 0;
    bool in_line = false;
    Place place;  // in line_
    std::map<Place, Owner> endpoints;
    uint64_t now = 0;  // the tag of who was served last
    absl::flat_hash_map<Owner, uint64_t> tags;
  };
  Customer& Of(subscriptions::CustomerId id);
  void Insert(Customer& customer, Owner owner);
  void Join(Customer& customer);
  bool AtCap(const Customer& customer) const;
  Customer& PickNext();
  void ForgetIdle();

  size_t slots_;
  size_t slots_used_ = 0;
  size_t size_ = 0;
  size_t with_work_ = 0;  // customers in line or with slots
  uint64_t now_ = 0;
  uint64_t arrivals_ = 0;
  const Owner* serving_ = nullptr;
  bool again_ = false;  // who is served stands in line again
  std::map<Place, Customer*> line_;
  absl::flat_hash_map<subscriptions::CustomerId, std::unique_ptr<Customer>> customers_;
};

}  // namespace postrider::delivery
