//! The request that a http action makes of its parameters (seed, "http actions"; wire facts 4).
//!
//! Values travel as the JSON text they came in, so digits stay as they were written. In a path or a query a string is
//! its characters, anything else its JSON text (`true`, `null`, `1.50`).
//!
//! - A `{placeholder}` is percent-encoded down to the unreserved characters, so a value cannot leave its place. A value
//!   that would make a segment `.` or `..` has its dots encoded too (`%2E%2E`), an empty one is refused: neither may
//!   change the shape of the path.
//! - What the path does not take goes to the query for GET and DELETE, added to what the path says there: a list of
//!   values repeats its key, `null` is empty. For the other methods it is the JSON body, `{}` when nothing is left.
//! - A `#fragment` in the path is dropped. There is no userinfo, no cookie, and no header of the caller's request.

use bytes::Bytes;
use hyper::{Method, Uri, http::uri::Authority};
use linekeep_engine::Fields;
use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Value, value::RawValue};

use super::Failure;
use crate::apps::manifest::{HttpAction, HttpMethod, Server};

/// Bytes of a request's target; more than this the HTTP library cannot hold.
pub const TARGET_BYTES_MAX: usize = 65_534;

/// What a placeholder's value keeps: RFC 3986's unreserved characters.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// What the author's own path keeps: all that may stand in a target, `%` included.
const LITERAL: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');
/// What a form keeps; a space becomes `+` afterwards.
const FORM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'*').remove(b'-').remove(b'.').remove(b'_');

/// Where an app's server is, from its `baseUrl`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    /// Whether it is `https`.
    pub tls: bool,
    /// Host and port as the manifest has them.
    pub authority: Authority,
    /// The path, without a slash at the end.
    pub path: String,
}

impl Base {
    /// Reads a `baseUrl`. A manifest that was loaded has a good one; one made by hand may not.
    ///
    /// # Errors
    /// [`Failure::Blocked`].
    pub fn of(server: &Server) -> Result<Self, Failure> {
        let refuse = |reason: &str| Failure::Blocked(reason.to_owned());
        let url: Uri = server.base_url.parse().map_err(|_malformed| refuse("server.baseUrl is not a URL"))?;
        let tls = match url.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) | None => return Err(refuse("server.baseUrl is neither http nor https")),
        };
        let authority = url.authority().ok_or_else(|| refuse("server.baseUrl has no host"))?.clone();
        if authority.as_str().contains('@') {
            return Err(refuse("server.baseUrl carries a user or a password"));
        }
        if url.query().is_some() {
            return Err(refuse("server.baseUrl has a query"));
        }
        Ok(Self { tls, authority, path: url.path().trim_end_matches('/').to_owned() })
    }

    /// The port, that of the scheme when none is written.
    pub fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.tls { 443 } else { 80 })
    }
}

/// A request to an app's server, complete but for the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The server.
    pub base: Base,
    /// The method.
    pub method: Method,
    /// Path and query.
    pub target: Uri,
    /// The JSON body of the methods that have one.
    pub body: Option<Bytes>,
}

impl Plan {
    /// Builds the request of an action.
    ///
    /// # Errors
    /// [`Failure::Invalid`] for a missing or empty path parameter and a target over [`TARGET_BYTES_MAX`];
    /// [`Failure::Credentials`] for a server that declares some; [`Failure::Blocked`] for a `baseUrl` that is none.
    pub fn new(server: &Server, action: &HttpAction, mut params: Fields) -> Result<Self, Failure> {
        // ORDER: wire facts 4: path parameters first, then credentials, then the target.
        let mut target = expand(&action.path, &mut params)?;
        if server.auth.is_some() {
            return Err(Failure::Credentials);
        }
        let base = Base::of(server)?;
        let (method, has_body) = match action.method {
            HttpMethod::Get => (Method::GET, false),
            HttpMethod::Post => (Method::POST, true),
            HttpMethod::Put => (Method::PUT, true),
            HttpMethod::Patch => (Method::PATCH, true),
            HttpMethod::Delete => (Method::DELETE, false),
        };
        target.insert_str(0, &base.path);
        let body = if has_body {
            Some(body(&params).into())
        } else {
            add_query(&mut target, &params);
            None
        };
        if target.len() > TARGET_BYTES_MAX {
            return Err(Failure::Invalid(format!(
                "the params make an address of {} bytes, at most {TARGET_BYTES_MAX} can be sent",
                target.len()
            )));
        }
        let target = target.parse().map_err(|_malformed| {
            Failure::Invalid("the params and the action's path make no address".to_owned())
        })?;
        Ok(Self { base, method, target, body })
    }
}

