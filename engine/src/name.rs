//! Names from outside, parsed once.
//!
//! A [`CollectionName`] is the only thing that can become a file name in the engine, so no check of a path is needed
//! further in. Whole strings are matched: a trailing newline, which a `$` in a pattern would let pass, is refused.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::{Error, Result, excerpt};

/// The suffix of a collection's file.
const SUFFIX: &str = "jsonl";

/// The name of a collection: lower-case letters and digits in words joined by single hyphens, at most 64 bytes.
///
/// The same name is the same file on every file system, since no two names differ in case or in Unicode form only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CollectionName(String);

impl CollectionName {
    /// The longest name, in bytes.
    pub const BYTES_MAX: usize = 64;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the collection's file, `<name>.jsonl`.
    pub fn file_name(&self) -> String {
        format!("{}.{SUFFIX}", self.0)
    }

    /// Splits the path of a collection's file into its folder and the collection's name.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the path does not end in `<name>.jsonl` with a valid name.
    pub fn of_file(path: &Path) -> Result<(PathBuf, Self)> {
        let refuse = || {
            Error::invalid(format!(
                "{} is not a collection: the file must be called <name>.{SUFFIX}, the name in lower-case \
                 letters and digits with single hyphens, at most {} bytes",
                path.display(),
                Self::BYTES_MAX
            ))
        };
        let file = path.file_name().and_then(|name| name.to_str()).ok_or_else(refuse)?;
        let stem = file.strip_suffix(SUFFIX).and_then(|stem| stem.strip_suffix('.')).ok_or_else(refuse)?;
        let name = stem.parse::<Self>().map_err(|_invalid| refuse())?;
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        Ok((folder, name))
    }
}

impl FromStr for CollectionName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let word = |word: &str| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        };
        if name.len() > Self::BYTES_MAX {
            return Err(Error::invalid(format!(
                "collection name {} has {} bytes, the limit is {}",
                excerpt(name),
                name.len(),
                Self::BYTES_MAX
            )));
        }
        if !name.split('-').all(word) {
            return Err(Error::invalid(format!(
                "collection name {} must be lower-case letters and digits in words joined by single hyphens",
                excerpt(name)
            )));
        }
        Ok(Self(name.to_owned()))
    }
}

impl fmt::Display for CollectionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> serde::Deserialize<'de> for CollectionName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The id of a record that an operation names: any text of 1 to 256 bytes.
///
/// Ids that the engine makes are 12 lower-case hex digits; files from elsewhere may hold others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecordId(String);

impl RecordId {
    /// The longest id, in bytes.
    pub const BYTES_MAX: usize = 256;

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RecordId {
    type Err = Error;

    fn from_str(id: &str) -> Result<Self> {
        match id.len() {
            0 => Err(Error::invalid("the id is empty")),
            1..=Self::BYTES_MAX => Ok(Self(id.to_owned())),
            len => Err(Error::invalid(format!(
                "the id {} has {len} bytes, the limit is {}",
                excerpt(id),
                Self::BYTES_MAX
            ))),
        }
    }
}

impl TryFrom<String> for RecordId {
    type Error = Error;

    fn try_from(id: String) -> Result<Self> {
        id.parse()
    }
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collection_names_are_words_joined_by_single_hyphens() {
        for good in ["a", "items", "a-b", "2026-notes", "x1-y2-z3", &"a".repeat(64)] {
            assert_eq!(good.parse::<CollectionName>().unwrap().as_str(), good);
        }
        let bad = [
            "",
            "-",
            "a-",
            "-a",
            "a--b",
            "A",
            "a_b",
            "a b",
            "a.b",
            "..",
            "a/b",
            "a\n",
            "a\0",
            "é",
            "ａ",
            &"a".repeat(65),
        ];
        for bad in bad {
            let error = bad.parse::<CollectionName>().unwrap_err();
            assert!(matches!(error, Error::Invalid { .. }), "{bad:?}: {error}");
        }
    }

    #[test]
    fn a_file_path_is_a_folder_and_a_name() {
        let (folder, name) = CollectionName::of_file(Path::new("/x/y/items.jsonl")).unwrap();
        assert_eq!((folder.as_path(), name.as_str()), (Path::new("/x/y"), "items"));
        let (folder, name) = CollectionName::of_file(Path::new("items.jsonl")).unwrap();
        assert_eq!((folder.as_path(), name.as_str()), (Path::new("."), "items"));
        for bad in [
            "items.json",
            "Items.jsonl",
            "jsonl",
            ".jsonl",
            "itemsjsonl",
            "",
            "/",
            "items.jsonl.jsonl",
            "x/..",
        ] {
            assert!(CollectionName::of_file(Path::new(bad)).is_err(), "{bad}");
        }
    }

    #[test]
    fn record_ids_have_1_to_256_bytes() {
        assert!("".parse::<RecordId>().is_err());
        assert!("x".repeat(256).parse::<RecordId>().is_ok());
        let error = "é".repeat(129).parse::<RecordId>().unwrap_err();
        assert!(error.to_string().contains("258 bytes, the limit is 256"), "{error}");
    }
}
