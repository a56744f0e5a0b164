//! A gateway of one test: the real binary on a data directory of its own and a free port.
//!
//! A [`Workspace`] is the directory before the gateway runs on it, a [`TestServer`] is both. The gateway is told to
//! stop when it is dropped; one that does not end well within the limit fails its test.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{self, Connection, Reply};
use crate::process::{self, Cli};

/// The install secret of workspaces that a test makes.
pub const SECRET: &str = "kQ2v-the-secret-of-the-tests-_9fXw0aBcDeF01";
/// How long a gateway may take to listen. A data directory of 6 MB is copied and synced in much less.
const START_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a gateway may take to stop; it drains for at most 10 s.
const STOP_TIME_MAX: Duration = Duration::from_secs(15);

/// A data directory that no gateway runs on yet.
#[must_use]
#[derive(Debug)]
pub struct Workspace {
    /// Removed when dropped.
    folder: TempDir,
    secret: String,
    apps_config: Value,
    security_config: Value,
    log_level: Option<String>,
    open_files_max: Option<u64>,
    environment: Vec<(String, String)>,
}

#[expect(clippy::new_without_default, reason = "it makes a folder")]
impl Workspace {
    /// Without apps, with [`SECRET`] as the install secret.
    pub fn new() -> Self {
        let folder =
            tempfile::Builder::new().prefix("linekeep-test-").tempdir().expect("a folder can be made");
        let workspace = Self {
            folder,
            secret: SECRET.to_owned(),
            apps_config: json!({}),
            security_config: json!({}),
            log_level: None,
            open_files_max: None,
            environment: Vec::new(),
        };
        fs::create_dir_all(workspace.path("")).expect("a folder can be made");
        workspace
    }

    /// With all apps of the fixture workspace.
    pub fn fixture() -> Self {
        let workspace = Self::new();
        copy(&process::fixtures().join("workspace/apps"), &workspace.path(""));
        workspace
    }

    /// Adds one app of the fixture workspace.
    pub fn fixture_app(self, slug: &str) -> Self {
        copy(&process::fixtures().join("workspace/apps").join(slug), &self.path(slug));
        self
    }

    /// Adds an app with this manifest.
    pub fn app(self, slug: &str, manifest: &str) -> Self {
        self.file(&format!("{slug}/app.json"), manifest)
    }

    /// Adds a file, at a path below the folder of apps.
    pub fn file(self, path: &str, bytes: impl AsRef<[u8]>) -> Self {
        write(&self.path(path), bytes.as_ref());
        self
    }

    /// Sets the `apps` section of config.json.
    pub fn apps_config(mut self, section: Value) -> Self {
        self.apps_config = section;
        self
    }

    /// Sets the `security` section of config.json.
    pub fn security_config(mut self, section: Value) -> Self {
        self.security_config = section;
        self
    }

    /// Sets the install secret.
    pub fn secret(mut self, secret: &str) -> Self {
        secret.clone_into(&mut self.secret);
        self
    }

    /// Has the gateway log more, or less, than it does by itself: `trace`, `error`.
    pub fn log_level(mut self, level: &str) -> Self {
        self.log_level = Some(level.to_owned());
        self
    }

    /// Sets a variable in the gateway's environment.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Lets the gateway have so few files open that it cannot raise the limit.
    pub fn open_files_max(mut self, files: u64) -> Self {
        self.open_files_max = Some(files);
        self
    }

    /// A path below the folder of apps.
    pub fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join("workspace/apps").join(path)
    }

    /// The data directory.
    pub fn data_dir(&self) -> &Path {
        self.folder.path()
    }

    /// Writes config.json as it is set.
    fn write_config(&self) {
        let config = json!({
            "websocket": {"tokenIssueSecret": self.secret},
            "apps": self.apps_config,
            "security": self.security_config,
        });
        write(&self.folder.path().join("workspace/config.json"), config.to_string().as_bytes());
    }

    /// Starts a gateway on it.
    #[track_caller]
    pub fn serve(self) -> TestServer {
        self.write_config();
        let data_dir = self.folder.path().to_owned();
        let gateway = Gateway::start(&self, &data_dir);
        TestServer { gateway, workspace: self, data_dir }
    }
}

/// A running gateway.
#[derive(Debug)]
pub struct TestServer {
    // ORDER: fields are dropped in this order, and the gateway is to stop before its folder goes.
    gateway: Gateway,
    workspace: Workspace,
    data_dir: PathBuf,
}

/// The process.
#[derive(Debug)]
struct Gateway {
    address: SocketAddr,
    /// `None` once it has ended.
    child: Option<Child>,
    /// Gives what it prints after its first line.
    printed: Option<JoinHandle<Vec<String>>>,
    log: PathBuf,
}

/// What a gateway left behind.
#[must_use]
#[derive(Debug)]
pub struct Stopped {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed after the line that says where it listens.
    pub stdout: Vec<String>,
    /// What it logged.
    pub log: String,
}

