//! `app.json`: what an app declares, parsed into types that leave nothing to check at call time.
//!
//! Loading never fails as a whole and never panics (seed, "The manifest"): a folder that cannot be used is an app
//! that is broken, with readable reasons. All reasons are collected, in the order name, description, server, actions,
//! duplicates, view, because an author (often a language model) repairs them in one go.
//!
//! Limits: 256 KiB a manifest, JSON nested to 127 levels, [`ACTIONS_MAX`] actions, and those of [`super::schema`]. A BOM at the start is skipped. A link in the place of the
//! folder, of `app.json` or of `data` is refused: an app's files are in its folder.
//!
//! Left out on purpose: the contents of `summary` (or its older name `section`) and `reader` are kept as they
//! are and not checked yet. Keys that are not known are ignored.

use std::{
    collections::BTreeSet,
    fmt, fs,
    io::{self, Read as _},
    net::Ipv6Addr,
    path::Path,
};

use hyper::Uri;
use linekeep_engine::CollectionName;
use serde_json::{Map, Value};

use super::{
    ActionName, Slug,
    schema::{PARAMS_MAX, PATTERNS_MAX, ParamSchema, Reserved, patterns_count},
};
use crate::excerpt::{excerpt, is_unprintable, one_line};

/// The manifest's file name in an app's folder.
pub const MANIFEST_FILE: &str = "app.json";
/// The folder of collections in an app's folder.
pub const DATA_FOLDER: &str = "data";
/// Bytes of the largest manifest that is read.
pub const MANIFEST_BYTES_MAX: u64 = 256 * 1024;
/// Actions one manifest may declare.
pub const ACTIONS_MAX: usize = 200;
/// The icon of an app that declares none (seed).
pub const ICON_DEFAULT: &str = "ti-apps";

/// The seed's text for a declared `server.auth`, word for word.
const AUTH_REFUSED: &str = "app.json: server.auth is declared but app-server credentials are not supported yet — \
                            remove the 'auth' block (every http action would be refused with 501)";
/// Characters of a value that a reason shows.
const VALUE_CHARS_MAX: usize = 64;
/// Reasons that the one-line text of a broken app shows.
const REASONS_SHOWN_MAX: usize = 8;

/// A folder of the workspace, whatever became of it.
#[derive(Debug)]
pub struct LoadedApp {
    /// The folder's name: the slug, when it is a valid one.
    pub folder: String,
    /// The manifest, or why there is none to use.
    pub manifest: Result<Manifest, Broken>,
}

/// Why an app cannot be used; at least one reason. `Display` gives them in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// Each reason, a line without full stop.
    pub reasons: Vec<String>,
}

impl Broken {
    /// Takes the reasons; what in them would leave its line is escaped.
    fn new(reasons: Vec<String>) -> Self {
        Self { reasons: reasons.into_iter().map(|reason| one_line(&reason).into_owned()).collect() }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.reasons.len().min(REASONS_SHOWN_MAX);
        f.write_str(&self.reasons[..shown].join("; "))?;
        match self.reasons.len() - shown {
            0 => Ok(()),
            hidden => write!(f, "; and {hidden} more"),
        }
    }
}

/// A valid manifest.
#[derive(Debug)]
pub struct Manifest {
    /// The folder's name.
    pub slug: Slug,
    /// Display name, trimmed, not blank.
    pub name: String,
    /// One line that says what the app is for, trimmed, not blank.
    pub description: String,
    /// A Tabler icon name.
    pub icon: String,
    /// The app's own server, if it has one.
    pub server: Option<Server>,
    /// The declared actions, in order, with unique names.
    pub actions: Vec<Action>,
    /// `view`: what the app's screen is, if not its own `app/index.html`.
    pub view: Option<View>,
    /// `summary` (or `section`) as it stands, not checked yet.
    pub summary: Option<Value>,
    /// `reader` as it stands, not checked yet.
    pub reader: Option<Value>,
}

/// `server`: where an app's http actions go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// `baseUrl`: `http://` or `https://`, with a host, without credentials, query and fragment.
    pub base_url: String,
    /// A declared `auth`. Loading refuses it, so only a manifest made by hand has one; its http actions answer 501.
    pub auth: Option<Value>,
}

/// `view`: what an app's screen is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// The web interface of the app's server.
    External,
}

/// One declared action.
#[derive(Debug)]
pub struct Action {
    /// Unique in its app.
    pub name: ActionName,
    /// What it does, written for a model, trimmed, not blank.
    pub description: String,
    /// What runs it.
    pub kind: Kind,
    /// What it accepts.
    pub params: ParamSchema,
}

/// `kind` of an action, with what that kind needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// An operation on a collection of the app.
    Storage(StorageAction),
    /// A request to the app's server.
    Http(HttpAction),
}

/// What a storage action does, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageAction {
    /// The operation.
    pub op: StorageOp,
    /// The collection, a file in the app's `data` folder.
    pub collection: CollectionName,
}

/// `op` of a storage action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageOp {
    /// Adds a record.
    Append,
    /// Replaces a record, or adds it.
    Set,
    /// Merges into a record.
    Update,
    /// Removes a record.
    Delete,
    /// Finds records.
    Query,
}

impl StorageOp {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "append" => Self::Append,
            "set" => Self::Set,
            "update" => Self::Update,
            "delete" => Self::Delete,
            "query" => Self::Query,
            _ => return None,
        })
    }

    /// The parameter that the operation adds.
    pub fn reserved(self) -> Reserved {
        match self {
            Self::Append => Reserved::Nothing,
            Self::Set | Self::Update | Self::Delete => Reserved::Id,
            Self::Query => Reserved::Limit,
        }
    }
}

