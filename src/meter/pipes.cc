// Which pipe executes an opcode: the names of "Instruction Set Reference" in NVIDIA's CUDA Binary
// Utilities, for compute capabilities 7.5 to 10.x. NVIDIA publishes what an instruction does and
// how many results of its kind a multiprocessor gives a clock (CUDA C++ Programming Guide,
// "Throughput of Native Arithmetic Instructions"), not its pipe; rows marked (*) follow from those
// rates or are the usual reading of profilers, and were not verified.
#include <string>

#include "kvant/meter.h"

namespace kvant {
namespace {

struct Row {
  Pipe pipe;
  const char* name;
  std::string_view opcodes;  // base names between blanks
};

constexpr Row kRows[] = {
    // I2FP and F2FP convert at the ALU's rate where I2F and F2F take the XU (*). HMNMX2 (*).
    {Pipe::kAlu, "alu",
     " BMSK CS2R F2FP FCHK FMNMX FMNMX3 FSEL FSET FSETP HMNMX2 I2FP I2I I2IP IABS IADD IADD3 "
     "IADD32I "
     "ICMP IMNMX ISCADD ISETP LEA LOP LOP3 LOP32I MOV MOV32I P2R PLOP3 PRMT PSETP R2P SEL SGXT SHF "
     "SHL SHR VABSDIFF VABSDIFF4 VADD VHMNMX VIADD VIADDMNMX VIMNMX VIMNMX3 "},
    // Integer products run on a part of the FMA pipe (*).
    {Pipe::kFma, "fma",
     " FADD FADD2 FADD32I FFMA FFMA2 FFMA32I FMUL FMUL2 FMUL32I IDP IDP4A IMAD IMUL IMUL32I "
     "FSWZADD "},
    // HFMA2.MMA is one of these, and no matrix product.
    {Pipe::kHalf2, "half2", " HADD2 HADD2_32I HFMA2 HFMA2_32I HMUL2 HMUL2_32I HSET2 HSETP2 "},
    {Pipe::kXu, "xu", " BREV F2F F2I FLO FRND I2F MUFU POPC "},
    {Pipe::kFp64, "fp64", " DADD DFMA DMUL DSETP DMNMX "},
    {Pipe::kUniform, "uniform",
     " CREDUX LDCU R2UR S2UR UBMSK UBREV UCLEA UCREDUX UF2F UF2FP UF2I UF2IP UFADD UFFMA UFLO "
     "UFMNMX "
     "UFMUL UFRND UFSEL UFSET UFSETP UGETNEXTWORKID UI2F UI2FP UI2I UI2IP UIABS UIADD3 UIMAD "
     "UIMNMX "
     "UISETP ULDC ULEA ULEPC ULOP ULOP3 ULOP32I UMOV UP2UR UPLOP3 UPOPC UPRMT UPSETP UR2UP UREDGR "
     "USEL "
     "USGXT USHF USHL USHR UVIADD UVIMNMX UVIRTCOUNT VOTEU "},
    {Pipe::kTensor, "tensor",
     " BGMMA BMMA DMMA HGMMA HMMA IGMMA IMMA OMMA QGMMA QMMA UTCBAR UTCCP UTCHMMA UTCIMMA "
     "UTCMXQMMA "
     "UTCOMMA UTCQMMA UTCSHIFT "},
    {Pipe::kGlobalLoad, "global load", " LD LDG LDGSTS UBLKCP UBLKPF UTMALDG UTMAPF "},
    {Pipe::kGlobalStore, "global store",
     " ATOM ATOMG RED REDG REDAS ST STG UBLKRED UTMAREDG UTMASTG "},
    {Pipe::kSharedMemory, "shared memory",
     " ATOMS LDS LDSM LDT LDTM LDSMT STAS STS STSM STT STTM UMEMSETS "},
    {Pipe::kLocalMemory, "local memory", " LDL STL "},
    {Pipe::kConstant, "constant", " LDC "},
    {Pipe::kShuffle, "shuffle", " SHFL "},
    {Pipe::kTexture, "texture",
     " SUATOM SULD SUQUERY SURED SUST TEX TLD TLD4 TMML TXD TXQ FOOTPRINT "},
    {Pipe::kControl, "control",
     " ACQBLK ACQBULK ACQSHMINIT ARRIVES AL2P B2R BAR BMOV BPT BRA BREAK BRX BRXU BSSY BSYNC CALL "
     "CCTL CCTLL CCTLT CGAERRBAR DEPBAR ELECT ENDCOLLECTIVE ERRBAR EXIT FENCE GETLMEMBASE JMP JMX "
     "JMXU KILL LDGDEPBAR LDTRAM LEPC MATCH MEMBAR MOVM NANOSLEEP NOP PMTRIG PREEXIT QSPC R2B "
     "REDUX RET RPCMOV RTT S2R SETCTAID SETLMEMBASE SYNCS UCGABAR_ARV UCGABAR_GET UCGABAR_SET "
     "UCGABAR_WAIT USETMAXREG USETSHMSZ UTCATOMSWS UTMACCTL UTMACMDFLUSH VOTE WARPGROUP "
     "WARPGROUPSET WARPSYNC YIELD "},
};
static_assert(std::size(kRows) == kPipeCount);

constexpr bool RowsAreInOrder() {
  for (int i = 0; i < kPipeCount; ++i) {
    if (kRows[i].pipe != static_cast<Pipe>(i)) return false;
  }
  return true;
}
static_assert(RowsAreInOrder());

}  // namespace

std::string_view PipeName(Pipe pipe) { return kRows[static_cast<size_t>(pipe)].name; }

Result<Pipe> PipeOf(std::string_view opcode) {
  const std::string word = " " + std::string(opcode.substr(0, opcode.find('.'))) + " ";
  for (const Row& row : kRows) {
    if (row.opcodes.find(word) != std::string_view::npos) return row.pipe;
  }
  return Status::Unsupported("opcode '" + std::string(opcode) +
                             "' is in no row of the pipe table, so nothing can be counted");
}

}  // namespace kvant
