//! Takes a request's target apart: path segments and query values (wire facts 1.2).
//!
//! Routes are matched on the path as it stands, undecoded; slug, action and file are decoded once, after the match.
//! So no encoding can smuggle a segment into a route. The query is split on `&` only, `+` is a space, bytes that are
//! not UTF-8 become U+FFFD, and of a repeated key the first counts.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// A target, borrowed from the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    path: &'a str,
    query: &'a str,
    ends_with_slash: bool,
}

impl<'a> Target<'a> {
    /// Takes the parts of a URI. All slashes at the end of the path are dropped, but for a lone one.
    pub(crate) fn new(path: &'a str, query: Option<&'a str>) -> Self {
        let trimmed = path.trim_end_matches('/');
        Self {
            path: if path.len() > 1 { trimmed } else { path },
            query: query.unwrap_or_default(),
            ends_with_slash: path.ends_with('/'),
        }
    }

    /// Where a path that lacks its final slash has it, relative to that path, with the same query; `None` when it has
    /// one.
    pub(crate) fn with_final_slash(&self) -> Option<String> {
        if self.ends_with_slash {
            return None;
        }
        let last = self.path.rsplit('/').next().unwrap_or_default();
        let mark = if self.query.is_empty() { "" } else { "?" };
        Some(format!("./{last}/{mark}{}", self.query))
    }

    /// The undecoded segments of the path; `/` has one, which is empty.
    pub(crate) fn segments(&self) -> Vec<&'a str> {
        self.path.strip_prefix('/').unwrap_or(self.path).split('/').collect()
    }

    /// The value of a key as it stands in the URL; empty when the key has no `=`.
    pub(crate) fn raw_value(&self, key: &str) -> Option<&'a str> {
        self.query.split('&').filter(|pair| !pair.is_empty()).find_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode_query(name) == key).then_some(value)
        })
    }

    /// The decoded value of a key.
    pub(crate) fn value(&self, key: &str) -> Option<String> {
        self.raw_value(key).map(decode_query)
    }
}

/// Decodes a part of a query: `+` is a space.
pub(crate) fn decode_query(text: &str) -> String {
    let spaced = if text.contains('+') { Cow::Owned(text.replace('+', " ")) } else { Cow::Borrowed(text) };
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

/// Decodes a part of a path once: `+` is itself.
pub(crate) fn decode_path(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn segments(path: &str, expected: &[&str]) {
        assert_eq!(Target::new(path, None).segments(), expected, "for {path}");
    }

    #[test]
    fn segments_are_not_decoded_and_slashes_at_the_end_do_not_count() {
        segments("/", &[""]);
        segments("//", &[""]);
        segments("/x//", &["x"]);
        segments("/apps/a%2Fb/c", &["apps", "a%2Fb", "c"]);
        segments("//api/x", &["", "api", "x"]);
        segments("/a//b", &["a", "", "b"]);
        segments("*", &["*"]);
    }

    #[test]
    fn a_final_slash_is_added_before_the_query() {
        let moved = |path: &str, query| Target::new(path, query).with_final_slash();
        assert_eq!(moved("/apps/x/~t", None).as_deref(), Some("./~t/"));
        assert_eq!(moved("/apps/x/~t%2F:", Some("a=1&b=%20")).as_deref(), Some("./~t%2F:/?a=1&b=%20"));
        assert_eq!(moved("/apps/x/~t/", Some("a=1")), None);
    }

    #[track_caller]
    fn value(query: &str, key: &str, expected: Option<&str>) {
        assert_eq!(Target::new("/", Some(query)).value(key).as_deref(), expected, "for {query}");
    }

    #[test]
    fn query_values_follow_the_wire() {
        value("a=1&b=2", "b", Some("2"));
        value("a=1&a=2", "a", Some("1"));
        value("a=&a=2", "a", Some(""));
        value("a", "a", Some(""));
        value("a=x=y", "a", Some("x=y"));
        value("a=1;b=2", "a", Some("1;b=2"));
        value("a=1+2%2B3", "a", Some("1 2+3"));
        value("a=%ff%C3%A8", "a", Some("\u{FFFD}è"));
        value("a=%zz%4", "a", Some("%zz%4"));
        value("%61=1", "a", Some("1"));
        value("b=1", "a", None);
        value("", "a", None);
        value("&&a=1", "a", Some("1"));
        value("a=%2561", "a", Some("%61"));
    }
}