/// What a http action asks of the app's server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpAction {
    /// The request's method.
    pub method: HttpMethod,
    /// The path after `server.baseUrl`; each `{placeholder}` in it is a declared parameter.
    pub path: String,
}

/// `method` of a http action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpMethod {
    /// Parameters go to the query string.
    Get,
    /// Parameters go to the body.
    Post,
    /// Parameters go to the body.
    Put,
    /// Parameters go to the body.
    Patch,
    /// Parameters go to the query string.
    Delete,
}

impl HttpMethod {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "GET" => Self::Get,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            _ => return None,
        })
    }
}

impl Manifest {
    /// The action of that name.
    pub fn action(&self, name: &ActionName) -> Option<&Action> {
        self.actions.iter().find(|action| action.name == *name)
    }

    /// Parses a manifest for the app `slug`. What lies outside the text is not looked at.
    ///
    /// # Errors
    /// [`Broken`] with every reason found.
    pub fn parse(slug: &Slug, text: &[u8]) -> Result<Self, Broken> {
        let mut reasons = Vec::new();
        match parse(slug, text, &mut reasons) {
            Some(manifest) if reasons.is_empty() => Ok(manifest),
            _ => Err(Broken::new(reasons)),
        }
    }
}

/// Loads the app in `folder`. What is wrong with it is in the answer. Blocks.
///
/// # Errors
/// When the disk does not let itself be read at the moment, which says nothing about the app.
pub fn load_app(folder: &Path) -> io::Result<LoadedApp> {
    let name = folder.file_name().unwrap_or(folder.as_os_str()).to_string_lossy().into_owned();
    let mut reasons = Vec::new();
    let slug = name.parse::<Slug>().ok();
    if slug.is_none() {
        reasons.push(format!("folder name '{name}' is not a valid slug"));
    }
    let manifest = match read(folder)? {
        // A stand-in slug, so that a badly named folder still hears what else is wrong; it is not returned.
        Ok(text) => {
            let checked = slug.clone().or_else(|| "unnamed".parse().ok());
            checked.and_then(|slug| parse(&slug, &text, &mut reasons))
        }
        Err(reason) => {
            reasons.push(reason);
            None
        }
    };
    let manifest = match manifest {
        Some(manifest) if reasons.is_empty() => Ok(manifest),
        _ => Err(Broken::new(reasons)),
    };
    Ok(LoadedApp { folder: name, manifest })
}

/// Whether an error says how a path is, and will say the same next time; any other passes, or is the disk's.
pub(super) fn is_lasting(error: &io::Error) -> bool {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | PermissionDenied | NotADirectory | IsADirectory)
}

/// Reads the manifest's text, after a look at what kind of things folder, manifest and data are. The inner error is a
/// reason why the app is broken.
fn read(folder: &Path) -> io::Result<Result<Vec<u8>, String>> {
    let unreadable = |what: &str, error: io::Error| {
        if is_lasting(&error) {
            Ok(Err(format!("{what} cannot be read: {}", error.kind())))
        } else {
            Err(error)
        }
    };
    let broken = |reason: &str| Ok(Err(reason.to_owned()));

    let metadata = match fs::symlink_metadata(folder) {
        Ok(metadata) => metadata,
        Err(error) => return unreadable("the app folder", error),
    };
    if metadata.is_symlink() {
        return broken("the app folder is a symbolic link");
    }
    if !metadata.is_dir() {
        return broken("it is not a folder");
    }
    match fs::symlink_metadata(folder.join(DATA_FOLDER)) {
        Ok(data) if data.is_symlink() => return broken("data is a symbolic link"),
        Ok(data) if !data.is_dir() => return broken("data is not a folder"),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return unreadable("data", error),
    }

    let path = folder.join(MANIFEST_FILE);
    let metadata = match fs::symlink_metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return broken("app.json is missing"),
        Err(error) => return unreadable(MANIFEST_FILE, error),
    };
    if metadata.is_symlink() {
        return broken("app.json is a symbolic link");
    }
    if !metadata.is_file() {
        return broken("app.json is not a regular file");
    }
    let mut text = Vec::new();
    let done =
        fs::File::open(&path).and_then(|file| file.take(MANIFEST_BYTES_MAX + 1).read_to_end(&mut text));
    if let Err(error) = done {
        return unreadable(MANIFEST_FILE, error);
    }
    if text.len() as u64 > MANIFEST_BYTES_MAX {
        return Ok(Err(format!("app.json is larger than {MANIFEST_BYTES_MAX} bytes")));
    }
    Ok(Ok(text))
}

