//! The rigs that prove the engine: one binary, apart from the gateway's, since they need no gateway to be built.

mod crash;
mod faults;
mod fuzz;
mod model;
mod processes;
mod real_disk;
