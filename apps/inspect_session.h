// What kvant inspect says of a saved session.
#pragma once

#include <string>

namespace kvant::cli {

// Throws Failure where the file is damaged.
void PrintSession(const std::string& path, bool json);

}  // namespace kvant::cli