/// Parses the text. `None` only when a reason was added that leaves nothing to build; reasons may also be added
/// beside a manifest, which is then not to be used.
fn parse(slug: &Slug, text: &[u8], reasons: &mut Vec<String>) -> Option<Manifest> {
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    let mut root = match serde_json::from_slice(text) {
        Ok(Value::Object(root)) => root,
        Ok(_) => {
            reasons.push("app.json: the top level must be a JSON object".to_owned());
            return None;
        }
        Err(error) => {
            reasons.push(format!("app.json: is not valid JSON: {error}"));
            return None;
        }
    };
    let name = label(&root, "name", "app.json: ", reasons);
    let description = label(&root, "description", "app.json: ", reasons);
    if let Some(description) = description.as_ref().filter(|text| text.contains(is_unprintable)) {
        let got = excerpt(description, VALUE_CHARS_MAX);
        reasons.push(format!(
            "app.json: 'description' must be one line without control characters (got \"{got}\")"
        ));
    }
    let server = server(&root, reasons);
    let actions = actions(&root, server.as_ref(), reasons);
    let view = view(&root, server.as_ref(), reasons);
    let icon = match root.get("icon") {
        Some(Value::String(icon)) if !icon.trim().is_empty() => icon.trim().to_owned(),
        _ => ICON_DEFAULT.to_owned(),
    };
    let summary = root.remove("summary").or_else(|| root.remove("section"));
    Some(Manifest {
        slug: slug.clone(),
        name: name?,
        description: description?,
        icon,
        server,
        actions,
        view,
        summary,
        reader: root.remove("reader"),
    })
}

/// A required text that is not blank, trimmed.
fn label(object: &Map<String, Value>, key: &str, place: &str, reasons: &mut Vec<String>) -> Option<String> {
    match object.get(key) {
        Some(Value::String(text)) if !text.trim().is_empty() => Some(text.trim().to_owned()),
        None => {
            reasons.push(format!("{place}'{key}' is missing"));
            None
        }
        Some(other) => {
            reasons.push(format!("{place}'{key}' must be a text that is not blank (got {})", shown(other)));
            None
        }
    }
}

/// A member that may be left out; `null` is left out too.
fn optional<'a>(object: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    object.get(key).filter(|value| !value.is_null())
}

fn server(root: &Map<String, Value>, reasons: &mut Vec<String>) -> Option<Server> {
    let server = optional(root, "server")?;
    let Value::Object(server) = server else {
        reasons
            .push(format!("app.json: 'server' must be an object with a 'baseUrl' (got {})", shown(server)));
        return None;
    };
    if optional(server, "auth").is_some() {
        reasons.push(AUTH_REFUSED.to_owned());
    }
    let base_url = match server.get("baseUrl") {
        Some(Value::String(url)) => url.trim(),
        Some(other) => {
            reasons.push(format!("app.json: server.baseUrl must be a text (got {})", shown(other)));
            return None;
        }
        None => {
            reasons.push("app.json: server.baseUrl is missing".to_owned());
            return None;
        }
    };
    match check_base_url(base_url) {
        Ok(()) => Some(Server { base_url: base_url.to_owned(), auth: None }),
        Err(reason) => {
            // What stands beside an '@' may be a password.
            let got =
                if base_url.contains('@') { "not shown".into() } else { excerpt(base_url, VALUE_CHARS_MAX) };
            reasons.push(format!("app.json: server.baseUrl {reason} (got {got})"));
            None
        }
    }
}

fn view(root: &Map<String, Value>, server: Option<&Server>, reasons: &mut Vec<String>) -> Option<View> {
    let view = optional(root, "view")?;
    match view.get("kind").and_then(Value::as_str) {
        Some("external") if server.is_some() => Some(View::External),
        Some("external") => {
            reasons.push(
                "app.json: 'view' of kind \"external\" needs a usable 'server.baseUrl' in the manifest"
                    .to_owned(),
            );
            None
        }
        Some(_) | None => {
            reasons.push(format!(
                "app.json: 'view' must be {{\"kind\": \"external\"}}, the only kind there is (got {})",
                shown(view)
            ));
            None
        }
    }
}

/// Whether a text is a http(s) URL with a host, at most a port, no credentials, and nothing that an action's path could
/// not be added to.
fn check_base_url(url: &str) -> Result<(), &'static str> {
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return Err("must start with http:// or https://");
    }
    let authority = url.split(['/', '?', '#']).nth(2).unwrap_or_default();
    if authority.contains('@') {
        return Err("must not carry a user or a password");
    }
    if url.contains(['?', '#']) {
        return Err("must not have a query or a fragment");
    }
    let parsed = url.parse::<Uri>().ok().and_then(|uri| uri.into_parts().authority);
    let Some(parsed) = parsed.filter(|parsed| !parsed.host().is_empty() && parsed.as_str() == authority)
    else {
        return Err("is not a URL with a host");
    };
    let host = parsed.host();
    if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'))
        && address.parse::<Ipv6Addr>().is_err()
    {
        return Err("is not a URL with a host");
    }
    let port = &authority[host.len()..];
    let in_range = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    if port.is_empty() || port.strip_prefix(':').is_some_and(in_range) {
        Ok(())
    } else {
        Err("must have a port from 1 to 65535, or none")
    }
}

fn actions(root: &Map<String, Value>, server: Option<&Server>, reasons: &mut Vec<String>) -> Vec<Action> {
    let declared = match optional(root, "actions") {
        None => return Vec::new(),
        Some(Value::Array(declared)) => declared,
        Some(other) => {
            reasons.push(format!("app.json: 'actions' must be an array (got {})", shown(other)));
            return Vec::new();
        }
    };
    // ORDER: the bounds come first, so that what is over them is not compiled.
    if declared.len() > ACTIONS_MAX {
        reasons.push(format!(
            "app.json: 'actions' is too large: {} actions, at most {ACTIONS_MAX}",
            declared.len()
        ));
        return Vec::new();
    }
    let fragments = declared.iter().filter_map(|action| action.get("params")?.as_object());
    let patterns: usize = fragments.flat_map(Map::values).map(patterns_count).sum();
    if patterns > PATTERNS_MAX {
        reasons.push(format!(
            "app.json: 'actions' is too large: {patterns} patterns in all params, at most {PATTERNS_MAX}"
        ));
        return Vec::new();
    }
    let actions = declared
        .iter()
        .enumerate()
        .filter_map(|(index, value)| action(index, value, server, reasons))
        .collect();

    let mut seen = BTreeSet::new();
    let mut repeated = BTreeSet::new();
    for name in declared.iter().filter_map(|value| value.get("name")?.as_str()) {
        if !seen.insert(name) {
            repeated.insert(name);
        }
    }
    for name in repeated {
        reasons.push(format!("app.json: more than one action is named '{}'", excerpt(name, VALUE_CHARS_MAX)));
    }
    actions
}

