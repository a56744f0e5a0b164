//! `linekeep app check`: everything that is wrong with an app, in one go.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use super::{Failure, complain, print};
use crate::{
    apps::{LoadedApp, load_app, manifest::MANIFEST_FILE},
    args::AppCommand,
    excerpt::one_line,
    state::apps_path,
};

/// Carries out an `app` command.
pub(super) fn run(command: &AppCommand) -> Result<ExitCode, Failure> {
    match command {
        AppCommand::Check { dirs, data_dir } if dirs.is_empty() => check(&[apps_path(&data_dir.path)]),
        AppCommand::Check { dirs, .. } => check(dirs),
    }
}

/// Checks all of them, also after one that cannot be read.
fn check(dirs: &[PathBuf]) -> Result<ExitCode, Failure> {
    let mut all_good = true;
    for dir in dirs {
        let folders = match app_folders(dir) {
            Ok(folders) if folders.is_empty() => Err("no app in it".to_owned()),
            Ok(folders) => Ok(folders),
            Err(error) => Err(error.to_string()),
        };
        let folders = folders.unwrap_or_else(|problem| {
            all_good = false;
            complain(&format!("{}: {problem}", dir.display()));
            Vec::new()
        });
        for folder in folders {
            match load_app(&folder) {
                Ok(app) => {
                    all_good &= app.manifest.is_ok();
                    for line in report(&app) {
                        print(line.as_bytes())?;
                    }
                }
                Err(error) => {
                    all_good = false;
                    complain(&format!("{}: {error}", folder.display()));
                }
            }
        }
    }
    Ok(if all_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The lines about one app. No name and no reason can make a line of its own.
fn report(app: &LoadedApp) -> Vec<String> {
    let folder = one_line(&app.folder);
    match &app.manifest {
        Ok(_) => vec![format!("ok   {folder}")],
        Err(broken) => broken.reasons.iter().map(|reason| format!("error {folder}: {reason}")).collect(),
    }
}

/// The folder itself when it is an app, else the folders in it, sorted, without those whose name starts with a dot. A
/// folder with neither a manifest nor folders is taken for an app that lacks its manifest.
fn app_folders(dir: &Path) -> io::Result<Vec<PathBuf>> {
    // `.` and `..` have no name of their own, which an app needs.
    let dir = if dir.file_name().is_none() { fs::canonicalize(dir)? } else { dir.to_owned() };
    if fs::symlink_metadata(dir.join(MANIFEST_FILE)).is_ok() {
        return Ok(vec![dir]);
    }
    let mut folders = Vec::new();
    let mut empty = true;
    for entry in fs::read_dir(&dir)? {
        let entry = entry?;
        empty = false;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !hidden && fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_dir()) {
            folders.push(entry.path());
        }
    }
    folders.sort_unstable();
    let looks_like_app = dir.join("app").is_dir() || dir.join("data").is_dir();
    if looks_like_app || (folders.is_empty() && !empty) {
        return Ok(vec![dir]);
    }
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_an_app_or_a_folder_of_apps() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["b/app", "a", ".trash", "c"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        fs::write(root.path().join("a/app.json"), r#"{"name":"A","description":"a"}"#).unwrap();
        fs::write(root.path().join("c/AGENT.md"), "").unwrap();
        let names = |dir: &Path| -> Vec<String> {
            let folders = app_folders(dir).unwrap();
            folders.iter().map(|folder| folder.file_name().unwrap().to_string_lossy().into_owned()).collect()
        };
        assert_eq!(names(root.path()), ["a", "b", "c"]);
        for app in ["a", "b", "c"] {
            assert_eq!(names(&root.path().join(app)), [app]);
        }
    }

    #[test]
    fn each_error_is_a_line() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("bad");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("app.json"), "{}").unwrap();
        assert_eq!(
            report(&load_app(&folder).unwrap()),
            ["error bad: app.json: 'name' is missing", "error bad: app.json: 'description' is missing"]
        );
        fs::write(folder.join("app.json"), r#"{"name":"A","description":"a"}"#).unwrap();
        assert_eq!(report(&load_app(&folder).unwrap()), ["ok   bad"]);
    }
}
