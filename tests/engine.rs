//! The rigs that prove the engine: one binary, apart from the gateway's, since they need no gateway to be built.

#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed, and the panic says where")]

mod crash;
mod faults;
mod fuzz;
mod model;
mod odd_storage;
mod processes;
mod real_disk;
