//! What an app is: a folder with a manifest, whose actions can be run.
//!
//! [`Apps`] is the workspace's `apps` folder. It keeps loaded manifests, and the reasons of broken ones, while what they
//! were read from is the same (three `stat`s a call), so an edit, a new app and a removed one show at the next call,
//! without a restart and without a watcher.
//!
//! Nothing in here knows who called: a page's button, a socket, a command line or a model's tool come to the same
//! [`action::start`]. It knows the engine, and no HTTP but the status words of [`ApiError`].
//!
//! Invariants: a folder that cannot be used is listed with its reasons and breaks nothing else; at most
//! [`APPS_CACHED_MAX`] manifests are held. Folders whose name starts with a dot (drafts, trash) are not apps.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use serde::Serialize;

use crate::{
    ApiError,
    signature::{Identity, Signature},
};

pub mod action;
pub mod manifest;
pub mod name;
pub mod schema;
pub mod token;

pub use manifest::{Action, Broken, LoadedApp, Manifest, load_app};
pub use name::{ActionName, Slug};
pub use token::{Kept, Tokens};

/// Manifests held in memory at once. With more apps than this everything still works, some are read again.
pub const APPS_CACHED_MAX: usize = 1_000;
/// The icon of a broken app in the list.
const ICON_BROKEN: &str = "ti-alert-triangle";

/// The apps of a workspace.
#[derive(Debug)]
pub struct Apps {
    root: PathBuf,
    cache: Mutex<HashMap<Slug, Cached>>,
}

#[derive(Debug)]
struct Cached {
    state: OnDisk,
    app: Arc<LoadedApp>,
}

/// All on disk that decides what becomes of an app: which folder, which `data`, which version of the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OnDisk {
    folder: Identity,
    data: Option<Identity>,
    manifest: Option<Signature>,
    /// Whether one of them could not be looked at for lack of rights, which may come without a trace.
    denied: bool,
}

impl OnDisk {
    /// Looks; `None` when there is no folder, nor a link in its place.
    fn of(folder: &Path) -> io::Result<Option<Self>> {
        let mut denied = false;
        let mut stat = |path: &Path| match fs::symlink_metadata(path) {
            Ok(metadata) => Ok(Some(metadata)),
            Err(error) if manifest::is_lasting(&error) => {
                denied |= error.kind() == io::ErrorKind::PermissionDenied;
                Ok(None)
            }
            Err(error) => Err(error),
        };
        let Some(metadata) = stat(folder)?.filter(|it| it.is_dir() || it.is_symlink()) else {
            return Ok(None);
        };
        let data = stat(&folder.join(manifest::DATA_FOLDER))?.map(|metadata| Identity::of(&metadata));
        let manifest = stat(&folder.join(manifest::MANIFEST_FILE))?.map(|metadata| Signature::of(&metadata));
        Ok(Some(Self { folder: Identity::of(&metadata), data, manifest, denied }))
    }

    /// Whether an equal state later means an equal app. Without a manifest there is nothing whose next edit could be
    /// missed.
    fn is_settled(&self, now: SystemTime) -> bool {
        !self.denied && self.manifest.is_none_or(|manifest| manifest.is_settled(now))
    }
}

