#include "loadtest/hop.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/base/random.h"
#include "core/base/status_macros.h"
#include "loadtest/internal/kafka.h"
#include "loadtest/latency.h"

namespace postrider::loadtest {
namespace {

using internal::KafkaPtr;
using internal::Properties;
using SteadyClock = std::chrono::steady_clock;

int64_t SteadyUs() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             SteadyClock::now().time_since_epoch())
      .count();
}

absl::StatusOr<Properties> Merge(const HopOptions& options, const std::string& more) {
  ASSIGN_OR_RETURN(Properties all, internal::ParseProperties(options.client_properties));
  ASSIGN_OR_RETURN(Properties rest, internal::ParseProperties(more));
  all.insert(all.begin(), {"bootstrap.servers", options.brokers});
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

// Reads every partition of `topic` from its end on.
absl::Status AssignAll(rd_kafka_t* consumer, const std::string& topic, int partitions) {
  rd_kafka_topic_partition_list_t* list = rd_kafka_topic_partition_list_new(partitions);
  for (int p = 0; p < partitions; ++p) {
    int64_t low = 0;
    int64_t high = 0;
    rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR_NO_ERROR;
    // A partition just made may not be led yet, whatever the metadata says.
    for (int tries = 0; tries < 100; ++tries) {
      code = rd_kafka_query_watermark_offsets(consumer, topic.c_str(), p, &low, &high, 10000);
      if (code == RD_KAFKA_RESP_ERR_NO_ERROR) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    if (code != RD_KAFKA_RESP_ERR_NO_ERROR) {
      rd_kafka_topic_partition_list_destroy(list);
      return absl::UnavailableError(absl::StrCat("loadtest: hop: ", rd_kafka_err2str(code)));
    }
    rd_kafka_topic_partition_list_add(list, topic.c_str(), p)->offset = high;
  }
  const rd_kafka_resp_err_t code = rd_kafka_assign(consumer, list);
  rd_kafka_topic_partition_list_destroy(list);
  if (code == RD_KAFKA_RESP_ERR_NO_ERROR) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("loadtest: hop: ", rd_kafka_err2str(code)));
}

// Blocks while the queue is full; other failures count as loss in the end.
void Produce(rd_kafka_t* producer, rd_kafka_topic_t* topic, const void* bytes, size_t size) {
  while (rd_kafka_produce(topic, RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_COPY,
                          const_cast<void*>(bytes), size, nullptr, 0, nullptr) != 0 &&
         rd_kafka_last_error() == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
    rd_kafka_poll(producer, 1);
  }
  rd_kafka_poll(producer, 0);
}

}  // namespace

absl::StatusOr<HopResult> Hop(const HopOptions& options, const std::atomic<bool>& stop) {
  // Each record its own partition, as events of many topics and endpoints have.
  const std::string spread = "sticky.partitioning.linger.ms=0,partitioner=random";
  ASSIGN_OR_RETURN(Properties produce,
                   Merge(options, absl::StrCat(spread, ",", options.producer_properties)));
  ASSIGN_OR_RETURN(Properties consume_first, Merge(options, options.first_consumer_properties));
  ASSIGN_OR_RETURN(Properties consume_second, Merge(options, options.second_consumer_properties));
  ASSIGN_OR_RETURN(KafkaPtr<rd_kafka_t> producer_a,
                   internal::MakeProducer(produce, nullptr, nullptr));
  ASSIGN_OR_RETURN(KafkaPtr<rd_kafka_t> producer_b,
                   internal::MakeProducer(produce, nullptr, nullptr));
  ASSIGN_OR_RETURN(KafkaPtr<rd_kafka_t> consumer_a, internal::MakeConsumer(consume_first));
  ASSIGN_OR_RETURN(KafkaPtr<rd_kafka_t> consumer_b, internal::MakeConsumer(consume_second));
  const std::string first = absl::StrCat(options.prefix, "first");
  const std::string second = absl::StrCat(options.prefix, "second");
  RETURN_IF_ERROR(internal::CreateTopics(producer_a.get(), {first}, options.first_partitions, 120));
  RETURN_IF_ERROR(
      internal::CreateTopics(producer_a.get(), {second}, options.second_partitions, 120));
  RETURN_IF_ERROR(AssignAll(consumer_a.get(), first, options.first_partitions));
  RETURN_IF_ERROR(AssignAll(consumer_b.get(), second, options.second_partitions));

  std::atomic<bool> done{false};
  std::atomic<uint64_t> arrived{0};
  const int64_t start_us = SteadyUs();
  const auto skip_until_us = start_us + static_cast<int64_t>(options.skip_seconds * 1e6);
  std::thread middle([&] {
    KafkaPtr<rd_kafka_topic_t> topic(rd_kafka_topic_new(producer_b.get(), second.c_str(), nullptr));
    while (!done.load()) {
      KafkaPtr<rd_kafka_message_t> message(rd_kafka_consumer_poll(consumer_a.get(), 50));
      if (message == nullptr || message->err != RD_KAFKA_RESP_ERR_NO_ERROR) continue;
      Produce(producer_b.get(), topic.get(), message->payload, message->len);
    }
  });
  LatencyHistogram latency;
  std::thread end([&] {
    while (!done.load()) {
      KafkaPtr<rd_kafka_message_t> message(rd_kafka_consumer_poll(consumer_b.get(), 50));
      if (message == nullptr || message->err != RD_KAFKA_RESP_ERR_NO_ERROR ||
          message->len < sizeof(int64_t)) {
        continue;
      }
      int64_t sent_us = 0;
      memcpy(&sent_us, message->payload, sizeof(sent_us));
      if (sent_us < start_us) continue;  // of an earlier run
      if (sent_us >= skip_until_us) latency.Add(SteadyUs() - sent_us);
      arrived.fetch_add(1);
    }
  });

  uint64_t sent = 0;
  {
    KafkaPtr<rd_kafka_topic_t> topic(rd_kafka_topic_new(producer_a.get(), first.c_str(), nullptr));
    Random random(7);
    std::string record(std::max(options.size_max, options.size_min), '\0');
    for (char& c : record) c = static_cast<char>('a' + random.Below(16));
    while (!stop.load() && static_cast<double>(SteadyUs() - start_us) < options.seconds * 1e6) {
      const double due = options.rate * static_cast<double>(SteadyUs() - start_us) / 1e6;
      while (static_cast<double>(sent) < due) {
        const int64_t now_us = SteadyUs();
        memcpy(record.data(), &now_us, sizeof(now_us));
        const size_t size = options.size_min + random.Below(record.size() - options.size_min + 1);
        Produce(producer_a.get(), topic.get(), record.data(), size);
        ++sent;
      }
      rd_kafka_poll(producer_a.get(), 1);
    }
    const int64_t give_up_us = SteadyUs() + 30'000'000;
    while (arrived.load() < sent && SteadyUs() < give_up_us) rd_kafka_poll(producer_a.get(), 10);
  }
  done = true;
  middle.join();
  end.join();
  rd_kafka_consumer_close(consumer_a.get());
  rd_kafka_consumer_close(consumer_b.get());
  // A consumer that has seen its topic go may never end.
  consumer_a.reset();
  consumer_b.reset();
  RETURN_IF_ERROR(internal::DeleteTopics(producer_a.get(), {first, second}));
  HopResult result;
  result.records = arrived.load();
  result.lost = sent - std::min(sent, result.records);
  result.p50_ms = latency.QuantileMs(0.5);
  result.p90_ms = latency.QuantileMs(0.9);
  result.p99_ms = latency.QuantileMs(0.99);
  return result;
}

}  // namespace postrider::loadtest
