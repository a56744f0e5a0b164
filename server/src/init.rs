//! Creates what a gateway serves: a data directory with a private config.json and the sample apps.
//!
//! The whole is built beside its place and renamed into it, so that a directory is there complete or not at all,
//! whatever interrupts. Invariant: nothing that exists is overwritten; of two that create at once, one wins and the
//! other uses the winner's. Created folders are private to their owner (0700).

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use include_dir::{Dir, DirEntry, include_dir};

use crate::{
    config::Config,
    state::{APPS, CONFIG_FILE, WORKSPACE, config_path},
};

/// The sample workspace, as it is in the repository.
static SAMPLE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../examples/workspace");

/// Why a data directory could not be created.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// There is one already.
    #[error("{} exists already", path.display())]
    Exists {
        /// The directory or the workspace in it.
        path: PathBuf,
    },
    /// A link stands in the place, and what it points to is not there.
    #[error("{} is a link to nothing", path.display())]
    Dangling {
        /// The link.
        path: PathBuf,
    },
    /// A file could not be made.
    #[error("cannot create {}", path.display())]
    Io {
        /// What was to be created.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Creates a data directory with sample apps. An empty directory in its place is taken. Blocks.
///
/// # Errors
/// [`InitError::Exists`] when the directory is there and not empty; [`InitError::Io`] when it cannot be made.
pub fn create(data_dir: &Path) -> Result<(), InitError> {
    let io = |source| InitError::Io { path: data_dir.to_owned(), source };
    match fs::read_dir(data_dir).map(|mut entries| entries.next().is_some()) {
        Ok(true) => return Err(InitError::Exists { path: data_dir.to_owned() }),
        // Filled, not replaced: it may be a mount point.
        Ok(false) => return build(&data_dir.join(WORKSPACE), fill_workspace),
        Err(error) if error.kind() == io::ErrorKind::NotFound => refuse_dangling(data_dir)?,
        Err(error) => return Err(io(error)),
    }
    build(data_dir, |folder| {
        let workspace = folder.join(WORKSPACE);
        create_folder(&workspace)?;
        fill_workspace(&workspace)
    })
}

/// Makes a data directory ready to be served: creates it, its workspace, or its config.json, whatever is missing.
/// Blocks.
///
/// # Errors
/// [`InitError::Io`] when something is missing and cannot be made.
pub fn ensure(data_dir: &Path) -> Result<(), InitError> {
    let workspace = data_dir.join(WORKSPACE);
    let config = config_path(data_dir);
    let created = if !data_dir.exists() {
        create(data_dir)
    } else if !workspace.exists() {
        refuse_dangling(&workspace)?;
        build(&workspace, fill_workspace)
    } else {
        match Config::create(&config) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(source) => Err(InitError::Io { path: config, source }),
        }
    };
    match created {
        // Another gateway was faster; what it made is what is served.
        Err(InitError::Exists { .. }) if config_path(data_dir).exists() => Ok(()),
        other => other,
    }
}

/// Refuses a path that is not there because a link leads nowhere.
fn refuse_dangling(path: &Path) -> Result<(), InitError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_symlink() => Err(InitError::Dangling { path: path.to_owned() }),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Creates a folder for its owner only, and those above it that are missing likewise.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn fill_workspace(workspace: &Path) -> io::Result<()> {
    Config::create(&workspace.join(CONFIG_FILE))?;
    create_folder(&workspace.join(APPS))?;
    write_sample(&SAMPLE, workspace)
}

fn write_sample(folder: &Dir<'_>, to: &Path) -> io::Result<()> {
    for entry in folder.entries() {
        let path = to.join(entry.path());
        match entry {
            DirEntry::Dir(inner) => {
                create_folder(&path)?;
                write_sample(inner, to)?;
            }
            DirEntry::File(file) => fs::write(&path, file.contents())?,
        }
    }
    Ok(())
}

/// Fills a folder beside `target` and renames it there.
fn build(target: &Path, fill: impl FnOnce(&Path) -> io::Result<()>) -> Result<(), InitError> {
    let io = |source| InitError::Io { path: target.to_owned(), source };
    let parent = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(parent).map_err(io)?;
    let mut random = [0_u8; 8];
    getrandom::fill(&mut random).map_err(|error| io(io::Error::other(error)))?;
    let half_done = Unfinished(parent.join(format!(".linekeep-new-{:016x}", u64::from_ne_bytes(random))));
    create_folder(&half_done.0).map_err(io)?;
    fill(&half_done.0).map_err(io)?;
    match fs::rename(&half_done.0, target) {
        Ok(()) => Ok(()),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::DirectoryNotEmpty
                    | io::ErrorKind::AlreadyExists
                    | io::ErrorKind::NotADirectory
            ) =>
        {
            Err(InitError::Exists { path: target.to_owned() })
        }
        Err(error) => Err(io(error)),
    }
}

/// A folder that goes away again unless it was renamed.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        match fs::remove_dir_all(&self.0) {
            Ok(()) => {}
            // Renamed: the usual end.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(path = %self.0.display(), %error, "left-over folder not removed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::{State, apps::load_app};

    #[test]
    fn a_created_directory_can_be_opened_and_its_sample_apps_are_valid() {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path().join("deep/data");
        create(&data_dir).unwrap();
        let mode = fs::metadata(config_path(&data_dir)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for created in ["", WORKSPACE, "workspace/apps", "workspace/apps/shopping/data"] {
            let mode = fs::metadata(data_dir.join(created)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{created}");
        }
        let state = State::open(&data_dir).unwrap();
        let apps = state.apps.list().unwrap();
        assert!(!apps.is_empty());
        for app in apps {
            assert_eq!(app.manifest.as_ref().err(), None, "{}", app.folder);
        }
        let left: Vec<_> = fs::read_dir(data_dir.parent().unwrap()).unwrap().collect();
        assert_eq!(left.len(), 1, "no half-done folder stays");
    }

    #[test]
    fn what_exists_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        create(folder.path()).unwrap();
        let config = fs::read(config_path(folder.path())).unwrap();
        assert!(matches!(create(folder.path()), Err(InitError::Exists { .. })));
        ensure(folder.path()).unwrap();
        assert_eq!(fs::read(config_path(folder.path())).unwrap(), config);
    }

    #[test]
    fn a_workspace_without_configuration_gets_one_and_no_sample() {
        let folder = tempfile::tempdir().unwrap();
        let apps = folder.path().join(WORKSPACE).join(APPS);
        fs::create_dir_all(&apps).unwrap();
        ensure(folder.path()).unwrap();
        assert!(config_path(folder.path()).exists());
        assert_eq!(fs::read_dir(apps).unwrap().count(), 0);
    }

    #[test]
    fn a_link_to_nothing_is_said_to_be_one() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        for outcome in [create(&link), ensure(&link)] {
            assert!(matches!(outcome, Err(InitError::Dangling { .. })), "{outcome:?}");
        }
        std::os::unix::fs::symlink("nowhere", folder.path().join(WORKSPACE)).unwrap();
        assert!(matches!(ensure(folder.path()), Err(InitError::Dangling { .. })));
    }

    #[test]
    fn an_app_from_the_sample_loads_from_disk() {
        let folder = tempfile::tempdir().unwrap();
        ensure(&folder.path().join("new")).unwrap();
        for entry in fs::read_dir(crate::state::apps_path(&folder.path().join("new"))).unwrap() {
            assert!(load_app(&entry.unwrap().path()).unwrap().manifest.is_ok());
        }
    }
}
