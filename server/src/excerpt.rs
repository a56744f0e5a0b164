//! Makes texts from outside fit to stand in a message: not too long, and on one line.

use std::borrow::Cow;

/// The text, or its first `chars_max` characters and an ellipsis.
pub(crate) fn excerpt(text: &str, chars_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// The text with what would break out of its line, or change how a terminal shows it, written as an escape: control
/// characters, line and paragraph separators, marks of writing direction.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        if is_unprintable(letter) {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}

/// Whether [`one_line`] writes a character as an escape.
pub(crate) fn is_unprintable(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{2028}' | '\u{2029}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
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

    #[test]
    fn what_would_leave_the_line_is_escaped() {
        assert_eq!(one_line("città"), "città");
        assert_eq!(one_line("a\n\u{1b}[2Kb\u{2028}\u{202e}"), "a\\n\\u{1b}[2Kb\\u{2028}\\u{202e}");
    }
}
