//! The `linekeep` program: parses the command line, starts the log, runs the command. Everything else is in the
//! library, so that tests can call it without a process.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = linekeep::args::Args::parse();
    linekeep::telemetry::start();
    linekeep::run(args)
}
