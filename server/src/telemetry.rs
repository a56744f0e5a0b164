//! Where the log goes: standard error, because standard output carries answers a program may read.
//!
//! `LINEKEEP_LOG` chooses what is shown, as `level` or `target=level,...` (`debug`, `warn,linekeep=debug`); the
//! default is `info`. Left out on purpose: log files and metrics, which the service manager does better.
//!
//! Invariant: no secret and no token is ever given to `tracing`; spans carry a route's name, not its URL.

use tracing_subscriber::{filter::Targets, layer::SubscriberExt as _, util::SubscriberInitExt as _};

/// The environment variable that chooses what is logged.
pub const LOG_VARIABLE: &str = "LINEKEEP_LOG";

/// Starts logging to standard error. A second call, and a subscriber the embedder installed before, are left alone;
/// a filter that cannot be read is reported in the log and `info` is used.
pub fn start() {
    let wanted = std::env::var(LOG_VARIABLE).ok().filter(|text| !text.trim().is_empty());
    let parsed = wanted.as_deref().map(str::parse::<Targets>);
    let default = || Targets::new().with_default(tracing::Level::INFO);
    let (targets, problem) = match parsed {
        None => (default(), None),
        Some(Ok(targets)) => (targets, None),
        Some(Err(error)) => (default(), Some(error)),
    };
    let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(ansi);
    if tracing_subscriber::registry().with(lines).with(targets).try_init().is_err() {
        return;
    }
    if let Some(error) = problem {
        tracing::warn!(variable = LOG_VARIABLE, %error, "log filter not understood, using info");
    }
}
