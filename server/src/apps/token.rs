//! Who may open what: the install secret opens everything, an app's token opens that app.
//!
//! The token is HMAC-SHA256 of a label and the slug, keyed with the install secret, in base64url: an app's page can
//! hold it without holding the secret, it needs no storage, and a changed secret ends all tokens at once. The seed
//! asks for exactly that ("The SDK contract": the app's own token). The label keeps the key's other uses apart.
//!
//! Invariant: candidates are compared in constant time, and with an empty secret nothing is accepted.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use subtle::ConstantTimeEq as _;

use super::Slug;
use crate::config::Secret;

/// What stands before the slug in the authenticated text; the number grows if the scheme ever changes.
const LABEL: &[u8] = b"linekeep app token v1\0";

/// The install secret, as far as it is needed to check and to make credentials.
#[derive(Clone)]
pub struct Tokens {
    secret: Secret,
}

/// The install secret and the token of one app, to look for in what is about to leave.
pub struct Kept<'a> {
    secret: &'a [u8],
    /// `None` when there is no secret, and so nothing to keep.
    token: Option<String>,
}

impl Kept<'_> {
    /// Whether one of them stands somewhere in `bytes`.
    pub fn stand_in(&self, bytes: &[u8]) -> bool {
        let found = |needle: &[u8]| bytes.windows(needle.len()).any(|part| part == needle);
        self.token.as_ref().is_some_and(|token| found(self.secret) || found(token.as_bytes()))
    }
}

impl std::fmt::Debug for Kept<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Kept(..)")
    }
}

impl Tokens {
    /// Takes the install secret; an empty one accepts nothing.
    pub fn new(secret: Secret) -> Self {
        Self { secret }
    }

    /// The token of one app: 43 characters. `None` when there is no secret to derive it from.
    pub fn of_app(&self, slug: &Slug) -> Option<String> {
        if self.secret.is_empty() {
            return None;
        }
        let mut mac =
            Hmac::<Sha256>::new_from_slice(self.secret.as_bytes()).expect("HMAC takes a key of any length");
        mac.update(LABEL);
        mac.update(slug.as_str().as_bytes());
        Some(URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
    }

    /// What of an app's credentials is not to leave the gateway.
    pub fn kept(&self, slug: &Slug) -> Kept<'_> {
        Kept { secret: self.secret.as_bytes(), token: self.of_app(slug) }
    }

    /// Whether `candidate` is the install secret.
    pub fn is_secret(&self, candidate: &[u8]) -> bool {
        !self.secret.is_empty() && bool::from(self.secret.as_bytes().ct_eq(candidate))
    }

    /// Whether `candidate` is the token of `slug`.
    pub fn is_token_of(&self, slug: &Slug, candidate: &[u8]) -> bool {
        self.of_app(slug).is_some_and(|token| bool::from(token.as_bytes().ct_eq(candidate)))
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("secret", &self.secret).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slug(text: &str) -> Slug {
        text.parse().unwrap()
    }

    #[test]
    fn a_token_opens_its_own_app_only() {
        let tokens = Tokens::new(Secret::new("s3cret"));
        let token = tokens.of_app(&slug("spesa")).unwrap();
        assert_eq!(token.len(), 43);
        assert!(tokens.is_token_of(&slug("spesa"), token.as_bytes()));
        assert!(!tokens.is_token_of(&slug("piante"), token.as_bytes()));
        assert!(!tokens.is_secret(token.as_bytes()));
        assert!(!tokens.is_token_of(&slug("spesa"), &token.as_bytes()[..42]));
        assert!(!Tokens::new(Secret::new("other")).is_token_of(&slug("spesa"), token.as_bytes()));
    }

    #[test]
    fn the_token_is_the_documented_hmac() {
        // printf 'linekeep app token v1\0spesa' | openssl dgst -sha256 -hmac s3cret -binary | basenc --base64url
        let token = Tokens::new(Secret::new("s3cret")).of_app(&slug("spesa")).unwrap();
        assert_eq!(token, "gt05fhxff73SMnORfMAOidgJK11TeobzUN4T3xjYD_o");
    }

    #[test]
    fn an_empty_secret_opens_nothing() {
        let tokens = Tokens::new(Secret::new("  "));
        assert!(!tokens.is_secret(b""));
        assert_eq!(tokens.of_app(&slug("spesa")), None);
        assert!(!tokens.is_token_of(&slug("spesa"), b""));
    }
}
