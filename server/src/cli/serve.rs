//! `linekeep serve`: opens a data directory, listens, says where, serves until told to stop.

use std::{
    io::{self, IsTerminal as _},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    process::ExitCode,
    sync::Arc,
};

use linekeep_engine::Store;
use tokio::net::TcpListener;

use super::{Failure, print};
use crate::{State, args::ServeArgs, http, init, open_files, shutdown};

/// Carries out `serve`.
pub(super) fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    let data_dir = &args.data_dir.path;
    init::ensure(data_dir)?;
    let state = Arc::new(State::open(data_dir)?);
    let mut listen = state.config.websocket.clone();
    if let Some(host) = &args.host {
        listen.host.clone_from(host);
    }
    if let Some(port) = args.port {
        listen.port = port;
    }
    listen.check_exposure()?;
    if listen.secret.is_empty() {
        tracing::warn!("websocket.tokenIssueSecret is not set: every call to /api and /apps is refused");
    }

    open_files::raise();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let listener = TcpListener::bind((listen.bare_host(), listen.port))
            .await
            .map_err(|error| format!("cannot listen on {}:{}: {error}", listen.host, listen.port))?;
        // ORDER: signals are caught before the line is printed that tells others we are there.
        let shutdown = shutdown::on_signals()?;
        let base = base_url(listener.local_addr()?);
        print(format!("linekeep listening on {base}").as_bytes())?;
        if io::stdout().is_terminal() {
            for link in links(&base, &state)? {
                print(format!("  {link}").as_bytes())?;
            }
        }
        // The state of the data is told beside the serving, which does not wait for it.
        let store = state.store().clone();
        drop(tokio::task::spawn_blocking(move || tell_health(&store)));
        http::serve(listener, http::app(state), shutdown).await;
        Ok(ExitCode::SUCCESS)
    });
    // Work that ends was waited for; what hangs on a disk must not keep the process.
    runtime.shutdown_background();
    done
}

/// Warns of every collection that needs a person: lines that cannot be read, a file over the cap or unreadable.
fn tell_health(store: &Store) {
    let survey = match store.survey() {
        Ok(survey) => survey,
        Err(error) => {
            tracing::warn!(%error, "the health of the collections is not known");
            return;
        }
    };
    for (path, health) in survey.collections {
        let path = path.display();
        match health {
            Ok(health) if health.corrupt_lines_count > 0 || health.bytes > health.collection_bytes_max => {
                let (corrupt_lines, bytes) = (health.corrupt_lines_count, health.bytes);
                let hint = "see `linekeep data health`";
                tracing::warn!(%path, corrupt_lines, bytes, bytes_max = health.collection_bytes_max, hint, "damaged or full");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%path, %error, "a collection cannot be read"),
        }
    }
    for (path, error) in survey.unread {
        tracing::warn!(path = %path.display(), %error, "a folder is not looked into");
    }
}

/// The address as a browser on this machine can use it.
fn base_url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    format!("http://{}/", SocketAddr::new(ip, address.port()))
}

/// A link for each working app that has a screen. The token stands in the path, where the page's own relative
/// addresses inherit it, and in the query, where the page's script reads it.
fn links(base: &str, state: &State) -> io::Result<Vec<String>> {
    let mut links = Vec::new();
    for app in state.apps.list()? {
        let Ok(manifest) = &app.manifest else { continue };
        let slug = &manifest.slug;
        if !state.apps.root().join(slug.as_str()).join("app/index.html").is_file() {
            continue;
        }
        if let Some(token) = state.tokens.of_app(slug) {
            links.push(format!("{base}apps/{slug}/~{token}/?token={token}"));
        }
    }
    Ok(links)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_address_is_shown_as_loopback() {
        for (address, expected) in [
            ("127.0.0.1:8765", "http://127.0.0.1:8765/"),
            ("0.0.0.0:1", "http://127.0.0.1:1/"),
            ("[::]:1", "http://127.0.0.1:1/"),
            ("[::1]:1", "http://[::1]:1/"),
        ] {
            assert_eq!(base_url(address.parse().unwrap()), expected);
        }
    }

    #[test]
    fn links_open_apps_that_have_a_screen() {
        let folder = tempfile::tempdir().unwrap();
        init::ensure(folder.path()).unwrap();
        let state = State::open(folder.path()).unwrap();
        let links = links("http://h/", &state).unwrap();
        assert_eq!(links.len(), 3, "{links:?}");
        for link in links {
            let (path, token) = link.split_once("/?token=").unwrap();
            assert!(path.starts_with("http://h/apps/") && path.ends_with(token), "{link}");
        }
    }
}
