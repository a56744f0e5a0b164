//! `config.json`: what the gateway is told by its owner, parsed once into types.
//!
//! Keys may be written in camelCase or `snake_case`; of two spellings of one key the later in the file wins, and keys
//! this version does not know are ignored (seed `websocket.txt`, wire facts 7.1). One bad value never resets the
//! rest: it is refused with file, key, value and allowed range, at start by not starting and later by keeping what
//! was in force. Nothing here rewrites a file that exists.
//!
//! `websocket.*` is read at start only. `apps.*` may change live ([`LiveApps`], one `stat` a request).
//!
//! Invariants: the file appears whole and with mode 0600, in one step; the secret appears in no message and no `Debug`
//! text, also when it stands where it does not belong: of a value of the wrong kind only the kind is said, unless it is
//! a number, a truth value, or a text under a key of its own.

use std::{
    fmt, fs,
    io::{self, Read as _, Write as _},
    net::IpAddr,
    ops::RangeInclusive,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rustix::{fs::OFlags, io::Errno};
use serde_json::{Map, Value, json};

use crate::{error::with_causes, excerpt::excerpt, signature::Signature, upstream::Cidr};

/// Bytes of a configuration file beyond which it is not read.
const CONFIG_BYTES_MAX: u64 = 1024 * 1024;
/// What `websocket.port` may be; 0 takes a free port.
const PORT_RANGE: RangeInclusive<u64> = 0..=65_535;
/// What `apps.maxCollectionBytes` may be; the upper end is the largest file the engine reads by default, 64 MiB.
const COLLECTION_BYTES_RANGE: RangeInclusive<u64> = 1..=64 << 20;
/// What `apps.paramsMaxChars` may be; the upper end leaves room under the gateway's header limit.
const PARAMS_CHARS_RANGE: RangeInclusive<u64> = 1..=32_768;

/// What `apps.httpTimeoutS` may be, in seconds.
const HTTP_TIMEOUT_RANGE: RangeInclusive<f64> = 1.0..=120.0;

/// The whole configuration, as far as this version uses it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// `websocket`: where to listen, and the install secret.
    pub websocket: WebsocketConfig,
    /// `apps`: switches and limits of the mini-apps.
    pub apps: AppsConfig,
    /// `security.ssrfWhitelist`: addresses that an app's server may have although they are blocked; read at start.
    pub ssrf_allowed: Vec<Cidr>,
}

/// `websocket.*`: read at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebsocketConfig {
    /// `host`: the address or name to listen on; default `127.0.0.1`.
    pub host: String,
    /// `port`: 0 takes a free one; default 8765.
    pub port: u16,
    /// `tokenIssueSecret`: the install secret, trimmed; empty when there is none, and then every call is refused.
    pub secret: Secret,
}

/// `apps.*`: may change while the gateway runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppsConfig {
    /// `enabled`: `false` answers every apps route with 503; default `true`.
    pub enabled: bool,
    /// `maxCollectionBytes`: the size cap of one collection; default 5,000,000, from 1 to 67,108,864 (64 MiB).
    pub collection_bytes_max: u64,
    /// `paramsMaxChars`: characters `params` may have as it stands in the URL; default 6,000, from 1 to 32,768.
    pub params_chars_max: usize,
    /// `httpTimeoutS`: how long an app's server may take, look-up and last byte included; default 20 s, from 1 to 120.
    pub http_timeout: Duration,
}

/// The install secret. `Debug` does not show it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The secret in a text, without white space around it.
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// A new one from the operating system's random source: 32 bytes as 43 characters of base64url.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn generate() -> io::Result<Self> {
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self(URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// Whether there is none, in which case nothing may be opened with it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes, for comparing and for deriving tokens.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "Secret(none)" } else { "Secret(set)" })
    }
}

impl Default for WebsocketConfig {
    fn default() -> Self {
        Self { host: "127.0.0.1".to_owned(), port: 8765, secret: Secret::default() }
    }
}

impl WebsocketConfig {
    /// The host without the brackets that an IPv6 address may be written in.
    pub fn bare_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Refuses an address that others can reach when there is no secret to keep them out.
    ///
    /// # Errors
    /// [`ConfigError::Exposed`] for a host that is not a loopback address or `localhost`, without a secret.
    pub fn check_exposure(&self) -> Result<(), ConfigError> {
        let loopback = self.host.eq_ignore_ascii_case("localhost")
            || self.bare_host().parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback());
        if loopback || !self.secret.is_empty() {
            return Ok(());
        }
        Err(ConfigError::Exposed { host: self.host.clone() })
    }
}

