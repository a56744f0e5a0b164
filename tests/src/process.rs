//! Programs under test: builds the binary once, runs it, and never waits for ever.
//!
//! The binary is built by the cargo that runs the tests, in the same profile, and is then the one users get: its
//! arguments, exit status, streams and files are all that is looked at.

use std::ffi::OsStr;
use std::io::{Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long one command line may take.
const COMMAND_TIME_MAX: Duration = Duration::from_mins(1);
/// How long between two looks at a process that has not ended yet.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Settings of the person who runs the tests, which must not reach the binary.
const SETTINGS: [&str; 4] = ["LINEKEEP_DATA_DIR", "LINEKEEP_HOST", "LINEKEEP_PORT", "LINEKEEP_LOG"];

/// The folder of fixtures. Copy what is in it before anything writes to it.
pub fn fixtures() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures"))
}

/// The root of the repository.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the repository")
}

/// The path of the `linekeep` binary, which the first call of a test process builds.
///
/// Cargo does nothing when it is up to date, and finds its target folder as it does for the tests themselves.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    // A failure is kept too, so that not every test builds again.
    BINARY.get_or_init(build).as_deref().unwrap_or_else(|failure| panic!("{failure}"))
}

fn build() -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--package", "linekeep", "--bin", "linekeep", "--message-format", "json"]);
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    // Not bounded: a first build takes as long as the machine takes, and shows nothing to be stuck on but cargo.
    let output = command.current_dir(repository()).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cargo cannot be started: {error}"))?;
    if !output.status.success() {
        return Err("cargo does not build the binary".to_owned());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let artifact =
        messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find(|message| {
            message["reason"] == "compiler-artifact"
                && message["target"]["name"] == "linekeep"
                && message["executable"].is_string()
        });
    let executable = artifact.and_then(|message| message["executable"].as_str().map(PathBuf::from));
    executable.ok_or_else(|| "cargo does not say where the binary is".to_owned())
}

/// A command that starts the binary without the settings of whoever runs the tests.
pub fn linekeep() -> Command {
    without_settings(Command::new(binary()))
}

/// The same, in a process that may have only so many files open. A shell sets the limit and becomes the binary.
pub fn linekeep_with_open_files(files: u64) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n \"$1\"; shift; exec \"$@\"", "sh"]).arg(files.to_string()).arg(binary());
    without_settings(command)
}

fn without_settings(mut command: Command) -> Command {
    for setting in SETTINGS {
        command.env_remove(setting);
    }
    command
}

/// What a process left behind.
#[must_use]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// The exit status; `None` when a signal ended it.
    pub code: Option<i32>,
    /// All of standard output.
    pub stdout: String,
    /// All of standard error.
    pub stderr: String,
}

impl Finished {
    /// Standard output as one line of JSON, after a look that it is exactly that and that the exit status is `code`.
    #[track_caller]
    pub fn json(&self, code: i32) -> Value {
        assert_eq!(self.code, Some(code), "{self:?}");
        serde_json::from_str(self.line()).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Standard output without its line end, after a look that it is exactly one line.
    #[track_caller]
    pub fn line(&self) -> &str {
        let line = self.stdout.strip_suffix('\n').unwrap_or_else(|| panic!("no line end: {self:?}"));
        assert!(!line.contains('\n'), "more than one line: {self:?}");
        line
    }
}

/// The command line of the binary, run in a folder.
#[derive(Debug, Clone)]
pub struct Cli {
    folder: PathBuf,
}

impl Cli {
    /// Runs in `folder`, against which relative paths count.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Runs the binary with these arguments to its end.
    pub fn run<I, A>(&self, arguments: I) -> Finished
    where
        I: IntoIterator<Item = A>,
        A: AsRef<OsStr>,
    {
        run(linekeep().args(arguments).current_dir(&self.folder), COMMAND_TIME_MAX)
    }
}

/// Runs any command to its end, with nothing on standard input.
///
/// # Panics
/// When it cannot be started, or has not ended in time: then it is killed first.
#[track_caller]
pub fn run(command: &mut Command, limit: Duration) -> Finished {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = collect(child.stdout.take().expect("standard output is a pipe"));
    let stderr = collect(child.stderr.take().expect("standard error is a pipe"));
    let status = wait(&mut child, limit);
    if status.is_none() {
        end(&mut child);
    }
    let stdout = stdout.join().expect("the reader of standard output does not panic");
    let stderr = stderr.join().expect("the reader of standard error does not panic");
    let Some(status) = status else {
        panic!("{command:?} did not end in {limit:?}\nstdout: {stdout}\nstderr: {stderr}");
    };
    Finished { code: status.code(), stdout, stderr }
}

/// Reads a stream to its end beside the process, so that a full pipe does not stop it.
fn collect(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        match stream.read_to_end(&mut bytes) {
            Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => format!("{}\n(cannot be read: {error})", String::from_utf8_lossy(&bytes)),
        }
    })
}

/// Tells whoever runs the tests something, past the test runner's capture.
///
/// # Panics
/// When standard error is closed.
pub fn tell(text: &str) {
    writeln!(std::io::stderr(), "{text}").expect("standard error takes a line");
}

/// Waits for a process to end; `None` when it takes longer than `limit`.
pub fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            return Some(status);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// Kills a process of ours and takes its end.
pub(crate) fn end(child: &mut Child) {
    let ended = child.kill().and_then(|()| child.wait());
    assert!(ended.is_ok() || thread::panicking(), "a child can be killed: {ended:?}");
}
