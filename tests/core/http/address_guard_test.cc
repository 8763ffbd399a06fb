#include "core/http/address_guard.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/base/options.h"
#include "core/http/url.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/status_matchers.h"

namespace postrider {
namespace {

using Verdict = AddressRules::Verdict;

std::vector<std::pair<IpAddress, uint16_t>> AddressesIn(absl::string_view hosts,
                                                        uint16_t port_default) {
  return AddressesAmong(HostsIn(hosts, port_default));
}

Verdict Check(const AddressRules& rules, const std::string& address, uint16_t port = 443) {
  const absl::optional<IpAddress> parsed = IpAddress::Parse(address);
  EXPECT_TRUE(parsed) << address;
  return rules.Check(parsed.value_or(IpAddress()), port);
}
Verdict Check(const std::string& address, uint16_t port = 443) {
  return Check(*AddressRules::Default(), address, port);
}

std::shared_ptr<const AddressRules> Rules(const AddressRulesOptions& options) {
  absl::StatusOr<std::shared_ptr<const AddressRules>> rules = AddressRules::Create(options);
  EXPECT_OK(rules);
  return *rules;
}

TEST(AddressGuardTest, AllowsPublicAddresses) {
  for (const std::string address :
       {"1.1.1.1",         "8.8.8.8",         "9.255.255.255",   "11.0.0.0",      "100.63.255.255",
        "100.128.0.0",     "126.255.255.255", "128.0.0.0",       "168.63.129.15", "168.63.129.17",
        "169.253.255.255", "169.255.0.0",     "172.15.255.255",  "172.32.0.0",    "192.0.1.0",
        "192.167.255.255", "192.169.0.0",     "198.17.255.255",  "198.20.0.0",    "223.255.255.255",
        "2606:4700::1",    "2a00:1450::1",    "2001:4860::8888", "2001:200::1",   "3fff:1000::1"}) {
    EXPECT_EQ(Check(address), Verdict::kAllowed) << address;
  }
}

TEST(AddressGuardTest, RefusesEveryOtherRangeAtBothEnds) {
  for (const std::string address : {"0.0.0.0",
                                    "0.255.255.255",
                                    "10.0.0.0",
                                    "10.255.255.255",
                                    "100.64.0.0",
                                    "100.127.255.255",
                                    "100.100.100.200",
                                    "127.0.0.0",
                                    "127.255.255.255",
                                    "168.63.129.16",
                                    "169.254.0.0",
                                    "169.254.169.254",
                                    "169.254.255.255",
                                    "172.16.0.0",
                                    "172.31.255.255",
                                    "192.0.0.0",
                                    "192.0.0.192",
                                    "192.0.0.255",
                                    "192.0.2.1",
                                    "192.88.99.1",
                                    "192.168.0.0",
                                    "192.168.255.255",
                                    "198.18.0.0",
                                    "198.19.255.255",
                                    "198.51.100.7",
                                    "203.0.113.7",
                                    "224.0.0.1",
                                    "239.255.255.255",
                                    "240.0.0.0",
                                    "255.255.255.255",
                                    "::",
                                    "::1",
                                    "::127.0.0.1",
                                    "::8.8.8.8",
                                    "64:ff9b:1::808:808",
                                    "100::1",
                                    "fc00::1",
                                    "fd00:ec2::254",
                                    "fdff::1",
                                    "fe80::1",
                                    "fe80::a9fe:a9fe",
                                    "febf::1",
                                    "fec0::1",
                                    "ff02::1",
                                    "2001::1",
                                    "2001:0:808:808::1",
                                    "2001:2::1",
                                    "2001:10::1",
                                    "2001:1ff:ffff::1",
                                    "2001:db8::1",
                                    "2002:808:808::1",
                                    "2002:7f00:1::1",
                                    "3fff::1",
                                    "4000::1",
                                    "5f00::1",
                                    "2606:4700::5efe:7f00:1",
                                    "2606:4700::200:5efe:808:808"}) {
    EXPECT_EQ(Check(address), Verdict::kAddressRefused) << address;
  }
}

// SSRF-04: all mapped addresses are refused, of public ones too.
TEST(AddressGuardTest, RefusesMappedAddressesInEverySpelling) {
  for (const std::string address : {"::ffff:127.0.0.1", "::ffff:7f00:1", "0:0:0:0:0:ffff:7f00:0001",
                                    "::FFFF:A9FE:A9FE", "::ffff:a00:1", "::ffff:808:808"}) {
    EXPECT_EQ(Check(address), Verdict::kAddressRefused) << address;
  }
}

// SSRF-06
TEST(AddressGuardTest, JudgesNat64ByTheInnerAddress) {
  EXPECT_EQ(Check("64:ff9b::808:808"), Verdict::kAllowed);
  EXPECT_EQ(Check("64:ff9b::a00:1"), Verdict::kAddressRefused);
  EXPECT_EQ(Check("64:ff9b::7f00:1"), Verdict::kAddressRefused);
  AddressRulesOptions off;
  Options options;
  off.Register(options);
  ASSERT_OK(options.LoadFlags({"--network.nat64=refused"}));
  for (const std::string address : {"64:ff9b::808:808", "64:ff9b::a00:1", "64:ff9b::7f00:1"}) {
    EXPECT_EQ(Check(*Rules(off), address), Verdict::kAddressRefused) << address;
  }
}

TEST(AddressGuardTest, RefusesPortsOfOtherProtocols) {
  for (const uint16_t port :
       std::initializer_list<uint16_t>{22, 25, 53, 5432, 6379, 6667, 9092, 10080}) {
    EXPECT_EQ(Check("8.8.8.8", port), Verdict::kPortRefused) << port;
  }
  for (const uint16_t port : std::initializer_list<uint16_t>{80, 443, 8080, 8443, 3000, 65535}) {
    EXPECT_EQ(Check("8.8.8.8", port), Verdict::kAllowed) << port;
  }
}

TEST(AddressGuardTest, AllowLiftsWhatIsBuiltInAndDenyIsStronger) {
  AddressRulesOptions options;
  options.allow = {"127.0.0.0/8", "fd00::/8"};
  options.deny = {"127.0.0.2", "8.8.8.0/24"};
  const auto rules = Rules(options);
  EXPECT_EQ(Check(*rules, "127.0.0.1", 6379), Verdict::kAllowed);
  EXPECT_EQ(Check(*rules, "fd12::1"), Verdict::kAllowed);
  EXPECT_EQ(Check(*rules, "127.0.0.2"), Verdict::kAddressRefused);
  EXPECT_EQ(Check(*rules, "::ffff:127.0.0.2"), Verdict::kAddressRefused);
  EXPECT_EQ(Check(*rules, "8.8.8.8"), Verdict::kAddressRefused);
  EXPECT_EQ(Check(*rules, "64:ff9b::808:808"), Verdict::kAddressRefused);
  EXPECT_EQ(Check(*rules, "8.8.9.8"), Verdict::kAllowed);
  EXPECT_EQ(Check(*rules, "10.0.0.1"), Verdict::kAddressRefused);
}

TEST(AddressGuardTest, OwnServersAreRefusedWhateverTheListsSay) {
  AddressRulesOptions options;
  options.allow = {"127.0.0.0/8"};
  options.own = {{*IpAddress::Parse("127.0.0.1"), 19'092}};
  const auto rules = Rules(options);
  EXPECT_EQ(Check(*rules, "127.0.0.1", 19'092), Verdict::kAddressRefused);
  EXPECT_EQ(Check(*rules, "::ffff:127.0.0.1", 19'092), Verdict::kAddressRefused);
  EXPECT_EQ(Check(*rules, "127.0.0.1", 19'093), Verdict::kAllowed);
}

// SSRF-11
TEST(AddressGuardTest, OwnHostsAreToldByTheNameOfTheUrl) {
  AddressRulesOptions options;
  options.own_hosts = {"API.Example.com.", "hooks.example"};
  const auto rules = Rules(options);
  for (const char* url : {"https://api.example.com/v1/events", "http://API.example.COM:8080/",
                          "https://api.example.com./", "https://hooks.example"}) {
    EXPECT_TRUE(rules->IsOwnHost(ParseHttpUrl(url)->host)) << url;
  }
  for (const char* url : {"https://example.com/", "https://my.api.example.com/",
                          "https://api.example.com.evil.example/"}) {
    EXPECT_FALSE(rules->IsOwnHost(ParseHttpUrl(url)->host)) << url;
  }
  for (const char* bad : {"", "a b", "api.example.com/v1", "api.example.com:8080", "a@b"}) {
    options.own_hosts = {bad};
    EXPECT_THAT(AddressRules::Create(options).status().message(),
                testing::HasSubstr("network.own_hosts"))
        << bad;
  }
}

TEST(AddressGuardTest, AnOwnServerOnEveryAddressIsRefusedOnEachOfThem) {
  for (const char* listen : {"0.0.0.0:18080", "[::]:18080"}) {
    AddressRulesOptions options;
    options.allow = {"0.0.0.0/0", "::/0"};
    options.own = AddressesIn(listen, 0);
    const auto rules = Rules(options);
    for (const char* address : {"127.0.0.1", "127.9.9.9", "0.0.0.0", "::", "::1",
                                "::ffff:127.0.0.1", "::ffff:0.0.0.0", "64:ff9b::7f00:1"}) {
      EXPECT_EQ(Check(*rules, address, 18'080), Verdict::kAddressRefused)
          << listen << " " << address;
    }
    EXPECT_EQ(Check(*rules, "8.8.8.8", 18'080), Verdict::kAllowed);
    EXPECT_EQ(Check(*rules, "127.0.0.1", 18'081), Verdict::kAllowed);
  }
}

TEST(AddressGuardTest, TheUnspecifiedAddressIsTheLoopbackOne) {
  AddressRulesOptions options;
  options.allow = {"0.0.0.0/0", "::/0"};
  options.own = AddressesIn("127.0.0.1:19092,[::1]:19093,192.0.2.1:19094", 0);
  const auto rules = Rules(options);
  EXPECT_EQ(Check(*rules, "0.0.0.0", 19'092), Verdict::kAddressRefused);
  EXPECT_EQ(Check(*rules, "::", 19'093), Verdict::kAddressRefused);
  EXPECT_EQ(Check(*rules, "0.0.0.0", 19'094), Verdict::kAllowed);
  EXPECT_EQ(Check(*rules, "64:ff9b::c000:201", 19'094), Verdict::kAddressRefused);
}

TEST(AddressGuardTest, ReadsTheAddressesOfAListOfHosts) {
  const auto v4 = *IpAddress::Parse("192.0.2.1");
  const auto v6 = *IpAddress::Parse("2001:db8::1");
  using Places = std::vector<std::pair<IpAddress, uint16_t>>;
  EXPECT_EQ(AddressesIn("192.0.2.1:80", 9), (Places{{v4, 80}}));
  EXPECT_EQ(AddressesIn("[2001:db8::1]:80", 9), (Places{{v6, 80}}));
  EXPECT_EQ(AddressesIn("192.0.2.1, [2001:db8::1],2001:db8::1", 9),
            (Places{{v4, 9}, {v6, 9}, {v6, 9}}));
  EXPECT_EQ(AddressesIn("host.example:1,192.0.2.1:2", 9), (Places{{v4, 2}}));
  EXPECT_EQ(AddressesIn("SASL_SSL://192.0.2.1:2,PLAINTEXT://[2001:db8::1]", 9),
            (Places{{v4, 2}, {v6, 9}}));
  for (const char* none : {"", "host", ":80", "192.0.2.1:0", "192.0.2.1:65536", "192.0.2.1:x",
                           "[2001:db8::1", "192.0.2.1:80:80"}) {
    EXPECT_TRUE(AddressesIn(none, 9).empty()) << none;
  }
}

TEST(AddressGuardTest, AnOwnServerIsRefusedOnEveryAddressOfThisMachine) {
  AddressRulesOptions options;
  options.allow = {"0.0.0.0/0", "::/0"};
  options.own = AddressesIn("127.0.0.1:19092", 0);
  const auto rules = Rules(options);
  for (const char* address : {"127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.3", "0.0.0.0"}) {
    EXPECT_EQ(Check(*rules, address, 19'092), Verdict::kAddressRefused) << address;
    EXPECT_EQ(Check(*rules, address, 19'093), Verdict::kAllowed) << address;
  }
  EXPECT_EQ(Check(*rules, "8.8.8.8", 19'092), Verdict::kAllowed);
}

TEST(AddressGuardTest, ReadsNamesInAListOfHosts) {
  using Hosts = std::vector<HostAndPort>;
  EXPECT_EQ(HostsIn("db.example:1, SASL_SSL://kafka,[2001:db8::1]:2", 9),
            (Hosts{{"db.example", 1}, {"kafka", 9}, {"2001:db8::1", 2}}));
  EXPECT_EQ(HostsIn("http://proxy:3128", 80), (Hosts{{"proxy", 3'128}}));
  for (const char* none : {"", "/var/run/postgresql", ":80", "host:x", "host:65536"}) {
    EXPECT_TRUE(HostsIn(none, 9).empty()) << none;
  }
}

TEST(AddressGuardTest, NamesTheEntryThatIsNoNetwork) {
  for (const std::string entry : {"10.0.0.0/33", "10.0.0/8", "host.example", "::/129", "1.2.3.4/",
                                  "1.2.3.4/-1", "1.2.3.4/08x", ""}) {
    AddressRulesOptions options;
    options.deny = {entry};
    EXPECT_THAT(AddressRules::Create(options),
                tests::StatusIs(absl::StatusCode::kInvalidArgument,
                                ::testing::HasSubstr("network.deny: \"" + entry + "\"")));
  }
}

}  // namespace
}  // namespace postrider
