#include "worker_daemon/transport/all_reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker_daemon/transport/worlds.h"

namespace stagewright::testing {
namespace {

using ::testing::HasSubstr;

constexpr Tag kTag{3, Traffic::kReduction, 0};

// Runs `body` for every device of the list, each on its own thread, and returns the statuses.
std::vector<absl::Status> OnEach(const std::vector<int>& devices,
                                 const std::function<absl::Status(int)>& body) {
  std::vector<absl::Status> results(devices.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < devices.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = body(devices[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

// Reduces `terms` (one vector for each place of `devices`) in place.
template <typename T>
void Reduce(World& world, const std::vector<int>& devices, Element element, uint32_t sequence,
            std::vector<std::vector<T>>& terms) {
  const std::vector<absl::Status> results = OnEach(devices, [&](int device) {
    const size_t place =
        static_cast<size_t>(std::find(devices.begin(), devices.end(), device) - devices.begin());
    return AllReduceSum(*world[device], devices, {3, Traffic::kReduction, sequence},
                        terms[place].data(), terms[place].size(), element, Soon());
  });
  for (const absl::Status& result : results) ASSERT_EQ(result, absl::OkStatus());
}

using AllReduceTest = ImplementationTest;

TEST_P(AllReduceTest, SumsForAnyNumberOfDevicesAndElements) {
  World world = ConnectedWorld(GetParam(), 5);
  std::mt19937 random(11);
  uint32_t sequence = 0;
  for (int size = 1; size <= 5; ++size) {
    std::vector<int> devices = {0, 1, 2, 3, 4};
    std::shuffle(devices.begin(), devices.end(), random);
    devices.resize(size);
    ASSERT_EQ(OpenCollectives(world, {devices}), absl::OkStatus());
    for (const size_t count : {0u, 1u, 2u, 3u, 4u, 5u, 7u, 1000u, 600001u}) {
      // Integers: any order of addition gives the same sum.
      std::vector<std::vector<float>> terms(size, std::vector<float>(count));
      std::vector<float> sum(count);
      for (std::vector<float>& term : terms) {
        for (size_t i = 0; i < count; ++i) {
          term[i] = static_cast<float>(static_cast<int>(random() % 2001) - 1000);
          sum[i] += term[i];
        }
      }
      Reduce(world, devices, Element::kFloat32, sequence++, terms);
      for (const std::vector<float>& term : terms) {
        ASSERT_EQ(term, sum) << size << " devices, " << count << " elements";
      }
    }
  }
}

// A reduce-scatter gives each device its chunk of the sum, and an all-gather gives all what each
// has.
TEST_P(AllReduceTest, HalvesMakeAWhole) {
  World world = ConnectedWorld(GetParam(), 5);
  std::mt19937 random(12);
  uint32_t sequence = 0;
  for (int size = 1; size <= 5; ++size) {
    std::vector<int> devices = {0, 1, 2, 3, 4};
    std::shuffle(devices.begin(), devices.end(), random);
    devices.resize(size);
    ASSERT_EQ(OpenCollectives(world, {devices}), absl::OkStatus());
    for (const size_t chunk : {0u, 1u, 3u, 1000u, 200001u}) {
      const size_t count = chunk * size;
      std::vector<std::vector<float>> terms(size, std::vector<float>(count));
      std::vector<float> sum(count);
      for (std::vector<float>& term : terms) {
        for (size_t i = 0; i < count; ++i) {
          term[i] = static_cast<float>(static_cast<int>(random() % 2001) - 1000);
          sum[i] += term[i];
        }
      }
      const auto run = [&](auto function) {
        const std::vector<absl::Status> results = OnEach(devices, [&](int device) {
          const auto place = std::find(devices.begin(), devices.end(), device) - devices.begin();
          return function(*world[device], devices, Tag{3, Traffic::kReduction, sequence},
                          terms[place].data(), count, Element::kFloat32, Soon());
        });
        for (const absl::Status& result : results) ASSERT_EQ(result, absl::OkStatus());
        ++sequence;
      };
      run(ReduceScatterSum);
      for (int place = 0; place < size; ++place) {
        for (size_t i = 0; i < count; ++i) {
          float& term = terms[place][i];
          if (i / chunk != static_cast<size_t>(place)) {
            term = -1;  // Undefined.
            continue;
          }
          ASSERT_EQ(term, sum[i]) << size << " devices, place " << place << ", element " << i;
        }
      }
      run(AllGather);
      for (const std::vector<float>& term : terms)
        ASSERT_EQ(term, sum) << size << " devices, chunks of " << chunk;
    }
  }
}

TEST_P(AllReduceTest, IsTheSameToTheBitEverywhereAndEveryTime) {
  constexpr size_t kCount = 100003;
  const std::vector<int> devices = {0, 1, 2};
  World world = ConnectedWorld(GetParam(), 3);
  ASSERT_EQ(OpenCollectives(world, {devices}), absl::OkStatus());
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> magnitude(-30, 30);
  std::vector<std::vector<double>> terms(3, std::vector<double>(kCount));
  std::vector<double> sum(kCount);
  std::vector<double> size(kCount);
  for (std::vector<double>& term : terms) {
    for (size_t i = 0; i < kCount; ++i) {
      term[i] = std::exp(magnitude(random)) * (random() % 2 == 0 ? 1 : -1);
      sum[i] += term[i];
      size[i] += std::abs(term[i]);
    }
  }
  std::vector<std::vector<double>> first = terms;
  Reduce(world, devices, Element::kFloat64, 0, first);
  EXPECT_EQ(first[0], first[1]);
  EXPECT_EQ(first[0], first[2]);
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_NEAR(first[0][i], sum[i], 4 * std::numeric_limits<double>::epsilon() * size[i]);
  }
  Reduce(world, devices, Element::kFloat64, 1, terms);
  EXPECT_EQ(first[0], terms[0]);
}

TEST_P(AllReduceTest, ManyAtTheSameTime) {
  const std::vector<int> devices = {0, 1, 2};
  World world = ConnectedWorld(GetParam(), 3);
  ASSERT_EQ(OpenCollectives(world, {devices}), absl::OkStatus());
  std::vector<std::thread> threads;
  for (uint32_t sequence = 0; sequence < 4; ++sequence) {
    threads.emplace_back([&, sequence] {
      for (int round = 0; round < 10; ++round) {
        const float one = static_cast<float>(sequence + 1);
        std::vector<std::vector<float>> terms(3, std::vector<float>(5000 * sequence + 1, one));
        Reduce(world, devices, Element::kFloat32, sequence, terms);
        for (const std::vector<float>& term : terms) {
          EXPECT_EQ(std::count(term.begin(), term.end(), 3 * one),
                    static_cast<ptrdiff_t>(term.size()));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(AllReduceTest, ADeadDeviceFailsTheOthers) {
  World world = ConnectedWorld(GetParam(), 3);
  const std::vector<int> devices = {0, 1, 2};
  ASSERT_EQ(OpenCollectives(world, {devices}), absl::OkStatus());
  const absl::Time start = absl::Now();
  const std::vector<absl::Status> results = OnEach(devices, [&](int device) -> absl::Status {
    if (device == 2) {
      absl::SleepFor(absl::Milliseconds(50));
      world[2].reset();
      return absl::OkStatus();
    }
    std::vector<float> data(3000000, 1);
    return AllReduceSum(*world[device], devices, kTag, data.data(), data.size(), Element::kFloat32,
                        Soon());
  });
  EXPECT_EQ(results[0].code(), absl::StatusCode::kUnavailable) << results[0];
  EXPECT_EQ(results[1].code(), absl::StatusCode::kUnavailable) << results[1];
  EXPECT_LT(absl::Now() - start, absl::Seconds(8));
}

TEST_P(AllReduceTest, ADeadlineEndsIt) {
  World world = ConnectedWorld(GetParam(), 2);
  ASSERT_EQ(OpenCollectives(world, {{0, 1}}), absl::OkStatus());
  std::vector<float> data(1000);
  const absl::Time start = absl::Now();
  const absl::Status status = AllReduceSum(*world[0], {0, 1}, kTag, data.data(), data.size(),
                                           Element::kFloat32, start + absl::Milliseconds(200));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
}

INSTANTIATE_TEST_SUITE_P(All, AllReduceTest, ::testing::ValuesIn(AllImplementations()),
                         [](const auto& test) { return test.param.name; });

// What does not depend on the transport, on the first there is.
class AllReduceElementsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!transport_.absent.empty()) GTEST_SKIP() << transport_.absent;
  }
  const Implementation transport_ = AllImplementations()[0];
};

TEST_F(AllReduceElementsTest, RefusesListsThatAreNoRing) {
  World world = ConnectedWorld(transport_, 3);
  float value = 1;
  absl::Status status = AllReduceSum(*world[0], {1, 2}, kTag, &value, 1, Element::kFloat32, Soon());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("device 0"));
  status = AllReduceSum(*world[0], {0, 1, 1}, kTag, &value, 1, Element::kFloat32, Soon());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

// The nearest bfloat16, found by trying its neighbours rather than by rounding bits.
uint16_t NearestBFloat16(float value) {
  const uint16_t low = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  const auto distance = [&](uint16_t bits) {
    return std::abs(static_cast<double>(value) -
                    static_cast<double>(std::bit_cast<float>(uint32_t{bits} << 16)));
  };
  const uint16_t high = static_cast<uint16_t>(low + 1);
  if (distance(low) != distance(high)) return distance(low) < distance(high) ? low : high;
  return low % 2 == 0 ? low : high;
}

TEST_F(AllReduceElementsTest, SixteenBitsRoundToNearest) {
  World world = ConnectedWorld(transport_, 2);
  ASSERT_EQ(OpenCollectives(world, {{0, 1}}), absl::OkStatus());
  constexpr size_t kCount = 20000;
  std::mt19937 random(3);
  std::vector<std::vector<uint16_t>> bfloats(2, std::vector<uint16_t>(kCount));
  std::vector<std::vector<_Float16>> halves(2, std::vector<_Float16>(kCount));
  std::vector<uint16_t> bfloat_sum(kCount);
  std::vector<_Float16> half_sum(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    float sum = 0;
    for (std::vector<uint16_t>& term : bfloats) {
      // Finite, and of magnitudes near enough for the sum to need rounding.
      term[i] = static_cast<uint16_t>(0x3f00 + random() % 0x400 + (random() % 2) * 0x8000);
      sum += std::bit_cast<float>(uint32_t{term[i]} << 16);
    }
    bfloat_sum[i] = NearestBFloat16(sum);
    for (std::vector<_Float16>& term : halves) {
      term[i] = static_cast<_Float16>(static_cast<float>(random() % 4096) / 64);
    }
    half_sum[i] =
        static_cast<_Float16>(static_cast<float>(halves[0][i]) + static_cast<float>(halves[1][i]));
  }
  Reduce(world, {0, 1}, Element::kBFloat16, 0, bfloats);
  EXPECT_EQ(bfloats[0], bfloat_sum);
  EXPECT_EQ(bfloats[1], bfloat_sum);
  Reduce(world, {0, 1}, Element::kFloat16, 1, halves);
  EXPECT_TRUE(halves[0] == half_sum);
  EXPECT_TRUE(halves[1] == half_sum);
}

TEST_F(AllReduceElementsTest, NotANumberStaysSo) {
  World world = ConnectedWorld(transport_, 2);
  ASSERT_EQ(OpenCollectives(world, {{0, 1}}), absl::OkStatus());
  // All mantissa bits set: rounding would carry into the sign.
  std::vector<std::vector<uint16_t>> terms = {{0x7fff, 0x7f80}, {0x3f80, 0xff80}};
  Reduce(world, {0, 1}, Element::kBFloat16, 0, terms);
  for (const uint16_t bits : terms[0]) {
    EXPECT_TRUE(std::isnan(std::bit_cast<float>(uint32_t{bits} << 16))) << std::hex << bits;
  }
}

}  // namespace
}  // namespace stagewright::testing