/// Puts the parameters into the action's path, and takes those it uses out of `params`.
fn expand(template: &str, params: &mut Fields) -> Result<String, Failure> {
    let mut target = String::with_capacity(template.len());
    let mut used = Vec::new();
    let mut rest = template.split('#').next().unwrap_or_default();
    let mut segment = Segment { start: 0, has_value: false };
    let mut in_path = true;
    while let Some(first) = rest.chars().next() {
        if first == '{'
            && let Some((name, after)) = rest[1..].split_once('}')
        {
            let json = params
                .get(name)
                .ok_or_else(|| Failure::Invalid(format!("missing path parameter '{name}'")))?;
            let value = text(json);
            if value.is_empty() && in_path {
                return Err(Failure::Invalid(format!("path parameter '{name}' is empty")));
            }
            target.extend(utf8_percent_encode(&value, VALUE));
            segment.has_value = true;
            used.push(name);
            rest = after;
            continue;
        }
        if in_path && matches!(first, '/' | '?') {
            segment.close(&mut target);
            segment = Segment { start: target.len() + 1, has_value: false };
            in_path = first == '/';
        }
        let (literal, after) = rest.split_at(first.len_utf8());
        target.extend(utf8_percent_encode(literal, LITERAL));
        rest = after;
    }
    if in_path {
        segment.close(&mut target);
    }
    for name in used {
        params.remove(name);
    }
    Ok(target)
}

/// The segment of a path that is being written.
struct Segment {
    /// Where it begins.
    start: usize,
    /// Whether a parameter is in it.
    has_value: bool,
}

impl Segment {
    /// Encodes the dots of a segment that a parameter turned into `.` or `..`, as it stands or after one decoding.
    fn close(&self, target: &mut String) {
        if !self.has_value {
            return;
        }
        let written = &target[self.start..];
        let decoded = percent_decode_str(written).decode_utf8_lossy();
        if decoded.split(['/', '\\']).any(|part| matches!(part, "." | "..")) {
            let encoded = written.replace('.', "%2E");
            target.replace_range(self.start.., &encoded);
        }
    }
}

/// A JSON value as text: a string's characters, else the JSON itself.
fn text(json: &str) -> String {
    serde_json::from_str::<String>(json).unwrap_or_else(|_not_a_string| json.to_owned())
}

/// Adds the parameters to what the target has for a query.
fn add_query(target: &mut String, params: &Fields) {
    let mut separator = match target.split_once('?') {
        None => "?",
        Some((_, "")) => "",
        Some((_, query)) if query.ends_with('&') => "",
        Some(_) => "&",
    };
    let mut add = |key: &str, json: &str| {
        let value = if json == "null" { String::new() } else { text(json) };
        let form = |text: &str| utf8_percent_encode(text, FORM).to_string().replace("%20", "+");
        for piece in [separator, &form(key), "=", &form(&value)] {
            target.push_str(piece);
        }
        separator = "&";
    };
    for (key, json) in params.iter() {
        match serde_json::from_str::<Vec<&RawValue>>(json) {
            Ok(values) => values.iter().for_each(|value| add(key, value.get())),
            Err(_not_a_list) => add(key, json),
        }
    }
}