impl Default for AppsConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            collection_bytes_max: 5_000_000,
            params_chars_max: 6_000,
            http_timeout: Duration::from_secs(20),
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The file is not one JSON object.
    #[error("{}: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong and where.
        reason: String,
    },
    /// One value is of the wrong type or out of range.
    #[error("{}: {key} is {value}, allowed is {allowed}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key as it is spelled there, with its section: `websocket.port`.
        key: String,
        /// The value found, shortened, or its kind; never that of a secret.
        value: String,
        /// The allowed range in words.
        allowed: String,
    },
    /// The gateway would be open to the network.
    #[error(
        "host {host} can be reached from other machines and there is no secret: set websocket.tokenIssueSecret in \
         config.json, or listen on 127.0.0.1"
    )]
    Exposed {
        /// The configured host.
        host: String,
    },
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// [`ConfigError`] when the file cannot be read, is not a JSON object, or holds a value out of range.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let read = |source| ConfigError::Read { path: path.to_owned(), source };
        let refuse = |reason| ConfigError::Syntax { path: path.to_owned(), reason };
        // Opening a pipe must not wait for its writer.
        let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
        let file = fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(path).map_err(read)?;
        let metadata = file.metadata().map_err(read)?;
        if !metadata.is_file() {
            return Err(refuse("is not a regular file".to_owned()));
        }
        if metadata.len() > CONFIG_BYTES_MAX {
            return Err(refuse(format!("is {} bytes, at most {CONFIG_BYTES_MAX} are read", metadata.len())));
        }
        let mut text = Vec::new();
        file.take(CONFIG_BYTES_MAX).read_to_end(&mut text).map_err(read)?;
        Self::parse(path, &text)
    }

    /// Parses the text of a configuration file; `path` is for messages only. A BOM at the start is skipped.
    ///
    /// # Errors
    /// [`ConfigError`] when the text is not a JSON object or holds a value out of range.
    pub fn parse(path: &Path, text: &[u8]) -> Result<Self, ConfigError> {
        let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
        let syntax = |reason| ConfigError::Syntax { path: path.to_owned(), reason };
        let root = match serde_json::from_slice(text) {
            Ok(Value::Object(root)) => root,
            Ok(_) => return Err(syntax("the top level must be a JSON object".to_owned())),
            Err(error) => return Err(syntax(format!("is not valid JSON: {error}"))),
        };
        let mut config = Self::default();

        let section = Section::of(path, &root, "websocket")?;
        if let Some(host) = section.text("host", "a host name or an address")? {
            host.clone_into(&mut config.websocket.host);
        }
        if let Some(port) = section.number("port", &PORT_RANGE)? {
            config.websocket.port = u16::try_from(port).expect("the range ends at 65535");
        }
        if let Some(secret) = section.secret("tokenIssueSecret")? {
            config.websocket.secret = secret;
        }

        let section = Section::of(path, &root, "apps")?;
        if let Some(enabled) = section.switch("enabled")? {
            config.apps.enabled = enabled;
        }
        if let Some(bytes) = section.number("maxCollectionBytes", &COLLECTION_BYTES_RANGE)? {
            config.apps.collection_bytes_max = bytes;
        }
        if let Some(chars) = section.number("paramsMaxChars", &PARAMS_CHARS_RANGE)? {
            config.apps.params_chars_max = usize::try_from(chars).expect("the range ends at 32768");
        }
        if let Some(seconds) = section.seconds("httpTimeoutS", &HTTP_TIMEOUT_RANGE)? {
            config.apps.http_timeout = seconds;
        }

        config.ssrf_allowed = Section::of(path, &root, "security")?.ranges("ssrfWhitelist")?;
        Ok(config)
    }

    /// Creates a configuration file with a new secret, readable by its owner only. It is there complete or not at all,
    /// and after this returns it stays.
    ///
    /// # Errors
    /// When the file exists or cannot be written.
    pub fn create(path: &Path) -> io::Result<()> {
        if fs::symlink_metadata(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let secret = Secret::generate()?;
        let content = json!({
            "gateway": { "host": "127.0.0.1" },
            "websocket": { "enabled": true, "token_issue_secret": secret.0 },
        });
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let temp_path = folder.join(format!(".config.json.{:016x}.tmp", u64::from_ne_bytes(random)));
        let text = format!("{content:#}\n");
        // ORDER: the bytes are durable before the name is there, and the name before this returns.
        let _temp = write_private(&temp_path, &text)?;
        match fs::hard_link(&temp_path, path) {
            Ok(()) => {}
            // Shared storage of a phone, FAT, and some sandboxes have no links: the file is written under its name.
            Err(error) if is_refused(&error) => write_private(path, &text)?.keep(),
            Err(error) => return Err(error),
        }
        match fs::File::open(folder)?.sync_all() {
            Err(error) if is_refused(&error) => {
                tracing::warn!(
                    path = %folder.display(),
                    %error,
                    "this file system does not sync folders: a power cut may take config.json back"
                );
                Ok(())
            }
            other => other,
        }
    }
}