/// Parses one action; `None` when a reason was added.
fn action(index: usize, value: &Value, server: Option<&Server>, reasons: &mut Vec<String>) -> Option<Action> {
    let reasons_before = reasons.len();
    let place = format!("app.json: actions[{index}]");
    let Value::Object(object) = value else {
        reasons.push(format!("{place}: must be an object (got {})", shown(value)));
        return None;
    };
    let name = match object.get("name").map(|name| (name, name.as_str().map(str::parse::<ActionName>))) {
        Some((_, Some(Ok(name)))) => Some(name),
        Some((other, _)) => {
            reasons.push(format!(
                "{place}: 'name' must be lower-case letters, digits and '_', a letter first, at most 64 \
                 characters (got {})",
                shown(other)
            ));
            None
        }
        None => {
            reasons.push(format!("{place}: 'name' is missing"));
            None
        }
    };
    let place = match &name {
        Some(name) => format!("{place} ({name}): "),
        None => format!("{place}: "),
    };
    let description = label(object, "description", &place, reasons);
    let declared = params(object, &place, reasons);
    let required = required(object, &place, reasons);
    let kind = kind(object, &place, server, declared, reasons);

    let reserved = match &kind {
        Some(Kind::Storage(storage)) => storage.op.reserved(),
        Some(Kind::Http(_)) | None => Reserved::Nothing,
    };
    let empty = Map::new();
    let params = match ParamSchema::compile(declared.unwrap_or(&empty), &required, reserved) {
        Ok(params) => Some(params),
        Err(errors) => {
            reasons.extend(errors.into_iter().map(|error| format!("{place}{error}")));
            None
        }
    };
    if reasons.len() > reasons_before {
        return None;
    }
    Some(Action { name: name?, description: description?, kind: kind?, params: params? })
}

fn params<'a>(
    object: &'a Map<String, Value>,
    place: &str,
    reasons: &mut Vec<String>,
) -> Option<&'a Map<String, Value>> {
    match optional(object, "params")? {
        Value::Object(params) if params.len() > PARAMS_MAX => {
            reasons
                .push(format!("{place}'params' is too large: {} params, at most {PARAMS_MAX}", params.len()));
            None
        }
        Value::Object(params) => Some(params),
        other => {
            reasons.push(format!(
                "{place}'params' must be an object of name and JSON Schema (got {})",
                shown(other)
            ));
            None
        }
    }
}

fn required(object: &Map<String, Value>, place: &str, reasons: &mut Vec<String>) -> Vec<String> {
    let names = match optional(object, "required") {
        None => return Vec::new(),
        Some(Value::Array(names)) => names.iter().map(|name| name.as_str().map(str::to_owned)).collect(),
        Some(_) => None,
    };
    names.unwrap_or_else(|| {
        reasons.push(format!("{place}'required' must be an array of names of params"));
        Vec::new()
    })
}

fn kind(
    object: &Map<String, Value>,
    place: &str,
    server: Option<&Server>,
    declared: Option<&Map<String, Value>>,
    reasons: &mut Vec<String>,
) -> Option<Kind> {
    match object.get("kind").map(|kind| (kind, kind.as_str())) {
        Some((_, Some("storage"))) => storage_kind(object, place, reasons),
        Some((_, Some("http"))) => http_kind(object, place, server, declared, reasons),
        Some((other, _)) => {
            reasons
                .push(format!("{place}'kind' is 'storage' or 'http', nothing else (got {})", shown(other)));
            None
        }
        None => {
            reasons.push(format!("{place}'kind' is missing ('storage' or 'http')"));
            None
        }
    }
}

fn storage_kind(object: &Map<String, Value>, place: &str, reasons: &mut Vec<String>) -> Option<Kind> {
    let op = object.get("op").and_then(Value::as_str).and_then(StorageOp::parse);
    if op.is_none() {
        reasons.push(format!(
            "{place}'op' is one of append, set, update, delete, query (got {})",
            shown(object.get("op").unwrap_or(&Value::Null))
        ));
    }
    let collection = object.get("collection").and_then(Value::as_str).and_then(|name| name.parse().ok());
    if collection.is_none() {
        reasons.push(format!(
            "{place}'collection' must be lower-case words of letters and digits joined by single hyphens, at most 64 \
             bytes (got {})",
            shown(object.get("collection").unwrap_or(&Value::Null))
        ));
    }
    Some(Kind::Storage(StorageAction { op: op?, collection: collection? }))
}

