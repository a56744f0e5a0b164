//! The program of `linekeep_tests::hammer`.

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match linekeep_tests::hammer::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let told = writeln!(std::io::stderr(), "hammer: {error}");
            if told.is_err() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
