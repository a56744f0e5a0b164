//! What an app is: a folder with a manifest, whose actions can be run.
//!
//! [`Apps`] is the workspace's `apps` folder. It keeps loaded manifests while their file is the same (one `stat` a
//! call), so an edit, a new app and a removed one show at the next call, without a restart and without a watcher.
//!
//! Nothing in here knows who called: a page's button, a socket, a command line or a model's tool come to the same
//! [`action::run`]. It knows the engine, and no HTTP but the status words of [`ApiError`].
//!
//! Invariants: a folder that cannot be used is listed with its reasons and breaks nothing else; at most
//! [`APPS_CACHED_MAX`] manifests are held. Folders whose name starts with a dot (drafts, trash) are not apps.

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use serde::Serialize;

use crate::{ApiError, signature::Signature};

pub mod action;
pub mod manifest;
pub mod name;
pub mod schema;
pub mod token;

pub use manifest::{Action, Broken, LoadedApp, Manifest, load_app};
pub use name::{ActionName, Slug};
pub use token::Tokens;

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
    signature: Signature,
    app: Arc<LoadedApp>,
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

    /// The app of that name, broken or not; `None` when there is no such folder. Blocks: one `stat` when the manifest
    /// is known and unchanged.
    pub fn load(&self, slug: &Slug) -> Option<Arc<LoadedApp>> {
        let folder = self.root.join(slug.as_str());
        let now = SystemTime::now();
        // ORDER: the signature is taken before the file is read, so that a change in between is seen next time.
        let metadata = fs::symlink_metadata(folder.join(manifest::MANIFEST_FILE));
        let signature = metadata.ok().map(|metadata| Signature::of(&metadata));
        let hit = signature.and_then(|signature| {
            self.cache()
                .get(slug)
                .filter(|cached| cached.signature == signature)
                .map(|cached| Arc::clone(&cached.app))
        });
        if hit.is_some() {
            return hit;
        }
        match fs::symlink_metadata(&folder) {
            Ok(metadata) if metadata.is_dir() || metadata.is_symlink() => {}
            Ok(_) | Err(_) => {
                self.cache().remove(slug);
                return None;
            }
        }
        let app = Arc::new(load_app(&folder));
        let mut cache = self.cache();
        // What else makes an app broken (its folder, its data) does not show in the manifest's signature.
        match signature.filter(|signature| app.manifest.is_ok() && signature.is_settled(now)) {
            Some(signature) => {
                if cache.len() >= APPS_CACHED_MAX && !cache.contains_key(slug) {
                    cache.clear();
                }
                cache.insert(slug.clone(), Cached { signature, app: Arc::clone(&app) });
            }
            None => {
                cache.remove(slug);
            }
        }
        Some(app)
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
            match name.to_str().and_then(|name| name.parse::<Slug>().ok()) {
                Some(slug) => {
                    apps.extend(self.load(&slug));
                    slugs.push(slug);
                }
                None => apps.push(Arc::new(load_app(&self.root.join(name)))),
            }
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
