// The grammar of policy specs, and how they are printed.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>

#include "policy/policies.h"

namespace kvant {
namespace {

constexpr int kPolicyWidths[] = {2, 3, 4, 8, 16};
constexpr std::string_view kEverything = "all";
constexpr std::string_view kPossible =
    "full[:WIDTH,...], streaming[:FIRST,RECENT], h2o[:HEAVY,RECENT[,mean]], snapkv[:KEEP[,POOL]], "
    "keydiff[:KEEP], lagkv[:KEEP[,LAG]], diffkv[:PRUNE,LOW[,WIDTH,WIDTH]], "
    "mikv[:RATIO,WIDTH,WIDTH], qaq:ERROR[,WIDTH,...], variance[:WIDTH,...]";

using PolicyResult = Result<std::unique_ptr<Policy>>;

Status Bad(std::string_view spec, const std::string& what) {
  return Status::InvalidArgument("policy '" + std::string(spec) + "': " + what);
}

template <typename T>
std::optional<T> NumberOf(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// The arguments of one spec, taken one by one; those that are left out have defaults.
class Arguments {
 public:
  Arguments(std::string_view spec, std::vector<std::string_view> texts)
      : spec_(spec), texts_(std::move(texts)) {}

  bool empty() const { return at_ == texts_.size(); }
  std::string_view Next() { return empty() ? std::string_view() : texts_[at_++]; }

  Status Take(std::string_view what, double least, double* number) {
    if (empty()) return Status::Ok();
    const std::string_view text = Next();
    const std::optional<double> parsed = NumberOf<double>(text);
    if (!parsed || !std::isfinite(*parsed) || *parsed < least) {
      return Refuse(what, text, "is not a number of at least " + NumberText(least));
    }
    *number = *parsed;
    return Status::Ok();
  }
  Status Take(std::string_view what, int64_t least, int64_t* tokens) {
    if (empty()) return Status::Ok();
    const std::string_view text = Next();
    const std::optional<int64_t> parsed = NumberOf<int64_t>(text);
    if (!parsed || *parsed < least || *parsed > (int64_t{1} << 31)) {
      return Refuse(what, text, "is not a whole number of at least " + std::to_string(least));
    }
    *tokens = *parsed;
    return Status::Ok();
  }
  Status Take(std::string_view what, Amount* amount) {
    if (empty()) return Status::Ok();
    const std::string_view text = texts_[at_];
    if (text == kEverything) {
      *amount = kAllTokens;
      ++at_;
      return Status::Ok();
    }
    KVANT_RETURN_IF_ERROR(Take(what, 0.0, &amount->value));
    if (amount->value < 1 ||
        (amount->value == std::floor(amount->value) && amount->value <= 0x1p31)) {
      return Status::Ok();
    }
    return Refuse(what, text, "is neither a share below 1 nor a number of tokens");
  }
  Status TakeWidth(int* width) {
    if (empty()) return Status::Ok();
    const std::string_view text = Next();
    const std::optional<int> parsed = NumberOf<int>(text);
    if (!parsed || std::find(std::begin(kPolicyWidths), std::end(kPolicyWidths), *parsed) ==
                       std::end(kPolicyWidths)) {
      return Refuse("width", text, "is not 2, 3, 4, 8 or 16");
    }
    *width = *parsed;
    return Status::Ok();
  }
  // All that are left, ascending.
  Status TakeWidths(std::vector<int>* widths) {
    if (empty()) return Status::Ok();
    widths->clear();
    while (!empty()) {
      int width = 0;
      KVANT_RETURN_IF_ERROR(TakeWidth(&width));
      if (!widths->empty() && width <= widths->back()) return Bad(spec_, "widths do not ascend");
      widths->push_back(width);
    }
    return Status::Ok();
  }

  Status Finish() const {
    if (empty()) return Status::Ok();
    return Bad(spec_, "'" + std::string(texts_[at_]) + "' is one argument too many");
  }
  Status Refuse(std::string_view what, std::string_view text, const std::string& why) const {
    return Bad(spec_, std::string(what) + " '" + std::string(text) + "' " + why);
  }
  std::string_view spec() const { return spec_; }

 private:
  std::string_view spec_;
  std::vector<std::string_view> texts_;
  size_t at_ = 0;
};

PolicyResult ParseFull(Arguments& a) {
  std::vector<int> widths;
  KVANT_RETURN_IF_ERROR(a.TakeWidths(&widths));
  return MakeFull(std::move(widths));
}

PolicyResult ParseStreaming(Arguments& a) {
  int64_t first = 4, recent = 512;
  KVANT_RETURN_IF_ERROR(a.Take("FIRST", 0, &first));
  KVANT_RETURN_IF_ERROR(a.Take("RECENT", 1, &recent));
  return MakeStreaming(first, recent);
}

PolicyResult ParseH2o(Arguments& a) {
  Amount heavy{0.1}, recent{0.1};
  KVANT_RETURN_IF_ERROR(a.Take("HEAVY", &heavy));
  KVANT_RETURN_IF_ERROR(a.Take("RECENT", &recent));
  const bool mean = !a.empty();
  if (const std::string_view text = a.Next(); mean && text != "mean") {
    return a.Refuse("normaliser", text, "is not mean");
  }
  return MakeH2o(heavy, recent, mean);
}

PolicyResult ParseSnapKv(Arguments& a) {
  Amount keep = kAllTokens;
  int64_t pool = 5;
  KVANT_RETURN_IF_ERROR(a.Take("KEEP", &keep));
  KVANT_RETURN_IF_ERROR(a.Take("POOL", 1, &pool));
  if (pool % 2 == 0 || pool > 255) return Bad(a.spec(), "POOL is not odd and at most 255");
  return MakeSnapKv(keep, static_cast<int>(pool));
}

PolicyResult ParseKeyDiff(Arguments& a) {
  Amount keep = kAllTokens;
  KVANT_RETURN_IF_ERROR(a.Take("KEEP", &keep));
  return MakeKeyDiff(keep);
}

PolicyResult ParseLagKv(Arguments& a) {
  Amount keep = kAllTokens;
  int64_t lag = 128;
  KVANT_RETURN_IF_ERROR(a.Take("KEEP", &keep));
  KVANT_RETURN_IF_ERROR(a.Take("LAG", 1, &lag));
  if (lag > (1 << 20)) return Bad(a.spec(), "LAG is above 1048576");
  return MakeLagKv(keep, static_cast<int>(lag));
}

// A wider and a narrower width.
Status TakeTwoWidths(Arguments& a, int* high, int* low) {
  KVANT_RETURN_IF_ERROR(a.TakeWidth(high));
  KVANT_RETURN_IF_ERROR(a.TakeWidth(low));
  if (*low < *high) return Status::Ok();
  return Bad(a.spec(), "the second width is not below the first");
}

PolicyResult ParseDiffKv(Arguments& a) {
  double prune = 0.02, low = 1;
  int high_width = 8, low_width = 4;
  KVANT_RETURN_IF_ERROR(a.Take("PRUNE", 0.0, &prune));
  KVANT_RETURN_IF_ERROR(a.Take("LOW", prune, &low));
  KVANT_RETURN_IF_ERROR(TakeTwoWidths(a, &high_width, &low_width));
  if (low < prune) return Bad(a.spec(), "PRUNE is above LOW");
  return MakeDiffKv(prune, low, high_width, low_width);
}

PolicyResult ParseMiKv(Arguments& a) {
  Amount high{0.2};
  int high_width = 8, low_width = 2;
  KVANT_RETURN_IF_ERROR(a.Take("RATIO", &high));
  KVANT_RETURN_IF_ERROR(TakeTwoWidths(a, &high_width, &low_width));
  return MakeMiKv(high, high_width, low_width);
}

PolicyResult ParseQaq(Arguments& a) {
  double error = 0;
  std::vector<int> widths = {2, 4, 8};
  KVANT_RETURN_IF_ERROR(a.Take("ERROR", 0.0, &error));
  if (error == 0) return Bad(a.spec(), "ERROR is not given, or 0");
  KVANT_RETURN_IF_ERROR(a.TakeWidths(&widths));
  return MakeQaq(error, std::move(widths));
}

PolicyResult ParseVariance(Arguments& a) {
  std::vector<int> widths = {2, 4, 8};
  KVANT_RETURN_IF_ERROR(a.TakeWidths(&widths));
  return MakeLogitVariance(std::move(widths));
}

constexpr struct {
  std::string_view name;
  PolicyResult (*parse)(Arguments&);
} kParsers[] = {{"full", ParseFull},        {"streaming", ParseStreaming}, {"h2o", ParseH2o},
                {"snapkv", ParseSnapKv},    {"keydiff", ParseKeyDiff},     {"lagkv", ParseLagKv},
                {"diffkv", ParseDiffKv},    {"mikv", ParseMiKv},           {"qaq", ParseQaq},
                {"variance", ParseVariance}};

std::vector<std::string_view> SplitArguments(std::string_view spec, size_t colon) {
  std::vector<std::string_view> texts;
  while (colon != std::string_view::npos) {
    const size_t next = spec.find(',', colon + 1);
    texts.push_back(spec.substr(colon + 1, next == spec.npos ? next : next - colon - 1));
    colon = next;
  }
  return texts;
}

}  // namespace

std::string SpecText(std::string_view name, std::initializer_list<std::string> arguments) {
  std::string text(name);
  for (const std::string& argument : arguments) {
    text += (text.size() == name.size() ? ':' : ',') + argument;
  }
  return text;
}

std::string AmountText(const Amount& amount) {
  return amount.value == kAllTokens.value ? std::string(kEverything) : NumberText(amount.value);
}

std::string WidthsText(std::span<const int> widths) {
  std::string text;
  for (const int w : widths) text += (text.empty() ? "" : ",") + std::to_string(w);
  return text;
}

PolicyResult ParsePolicy(std::string_view spec) {
  const size_t colon = spec.find(':');
  const std::string_view name = spec.substr(0, colon);
  if (name == "duo") {
    return Bad(spec,
               "it is a choice of full or streaming for each head: read a file of head "
               "classes");
  }
  for (const auto& each : kParsers) {
    if (each.name != name) continue;
    Arguments arguments(spec, SplitArguments(spec, colon));
    PolicyResult policy = each.parse(arguments);
    if (policy.ok()) KVANT_RETURN_IF_ERROR(arguments.Finish());
    return policy;
  }
  return Bad(spec, "unknown; possible: " + std::string(kPossible));
}

}  // namespace kvant