/// Writes a new file that only its owner can read. The mode is given with the creation, so there is no moment in which
/// others can read it. It goes away again unless it is kept.
fn write_private(path: &Path, text: &str) -> io::Result<Temp> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let temp = Temp(path.to_path_buf());
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    Ok(temp)
}

/// Whether a file system says that it has no such call.
fn is_refused(error: &io::Error) -> bool {
    let refusals = [
        Errno::NOSYS,
        Errno::OPNOTSUPP,
        Errno::NOTTY,
        Errno::INVAL,
        Errno::PERM,
        Errno::ACCESS,
        Errno::MLINK,
    ];
    Errno::from_io_error(error).is_some_and(|errno| refusals.contains(&errno))
}

/// A file that goes away again unless it is kept.
struct Temp(PathBuf);

impl Temp {
    fn keep(mut self) {
        self.0 = PathBuf::new();
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        if self.0.as_os_str().is_empty() {
            return;
        }
        match fs::remove_file(&self.0) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(path = %self.0.display(), %error, "left-over file not removed"),
        }
    }
}

/// One object of the configuration, read by key in either spelling.
struct Section<'a> {
    path: &'a Path,
    name: &'static str,
    members: Option<&'a Map<String, Value>>,
}

impl<'a> Section<'a> {
    fn of(path: &'a Path, root: &'a Map<String, Value>, name: &'static str) -> Result<Self, ConfigError> {
        match root.get(name) {
            None => Ok(Self { path, name, members: None }),
            Some(Value::Object(members)) => Ok(Self { path, name, members: Some(members) }),
            Some(other) => Err(ConfigError::Value {
                path: path.to_owned(),
                key: name.to_owned(),
                // A text here may be a secret that slipped up a level.
                value: match other {
                    Value::String(_) => "a text".to_owned(),
                    other => shown(other),
                },
                allowed: "a JSON object".to_owned(),
            }),
        }
    }

    /// The last member that spells `camel` in either way.
    fn get(&self, camel: &str) -> Option<(&'a str, &'a Value)> {
        let snake = snake_case(camel);
        let spelled = |(key, _): &(&'a String, &'a Value)| *key == camel || **key == snake;
        self.members?.iter().rfind(spelled).map(|(key, value)| (key.as_str(), value))
    }

    fn refuse(&self, key: &str, value: String, allowed: impl Into<String>) -> ConfigError {
        let key = format!("{}.{key}", self.name);
        ConfigError::Value { path: self.path.to_owned(), key, value, allowed: allowed.into() }
    }

    fn text(&self, camel: &str, allowed: &str) -> Result<Option<&'a str>, ConfigError> {
        let Some((key, value)) = self.get(camel) else { return Ok(None) };
        match value.as_str().map(str::trim) {
            Some(text) if !text.is_empty() => Ok(Some(text)),
            _ => Err(self.refuse(key, shown(value), allowed)),
        }
    }

    fn secret(&self, camel: &str) -> Result<Option<Secret>, ConfigError> {
        let Some((key, value)) = self.get(camel) else { return Ok(None) };
        match value.as_str() {
            Some(text) => Ok(Some(Secret::new(text))),
            None => Err(self.refuse(key, kind(value).to_owned(), "a string")),
        }
    }

    fn switch(&self, camel: &str) -> Result<Option<bool>, ConfigError> {
        let Some((key, value)) = self.get(camel) else { return Ok(None) };
        match value.as_bool() {
            Some(on) => Ok(Some(on)),
            None => Err(self.refuse(key, shown(value), "true or false")),
        }
    }

    fn seconds(&self, camel: &str, range: &RangeInclusive<f64>) -> Result<Option<Duration>, ConfigError> {
        let Some((key, value)) = self.get(camel) else { return Ok(None) };
        match value.as_f64() {
            Some(seconds) if range.contains(&seconds) => Ok(Some(Duration::from_secs_f64(seconds))),
            _ => {
                let allowed = format!("a number of seconds from {} to {}", range.start(), range.end());
                Err(self.refuse(key, shown(value), allowed))
            }
        }
    }

    fn ranges(&self, camel: &str) -> Result<Vec<Cidr>, ConfigError> {
        let Some((key, value)) = self.get(camel) else { return Ok(Vec::new()) };
        let parse = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
        let allowed = "a list of address ranges like 127.0.0.0/8";
        let Value::Array(values) = value else { return Err(self.refuse(key, shown(value), allowed)) };
        values
            .iter()
            .map(|value| parse(value).ok_or_else(|| self.refuse(key, shown(value), allowed)))
            .collect()
    }

    fn number(&self, camel: &str, range: &RangeInclusive<u64>) -> Result<Option<u64>, ConfigError> {
        let Some((key, value)) = self.get(camel) else { return Ok(None) };
        match value.as_u64() {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => {
                let allowed = format!("a whole number from {} to {}", range.start(), range.end());
                Err(self.refuse(key, shown(value), allowed))
            }
        }
    }
}

