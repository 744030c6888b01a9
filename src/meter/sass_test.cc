#include "meter/sass.h"

#include <gtest/gtest.h>

#include "meter/sass_for_test.h"

namespace kvant {
namespace {

TEST(ParseSass, ReadsWhatTheMeterNeedsAndPassesOverTheRest) {
  const SassListing listing = *ParseSass(
      ListingJson(FunctionJson("kernel", 0, {"@!P0 LDG.E.128.CONSTANT R4,[R2.64]", "EXIT"}) + "," +
                  FunctionJson("$__internal_0_$helper", 0x80, {"RET.REL.NODEC R4,kernel"})));
  EXPECT_EQ(listing.target, 89);
  ASSERT_EQ(listing.functions.size(), 2u);
  const SassFunction& kernel = listing.functions[0];
  EXPECT_EQ(kernel.name, "kernel");
  EXPECT_FALSE(kernel.is_helper());
  ASSERT_EQ(kernel.instructions.size(), 2u);
  const SassInstruction& load = kernel.instructions[0];
  EXPECT_EQ(load.predicate, "@!P0");
  EXPECT_EQ(load.Base(), "LDG");
  EXPECT_TRUE(load.Has("128") && load.Has("CONSTANT"));
  EXPECT_FALSE(load.Has("12") || load.Has("LDG") || load.Has(""));
  EXPECT_EQ(load.operands, "R4,[R2.64]");
  EXPECT_EQ(kernel.instructions[1].Base(), "EXIT");
  EXPECT_TRUE(listing.functions[1].is_helper());
  EXPECT_EQ(listing.functions[1].OffsetOf(1), 0x90);
}

TEST(ParseSass, EveryPrefixIsRefusedAndNamesItsByte) {
  const std::string whole = ListingJson(FunctionJson("kernel", 0, {"EXIT"}));
  ASSERT_TRUE(ParseSass(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    const Status status = ParseSass(whole.substr(0, size)).status();
    ASSERT_EQ(status.code(), StatusCode::kCorrupt) << size;
    EXPECT_NE(status.message().find("at byte"), std::string::npos) << status.message();
  }
  EXPECT_FALSE(ParseSass(whole + "]").ok());
}

TEST(ParseSass, WhatIsMissingIsNamed) {
  const auto refused = [](const std::string& json, const char* word) {
    const Status status = ParseSass(json).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << json;
    EXPECT_NE(status.message().find(word), std::string::npos) << status.message();
  };
  refused("[{},[]]", "no SM version");
  refused("[{\"SM\":{\"version\":{\"major\":-8,\"minor\":0}}},[]]", "no SM version");
  refused("[{\"SM\":{\"version\":{\"major\":8,\"minor\":\"0\"}}},[]]", "number");
  refused(ListingJson("{\"start\":0,\"sass-instructions\":[]}"), "without a name");
  refused(ListingJson("{\"function-name\":\"f\",\"start\":0}"), "no instructions of 'f'");
  refused(ListingJson("{\"function-name\":\"f\",\"sass-instructions\":[{\"operands\":\"R1\"}]}"),
          "without an opcode");
  refused(ListingJson("{\"function-name\":\"f\",\"start\":-16,\"sass-instructions\":[]}"),
          "negative start");
}

}  // namespace
}  // namespace kvant
