// CUDA's programs: where they are on this machine.
#pragma once

#include <string>

namespace kvant::cli {

// The compiler: on the PATH or where the toolkit's installer puts it. Throws where there is none.
std::string FindNvcc();
// The disassembler, which kvant's setup installs into .venv: on the PATH, beside the toolkit's
// compiler or in the .venv of the tree that this program was built in. Throws where there is none.
std::string FindNvdisasm();
// Where temporary files go: $TMPDIR, or /tmp.
std::string TemporaryParent();

}  // namespace kvant::cli