fn http_kind(
    object: &Map<String, Value>,
    place: &str,
    server: Option<&Server>,
    declared: Option<&Map<String, Value>>,
    reasons: &mut Vec<String>,
) -> Option<Kind> {
    if server.is_none() {
        reasons.push(format!("{place}a http action needs a usable 'server.baseUrl' in the manifest"));
    }
    let method = object.get("method").and_then(Value::as_str).and_then(HttpMethod::parse);
    if method.is_none() {
        reasons.push(format!(
            "{place}'method' is one of GET, POST, PUT, PATCH, DELETE (got {})",
            shown(object.get("method").unwrap_or(&Value::Null))
        ));
    }
    let path = object.get("path").and_then(Value::as_str).filter(|path| path.starts_with('/'));
    let Some(path) = path else {
        reasons.push(format!(
            "{place}'path' must be a text that starts with '/' (got {})",
            shown(object.get("path").unwrap_or(&Value::Null))
        ));
        return None;
    };
    match placeholders(path) {
        None => {
            reasons.push(format!("{place}'path' has braces that do not pair up to {{name}}"));
            return None;
        }
        Some(names) => {
            for name in names {
                if !declared.is_some_and(|declared| declared.contains_key(name)) {
                    let name = excerpt(name, VALUE_CHARS_MAX);
                    reasons.push(format!("{place}'path' uses {{{name}}}, which is not a declared param"));
                }
            }
        }
    }
    Some(Kind::Http(HttpAction { method: method?, path: path.to_owned() }))
}

/// The names in braces, each once; `None` when a brace has no partner or nothing stands between two.
fn placeholders(path: &str) -> Option<BTreeSet<&str>> {
    let mut names = BTreeSet::new();
    let mut rest = path;
    while let Some(brace) = rest.find(['{', '}']) {
        let inside = rest[brace..].strip_prefix('{')?;
        let (name, after) = inside.split_once('}')?;
        if name.is_empty() || name.contains('{') {
            return None;
        }
        names.insert(name);
        rest = after;
    }
    Some(names)
}

