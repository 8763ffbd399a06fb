#pragma once

#include "serve/network_rules.h"
#include "serve/program_options.h"

namespace postrider {

// Serves with the roles of `options`, which were checked, until a signal ends it or something that
// it cannot go on without; gives the exit status. `read_network` is called at SIGHUP. Blocks; the
// main thread's, whose signals it takes.
int Serve(const ProgramOptions& options, NetworkRules::Read read_network);

}  // namespace postrider