impl TestServer {
    /// A gateway on a data directory that is not there: it makes the sample workspace.
    #[track_caller]
    pub fn sample() -> Self {
        let mut workspace = Workspace::new();
        let data_dir = workspace.folder.path().join("sample");
        let gateway = Gateway::start(&workspace, &data_dir);
        let config =
            fs::read(data_dir.join("workspace/config.json")).expect("the gateway made a config.json");
        let config: Value = serde_json::from_slice(&config).expect("config.json is JSON");
        let secret = config["websocket"]["token_issue_secret"].as_str().expect("config.json has a secret");
        secret.clone_into(&mut workspace.secret);
        Self { gateway, workspace, data_dir }
    }

    /// Stops the gateway and starts another on the same data.
    #[track_caller]
    pub fn restart(&mut self) {
        let stopped = self.gateway.stop();
        assert!(stopped.is_some_and(|status| status.success()), "{stopped:?}:\n{}", self.log());
        self.gateway = Gateway::start(&self.workspace, &self.data_dir);
    }

    /// Whether the gateway has a file below the folder of apps open; `None` where the system does not tell.
    #[track_caller]
    pub fn has_open(&self, path: &str) -> Option<bool> {
        let child = self.gateway.child.as_ref().expect("it has not ended before");
        let open = fs::read_dir(format!("/proc/{}/fd", child.id())).ok()?;
        let wanted = fs::canonicalize(self.path(path)).expect("the file is there");
        // One that is closed meanwhile cannot be read any more.
        Some(open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok()).any(|open| open == wanted))
    }

    /// The most memory the gateway has had resident so far, in bytes; `None` where the system does not tell.
    #[track_caller]
    pub fn memory_peak_bytes(&self) -> Option<u64> {
        let child = self.gateway.child.as_ref().expect("it has not ended before");
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kibibytes: u64 = peak.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kibibytes * 1024)
    }

    /// Tells the gateway to stop as a supervisor does, and does not wait.
    #[track_caller]
    pub fn tell_to_stop(&self) {
        let child = self.gateway.child.as_ref().expect("it has not ended before");
        kill_process(Pid::from_child(child), Signal::TERM).expect("the gateway runs");
    }

    /// Tells the gateway to stop as a supervisor does, and waits for it.
    #[track_caller]
    pub fn stop(mut self) -> Stopped {
        let status = self.gateway.stop().expect("it has not ended before");
        let printed = self.gateway.printed.take().expect("it has not been stopped before");
        let stdout = printed.join().expect("the reader of standard output does not panic");
        Stopped { status, stdout, log: self.log() }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.gateway.address
    }

    /// Where it listens, as a URL without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// The install secret.
    pub fn secret(&self) -> &str {
        &self.workspace.secret
    }

    /// The token of an app, as the command line prints it.
    #[track_caller]
    pub fn app_token(&self, slug: &str) -> String {
        let token =
            self.cli().run(["token", slug, "--data-dir", self.data_dir.to_str().expect("paths are UTF-8")]);
        assert_eq!(token.code, Some(0), "{token:?}");
        token.line().to_owned()
    }

    /// The command line, in the folder that holds `workspace`.
    pub fn cli(&self) -> Cli {
        Cli::new(&self.data_dir)
    }

    /// A path below the folder of apps.
    pub fn path(&self, path: &str) -> PathBuf {
        self.data_dir.join("workspace/apps").join(path)
    }

    /// The bytes of a file below the folder of apps.
    #[track_caller]
    pub fn read(&self, path: &str) -> Vec<u8> {
        fs::read(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Writes a file below the folder of apps, in place.
    #[track_caller]
    pub fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        write(&self.path(path), bytes.as_ref());
    }

    /// Writes config.json with another `apps` section, in place.
    pub fn write_apps_config(&mut self, section: Value) {
        self.workspace.apps_config = section;
        self.workspace.write_config();
    }

    /// What the gateway has logged so far.
    pub fn log(&self) -> String {
        self.gateway.log()
    }

    /// Connects.
    #[track_caller]
    pub fn connect(&self) -> Connection {
        Connection::open(self.address())
    }

    /// Sends a GET without a credential, the target as it stands.
    #[track_caller]
    pub fn get(&self, target: &str) -> Reply {
        self.send("GET", target, &[])
    }

    /// Sends a request without a body.
    #[track_caller]
    pub fn send(&self, method: &str, target: &str, headers: &[(&str, &[u8])]) -> Reply {
        let mut connection = self.connect();
        connection.send(&http::request(method, target, headers));
        if method == "HEAD" { connection.reply_to_head() } else { connection.reply() }
    }

    /// Sends bytes and reads until the gateway closes. What it does not take is not sent.
    #[track_caller]
    pub fn raw(&self, bytes: &[u8]) -> Vec<u8> {
        let mut connection = self.connect();
        // The gateway may close before it has read everything; what it said by then is what counts.
        match connection.send_what_is_taken(bytes) {
            Ok(()) | Err(_) => connection.rest(),
        }
    }

    /// Calls an action as the install secret may. `params` is JSON text.
    #[track_caller]
    pub fn action(&self, slug: &str, name: &str, params: &str) -> Reply {
        self.action_as(self.secret(), slug, name, params)
    }

    /// Calls an action with a token.
    #[track_caller]
    pub fn action_as(&self, token: &str, slug: &str, name: &str, params: &str) -> Reply {
        self.get(&format!("{}&token={}", action_target(slug, name, params), encode(token)))
    }

    /// Calls an action that must succeed, and gives its envelope.
    #[track_caller]
    pub fn ok(&self, slug: &str, name: &str, params: &str) -> Value {
        self.action(slug, name, params).envelope(200)
    }

    /// The list of apps, which must be given.
    #[track_caller]
    pub fn list(&self) -> Vec<Value> {
        let reply = self.get(&format!("/api/webui/apps?token={}", encode(self.secret())));
        assert_eq!(reply.status, 200, "{}", reply.text());
        let mut list = reply.json();
        match list["apps"].take() {
            Value::Array(apps) => apps,
            other => panic!("apps is an array: {other}"),
        }
    }

    /// The entry of one app in the list.
    #[track_caller]
    pub fn listed(&self, slug: &str) -> Option<Value> {
        self.list().into_iter().find(|app| app["slug"] == slug)
    }
}

