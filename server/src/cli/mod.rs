//! Carries out what the command line asks. One file a family of commands.
//!
//! Answers go to standard output, and nothing else does; what went wrong goes to standard error, except under `data`,
//! whose errors are answers too. Exit status: 0 done, 1 not done, 2 asked wrongly (that is clap's).

use std::{
    error::Error,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use crate::{
    apps::{Slug, Tokens},
    args::{Args, Command},
    config::Config,
    error::with_causes,
    excerpt::one_line,
    init,
    state::config_path,
};

mod app;
mod data;
mod serve;

/// Why a command was not carried out: a text with its causes.
type Failure = Box<dyn Error + Send + Sync>;

/// Carries out a command and gives the process's exit status.
pub fn run(args: Args) -> ExitCode {
    let done = match args.command {
        Command::Serve(serve) => serve::run(&serve),
        Command::Init { dir } => create(&dir),
        Command::Token { slug, data_dir } => token(&slug, &data_dir.path),
        Command::App { command } => app::run(&command),
        Command::Data { command } => data::run(&command),
    };
    done.unwrap_or_else(|failure| {
        complain(&with_causes(failure.as_ref()));
        ExitCode::FAILURE
    })
}

/// Says on standard error what went wrong, on one line.
fn complain(text: &str) {
    // With standard error gone there is nobody left to tell; the exit status still says it.
    match writeln!(io::stderr().lock(), "linekeep: {}", one_line(text)) {
        Ok(()) | Err(_) => {}
    }
}

/// Writes a line to standard output at once.
fn print(line: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(line)?;
    out.write_all(b"\n")?;
    out.flush()
}

fn create(dir: &Path) -> Result<ExitCode, Failure> {
    init::create(dir)?;
    print(format!("created {}", dir.display()).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn token(slug: &str, data_dir: &Path) -> Result<ExitCode, Failure> {
    let slug: Slug = slug.parse().map_err(|error| format!("'{slug}' is {error}"))?;
    let path = config_path(data_dir);
    let tokens = Tokens::new(Config::load(&path)?.websocket.secret);
    let token = tokens
        .of_app(&slug)
        .ok_or_else(|| format!("{}: websocket.tokenIssueSecret is not set", path.display()))?;
    print(token.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