/// A value for a reason: its JSON text, shortened.
fn shown(value: &Value) -> String {
    excerpt(&value.to_string(), VALUE_CHARS_MAX).into_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    /// The seed's full example, a folder named piante.
    const PIANTE: &str = r#"{
      "name": "Piante",
      "description": "Plant monitoring: humidity, status, care log",
      "server": { "baseUrl": "http://192.168.1.50:8080" },
      "actions": [
        { "name": "lista_piante", "kind": "http", "method": "GET", "path": "/plants",
          "description": "List plants with status" },
        { "name": "umidita_pianta", "kind": "http", "method": "GET",
          "path": "/plants/{id}/humidity", "params": { "id": { "type": "string" } },
          "required": ["id"], "description": "Current humidity for one plant" },
        { "name": "annota_cura", "kind": "storage", "op": "append", "collection": "cure",
          "params": { "pianta": { "type": "string" }, "nota": { "type": "string" } },
          "required": ["pianta"], "description": "Log a care event" }
      ]
    }"#;

    fn parse(text: &str) -> Result<Manifest, Vec<String>> {
        Manifest::parse(&"x".parse().unwrap(), text.as_bytes()).map_err(|broken| broken.reasons)
    }

    /// Parses a manifest with these members beside a name and a description.
    fn parse_with(members: &Value) -> Result<Manifest, Vec<String>> {
        let mut root = json!({"name": "N", "description": "D"});
        for (key, value) in members.as_object().unwrap() {
            root[key] = value.clone();
        }
        parse(&root.to_string())
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "a table reads better with `json!` by value")]
    fn refused(members: Value, expected: &[&str]) {
        assert_eq!(parse_with(&members).err().unwrap_or_default(), expected, "for {members}");
    }

    /// The reasons for one action, without `app.json: actions[0] (a): `.
    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "a table reads better with `json!` by value")]
    fn action_refused(action: Value, expected: &[&str]) {
        let mut whole = json!({"name": "a", "description": "d"});
        for (key, value) in action.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let members = json!({"server": {"baseUrl": "http://h"}, "actions": [whole]});
        let reasons = parse_with(&members).err().unwrap_or_default();
        let expected: Vec<_> =
            expected.iter().map(|reason| format!("app.json: actions[0] (a): {reason}")).collect();
        assert_eq!(reasons, expected, "for {action}");
    }

    #[test]
    fn the_example_of_the_seed_is_valid() {
        let manifest = parse(PIANTE).unwrap();
        assert_eq!((manifest.name.as_str(), manifest.icon.as_str()), ("Piante", "ti-apps"));
        assert_eq!(manifest.server.as_ref().unwrap().base_url, "http://192.168.1.50:8080");
        let kinds: Vec<_> = manifest.actions.iter().map(|action| action.kind.clone()).collect();
        assert_eq!(
            kinds,
            [
                Kind::Http(HttpAction { method: HttpMethod::Get, path: "/plants".into() }),
                Kind::Http(HttpAction { method: HttpMethod::Get, path: "/plants/{id}/humidity".into() }),
                Kind::Storage(StorageAction { op: StorageOp::Append, collection: "cure".parse().unwrap() }),
            ]
        );
        assert!(manifest.action(&"annota_cura".parse().unwrap()).is_some());
        assert!(manifest.action(&"altro".parse().unwrap()).is_none());
    }

    #[test]
    fn name_and_description_are_trimmed_and_not_blank() {
        let manifest = parse("\u{feff}{\"name\":\" N \",\"description\":\"\\tD\"}").unwrap();
        assert_eq!((manifest.name.as_str(), manifest.description.as_str()), ("N", "D"));
        refused(json!({"name": " "}), &["app.json: 'name' must be a text that is not blank (got \" \")"]);
        refused(
            json!({"description": 7}),
            &["app.json: 'description' must be a text that is not blank (got 7)"],
        );
        assert_eq!(
            parse("{}").unwrap_err(),
            ["app.json: 'name' is missing", "app.json: 'description' is missing"]
        );
    }

    #[test]
    fn the_description_is_one_line() {
        for (text, shown) in [
            ("a\nb", "a\\nb"),
            ("a\u{1b}[2Kb", "a\\u{1b}[2Kb"),
            ("a\u{85}b", "a\\u{85}b"),
            ("a\u{2028}b", "a\\u{2028}b"),
            ("a\u{2029}b", "a\\u{2029}b"),
        ] {
            let reason = format!(
                "app.json: 'description' must be one line without control characters (got \"{shown}\")"
            );
            refused(json!({"description": text}), &[&reason]);
        }
    }

    #[test]
    fn what_is_too_large_is_refused_before_it_is_compiled() {
        let action = |number: usize, params: Value| {
            let (name, kind) = (format!("a{number}"), "storage");
            json!({"name": name, "description": "d", "kind": kind, "op": "append", "collection": "c",
                "params": params})
        };
        let actions: Vec<_> = (0..=200).map(|number| action(number, json!({}))).collect();
        assert!(parse_with(&json!({"actions": actions[..200]})).is_ok());
        refused(
            json!({ "actions": actions }),
            &["app.json: 'actions' is too large: 201 actions, at most 200"],
        );
        let params = |count: usize| -> Value {
            (0..count)
                .map(|number| (format!("p{number}"), json!({"type": "string"})))
                .collect::<Map<_, _>>()
                .into()
        };
        assert!(parse_with(&json!({"actions": [action(0, params(100))]})).is_ok());
        refused(
            json!({"actions": [action(0, params(101))]}),
            &["app.json: actions[0] (a0): 'params' is too large: 101 params, at most 100"],
        );
        let patterns = |count: usize| -> Vec<Value> {
            let param = json!({"p": {"type": "string", "pattern": "^a$"}});
            (0..count).map(|number| action(number, param.clone())).collect()
        };
        assert!(parse_with(&json!({"actions": patterns(64)})).is_ok());
        refused(
            json!({"actions": patterns(65)}),
            &["app.json: 'actions' is too large: 65 patterns in all params, at most 64"],
        );
    }

    #[test]
    fn a_disk_that_fails_does_not_make_an_app_broken() {
        // No path has a NUL in it: an error that is neither absence nor a lack of rights.
        assert!(load_app(Path::new("a\0b")).is_err());
        for kind in [io::ErrorKind::Other, io::ErrorKind::TimedOut, io::ErrorKind::StaleNetworkFileHandle] {
            assert!(!is_lasting(&kind.into()), "{kind}");
        }
    }

    #[test]
    fn what_is_not_an_object_is_refused() {
        assert_eq!(parse("[]").unwrap_err(), ["app.json: the top level must be a JSON object"]);
        for text in
            ["", "{", "{\"name\":NaN}", "\u{feff}\u{feff}{}", &"[".repeat(100_000), "{\"a\":\"\\ud800\"}"]
        {
            assert!(parse(text).unwrap_err()[0].starts_with("app.json: is not valid JSON: "));
        }
        assert!(Manifest::parse(&"x".parse().unwrap(), b"{\"name\":\"\xff\"}").is_err());
    }

    #[test]
    fn an_icon_that_is_no_text_is_the_default() {
        for (icon, expected) in [(json!("ti-x"), "ti-x"), (json!(""), "ti-apps"), (json!(5), "ti-apps")] {
            assert_eq!(parse_with(&json!({ "icon": icon })).unwrap().icon, expected);
        }
    }

    #[test]
    fn server_rules() {
        let cases = [
            (json!("http://h"), "app.json: 'server' must be an object with a 'baseUrl' (got \"http://h\")"),
            (json!({}), "app.json: server.baseUrl is missing"),
            (json!({"baseUrl": 1}), "app.json: server.baseUrl must be a text (got 1)"),
            (
                json!({"baseUrl": "ftp://h"}),
                "app.json: server.baseUrl must start with http:// or https:// (got ftp://h)",
            ),
            (
                json!({"baseUrl": "HTTP://h"}),
                "app.json: server.baseUrl must start with http:// or https:// (got HTTP://h)",
            ),
            (
                json!({"baseUrl": "ftp://u:p@h"}),
                "app.json: server.baseUrl must start with http:// or https:// (got not shown)",
            ),
            (
                json!({"baseUrl": "http://u:p@h/"}),
                "app.json: server.baseUrl must not carry a user or a password (got not shown)",
            ),
            (
                json!({"baseUrl": "http://h\\@x/"}),
                "app.json: server.baseUrl must not carry a user or a password (got not shown)",
            ),
        ];
        for (server, expected) in cases {
            refused(json!({ "server": server }), &[expected]);
        }
        for url in ["http://h/a?b=1", "http://h?", "http://h/#part"] {
            refused(
                json!({"server": {"baseUrl": url}}),
                &[&format!("app.json: server.baseUrl must not have a query or a fragment (got {url})")],
            );
        }
        for url in [
            "http:///x",
            "http://a b",
            "http://",
            "http://:80",
            "http://[::1",
            "http://[x]/",
            "http://a\u{1b}",
            "http://è",
        ] {
            let got = if url.contains('\u{1b}') { "http://a\\u{1b}" } else { url };
            refused(
                json!({"server": {"baseUrl": url}}),
                &[&format!("app.json: server.baseUrl is not a URL with a host (got {got})")],
            );
        }
        for url in ["http://h:99999", "http://h:0", "http://h:", "http://[::1]:65536/x"] {
            refused(
                json!({"server": {"baseUrl": url}}),
                &[&format!("app.json: server.baseUrl must have a port from 1 to 65535, or none (got {url})")],
            );
        }
        for url in ["http://h", "https://[::1]:8/x", "http://h/a@b", "http://192.168.1.9:65535"] {
            assert!(parse_with(&json!({"server": {"baseUrl": url, "auth": null}})).is_ok(), "{url}");
        }
    }

    #[test]
    fn declared_credentials_are_refused_with_the_text_of_the_seed() {
        for auth in [json!({}), json!("x"), json!(false)] {
            refused(json!({"server": {"baseUrl": "http://h", "auth": auth}}), &[AUTH_REFUSED]);
        }
    }

    #[test]
    fn actions_may_be_left_out_or_empty() {
        for members in [json!({}), json!({"actions": []}), json!({"actions": null})] {
            assert!(parse_with(&members).unwrap().actions.is_empty());
        }
        refused(json!({"actions": {}}), &["app.json: 'actions' must be an array (got {})"]);
        refused(json!({"actions": [1]}), &["app.json: actions[0]: must be an object (got 1)"]);
    }

    #[test]
    fn action_names_are_checked_and_unique() {
        let action = |name: Value| {
            let (kind, op) = ("storage", "query");
            json!({"name": name, "description": "d", "kind": kind, "op": op, "collection": "c"})
        };
        let bad = "app.json: actions[0]: 'name' must be lower-case letters, digits and '_', a letter first, at most 64 characters (got";
        refused(json!({"actions": [action(json!("List"))]}), &[&format!("{bad} \"List\")")]);
        refused(json!({"actions": [action(json!("list\n"))]}), &[&format!("{bad} \"list\\n\")")]);
        refused(json!({"actions": [action(json!([]))]}), &[&format!("{bad} [])")]);
        let names = ["a", "b", "a", "a"].map(|name| action(json!(name)));
        refused(json!({ "actions": names }), &["app.json: more than one action is named 'a'"]);
    }

    #[test]
    fn action_rules() {
        action_refused(json!({"kind": "storage", "op": "query", "collection": "c"}), &[]);
        action_refused(
            json!({"kind": "python"}),
            &["'kind' is 'storage' or 'http', nothing else (got \"python\")"],
        );
        action_refused(
            json!({"kind": ["storage"]}),
            &["'kind' is 'storage' or 'http', nothing else (got [\"storage\"])"],
        );
        action_refused(json!({}), &["'kind' is missing ('storage' or 'http')"]);
        action_refused(
            json!({"kind": "storage", "op": [], "collection": "C"}),
            &[
                "'op' is one of append, set, update, delete, query (got [])",
                "'collection' must be lower-case words of letters and digits joined by single hyphens, at most 64 \
                 bytes (got \"C\")",
            ],
        );
        action_refused(
            json!({"kind": "storage", "op": "query", "collection": "../x", "description": ""}),
            &[
                "'description' must be a text that is not blank (got \"\")",
                "'collection' must be lower-case words of letters and digits joined by single hyphens, at most 64 \
                 bytes (got \"../x\")",
            ],
        );
        let storage = |op: &str, params: Value, required: Value| {
            let (kind, collection) = ("storage", "c");
            json!({"kind": kind, "op": op, "collection": collection, "params": params, "required": required})
        };
        action_refused(
            storage("query", json!([]), json!("x")),
            &[
                "'params' must be an object of name and JSON Schema (got [])",
                "'required' must be an array of names of params",
            ],
        );
        action_refused(
            storage("append", json!({"a": {"type": "string"}}), json!(["b"])),
            &["'required' names params that are not declared: 'b'"],
        );
        action_refused(
            storage("append", json!({}), json!([[]])),
            &["'required' must be an array of names of params"],
        );
        action_refused(
            storage("append", json!({"a": {}, "b": {"type": "string"}}), json!([])),
            &["param 'a': must be a JSON Schema object with a 'type'"],
        );
    }

    #[test]
    fn reserved_params_must_not_be_declared() {
        let declared =
            json!({"id": {"type": "string"}, "limit": {"type": "integer"}, "ts": {"type": "string"}});
        for (op, reserved) in [
            ("append", None),
            ("set", Some("id")),
            ("update", Some("id")),
            ("delete", Some("id")),
            ("query", Some("limit")),
        ] {
            let action = json!({"kind": "storage", "op": op, "collection": "c", "params": declared});
            let expected = reserved.map(|name| {
                format!("param '{name}' is added by the operation itself and must not be declared")
            });
            action_refused(action, &expected.iter().map(String::as_str).collect::<Vec<_>>());
        }
        action_refused(json!({"kind": "http", "method": "GET", "path": "/x", "params": declared}), &[]);
    }

    #[test]
    fn http_rules() {
        let http = |method: Value, path: &str, params: Value| {
            let kind = "http";
            json!({"kind": kind, "method": method, "path": path, "params": params})
        };
        let id = json!({"id": {"type": "string"}});
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            action_refused(http(json!(method), "/a/{id}/b/{id}", id.clone()), &[]);
        }
        action_refused(
            http(json!("get"), "/", json!({})),
            &["'method' is one of GET, POST, PUT, PATCH, DELETE (got \"get\")"],
        );
        action_refused(
            http(json!("GET"), "a", json!({})),
            &["'path' must be a text that starts with '/' (got \"a\")"],
        );
        action_refused(
            http(json!("GET"), "/{a}/{id}/{b}", id),
            &[
                "'path' uses {a}, which is not a declared param",
                "'path' uses {b}, which is not a declared param",
            ],
        );
        for path in ["/{", "/}", "/{}", "/{a{b}}", "/a}{b"] {
            action_refused(
                http(json!("GET"), path, json!({})),
                &["'path' has braces that do not pair up to {name}"],
            );
        }
        refused(
            json!({"actions": [{"name": "a", "description": "d", "kind": "http", "method": "GET", "path": "/"}]}),
            &["app.json: actions[0] (a): a http action needs a usable 'server.baseUrl' in the manifest"],
        );
    }

    #[test]
    fn a_view_is_external_and_has_a_server() {
        let server = json!({"baseUrl": "http://h"});
        let view = |view: Value| json!({"view": view, "server": server});
        assert_eq!(parse_with(&view(json!({"kind": "external"}))).unwrap().view, Some(View::External));
        assert_eq!(parse_with(&view(Value::Null)).unwrap().view, None);
        for (bad, got) in [
            (json!(1), "1"),
            (json!({"kind": "inline"}), "{\"kind\":\"inline\"}"),
            (json!({}), "{}"),
            (json!("external"), "\"external\""),
        ] {
            let reason = format!(
                "app.json: 'view' must be {{\"kind\": \"external\"}}, the only kind there is (got {got})"
            );
            refused(view(bad), &[&reason]);
        }
        refused(
            json!({"view": {"kind": "external"}}),
            &["app.json: 'view' of kind \"external\" needs a usable 'server.baseUrl' in the manifest"],
        );
    }

    #[test]
    fn later_parts_are_kept_as_they_are() {
        let manifest = parse_with(&json!({"section": {"a": 1}, "reader": [], "unknown": 3})).unwrap();
        assert_eq!(manifest.summary, Some(json!({"a": 1})));
        assert_eq!(manifest.reader, Some(json!([])));
    }

    #[test]
    fn folders_that_are_no_apps_are_broken_with_a_reason() {
        let root = tempfile::tempdir().unwrap();
        let reasons = |name: &str| {
            load_app(&root.path().join(name)).unwrap().manifest.err().map(|broken| broken.to_string())
        };
        let folder = |name: &str| {
            let folder = root.path().join(name);
            fs::create_dir(&folder).unwrap();
            folder
        };
        let good = r#"{"name":"N","description":"D"}"#;

        assert_eq!(reasons("absent").unwrap(), "the app folder cannot be read: entity not found");
        folder("empty");
        assert_eq!(reasons("empty").unwrap(), "app.json is missing");
        fs::write(folder("good").join(MANIFEST_FILE), good).unwrap();
        assert_eq!(reasons("good"), None);
        symlink(root.path().join("good"), root.path().join("linked")).unwrap();
        assert_eq!(reasons("linked").unwrap(), "the app folder is a symbolic link");
        symlink("../good/app.json", folder("linked-manifest").join(MANIFEST_FILE)).unwrap();
        assert_eq!(reasons("linked-manifest").unwrap(), "app.json is a symbolic link");
        let linked_data = folder("linked-data");
        fs::write(linked_data.join(MANIFEST_FILE), good).unwrap();
        symlink("../good", linked_data.join(DATA_FOLDER)).unwrap();
        assert_eq!(reasons("linked-data").unwrap(), "data is a symbolic link");
        fs::create_dir(folder("folder").join(MANIFEST_FILE)).unwrap();
        assert_eq!(reasons("folder").unwrap(), "app.json is not a regular file");
        fs::write(root.path().join("file"), "").unwrap();
        assert_eq!(reasons("file").unwrap(), "it is not a folder");
        let big = folder("big").join(MANIFEST_FILE);
        fs::write(&big, format!("{good}{}", " ".repeat(256 * 1024 - good.len()))).unwrap();
        assert_eq!(reasons("big"), None);
        fs::write(&big, format!("{good}{}", " ".repeat(256 * 1024))).unwrap();
        assert_eq!(reasons("big").unwrap(), "app.json is larger than 262144 bytes");
        fs::write(folder("Bad_Name").join(MANIFEST_FILE), good).unwrap();
        assert_eq!(reasons("Bad_Name").unwrap(), "folder name 'Bad_Name' is not a valid slug");
        fs::write(folder("a\u{1b}[2K\nok   b").join(MANIFEST_FILE), good).unwrap();
        assert_eq!(
            reasons("a\u{1b}[2K\nok   b").unwrap(),
            "folder name 'a\\u{1b}[2K\\nok   b' is not a valid slug"
        );
    }

    #[test]
    fn the_fixture_workspace_has_three_broken_apps() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/workspace/apps");
        let reason =
            |name: &str| load_app(&root.join(name)).unwrap().manifest.err().map(|broken| broken.to_string());
        for good in ["attivita", "diario", "meteo", "piante", "spesa"] {
            assert_eq!(reason(good), None, "{good}");
        }
        assert_eq!(reason("con-auth").unwrap(), AUTH_REFUSED);
        assert_eq!(reason("Not_A_Slug").unwrap(), "folder name 'Not_A_Slug' is not a valid slug");
        assert!(reason("rotta").unwrap().starts_with("app.json: is not valid JSON: "));
    }

    #[test]
    fn the_text_of_many_reasons_is_bounded() {
        let broken = Broken { reasons: (0..100).map(|number| format!("r{number}")).collect() };
        assert_eq!(broken.to_string(), "r0; r1; r2; r3; r4; r5; r6; r7; and 92 more");
    }
}
