//! The sample apps in a real browser: `first-light.mjs` opens each in a frame that may run scripts and nothing else,
//! makes an entry through the page, sees it, and finds its line in the file.
//!
//! A machine without node, its modules or Chromium skips these tests and says so; where `LINEKEEP_REQUIRE_BROWSER` is
//! 1 that is a failure.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use linekeep_tests::TestServer;
use linekeep_tests::lines::lines;
use linekeep_tests::process::{self, repository};

/// The script gives up by itself after a minute.
const SCRIPT_TIME_MAX: Duration = Duration::from_secs(90);
/// One browser at a time: several are slower than one after another on a small machine.
static BROWSER: Mutex<()> = Mutex::new(());

fn folder() -> PathBuf {
    repository().join("tests/browser")
}

fn chromium() -> PathBuf {
    env::var_os("CHROMIUM").map_or_else(|| PathBuf::from("/usr/bin/chromium"), PathBuf::from)
}

/// What a browser test needs and this machine does not have.
fn missing() -> Option<String> {
    let on_path = |program: &str| {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).any(|folder| folder.join(program).is_file())
    };
    if !on_path("node") {
        return Some("node is not on the PATH".to_owned());
    }
    if !folder().join("node_modules/playwright-core").is_dir() {
        return Some("playwright-core is not installed, run `npm ci` in tests/browser".to_owned());
    }
    let chromium = chromium();
    (!chromium.is_file()).then(|| format!("there is no {}, CHROMIUM names another", chromium.display()))
}

#[track_caller]
fn first_light(slug: &str, collection: &str) {
    if let Some(missing) = missing() {
        assert_ne!(env::var_os("LINEKEEP_REQUIRE_BROWSER").as_deref(), Some("1".as_ref()), "{missing}");
        return process::tell(&format!("skipped the browser test of {slug}: {missing}"));
    }
    let _one_at_a_time = BROWSER.lock().unwrap_or_else(PoisonError::into_inner);
    let server = TestServer::sample();
    let path = format!("{slug}/data/{collection}.jsonl");
    let before = server.read(&path);
    let mut node = Command::new("node");
    node.arg(folder().join("first-light.mjs"))
        .current_dir(folder())
        .env("LINEKEEP_URL", server.url())
        .env("LINEKEEP_SLUG", slug)
        .env("LINEKEEP_TOKEN", server.app_token(slug))
        .env("LINEKEEP_DATA", server.path(&path))
        .env("CHROMIUM", chromium());
    let done = process::run(&mut node, SCRIPT_TIME_MAX);
    assert_eq!((done.code, done.stdout.trim()), (Some(0), format!("ok {slug}").as_str()), "{done:?}");

    let after = server.read(&path);
    assert!(after.starts_with(&before), "what was in {} stays", Path::new(&path).display());
    assert_eq!(lines(&after).len(), lines(&before).len() + 1);
    let stopped = server.stop();
    assert!(stopped.status.success(), "{stopped:?}");
    assert!(!stopped.log.contains("ERROR"), "{}", stopped.log);
}

#[test]
fn the_shopping_list_keeps_an_entry_made_in_a_sandboxed_frame() {
    first_light("shopping", "items");
}

#[test]
fn the_diary_keeps_an_entry_made_in_a_sandboxed_frame() {
    first_light("diary", "notes");
}

#[test]
fn the_plants_keep_an_entry_made_in_a_sandboxed_frame() {
    first_light("plants", "plants");
}
