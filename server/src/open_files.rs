//! How many files, sockets among them, the process may have open. Many systems start programs with 256 or 1,024 and
//! allow more on request.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What a gateway asks for at most: its connections, and as many files again.
pub(crate) const WANTED: u64 = 8_192;

/// The limit in force; `None` is no limit.
pub(crate) fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Raises the limit to [`WANTED`], or to what is allowed if that is less. A refusal is logged and changes nothing.
pub(crate) fn raise() {
    let now = getrlimit(Resource::Nofile);
    let Some(wanted) = raised(now) else { return };
    let new = Rlimit { current: Some(wanted), maximum: now.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, new) {
        tracing::debug!(%error, wanted, "limit of open files not raised");
    }
}

/// The limit to ask for; `None` when that in force will do.
fn raised(now: Rlimit) -> Option<u64> {
    let wanted = now.maximum.unwrap_or(WANTED).min(WANTED);
    now.current.filter(|&current| current < wanted).map(|_| wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_it_may_and_never_lowered() {
        for (current, maximum, expected) in [
            (Some(256), Some(4_096), Some(4_096)),
            (Some(1_024), None, Some(WANTED)),
            (Some(1_024), Some(1 << 20), Some(WANTED)),
            (Some(1_024), Some(1_024), None),
            (Some(1 << 20), Some(1 << 20), None),
            (None, None, None),
        ] {
            assert_eq!(raised(Rlimit { current, maximum }), expected, "{current:?} of {maximum:?}");
        }
    }
}
