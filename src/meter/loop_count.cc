#include "meter/loop_count.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "meter/flow.h"

namespace kvant {
namespace {

// A loop that the compiler unrolled does up to this many iterations of the source at once.
constexpr int kMaxUnroll = 64;

// Bytes a thread asks for: "LDG.E.128" 16, "LDG.E.U8" 1, without a width 4.
int64_t WidthBytes(const SassInstruction& instruction) {
  constexpr struct {
    const char* modifier;
    int64_t bytes;
  } kWidths[] = {{"U8", 1}, {"S8", 1}, {"U16", 2}, {"S16", 2}, {"64", 8}, {"128", 16}, {"256", 32}};
  for (const auto& width : kWidths) {
    if (instruction.Has(width.modifier)) return width.bytes;
  }
  return 4;
}

// Bulk copies and textures say in registers how much they move.
bool HasHiddenSize(const SassInstruction& instruction, Pipe pipe) {
  return pipe == Pipe::kTexture || (pipe == Pipe::kGlobalLoad && instruction.Base()[0] == 'U');
}

struct RawLoop {
  LoopCount count;
  std::map<int64_t, int64_t> loads;  // width in bytes: how many
  bool has_hidden_loads = false;
};

Status AddInstruction(const SassInstruction& instruction, RawLoop* loop) {
  KVANT_ASSIGN_OR_RETURN(Pipe pipe, PipeOf(instruction.opcode));
  if (NeverRuns(instruction)) pipe = Pipe::kControl;  // it takes an issue slot, as a NOP does
  ++loop->count.instructions[static_cast<size_t>(pipe)];
  if (HasHiddenSize(instruction, pipe)) {
    loop->has_hidden_loads = true;
  } else if (pipe == Pipe::kGlobalLoad) {
    ++loop->loads[WidthBytes(instruction)];
    loop->count.loaded_bytes += WidthBytes(instruction);
  }
  if (IsCall(instruction)) loop->count.calls.push_back(instruction.operands);
  return Status::Ok();
}

Result<std::vector<RawLoop>> ReadLoops(const SassFunction& function) {
  KVANT_ASSIGN_OR_RETURN(const std::vector<BasicBlock> blocks, FindBlocks(function));
  Result<std::vector<Loop>> loops = FindLoops(blocks);
  if (!loops.ok()) {
    return Status(loops.status().code(), "'" + function.name + "': " + loops.status().message());
  }
  std::vector<RawLoop> raw;
  for (const Loop& loop : *loops) {
    if (!loop.is_innermost) continue;
    RawLoop& r = raw.emplace_back();
    r.count.begin_bytes = function.OffsetOf(blocks[static_cast<size_t>(loop.blocks.front())].begin);
    r.count.end_bytes = function.OffsetOf(blocks[static_cast<size_t>(loop.blocks.back())].end);
    for (int b : loop.blocks) {
      const BasicBlock& block = blocks[static_cast<size_t>(b)];
      for (int i = block.begin; i < block.end; ++i) {
        KVANT_RETURN_IF_ERROR(AddInstruction(function.instructions[static_cast<size_t>(i)], &r));
      }
    }
  }
  return raw;
}

// How many iterations of the source one of the loop is; 0: it loads something else. Without the
// bytes of all loads, a sum over some widths is only believed where it is the payload itself:
// metadata of the payload's width would pass for an unrolled loop.
int UnrollOf(const RawLoop& loop, const MeterOptions& declared) {
  const int64_t loaded = loop.count.loaded_bytes;
  const int64_t iteration =
      declared.loaded_bytes > 0 ? declared.loaded_bytes : declared.payload_bytes;
  if (loaded > 0 && loaded % iteration == 0 && loaded / iteration <= kMaxUnroll) {
    return static_cast<int>(loaded / iteration);
  }
  if (declared.loaded_bytes > 0) return 0;
  std::vector<int64_t> sums;  // of each width, the largest first
  for (const auto& [width, count] : loop.loads) sums.push_back(width * count);
  std::sort(sums.begin(), sums.end(), std::greater<>());
  int64_t sum = 0;
  for (int64_t bytes : sums) {
    if ((sum += bytes) == declared.payload_bytes) return 1;
  }
  return 0;
}

std::string Hex(int64_t number) {
  std::string digits;
  for (; number > 0 || digits.empty(); number /= 16) {
    digits.insert(digits.begin(), "0123456789abcdef"[number % 16]);
  }
  return "0x" + digits;
}

std::string LoadsText(const RawLoop& loop) {
  std::string text = "the loop at " + Hex(loop.count.begin_bytes) + " loads";
  if (loop.loads.empty()) text += " nothing";
  for (auto width = loop.loads.rbegin(); width != loop.loads.rend(); ++width) {
    text += (width == loop.loads.rbegin() ? " " : " + ") + std::to_string(width->second) + " x " +
            std::to_string(width->first);
  }
  return text;
}

// Sets payload and unroll where the loop has what was declared; anything loaded is payload where
// nothing was.
Status SetPayload(const SassFunction& function, const MeterOptions& declared, RawLoop* loop) {
  LoopCount& count = loop->count;
  if (declared.payload_bytes == 0) {
    if (loop->has_hidden_loads) {
      return Status::InvalidArgument(
          "'" + function.name + "': the loop at " + Hex(count.begin_bytes) +
          " loads bytes whose number is in registers, so the bytes of an iteration must be given");
    }
    count.payload_bytes = count.loaded_bytes;
    return Status::Ok();
  }
  // What hidden loads move cannot be checked.
  const int unroll = loop->has_hidden_loads ? 1 : UnrollOf(*loop, declared);
  if (unroll == 0) return Status::Ok();
  count.unroll = unroll;
  count.payload_bytes = unroll * declared.payload_bytes;
  count.metadata_bytes = unroll * declared.metadata_bytes;
  return Status::Ok();
}

}  // namespace

Result<std::vector<LoopCount>> CountLoops(const SassFunction& function,
                                          const MeterOptions& declared) {
  KVANT_ASSIGN_OR_RETURN(std::vector<RawLoop> raw, ReadLoops(function));
  std::vector<LoopCount> loops;
  std::string loads;
  for (RawLoop& loop : raw) {
    KVANT_RETURN_IF_ERROR(SetPayload(function, declared, &loop));
    loops.push_back(loop.count);
    loads += (loads.empty() ? "" : "; ") + LoadsText(loop);
  }
  std::stable_sort(loops.begin(), loops.end(), [](const LoopCount& a, const LoopCount& b) {
    return a.payload_bytes > b.payload_bytes;
  });
  if (declared.payload_bytes > 0 && (loops.empty() || loops[0].payload_bytes == 0)) {
    const int64_t bytes =
        declared.loaded_bytes > 0 ? declared.loaded_bytes : declared.payload_bytes;
    return Status::InvalidArgument("'" + function.name + "': no loop loads " +
                                   std::to_string(bytes) + " bytes a thread an iteration" +
                                   (loads.empty() ? ", it has no loop" : "; " + loads));
  }
  return loops;
}

int64_t SpillBytes(const SassFunction& function) {
  int64_t bytes = 0;
  for (const SassInstruction& instruction : function.instructions) {
    const std::string_view base = instruction.Base();
    if (base == "LDL" || base == "STL") bytes += WidthBytes(instruction);
  }
  return bytes;
}

}  // namespace kvant
