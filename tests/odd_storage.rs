//! File systems that lack something, as the shared storage of a phone does: the calls that they refuse are made to fail
//! in the real binary. Everything goes on working, and each lack is told once.

use std::path::Path;
use std::process::{Command, Output};

use linekeep_tests::process::binary;

use crate::real_disk::skip;

/// Runs the binary with a system call that fails.
fn run(folder: &Path, inject: &str, arguments: &[&str]) -> Option<Output> {
    traced(folder, inject, arguments).output().ok()
}

fn traced(folder: &Path, inject: &str, arguments: &[&str]) -> Command {
    let mut traced = Command::new("strace");
    traced
        .args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("inject={inject}")])
        .arg(binary())
        .args(arguments)
        .current_dir(folder)
        .env_remove("LINEKEEP_LOG");
    traced
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn writing_goes_on_where_a_file_system_lacks_something_and_says_so_once() {
    let table = [
        ("flock", &["ENOSYS", "EPERM", "EOPNOTSUPP", "EINVAL", "ENOTTY"][..], "has no locks"),
        ("renameat2", &["ENOSYS", "EPERM", "EOPNOTSUPP", "EINVAL", "ENOTTY"], "cannot exchange two names"),
        ("fsync", &["ENOSYS", "EPERM", "EOPNOTSUPP", "EINVAL", "ENOTTY"], "does not sync folders"),
        ("fchmod", &["ENOSYS", "EPERM", "EOPNOTSUPP", "EINVAL", "ENOTTY"], "keeps no permission bits"),
    ];
    for (call, errors, notice) in table {
        for error in errors {
            let folder = tempfile::tempdir().unwrap();
            let inject = format!("{call}:error={error}");
            let file = folder.path().join("items.jsonl");
            std::fs::write(&file, "{\"id\":\"a\",\"n\":1}\n{\"id\":\"b\",\"n\":1}\n").unwrap();
            // Old enough to be taken for settled.
            std::thread::sleep(std::time::Duration::from_millis(25));
            let commands: [&[&str]; 3] = [
                &["data", "append", "items.jsonl", "{\"n\":1}"],
                &["data", "update", "items.jsonl", "a", "{\"n\":2}"],
                &["data", "delete", "items.jsonl", "b"],
            ];
            for command in commands {
                let Some(run) = run(folder.path(), &inject, command) else {
                    return skip("strace is not installed", "LINEKEEP_REQUIRE_STRACE");
                };
                assert!(run.status.success(), "{inject} {command:?}: {}", text(&run.stderr));
                // An append exchanges no names and sets no mode.
                let rewrites = command[1] != "append";
                let due = usize::from(rewrites || matches!(call, "flock" | "fsync"));
                let told = text(&run.stderr).matches(notice).count();
                assert_eq!(told, due, "{inject} {command:?}: {}", text(&run.stderr));
            }
            let lines: Vec<String> =
                std::fs::read_to_string(&file).unwrap().lines().map(str::to_owned).collect();
            assert_eq!(lines[0], "{\"id\":\"a\",\"n\":2}", "{inject}");
            assert_eq!(lines.len(), 2, "{inject}: {lines:?}");
            let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
            assert_eq!(names.len(), 1, "{inject}: {names:?}");
        }
    }
}

#[test]
fn a_file_of_another_owner_is_replaced_also_where_no_owner_can_be_set() {
    use std::os::unix::fs::{MetadataExt as _, chown};
    for error in ["ENOSYS", "EPERM", "EOPNOTSUPP", "EINVAL", "ENOTTY"] {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("items.jsonl");
        std::fs::write(&file, "{\"id\":\"a\",\"n\":1}\n").unwrap();
        if chown(&file, Some(1234), None).is_err() {
            return skip("only the superuser can give a file away", "LINEKEEP_REQUIRE_MOUNT");
        }
        let update = ["data", "update", "items.jsonl", "a", "{\"n\":2}"];
        let Some(run) = run(folder.path(), &format!("fchown:error={error}"), &update) else {
            return skip("strace is not installed", "LINEKEEP_REQUIRE_STRACE");
        };
        assert!(run.status.success(), "{error}: {}", text(&run.stderr));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "{\"id\":\"a\",\"n\":2}\n");
        assert_ne!(std::fs::metadata(&file).unwrap().uid(), 1234, "the call was refused");
    }
}

#[test]
fn a_data_directory_can_be_made_where_there_are_no_links_and_folders_are_not_synced() {
    use std::os::unix::fs::PermissionsExt as _;
    for call in ["linkat,link", "fsync"] {
        for error in ["ENOSYS", "EPERM", "EACCES", "EOPNOTSUPP", "EINVAL"] {
            let folder = tempfile::tempdir().unwrap();
            // The first fsync is that of the file itself, which may not fail.
            let when = if call == "fsync" { ":when=2+" } else { "" };
            let inject = format!("{call}:error={error}{when}");
            let Some(run) = run(folder.path(), &inject, &["init", "data"]) else {
                return skip("strace is not installed", "LINEKEEP_REQUIRE_STRACE");
            };
            assert!(run.status.success(), "{inject}: {}", text(&run.stderr));
            let config = folder.path().join("data/workspace/config.json");
            assert!(std::fs::read_to_string(&config).unwrap().contains("token_issue_secret"), "{inject}");
            assert_eq!(std::fs::metadata(&config).unwrap().permissions().mode() & 0o777, 0o600, "{inject}");
            let names: Vec<_> = std::fs::read_dir(config.parent().unwrap()).unwrap().flatten().collect();
            assert!(names.iter().all(|it| !it.file_name().to_string_lossy().ends_with(".tmp")), "{names:?}");
        }
    }
}

#[test]
fn on_an_android_no_call_is_made_that_old_ones_kill_a_process_for() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("items.jsonl"), "{\"id\":\"a\",\"n\":1}\n").unwrap();
    // A process that made it would be killed here too.
    let update = ["data", "update", "items.jsonl", "a", "{\"n\":2}"];
    let traced =
        traced(folder.path(), "renameat2:signal=SIGSYS", &update).env("ANDROID_ROOT", "/system").output();
    let Ok(traced) = traced else {
        return skip("strace is not installed", "LINEKEEP_REQUIRE_STRACE");
    };
    assert!(traced.status.success(), "{}", text(&traced.stderr));
    let file = std::fs::read_to_string(folder.path().join("items.jsonl")).unwrap();
    assert_eq!(file, "{\"id\":\"a\",\"n\":2}\n");
}
