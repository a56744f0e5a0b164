//! What the tests of linekeep are made of: the real binary behind a socket and behind a command line.
//!
//! Nothing in here links the gateway: its tests see what a client, a shell and the file system see, and the expected
//! values come from the tests, not from the code under test. Every wait has a limit, every port is free, and every
//! gateway is told to stop and must end well.

pub mod equality;
pub mod fuzzing;
pub mod hammer;
pub mod http;
pub mod lines;
pub mod model;
pub mod process;
pub mod server;
pub mod sim;
pub mod upstream;

pub use http::{Connection, Reply};
pub use process::{Cli, Finished};
pub use server::{TestServer, Workspace};
