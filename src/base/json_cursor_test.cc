#include "base/json_cursor.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvant {
namespace {

TEST(JsonCursor, SkipsValuesOfEveryKindWhole) {
  for (const char* value :
       {"0", "-1.5e3", "true", "null", "\"\"", "\"a\\\"]}\\\\\"", "[]", "{}",
        "[1,[2,{\"a\":[]}],3]", "{\"a\":{\"b\":\"}\"},\"c\":1}", " [ 1 , \"[\" ] "}) {
    const std::string text = "[" + std::string(value) + ",7]";
    JsonCursor json(text, "test");
    int seven = 0;
    ASSERT_TRUE(json.Expect('[').ok());
    ASSERT_TRUE(json.SkipValue().ok()) << value;
    ASSERT_TRUE(json.Expect(',').ok()) << value;
    ASSERT_TRUE(json.Number(&seven).ok() && json.Expect(']').ok() && json.ExpectEnd().ok());
    EXPECT_EQ(seven, 7);
  }
}

TEST(JsonCursor, AValueThatDoesNotEndIsRefused) {
  for (const char* text : {"", " ", "[", "{\"a\":[}", "\"a", "\"a\\", "[\"]", ",", "]"}) {
    JsonCursor json(text, "test");
    EXPECT_EQ(json.SkipValue().code(), StatusCode::kCorrupt) << text;
  }
}

TEST(JsonCursor, VisitsMembersAndElements) {
  JsonCursor json("{\"a\":[1,2],\"b\":{},\"c\":[]}", "test");
  std::vector<int> numbers;
  std::string names;
  ASSERT_TRUE(json.ForEachMember([&](std::string_view name) {
                    names += name;
                    if (name == "b")
                      return json.ForEachMember([&](auto) { return json.SkipValue(); });
                    return json.ForEachElement(
                        [&] { return json.Number(&numbers.emplace_back()); });
                  })
                  .ok());
  EXPECT_TRUE(json.ExpectEnd().ok());
  EXPECT_EQ(names, "abc");
  EXPECT_EQ(numbers, (std::vector<int>{1, 2}));
}

TEST(JsonCursor, ErrorsNameSubjectAndByte) {
  JsonCursor json("[1 \"a\"]", "settings");
  const Status status = json.ForEachElement([&] { return json.SkipValue(); });
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_TRUE(status.message().starts_with("settings: ")) << status.message();
  EXPECT_TRUE(JsonCursor("[1 2]", "s").Expect('{').message().ends_with("at byte 0"));
}

}  // namespace
}  // namespace kvant
