//! `linekeep app check`: everything that is wrong with an app, in one go.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use super::{Failure, print};
use crate::{
    apps::{LoadedApp, load_app, manifest::MANIFEST_FILE},
    args::{AppCommand, DATA_DIR_DEFAULT},
    state::apps_path,
};

/// Carries out an `app` command.
pub(super) fn run(command: &AppCommand) -> Result<ExitCode, Failure> {
    match command {
        AppCommand::Check { dirs } => check(dirs),
    }
}

fn check(dirs: &[PathBuf]) -> Result<ExitCode, Failure> {
    let default = [apps_path(Path::new(DATA_DIR_DEFAULT))];
    let dirs = if dirs.is_empty() { &default } else { dirs };
    let mut all_good = true;
    for dir in dirs {
        let folders = app_folders(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        if folders.is_empty() {
            return Err(format!("{}: no app in it", dir.display()).into());
        }
        for folder in folders {
            let app = load_app(&folder);
            all_good &= app.manifest.is_ok();
            for line in report(&app) {
                print(line.as_bytes())?;
            }
        }
    }
    Ok(if all_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The lines about one app.
fn report(app: &LoadedApp) -> Vec<String> {
    match &app.manifest {
        Ok(_) => vec![format!("ok   {}", app.folder)],
        Err(broken) => {
            broken.reasons.iter().map(|reason| format!("error {}: {reason}", app.folder)).collect()
        }
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
            report(&load_app(&folder)),
            ["error bad: app.json: 'name' is missing", "error bad: app.json: 'description' is missing"]
        );
        fs::write(folder.join("app.json"), r#"{"name":"A","description":"a"}"#).unwrap();
        assert_eq!(report(&load_app(&folder)), ["ok   bad"]);
    }
}
