//! Cuts texts from outside to a length that a message can carry.

use std::borrow::Cow;

/// The text, or its first `chars_max` characters and an ellipsis.
pub(crate) fn excerpt(text: &str, chars_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_cut_between_characters() {
        assert_eq!(excerpt("città", 5), "città");
        assert_eq!(excerpt("città nuova", 5), "città…");
        assert_eq!(excerpt("", 0), "");
    }
}
