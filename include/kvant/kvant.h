// Everything that an application includes.
//   formats, bytes and the arithmetic of speed   format.h codec.h explain.h roofline.h
//   a model and its cache                        model.h tokenizer.h session.h sampler.h generate.h
//   which tokens stay, in how many bits          policy.h head_classes.h
//   what is measured of a model for its formats  calibrate.h calibration.h
//   what attention gives each cached token       attention_mass.h head_gates.h
//   what a format costs in quality and time      eval.h tasks.h bench_attention.h machine_load.h
#pragma once

#include "kvant/attention_mass.h"
#include "kvant/bench_attention.h"
#include "kvant/calibrate.h"
#include "kvant/calibration.h"
#include "kvant/codec.h"
#include "kvant/eval.h"
#include "kvant/explain.h"
#include "kvant/format.h"
#include "kvant/generate.h"
#include "kvant/head_classes.h"
#include "kvant/head_gates.h"
#include "kvant/inspect.h"
#include "kvant/isa.h"
#include "kvant/ledger.h"
#include "kvant/machine_load.h"
#include "kvant/mixed_spec.h"
#include "kvant/model.h"
#include "kvant/policy.h"
#include "kvant/roofline.h"
#include "kvant/sampler.h"
#include "kvant/session.h"
#include "kvant/status.h"
#include "kvant/tasks.h"
#include "kvant/tokenizer.h"
#include "kvant/utf8_stream.h"
