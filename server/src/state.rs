//! What a running gateway holds: its configuration, its apps, its store, its tokens.
//!
//! One value behind one `Arc`, built from a data directory, so that tests get a gateway without a socket and two
//! gateways can live in one process. Invariant: one store is open on the workspace, for the state's whole life.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use linekeep_engine::{Options, Store};

use crate::{
    apps::{Apps, Tokens},
    config::{AppsConfig, Config, ConfigError, LiveApps},
    init::create_folder,
    upstream::{SystemResolver, TargetPolicy, Upstream},
};

/// The folder in a data directory that holds config.json and the apps.
pub const WORKSPACE: &str = "workspace";
/// The configuration file in the workspace.
pub const CONFIG_FILE: &str = "config.json";
/// The folder of app folders in the workspace.
pub const APPS: &str = "apps";

/// Where `config.json` of a data directory is.
pub fn config_path(data_dir: &Path) -> PathBuf {
    data_dir.join(WORKSPACE).join(CONFIG_FILE)
}

/// Where the app folders of a data directory are.
pub fn apps_path(data_dir: &Path) -> PathBuf {
    data_dir.join(WORKSPACE).join(APPS)
}

/// A gateway's state. Shared as `Arc<State>`.
#[derive(Debug)]
pub struct State {
    /// The configuration as it was at start. For `apps.*` ask [`State::apps_config`].
    pub config: Config,
    /// The apps of the workspace.
    pub apps: Apps,
    /// The credentials.
    pub tokens: Tokens,
    /// The client of the apps' servers.
    pub upstream: Upstream,
    live: LiveApps,
    store: Store,
    /// The size cap last given to the store.
    collection_bytes_max: AtomicU64,
}

/// Why a data directory cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The configuration is missing or wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The folder of apps can be neither found nor made.
    #[error("cannot use {}", path.display())]
    Apps {
        /// The folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The engine refuses the folder.
    #[error("cannot open the store")]
    Store(#[source] linekeep_engine::Error),
}

impl State {
    /// Opens a data directory that has a `workspace/config.json`. Blocks.
    ///
    /// # Errors
    /// [`OpenError`] when the configuration cannot be used or the apps folder cannot be opened.
    pub fn open(data_dir: &Path) -> Result<Self, OpenError> {
        let config_path = config_path(data_dir);
        let config = Config::load(&config_path)?;
        let root = apps_path(data_dir);
        create_folder(&root).map_err(|source| OpenError::Apps { path: root.clone(), source })?;
        let collection_bytes_max = config.apps.collection_bytes_max;
        let store = Store::open(&root, Options { collection_bytes_max, ..Options::default() })
            .map_err(OpenError::Store)?;
        Ok(Self {
            tokens: Tokens::new(config.websocket.secret.clone()),
            upstream: Upstream::new(
                TargetPolicy::new(config.ssrf_allowed.clone()),
                Arc::new(SystemResolver::default()),
            ),
            live: LiveApps::new(config_path, config.apps.clone()),
            apps: Apps::new(root),
            store,
            collection_bytes_max: AtomicU64::new(collection_bytes_max),
            config,
        })
    }

    /// `apps.*` as config.json says it now; a changed size cap reaches the store here. Blocks for a `stat`.
    pub fn apps_config(&self) -> AppsConfig {
        let config = self.live.current();
        let cap = config.collection_bytes_max;
        if self.collection_bytes_max.swap(cap, Ordering::Relaxed) != cap
            && let Err(error) = self.store.set_collection_bytes_max(cap)
        {
            tracing::error!(%error, cap, "size cap not changed");
        }
        config
    }

    /// The store of the workspace's collections. A collection's folder in it is `<slug>/data`.
    pub fn store(&self) -> &Store {
        &self.store
    }
}
