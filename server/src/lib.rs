//! linekeep: a small gateway that keeps your mini-apps' data in plain JSONL files.
//!
//! A library, so that tests and embedders reach every part without a process or a socket; the `linekeep` binary
//! is a thin shell over [`run`]. The way of a request: [`http`] (what was asked, and by whom) → [`apps`] (what an
//! app is, which action, are the parameters right) → the engine (`linekeep-engine`: files and JSON), or [`upstream`] (an
//! app's own server). Nothing in
//! [`apps`] knows who called, so a command line, a socket or a tool can call the same functions.
//!
//! Runs on Unix (Linux, Android, macOS): file identity and modes are Unix ones.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::{path::Path, sync::Arc};
//!
//! let state = Arc::new(linekeep::State::open(Path::new("linekeep-data"))?);
//! let listener = tokio::net::TcpListener::bind(("127.0.0.1", 8765)).await?;
//! let (_stop, shutdown) = linekeep::shutdown::channel();
//! linekeep::http::serve(listener, linekeep::http::app(state), shutdown).await;
//! # Ok(()) }
//! ```

pub mod args;
pub mod config;
pub mod error;
pub mod init;
pub mod state;

pub mod apps;
pub mod http;
pub mod upstream;

pub mod shutdown;
pub mod telemetry;

mod cli;
mod excerpt;
mod open_files;
mod signature;

pub use cli::run;
pub use error::ApiError;
pub use state::State;
