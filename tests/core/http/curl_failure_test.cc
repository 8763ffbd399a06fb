#include "core/http/internal/curl_failure.h"

#include <curl/curl.h>

#include "gtest/gtest.h"

namespace postrider::internal {
namespace {

// HTTP-11: every code of this libcurl and numbers that it does not have.
TEST(CurlFailureTest, EveryCodeIsAFailureThatMayBeTriedAgain) {
  for (int code = 0; code <= 250; ++code) {
    for (const bool sent : {false, true}) {
      CurlEnd end;
      end.code = code;
      end.request_sent = end.tcp_connected = sent;
      const HttpFailure failure = FailureOf(end);
      EXPECT_NE(failure, HttpFailure::kNone) << code;
      EXPECT_NE(failure, HttpFailure::kAborted) << code;
      EXPECT_NE(failure, HttpFailure::kAddressRefused) << code;
      EXPECT_NE(HttpFailureName(failure), "unknown") << code;
    }
  }
}

TEST(CurlFailureTest, TellsThePhasesOfATimeoutApart) {
  CurlEnd end;
  end.code = CURLE_OPERATION_TIMEDOUT;
  EXPECT_EQ(FailureOf(end), HttpFailure::kConnect);
  end.tcp_connected = true;
  EXPECT_EQ(FailureOf(end), HttpFailure::kTls);
  end.request_sent = true;
  EXPECT_EQ(FailureOf(end), HttpFailure::kTimeout);
}

TEST(CurlFailureTest, OurOwnReasonsComeFirst) {
  CurlEnd end;
  end.own_limit = true;
  for (const bool proxied : {false, true}) {
    end.proxied = proxied;
    end.code = CURLE_COULDNT_CONNECT;
    EXPECT_EQ(FailureOf(end), HttpFailure::kOwnLimit);
  }
  end = CurlEnd();
  end.code = CURLE_COULDNT_CONNECT;
  end.address_refused = true;
  EXPECT_EQ(FailureOf(end), HttpFailure::kAddressRefused);
  end = CurlEnd();
  end.code = CURLE_WRITE_ERROR;
  end.request_sent = true;
  EXPECT_EQ(FailureOf(end), HttpFailure::kProtocol);
  end.headers_too_large = true;
  EXPECT_EQ(FailureOf(end), HttpFailure::kHeadersTooLarge);
}

TEST(CurlFailureTest, BehindAProxyTellsWhoFailed) {
  const auto failure_of = [](int code, bool connected, int connect_status, bool sent = false) {
    CurlEnd end;
    end.proxied = true;
    end.code = code;
    end.tcp_connected = connected;
    end.connect_status = connect_status;
    end.request_sent = sent;
    return FailureOf(end);
  };
  EXPECT_EQ(failure_of(CURLE_COULDNT_CONNECT, false, 0), HttpFailure::kProxy);
  EXPECT_EQ(failure_of(CURLE_COULDNT_RESOLVE_PROXY, false, 0), HttpFailure::kProxy);
  EXPECT_EQ(failure_of(CURLE_OPERATION_TIMEDOUT, false, 0), HttpFailure::kProxy);
  EXPECT_EQ(failure_of(CURLE_OPERATION_TIMEDOUT, true, 0), HttpFailure::kConnect);
  EXPECT_EQ(failure_of(CURLE_RECV_ERROR, true, 407), HttpFailure::kProxy);
  EXPECT_EQ(failure_of(CURLE_RECV_ERROR, true, 499), HttpFailure::kProxy);
  EXPECT_EQ(failure_of(CURLE_RECV_ERROR, true, 500), HttpFailure::kConnect);
  EXPECT_EQ(failure_of(CURLE_RECV_ERROR, true, 599), HttpFailure::kConnect);
  EXPECT_EQ(failure_of(CURLE_RECV_ERROR, true, 600), HttpFailure::kProxy);
  EXPECT_EQ(failure_of(CURLE_SSL_CONNECT_ERROR, true, 200), HttpFailure::kTls);
  EXPECT_EQ(failure_of(CURLE_OPERATION_TIMEDOUT, true, 200), HttpFailure::kTls);
  EXPECT_EQ(failure_of(CURLE_OPERATION_TIMEDOUT, true, 0, true), HttpFailure::kTimeout);
}

}  // namespace
}  // namespace postrider::internal
