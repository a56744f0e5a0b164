//! Who is asking: the order in which credentials are looked at (wire facts 1.3).
//!
//! A `Bearer` that is not empty decides alone, also when it is wrong and a right `?token=` stands beside it. Then an
//! app page's own token in the path, then `?token=`. The path form takes an app's token only, never the install
//! secret, because an address can be read by the page it opens. Odd bytes and two `Authorization` headers are a
//! wrong credential, not an error.

use hyper::{HeaderMap, header::AUTHORIZATION};

use crate::{
    ApiError,
    apps::{Slug, Tokens},
};

/// What a request brought to show who it is.
#[derive(Debug, Default)]
pub(crate) struct Credentials {
    /// Each `Authorization` header's bytes.
    authorization: Vec<Vec<u8>>,
    /// The token of the form `/apps/<slug>/~<token>/`.
    pub(crate) path_token: Option<String>,
    /// `?token=`.
    query_token: Option<String>,
}

/// A request to an app's own routes that showed who it is.
#[derive(Debug)]
pub(crate) struct Authorized {
    /// The app; `None` when what stands there is no slug.
    slug: Option<Slug>,
}

impl Authorized {
    /// Lets the install secret and the app's token pass.
    ///
    /// # Errors
    /// 401.
    pub(crate) fn new(tokens: &Tokens, credentials: &Credentials, slug: &str) -> Result<Self, ApiError> {
        let slug = slug.parse::<Slug>().ok();
        credentials.check(tokens, Scope::App(slug.as_ref()))?;
        Ok(Self { slug })
    }

    /// The app's slug.
    ///
    /// # Errors
    /// 400 when there is none. Asked for late: clients rely on the order of the checks.
    pub(crate) fn slug(&self) -> Result<&Slug, ApiError> {
        self.slug.as_ref().ok_or_else(|| ApiError::invalid("invalid app slug"))
    }
}

/// What a route lets in besides the install secret.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Scope<'a> {
    /// Nothing.
    Gateway,
    /// The token of this app, if the slug is a valid one.
    App(Option<&'a Slug>),
}

impl Credentials {
    /// Collects them from the headers and the query.
    pub(crate) fn new(headers: &HeaderMap, query_token: Option<String>) -> Self {
        let authorization =
            headers.get_all(AUTHORIZATION).iter().map(|value| value.as_bytes().to_vec()).collect();
        Self { authorization, path_token: None, query_token }
    }

    /// Lets the request pass, or not.
    ///
    /// # Errors
    /// 401.
    pub(crate) fn check(&self, tokens: &Tokens, scope: Scope<'_>) -> Result<(), ApiError> {
        let of_app = |candidate: &[u8]| match scope {
            Scope::Gateway | Scope::App(None) => false,
            Scope::App(Some(slug)) => tokens.is_token_of(slug, candidate),
        };
        let accepted = |candidate: &[u8]| tokens.is_secret(candidate) || of_app(candidate);
        let bearer = match self.authorization.as_slice() {
            [] => None,
            [only] => bearer(only),
            [..] => return Err(ApiError::unauthorized()),
        };
        let passes = match (bearer, &self.path_token, &self.query_token) {
            (Some(candidate), _, _) => accepted(candidate),
            (None, Some(candidate), _) => of_app(candidate.as_bytes()),
            (None, None, Some(candidate)) => accepted(candidate.as_bytes()),
            (None, None, None) => false,
        };
        if passes { Ok(()) } else { Err(ApiError::unauthorized()) }
    }
}

/// The credential of a `Bearer` header, trimmed; `None` when it is empty or another scheme.
fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = header.split_at_checked(7)?;
    let credential = rest.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !credential.is_empty()).then_some(credential)
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;
    use crate::config::Secret;

    fn passes(headers: &[&[u8]], path: Option<&str>, query: Option<&str>, scope: Scope<'_>) -> bool {
        let mut map = HeaderMap::new();
        for header in headers {
            map.append(AUTHORIZATION, HeaderValue::from_bytes(header).unwrap());
        }
        let mut credentials = Credentials::new(&map, query.map(str::to_owned));
        credentials.path_token = path.map(str::to_owned);
        credentials.check(&Tokens::new(Secret::new("s3cret")), scope).is_ok()
    }

    #[test]
    fn a_bearer_decides_before_any_token() {
        let gateway = Scope::Gateway;
        assert!(passes(&[b"Bearer s3cret"], None, None, gateway));
        assert!(passes(&[b"bEARER   s3cret  "], None, None, gateway));
        assert!(passes(&[b"Bearer s3cret"], None, Some("wrong"), gateway));
        assert!(!passes(&[b"Bearer wrong"], None, Some("s3cret"), gateway));
        assert!(passes(&[b"Bearer  "], None, Some("s3cret"), gateway));
        assert!(passes(&[b"Basic abc"], None, Some("s3cret"), gateway));
        assert!(!passes(&[b"Bearers3cret"], None, None, gateway));
        assert!(!passes(&[b"Bearer s3cret", b"Bearer s3cret"], None, Some("s3cret"), gateway));
        assert!(!passes(&[b"Bearer s3cret\xff"], None, None, gateway));
        assert!(!passes(&[], None, None, gateway));
        assert!(!passes(&[], None, Some(" s3cret"), gateway), "a query token is not trimmed");
    }

    #[test]
    fn an_app_token_passes_on_its_app_only() {
        let slug: Slug = "spesa".parse().unwrap();
        let other: Slug = "piante".parse().unwrap();
        let token = Tokens::new(Secret::new("s3cret")).of_app(&slug).unwrap();
        let token = token.as_str();
        assert!(passes(&[], None, Some(token), Scope::App(Some(&slug))));
        assert!(passes(&[format!("Bearer {token}").as_bytes()], None, None, Scope::App(Some(&slug))));
        assert!(passes(&[], Some(token), None, Scope::App(Some(&slug))));
        assert!(!passes(&[], None, Some(token), Scope::App(Some(&other))));
        assert!(!passes(&[], None, Some(token), Scope::App(None)));
        assert!(!passes(&[], None, Some(token), Scope::Gateway));
    }

    #[test]
    fn a_path_takes_no_install_secret() {
        let slug: Slug = "spesa".parse().unwrap();
        assert!(!passes(&[], Some("s3cret"), None, Scope::App(Some(&slug))));
        assert!(!passes(&[], Some("wrong"), Some("s3cret"), Scope::App(Some(&slug))));
    }
}
