// Everything that an application includes. Formats and bytes: format.h. A model and its cache:
// model.h, session.h, generate.h. What a format costs in quality: eval.h.
#pragma once

#include "kvant/eval.h"
#include "kvant/format.h"
#include "kvant/generate.h"
#include "kvant/isa.h"
#include "kvant/ledger.h"
#include "kvant/model.h"
#include "kvant/sampler.h"
#include "kvant/session.h"
#include "kvant/status.h"
#include "kvant/tokenizer.h"