/// `maxCollectionBytes` as `max_collection_bytes`.
fn snake_case(camel: &str) -> String {
    let mut snake = String::with_capacity(camel.len() + 4);
    for letter in camel.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// A value for a message, at most 64 characters of it; of a list or an object, which may hold anything, only the kind.
fn shown(value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            excerpt(&value.to_string(), 64).into_owned()
        }
        Value::Array(_) | Value::Object(_) => kind(value).to_owned(),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// `apps.*` as the file says it now. Reading costs one `stat`; the file is parsed again only when it changed. A file
/// that went bad or away is logged once, and what was in force stays in force.
#[derive(Debug)]
pub struct LiveApps {
    path: PathBuf,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    apps: AppsConfig,
    /// The file as it was when last read; `None` when it could not be looked at.
    signature: Option<Signature>,
    /// Whether an equal signature now means an equal file.
    trusted: bool,
    /// The text of the problem already logged, so that it is not logged at each request.
    logged: Option<String>,
}

impl LiveApps {
    /// Starts from values that were just read from `path`.
    pub fn new(path: PathBuf, apps: AppsConfig) -> Self {
        Self { path, held: Mutex::new(Held { apps, signature: None, trusted: false, logged: None }) }
    }

    /// The values in force. Blocks for a `stat`, and for a small read after a change.
    pub fn current(&self) -> AppsConfig {
        // Held is only ever replaced field by field with whole values, so one left by a panic is still usable.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let now = SystemTime::now();
        let signature = fs::metadata(&self.path).ok().map(|metadata| Signature::of(&metadata));
        if held.trusted && signature.is_some() && signature == held.signature {
            return held.apps.clone();
        }
        held.signature = signature;
        held.trusted = signature.is_some_and(|signature| signature.is_settled(now));
        match Config::load(&self.path) {
            Ok(config) => {
                held.apps = config.apps;
                held.logged = None;
            }
            Err(error) => {
                let text = with_causes(&error);
                if held.logged.as_ref() != Some(&text) {
                    tracing::error!(
                        error = text,
                        "configuration not reloaded, the values before stay in force"
                    );
                    held.logged = Some(text);
                }
            }
        }
        held.apps.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(Path::new("config.json"), text.as_bytes()).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        assert_eq!(parse(text).unwrap_err(), expected);
    }

    #[test]
    fn an_empty_object_gives_the_defaults() {
        let config = parse("{}").unwrap();
        assert_eq!((config.websocket.host.as_str(), config.websocket.port), ("127.0.0.1", 8765));
        assert_eq!(
            config.apps,
            AppsConfig {
                enabled: true,
                collection_bytes_max: 5_000_000,
                params_chars_max: 6_000,
                http_timeout: Duration::from_secs(20)
            }
        );
        assert!(config.websocket.secret.is_empty());
    }

    #[test]
    fn both_spellings_are_read_and_the_later_wins() {
        let config =
            parse(r#"{"apps":{"maxCollectionBytes":10,"max_collection_bytes":20},"other":[1]}"#).unwrap();
        assert_eq!(config.apps.collection_bytes_max, 20);
        let config =
            parse(r#"{"websocket":{"token_issue_secret":" a ","tokenIssueSecret":"b","port":0}}"#).unwrap();
        assert_eq!(config.websocket.secret, Secret::new("b"));
        assert_eq!(config.websocket.port, 0);
    }

    #[test]
    fn a_bad_value_is_named_with_file_key_value_and_range() {
        refused(
            r#"{"websocket":{"port":70000}}"#,
            "config.json: websocket.port is 70000, allowed is a whole number from 0 to 65535",
        );
        refused(r#"{"apps":{"enabled":1}}"#, "config.json: apps.enabled is 1, allowed is true or false");
        refused(
            r#"{"apps":{"max_collection_bytes":0}}"#,
            "config.json: apps.max_collection_bytes is 0, allowed is a whole number from 1 to 67108864",
        );
        refused(
            r#"{"apps":{"paramsMaxChars":"6000"}}"#,
            "config.json: apps.paramsMaxChars is \"6000\", allowed is a whole number from 1 to 32768",
        );
        refused(r#"{"apps":[]}"#, "config.json: apps is an array, allowed is a JSON object");
        refused(
            r#"{"websocket":{"host":" "}}"#,
            "config.json: websocket.host is \" \", allowed is a host name or an address",
        );
        refused("[]", "config.json: the top level must be a JSON object");
        assert!(parse("{").unwrap_err().starts_with("config.json: is not valid JSON: "));
    }

    #[test]
    fn a_secret_is_in_no_message() {
        for (text, told) in [
            (
                r#"{"websocket":{"tokenIssueSecret":["hunter2"]}}"#,
                "websocket.tokenIssueSecret is an array, allowed is a string",
            ),
            (
                r#"{"websocket":{"token_issue_secret":7}}"#,
                "websocket.token_issue_secret is a number, allowed is a string",
            ),
            (r#"{"websocket":["hunter2"]}"#, "websocket is an array, allowed is a JSON object"),
            (r#"{"websocket":"hunter2"}"#, "websocket is a text, allowed is a JSON object"),
            (
                r#"{"websocket":{"host":{"secret":"hunter2"}}}"#,
                "websocket.host is an object, allowed is a host name or an address",
            ),
            (
                r#"{"websocket":{"port":["hunter2"]}}"#,
                "websocket.port is an array, allowed is a whole number from 0 to 65535",
            ),
            (r#"{"apps":{"enabled":["hunter2"]}}"#, "apps.enabled is an array, allowed is true or false"),
        ] {
            refused(text, &format!("config.json: {told}"));
        }
        let config = parse(r#"{"websocket":{"tokenIssueSecret":"hunter2"}}"#).unwrap();
        assert!(!format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn only_loopback_may_go_without_a_secret() {
        let check = |host: &str, secret: &str| {
            WebsocketConfig { host: host.to_owned(), port: 0, secret: Secret::new(secret) }
                .check_exposure()
                .is_ok()
        };
        for host in ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"] {
            assert!(check(host, ""), "{host}");
        }
        for host in ["0.0.0.0", "::", "192.168.1.2", "example.org"] {
            assert!(!check(host, ""), "{host}");
            assert!(check(host, "s"), "{host}");
        }
    }

    #[test]
    fn a_created_file_is_private_and_holds_a_43_character_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        Config::create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let config = Config::load(&path).unwrap();
        assert_eq!(config.websocket.secret.as_bytes().len(), 43);
        assert_eq!(Config::create(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no half-done file stays");
    }

    #[test]
    fn of_many_that_create_at_once_one_wins() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let created = std::thread::scope(|scope| {
            let creators: Vec<_> = (0..8).map(|_| scope.spawn(|| Config::create(&path).is_ok())).collect();
            creators.into_iter().map(|it| it.join().unwrap()).filter(|&won| won).count()
        });
        assert_eq!(created, 1);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        Config::load(&path).unwrap();
    }

    #[test]
    fn a_pipe_or_a_folder_in_its_place_is_refused_and_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let refused = |path: &Path| Config::load(path).unwrap_err().to_string();
        assert!(refused(&path).ends_with("config.json: is not a regular file"));
        assert!(refused(folder.path()).ends_with("is not a regular file"));
        assert_eq!(LiveApps::new(path, AppsConfig::default()).current(), AppsConfig::default());
    }

    #[test]
    fn a_bad_edit_keeps_the_values_that_were_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        let live = LiveApps::new(path.clone(), AppsConfig::default());
        assert!(live.current().enabled, "a missing file changes nothing");
        fs::write(&path, r#"{"apps":{"enabled":false}}"#).unwrap();
        assert!(!live.current().enabled);
        fs::write(&path, r#"{"apps":{"enabled":"yes"}}"#).unwrap();
        assert!(!live.current().enabled);
        fs::write(&path, "{}").unwrap();
        assert!(live.current().enabled);
    }
}
