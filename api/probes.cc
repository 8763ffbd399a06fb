#include "api/probes.h"

#include <utility>

#include "core/json/json.h"

namespace postrider::api {
namespace {

Response Plain(std::string body, std::string type) {
  Response response;
  response.body = std::move(body);
  response.content_type = std::move(type);
  return response;
}

Response ShowReadiness(const std::vector<Readiness>& parts) {
  bool ready = true;
  JsonValue shown = JsonValue::MakeObject();
  for (const Readiness& part : parts) {
    ready = ready && part.status.ok();
    shown.Set(part.name, part.status.ok() ? "ok" : part.status.message());
  }
  Response response =
      Plain(JsonValue::MakeObject({{"ready", ready}, {"parts", std::move(shown)}}).Serialize(),
            "application/json");
  response.status = ready ? 200 : 503;
  return response;
}

}  // namespace

Router MakeProbes(const Metrics& metrics, ReadinessCheck ready) {
  Router router;
  router.Add(
      {.method = HttpMethod::kGet,
       .path = "/healthz",
       .handler = [](Request, Respond respond) { std::move(respond)(Plain("ok\n", "text/plain")); },
       .operation_id = "healthz",
       .summary = "Whether the process lives"});
  router.Add(
      {.method = HttpMethod::kGet,
       .path = "/readyz",
       .handler = [ready = std::move(ready)](
                      Request, Respond respond) { std::move(respond)(ShowReadiness(ready())); },
       .operation_id = "readyz",
       .summary = "Whether the process can work"});
  router.Add({.method = HttpMethod::kGet,
              .path = "/metrics",
              .handler =
                  [&metrics](Request, Respond respond) {
                    std::move(respond)(
                        Plain(metrics.Expose(), "text/plain; version=0.0.4; charset=utf-8"));
                  },
              .operation_id = "metrics",
              .summary = "Metrics for Prometheus"});
  return router;
}

}  // namespace postrider::api