/// One app in the list, as the wire has it (wire facts 1.9): the order of the fields is theirs on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// The folder's name.
    pub slug: String,
    /// Whether it cannot be used.
    pub broken: bool,
    /// Display name; the folder's name when broken.
    pub name: String,
    /// Description; empty when broken.
    pub description: String,
    /// Tabler icon name.
    pub icon: String,
    /// Whether it declares a server of its own.
    pub has_server: bool,
    /// Why it is broken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Apps {
    /// Takes the folder of app folders; it is not looked at yet.
    pub fn new(root: PathBuf) -> Self {
        Self { root, cache: Mutex::new(HashMap::new()) }
    }

    /// The folder of app folders.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The app of that name, broken or not; `None` when there is no such folder. Blocks: three `stat`s when the app is
    /// known and unchanged.
    ///
    /// # Errors
    /// When the disk does not let itself be read at the moment; nothing is remembered of that.
    pub fn load(&self, slug: &Slug) -> io::Result<Option<Arc<LoadedApp>>> {
        let folder = self.root.join(slug.as_str());
        let now = SystemTime::now();
        // ORDER: the state is taken before anything is read, so that a change in between is seen next time.
        let Some(state) = OnDisk::of(&folder)? else {
            self.cache().remove(slug);
            return Ok(None);
        };
        let hit = self.cache().get(slug).filter(|cached| cached.state == state).map(|it| Arc::clone(&it.app));
        if hit.is_some() {
            return Ok(hit);
        }
        let app = Arc::new(load_app(&folder)?);
        let mut cache = self.cache();
        if state.is_settled(now) {
            if cache.len() >= APPS_CACHED_MAX && !cache.contains_key(slug) {
                cache.clear();
            }
            cache.insert(slug.clone(), Cached { state, app: Arc::clone(&app) });
        } else {
            cache.remove(slug);
        }
        Ok(Some(app))
    }

    /// Every app folder, broken ones too, sorted by folder name. Forgets manifests of apps that are gone. Blocks.
    ///
    /// # Errors
    /// When the folder of apps cannot be read; a missing one is an empty list.
    pub fn list(&self) -> io::Result<Vec<Arc<LoadedApp>>> {
        let mut names = Vec::new();
        let entries = match fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            // A link to a folder is listed, as broken; one to a file, or to nothing, is not an app.
            if !hidden && fs::metadata(entry.path()).is_ok_and(|metadata| metadata.is_dir()) {
                names.push(entry.file_name());
            }
        }
        names.sort_unstable();
        let mut slugs = Vec::new();
        let mut apps = Vec::with_capacity(names.len());
        for name in names {
            let slug = name.to_str().and_then(|name| name.parse::<Slug>().ok());
            let app = match &slug {
                Some(slug) => self.load(slug),
                None => load_app(&self.root.join(&name)).map(|app| Some(Arc::new(app))),
            };
            apps.extend(app.unwrap_or_else(|error| Some(Arc::new(LoadedApp::unreadable(&name, &error)))));
            slugs.extend(slug);
        }
        self.cache().retain(|slug, _| slugs.binary_search(slug).is_ok());
        Ok(apps)
    }

    /// The cache. An entry is whole or absent, so one left by a panic is still usable.
    fn cache(&self) -> MutexGuard<'_, HashMap<Slug, Cached>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LoadedApp {
    /// What stands in the list for a folder that the disk did not let us read. Writes the cause to the log.
    fn unreadable(name: &OsStr, error: &io::Error) -> Self {
        let folder = name.to_string_lossy().into_owned();
        tracing::error!(app = folder, %error, "app cannot be read at the moment");
        let reasons = vec!["it cannot be read at the moment, the gateway's log says why".to_owned()];
        Self { folder, manifest: Err(Broken { reasons }) }
    }

    /// The app as an entry of the list.
    pub fn listed(&self) -> Listed {
        match &self.manifest {
            Ok(manifest) => Listed {
                slug: self.folder.clone(),
                broken: false,
                name: manifest.name.clone(),
                description: manifest.description.clone(),
                icon: manifest.icon.clone(),
                has_server: manifest.server.is_some(),
                error: None,
            },
            Err(broken) => Listed {
                slug: self.folder.clone(),
                broken: true,
                name: self.folder.clone(),
                description: String::new(),
                icon: ICON_BROKEN.to_owned(),
                has_server: false,
                error: Some(broken.to_string()),
            },
        }
    }

    /// The manifest, or the 409 that says why there is none.
    ///
    /// # Errors
    /// [`ApiError::broken`] with the reasons.
    pub fn usable(&self) -> Result<&Manifest, ApiError> {
        self.manifest
            .as_ref()
            .map_err(|broken| ApiError::broken(format!("app '{}' is broken: {broken}", self.folder)))
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, thread, time::Duration};

    use super::*;

    const GOOD: &str = r#"{"name":"N","description":"D"}"#;

    /// Loads once more after the manifest has been left alone long enough to be trusted.
    fn settled(apps: &Apps, slug: &Slug) -> Arc<LoadedApp> {
        thread::sleep(Duration::from_millis(150));
        apps.load(slug).unwrap().unwrap()
    }

    #[test]
    fn broken_apps_are_remembered_too_until_something_changes() {
        let root = tempfile::tempdir().unwrap();
        let (folder, slug) = (root.path().join("x"), "x".parse().unwrap());
        fs::create_dir(&folder).unwrap();
        let apps = Apps::new(root.path().to_owned());
        let load = || apps.load(&slug).unwrap().unwrap();
        let reason = || load().manifest.as_ref().err().map(ToString::to_string).unwrap_or_default();

        assert!(Arc::ptr_eq(&load(), &load()), "a missing manifest");
        fs::write(folder.join("app.json"), "{").unwrap();
        assert!(reason().starts_with("app.json: is not valid JSON"));
        assert!(Arc::ptr_eq(&settled(&apps, &slug), &load()), "a bad manifest");
        fs::write(folder.join("app.json"), GOOD).unwrap();
        assert_eq!(reason(), "");
        assert!(Arc::ptr_eq(&settled(&apps, &slug), &load()), "a good manifest");

        fs::write(folder.join("data"), "").unwrap();
        assert_eq!(reason(), "data is not a folder");
        fs::remove_file(folder.join("data")).unwrap();
        assert_eq!(reason(), "");
        symlink("/", folder.join("data")).unwrap();
        assert_eq!(reason(), "data is a symbolic link");
        fs::remove_file(folder.join("data")).unwrap();
        fs::create_dir(folder.join("data")).unwrap();
        assert_eq!(reason(), "");

        fs::rename(&folder, root.path().join("y")).unwrap();
        symlink("y", &folder).unwrap();
        assert_eq!(reason(), "the app folder is a symbolic link");
        fs::remove_file(&folder).unwrap();
        assert!(apps.load(&slug).unwrap().is_none());
    }

    #[test]
    fn a_disk_that_fails_is_an_error_and_not_a_broken_app() {
        let apps = Apps::new(PathBuf::from("a\0b"));
        assert!(apps.load(&"x".parse().unwrap()).is_err());
        let listed = LoadedApp::unreadable("x".as_ref(), &io::Error::other("/secret is on fire")).listed();
        assert!(listed.broken && !listed.error.unwrap().contains("/secret"));
    }
}
