// llama.cpp's flags of several letters behind one dash, which the parser would read as bundles of
// one-letter flags.
#pragma once

#include <string>
#include <vector>

namespace kvant::cli {

// The arguments after the program's name, with -ctk, -ctv, -fa, … written as long flags. Nothing
// behind "--" is touched.
std::vector<std::string> NormaliseArguments(int argc, const char* const* argv);

}  // namespace kvant::cli