/// The parameters as a JSON object without spaces.
fn body(params: &Fields) -> Vec<u8> {
    let members: Vec<String> =
        params.iter().map(|(key, json)| format!("{}:{json}", Value::from(key))).collect();
    format!("{{{}}}", members.join(",")).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(method: HttpMethod, base: &str, path: &str, params: &str) -> Result<Plan, Failure> {
        let server = Server { base_url: base.to_owned(), auth: None };
        let action = HttpAction { method, path: path.to_owned() };
        Plan::new(&server, &action, Fields::parse(params.as_bytes()).unwrap())
    }

    #[track_caller]
    fn get(path: &str, params: &str, expected: &str) {
        let plan = plan(HttpMethod::Get, "http://h", path, params).unwrap();
        assert_eq!(plan.target.to_string(), expected);
        assert_eq!((plan.method, plan.body), (Method::GET, None));
    }

    #[track_caller]
    fn refused(path: &str, params: &str, expected: &str) {
        let error = plan(HttpMethod::Get, "http://h", path, params).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn a_placeholder_is_encoded_and_taken() {
        get("/p/{id}/h", r#"{"id":"a b/c?d#e&f%2F~-_.è"}"#, "/p/a%20b%2Fc%3Fd%23e%26f%252F~-_.%C3%A8/h");
        get("/p/{id}-{id}", r#"{"id":1.50}"#, "/p/1.50-1.50");
        get("/{a}", r#"{"a":true}"#, "/true");
        get("/{a}", r#"{"a":null}"#, "/null");
        get("/{a}", r#"{"a":[1,"x"]}"#, "/%5B1%2C%22x%22%5D");
        get("/{a}", r#"{"a":12345678901234567890123}"#, "/12345678901234567890123");
        get("/x?q={a}", r#"{"a":"1&b=2"}"#, "/x?q=1%26b%3D2");
        get("/x?q={a}", r#"{"a":""}"#, "/x?q=");
        refused("/p/{id}", "{}", "missing path parameter 'id'");
        refused("/p/{id}/h", r#"{"id":""}"#, "path parameter 'id' is empty");
    }

    #[test]
    fn a_value_does_not_climb() {
        get("/p/{id}/h", r#"{"id":".."}"#, "/p/%2E%2E/h");
        get("/p/{id}", r#"{"id":"."}"#, "/p/%2E");
        get("/p/.{id}", r#"{"id":"."}"#, "/p/%2E%2E");
        get("/p/{id}{id}?x=.{id}", r#"{"id":"."}"#, "/p/%2E%2E?x=..");
        get("/p/{id}", r#"{"id":"../../admin.js"}"#, "/p/%2E%2E%2F%2E%2E%2Fadmin%2Ejs");
        get("/p/{id}", r#"{"id":"a\\..\\b"}"#, "/p/a%5C%2E%2E%5Cb");
        get("/p/%2e{id}", r#"{"id":"."}"#, "/p/%2e%2E");
        // These are names, not steps.
        get("/p/{id}", r#"{"id":"..."}"#, "/p/...");
        get("/p/{id}", r#"{"id":"a.txt"}"#, "/p/a.txt");
        get("/p/{id}", r#"{"id":"%2e%2e"}"#, "/p/%252e%252e");
    }

    #[test]
    fn what_is_left_goes_to_the_query_and_leaves_what_stands_there() {
        get("/x", "{}", "/x");
        get("/x?", r#"{"a":1}"#, "/x?a=1");
        get("/x?k=1", "{}", "/x?k=1");
        get("/x?k=1", r#"{"a":"b c","k":2}"#, "/x?k=1&a=b+c&k=2");
        get("/x?k=1&", r#"{"a":1}"#, "/x?k=1&a=1");
        get("/x#part", r#"{"a":1}"#, "/x?a=1");
        get(
            "/x",
            r#"{"a":[1,"b",null,true],"e":[],"n":null,"o":{"k":[1]}}"#,
            "/x?a=1&a=b&a=&a=true&n=&o=%7B%22k%22%3A%5B1%5D%7D",
        );
        get("/x", r#"{"a":1e+20,"b":1.0,"c":"1+1=2&*-._~"}"#, "/x?a=1e%2B20&b=1.0&c=1%2B1%3D2%26*-._%7E");
        get("/x", r#"{"e":[]}"#, "/x");
        get("/a b/è/{x}", r#"{"x":"1"}"#, "/a%20b/%C3%A8/1");
    }

    #[test]
    fn the_body_is_what_is_left_with_its_digits() {
        for (method, name) in [
            (HttpMethod::Post, Method::POST),
            (HttpMethod::Put, Method::PUT),
            (HttpMethod::Patch, Method::PATCH),
        ] {
            let plan =
                plan(method, "http://h/api/", "/x/{id}?k=1", r#"{"id":"7","n":1.50,"s":"\"è"}"#).unwrap();
            assert_eq!((plan.method, plan.target.to_string().as_str()), (name, "/api/x/7?k=1"));
            assert_eq!(plan.body.unwrap(), "{\"n\":1.50,\"s\":\"\\\"è\"}");
        }
        assert_eq!(plan(HttpMethod::Post, "http://h", "/x", "{}").unwrap().body.unwrap(), "{}");
        assert_eq!(plan(HttpMethod::Delete, "http://h", "/x", r#"{"a":1}"#).unwrap().target, "/x?a=1");
    }

    #[test]
    fn a_server_made_by_hand_is_looked_at_too() {
        for (base, expected) in [
            ("ftp://h", "server.baseUrl is neither http nor https"),
            ("/x", "server.baseUrl is neither http nor https"),
            ("http://u:p@h", "server.baseUrl carries a user or a password"),
            ("http://h/?a=1", "server.baseUrl has a query"),
            ("http://a b", "server.baseUrl is not a URL"),
        ] {
            let error = plan(HttpMethod::Get, base, "/", "{}").unwrap_err();
            assert_eq!(error.to_string(), format!("blocked server target: {expected}"));
        }
        let server = Server { base_url: "http://h".to_owned(), auth: Some(Value::Bool(true)) };
        let action = |path: &str| HttpAction { method: HttpMethod::Get, path: path.to_owned() };
        assert!(matches!(Plan::new(&server, &action("/"), Fields::new()), Err(Failure::Credentials)));
        assert!(matches!(Plan::new(&server, &action("/{a}"), Fields::new()), Err(Failure::Invalid(_))));
    }

    #[test]
    fn the_port_is_the_schemes_unless_written() {
        let base = |url: &str| Base::of(&Server { base_url: url.to_owned(), auth: None }).unwrap();
        assert_eq!(
            (base("http://h").port(), base("https://h").port(), base("https://h:80/").port()),
            (80, 443, 80)
        );
        assert_eq!(base("http://h/a/b//").path, "/a/b");
    }

    #[test]
    fn an_address_that_is_too_long_says_so() {
        let params = format!(r#"{{"a":"{}"}}"#, "è".repeat(12_000));
        refused("/", &params, "the params make an address of 72004 bytes, at most 65534 can be sent");
    }
}
