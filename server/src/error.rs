//! The one error of the gateway: a status, a short code for programs, a text for people, and the cause for the log.
//!
//! One type, so that the mapping from what went wrong to what the wire says stands in one place (the constructors
//! and the `From` below) and no handler invents statuses. Invariants: the texts of 500 answers are fixed, so no
//! path and no operating system text leaves the machine; the cause is logged once, at the edge that answers
//! ([`ApiError::log`]).

use std::{borrow::Cow, error::Error as StdError};

use hyper::StatusCode;

/// The text of every 500 answer.
pub const INTERNAL_TEXT: &str = "internal error";

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// The HTTP status; the command line prints it too.
    pub status: StatusCode,
    /// A word for programs that stays the same when the text is improved: `not_found`, `too_large`, ...
    pub code: &'static str,
    /// A text for people: lower case, no full stop, free of secrets and of absolute paths.
    pub message: Cow<'static, str>,
    /// What lies underneath, for the log only.
    #[source]
    pub source: Option<Box<dyn StdError + Send + Sync>>,
}

/// Defines one constructor a kind of error, with its status and code.
macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident = $status:ident, $code:literal;)*) => {
        impl ApiError {
            $($(#[$doc])*
            pub fn $name(message: impl Into<Cow<'static, str>>) -> Self {
                Self { status: StatusCode::$status, code: $code, message: message.into(), source: None }
            })*
        }
    };
}

constructors! {
    /// 400: the request itself is wrong.
    invalid = BAD_REQUEST, "invalid";
    /// 403: understood and refused.
    forbidden = FORBIDDEN, "forbidden";
    /// 404: there is no such thing.
    not_found = NOT_FOUND, "not_found";
    /// 409: the app's manifest is broken.
    broken = CONFLICT, "broken";
    /// 409: the file on disk is not one the engine works on.
    unsupported = CONFLICT, "unsupported";
    /// 413: over a size limit.
    too_large = PAYLOAD_TOO_LARGE, "too_large";
    /// 501: declared, and not built yet.
    not_implemented = NOT_IMPLEMENTED, "not_implemented";
    /// 502: an app's server gave nothing to use.
    bad_gateway = BAD_GATEWAY, "bad_gateway";
    /// 503: switched off by configuration.
    disabled = SERVICE_UNAVAILABLE, "disabled";
    /// 503: held by someone else, worth another try.
    busy = SERVICE_UNAVAILABLE, "busy";
}

impl ApiError {
    /// 401. The text is the one clients of the wire know.
    pub fn unauthorized() -> Self {
        Self {
            status: StatusCode::UNAUTHORIZED,
            code: "unauthorized",
            message: Cow::Borrowed("Unauthorized"),
            source: None,
        }
    }

    /// 405. The answer also carries `Allow`.
    pub fn method_not_allowed() -> Self {
        Self {
            status: StatusCode::METHOD_NOT_ALLOWED,
            code: "method_not_allowed",
            message: Cow::Borrowed("method not allowed, use GET"),
            source: None,
        }
    }

    /// 500 with the fixed text; `source` goes to the log.
    pub fn internal(source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            code: "internal",
            message: Cow::Borrowed(INTERNAL_TEXT),
            source: Some(source.into()),
        }
    }

    /// The cause with all that lies under it, or the message when there is none. For logs and for a person at the
    /// command line; never for the wire.
    pub fn detail(&self) -> String {
        let Some(source) = &self.source else { return self.message.clone().into_owned() };
        with_causes(source.as_ref())
    }

    /// Writes a failure of ours (5xx with a cause) to the log. Called once, where the answer is built.
    pub fn log(&self) {
        if self.status.is_server_error() && self.source.is_some() {
            tracing::error!(status = self.status.as_u16(), cause = self.detail(), "request failed");
        }
    }
}

/// An error with all that lies under it, in one line. A cause that the text before ends with is not said twice.
pub(crate) fn with_causes(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let cause = error.to_string();
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
        next = error.source();
    }
    text
}

impl From<linekeep_engine::Error> for ApiError {
    /// The one place where an engine error becomes a status. Texts that would name a path are replaced.
    fn from(error: linekeep_engine::Error) -> Self {
        use linekeep_engine::Error;
        let mut answer = match &error {
            Error::NotFound { id, .. } => Self::not_found(format!("record '{id}' not found")),
            Error::TooLarge { .. } => Self::too_large(error.to_string()),
            Error::Invalid { reason } => Self::invalid(reason.clone()),
            Error::Busy { .. } => Self::busy("the collection is in use by another program, try again"),
            Error::Unsupported { what, .. } => {
                Self::unsupported(format!("the collection cannot be used: {what}"))
            }
            _ => return Self::internal(error),
        };
        answer.source = Some(Box::new(error));
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn engine_errors_have_one_status_each() {
        use linekeep_engine::Error;
        let io = || io::Error::other("disk on fire").into();
        let path = std::path::PathBuf::from("/secret/x.jsonl");
        let cases = [
            (Error::NotFound { collection: "c".into(), id: "x".into() }, 404),
            (Error::TooLarge { operation: "append", collection: "c".into(), size: 2, limit: 1 }, 413),
            (Error::Busy { operation: "append", path: path.clone(), reason: "r".into() }, 503),
            (Error::Unsupported { path: path.clone(), what: linekeep_engine::Unsupported::Symlink }, 409),
            (Error::Io { operation: "write", path, source: io() }, 500),
            ("x".repeat(257).parse::<linekeep_engine::RecordId>().unwrap_err(), 400),
            (Error::Invalid { reason: "bad".into() }, 400),
        ];
        for (error, status) in cases {
            let answer = ApiError::from(error);
            assert_eq!(answer.status.as_u16(), status);
            assert!(!answer.message.contains("/secret"), "{answer}");
        }
    }

    #[test]
    fn an_internal_error_tells_the_client_nothing() {
        let error = ApiError::internal(io::Error::other("open /home/me/secret: denied"));
        assert_eq!(error.to_string(), "internal error");
        assert_eq!(error.detail(), "open /home/me/secret: denied");
    }
}
