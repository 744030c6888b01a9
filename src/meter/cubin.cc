#include "meter/cubin.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

namespace kvant {
namespace {

constexpr size_t kHeaderBytes = 64, kSectionBytes = 64, kSymbolBytes = 24;
constexpr uint16_t kCudaMachine = 190;
constexpr uint32_t kSymbolTable = 2, kNoBits = 8;  // section types

// Records of .nv.info: [form u8][name u8][value or size u16], and of the sized form that many
// bytes.
constexpr uint8_t kSizedForm = 4;
constexpr uint8_t kRegisterCount = 0x2f, kFrameSize = 0x11;

Status Corrupt(const std::string& what) { return Status::Corrupt("cubin: " + what); }

struct Section {
  uint32_t name = 0, type = 0, link = 0;
  std::span<const std::byte> bytes;  // none of a section without bits
  uint64_t size = 0;
};

class Elf {
 public:
  explicit Elf(std::span<const std::byte> bytes) : bytes_(bytes) {}

  Status Read() {
    constexpr char kMagic[] = {0x7f, 'E', 'L', 'F', 2, 1};  // of 64 bits, little endian
    if (bytes_.size() < kHeaderBytes || std::memcmp(bytes_.data(), kMagic, sizeof(kMagic)) != 0 ||
        At<uint16_t>(bytes_, 18) != kCudaMachine) {
      return Corrupt("not an ELF file of CUDA machine code");
    }
    const auto first = At<uint64_t>(bytes_, 40);
    const auto entry_bytes = At<uint16_t>(bytes_, 58), count = At<uint16_t>(bytes_, 60);
    const auto names = At<uint16_t>(bytes_, 62);
    if (entry_bytes != kSectionBytes || !Fits(first, uint64_t{count} * kSectionBytes) ||
        names >= count) {
      return Corrupt("its table of sections lies outside of the file");
    }
    for (uint16_t i = 0; i < count; ++i) {
      const auto header = bytes_.subspan(static_cast<size_t>(first) + i * kSectionBytes);
      Section s{At<uint32_t>(header, 0),
                At<uint32_t>(header, 4),
                At<uint32_t>(header, 40),
                {},
                At<uint64_t>(header, 32)};
      const auto offset = At<uint64_t>(header, 24);
      if (s.type != 0 && s.type != kNoBits) {
        if (!Fits(offset, s.size)) return Corrupt("a section lies outside of the file");
        s.bytes = bytes_.subspan(static_cast<size_t>(offset), static_cast<size_t>(s.size));
      }
      sections_.push_back(s);
    }
    names_ = sections_[names].bytes;
    return Status::Ok();
  }

  const std::vector<Section>& sections() const { return sections_; }
  std::string_view NameOf(const Section& section) const { return TextAt(names_, section.name); }

  // Of the symbol table; empty for numbers outside of it.
  std::string_view SymbolName(uint64_t number) const {
    for (const Section& table : sections_) {
      if (table.type != kSymbolTable || table.link >= sections_.size()) continue;
      if (number >= table.bytes.size() / kSymbolBytes) return {};
      return TextAt(sections_[table.link].bytes,
                    At<uint32_t>(table.bytes, static_cast<size_t>(number) * kSymbolBytes));
    }
    return {};
  }

  // REQUIRES: offset + sizeof(T) <= bytes.size().
  template <typename T>
  static T At(std::span<const std::byte> bytes, size_t offset) {
    T number;
    std::memcpy(&number, bytes.data() + offset, sizeof(T));
    return number;
  }

 private:
  bool Fits(uint64_t offset, uint64_t size) const {
    return offset <= bytes_.size() && size <= bytes_.size() - offset;
  }
  static std::string_view TextAt(std::span<const std::byte> table, size_t offset) {
    if (offset >= table.size()) return {};
    const char* const text = reinterpret_cast<const char*>(table.data()) + offset;
    return {text, strnlen(text, table.size() - offset)};
  }

  std::span<const std::byte> bytes_, names_;
  std::vector<Section> sections_;
};

Status ReadInfo(const Elf& elf, std::span<const std::byte> info,
                std::map<std::string, KernelResources>* kernels) {
  for (size_t at = 0; at < info.size();) {
    if (info.size() - at < 4) return Corrupt("a record of .nv.info is cut off");
    const auto form = Elf::At<uint8_t>(info, at), name = Elf::At<uint8_t>(info, at + 1);
    const auto size = Elf::At<uint16_t>(info, at + 2);
    at += 4;
    if (form != kSizedForm) continue;
    if (info.size() - at < size) return Corrupt("a record of .nv.info is cut off");
    if ((name == kRegisterCount || name == kFrameSize) && size == 8) {
      const auto number = Elf::At<uint32_t>(info, at);
      const std::string_view symbol = elf.SymbolName(number);
      const auto value = Elf::At<uint32_t>(info, at + 4);
      if (symbol.empty()) return Corrupt("a record of .nv.info names no symbol");
      KernelResources& kernel = (*kernels)[std::string(symbol)];
      kernel.symbol = static_cast<int>(number);
      name == kRegisterCount ? kernel.registers = static_cast<int>(value)
                             : kernel.stack_bytes = value;
    }
    at += size;
  }
  return Status::Ok();
}

}  // namespace

Result<std::map<std::string, KernelResources>> ReadCubin(std::span<const std::byte> bytes) {
  constexpr std::string_view kShared = ".nv.shared.";
  Elf elf(bytes);
  KVANT_RETURN_IF_ERROR(elf.Read());
  std::map<std::string, KernelResources> kernels;
  for (const Section& section : elf.sections()) {
    if (elf.NameOf(section) == ".nv.info") {
      KVANT_RETURN_IF_ERROR(ReadInfo(elf, section.bytes, &kernels));
    }
  }
  for (const Section& section : elf.sections()) {
    const std::string_view name = elf.NameOf(section);
    if (!name.starts_with(kShared)) continue;
    const auto kernel = kernels.find(std::string(name.substr(kShared.size())));
    if (kernel != kernels.end()) kernel->second.shared_bytes = static_cast<int64_t>(section.size);
  }
  return kernels;
}

}  // namespace kvant