impl Gateway {
    /// Starts the binary in the workspace's folder, where its log goes too.
    #[track_caller]
    fn start(workspace: &Workspace, data_dir: &Path) -> Self {
        let log = workspace.folder.path().join("log.txt");
        let mut command = match workspace.open_files_max {
            Some(files) => process::linekeep_with_open_files(files),
            None => process::linekeep(),
        };
        if let Some(level) = &workspace.log_level {
            command.env("LINEKEEP_LOG", level);
        }
        command.envs(workspace.environment.iter().map(|(name, value)| (name, value)));
        let mut child = command
            .args(["serve", "--port", "0", "--data-dir"])
            .arg(data_dir)
            .current_dir(workspace.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log).expect("a file can be made"))
            .spawn()
            .expect("the binary can be started");
        let (first, printed) = read_lines(child.stdout.take().expect("standard output is a pipe"));
        let nowhere = ([127, 0, 0, 1], 0).into();
        // From here on a panic stops the child.
        let mut gateway = Self { address: nowhere, child: Some(child), printed: Some(printed), log };
        let line = first.recv_timeout(START_TIME_MAX);
        let line =
            line.unwrap_or_else(|error| panic!("the gateway does not listen: {error}\n{}", gateway.log()));
        let address =
            line.strip_prefix("linekeep listening on http://").and_then(|line| line.strip_suffix('/'));
        let address = address.and_then(|address| address.parse().ok());
        gateway.address = address.unwrap_or_else(|| panic!("the gateway says: {line}"));
        gateway
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).expect("the log can be read")
    }

    /// Sends SIGTERM and waits; `None` when it had been stopped before.
    fn stop(&mut self) -> Option<ExitStatus> {
        let mut child = self.child.take()?;
        // An error means that it is gone already, and the status will tell.
        let told = kill_process(Pid::from_child(&child), Signal::TERM);
        let status = process::wait(&mut child, STOP_TIME_MAX);
        if status.is_none() {
            process::end(&mut child);
            assert!(thread::panicking(), "the gateway does not stop (told: {told:?}):\n{}", self.log());
        }
        status
    }
}

impl Drop for Gateway {
    #[expect(
        clippy::print_stderr,
        reason = "the harness shows it with the failed test and hides it otherwise"
    )]
    fn drop(&mut self) {
        let Some(status) = self.stop() else { return };
        if thread::panicking() {
            eprintln!("the gateway ended with {status} and had logged:\n{}", self.log());
        } else {
            assert!(status.success(), "the gateway ended with {status}:\n{}", self.log());
        }
    }
}

/// The target of an action, without a credential.
pub fn action_target(slug: &str, name: &str, params: &str) -> String {
    format!("/api/apps/{slug}/actions/{name}?params={}", encode(params))
}

/// A text for a query or a path: all but letters and digits percent-encoded.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Copies a folder with all that is in it.
///
/// # Panics
/// When something cannot be copied.
#[track_caller]
pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
    for entry in fs::read_dir(from).unwrap_or_else(|error| panic!("{}: {error}", from.display())) {
        let entry = entry.expect("a folder can be listed");
        let to = to.join(entry.file_name());
        if entry.file_type().expect("an entry has a type").is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), &to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
        }
    }
}

#[track_caller]
fn write(path: &Path, bytes: &[u8]) {
    let folder = path.parent().expect("a file lies in a folder");
    fs::create_dir_all(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    fs::write(path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Reads standard output to its end: the first line at once, the others when it has ended.
fn read_lines(stdout: ChildStdout) -> (Receiver<String>, JoinHandle<Vec<String>>) {
    let (sender, first) = mpsc::channel();
    let rest = thread::spawn(move || {
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        if let Some(line) = lines.next() {
            // The test may have given up meanwhile.
            if sender.send(line).is_err() {
                return Vec::new();
            }
        }
        // A gateway that ends without a word is noticed at once.
        drop(sender);
        lines.collect()
    });
    (first, rest)
}
