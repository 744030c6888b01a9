// The tokenizer and the chat template that a GGUF file's metadata describes.
#pragma once

#include "gguf/gguf_file.h"
#include "kvant/status.h"
#include "kvant/tokenizer.h"
#include "model/chat_template.h"

namespace kvant {

// Copies what it keeps: the file may be closed afterwards. Errors are those of the file's getters
// and of Tokenizer::Create.
Result<Tokenizer> LoadTokenizer(const GgufFile& file);

// The file's template or, where it has none, the one whose turns its control tokens spell: Gemma's.
// kUnsupported where it has neither, or a template that is not known.
Result<ChatTemplate> LoadChatTemplate(const GgufFile& file, const Tokenizer& tokenizer);

}  // namespace kvant
