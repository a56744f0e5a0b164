//! The two names an app author chooses: the slug of the app and the names of its actions.
//!
//! Parsed once, where they come in, with private fields: what has one of these types can be part of a path, of a
//! tool's name and of a URL without a second look. Whole strings are matched, so a trailing newline is refused.

use std::{fmt, str::FromStr};

/// Most bytes of a slug (seed: `MAX_SLUG_LEN`).
pub const SLUG_BYTES_MAX: usize = 32;
/// Most bytes of an action's name.
pub const ACTION_NAME_BYTES_MAX: usize = 64;

/// An app's folder name: `^[a-z0-9]+(-[a-z0-9]+)*$`, at most 32 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slug(String);

/// An action's name: `^[a-z][a-z0-9_]*$`, at most 64 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActionName(String);

/// The text does not have the form of the name that was wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a valid name")]
pub struct NameError;

impl Slug {
    /// The slug as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Slug {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let word = |word: &str| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        if text.len() <= SLUG_BYTES_MAX && text.split('-').all(word) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError)
        }
    }
}

impl fmt::Display for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ActionName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ActionName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        let rest = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if first && text.len() <= ACTION_NAME_BYTES_MAX && text.bytes().all(rest) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError)
        }
    }
}

impl fmt::Display for ActionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_matched_whole() {
        for good in ["a", "0", "my-app", "a-1-b", &"a".repeat(32)] {
            assert!(good.parse::<Slug>().is_ok(), "{good:?}");
        }
        for bad in
            ["", "-", "a-", "-a", "a--b", "A", "a_b", "a\n", "à", "a/b", "..", ".a", "a.b", &"a".repeat(33)]
        {
            assert!(bad.parse::<Slug>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn action_names_are_matched_whole() {
        for good in ["a", "list_items", "a1", "a__b", "a_", &"a".repeat(64)] {
            assert!(good.parse::<ActionName>().is_ok(), "{good:?}");
        }
        for bad in ["", "_a", "1a", "A", "aB", "a-b", "a\n", "a b", "è", "a/b", &"a".repeat(65)] {
            assert!(bad.parse::<ActionName>().is_err(), "{bad:?}");
        }
    }
}
