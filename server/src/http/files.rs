//! `GET /apps/<slug>/<rel>`: the files an app's page is made of, from its `app/` folder and nothing else
//! (wire facts 1.8).
//!
//! An app's screen does not need a manifest: a broken app is served too. The index stands for the empty path only;
//! there are no folder listings and no fallback. Files are read whole, at most 32 MiB; ranges and `ETag` are left out.
//!
//! Every answer may be read from a frame of opaque origin (`Access-Control-Allow-Origin: *`), is not stored, and sends
//! no `Referer` on, since the address may carry the app's token. A page opened by itself is shut in as in its frame
//! (`Content-Security-Policy: sandbox allow-scripts`): it shares its origin with no other app and not with the gateway.
//!
//! An address that ends with the token, `/apps/<slug>/~<token>`, is redirected to the one with a slash after it, since
//! only that one hands the token on to the page's relative addresses.
//!
//! Invariant: the bytes come from a regular file whose resolved path lies in the resolved `app/` folder, and neither
//! that folder nor the app's folder is a link.

use std::{
    fs, io,
    io::Read as _,
    path::{Path, PathBuf},
};

use hyper::{
    StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_ORIGIN, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, LOCATION,
        REFERRER_POLICY,
    },
};

use super::{Answer, TEXT, answer, apps, auth::Authorized, plain_error, with_headers};
use crate::{ApiError, State};

/// Bytes of the largest file that is served.
pub(crate) const FILE_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// The served folder of an app.
const APP_FOLDER: &str = "app";
/// What the empty path stands for.
const INDEX: &str = "index.html";

/// Answers with the file. Blocks.
pub(super) fn serve(state: &State, request: &Authorized, rel: &str) -> Result<Answer, ApiError> {
    apps::enabled(&state.apps_config())?;
    let slug = request.slug()?;
    let rel = if rel.is_empty() { INDEX } else { rel };
    let path = resolve(&state.apps.root().join(slug.as_str()), rel)?;
    let body = read(&path)?;
    let content_type = HeaderValue::from_static(content_type(&path));
    Ok(finish(answer(StatusCode::OK, content_type, body)))
}

/// Sends to another address of the same app, relative to the one asked for.
pub(super) fn redirect(location: &str) -> Result<Answer, ApiError> {
    let location = HeaderValue::from_str(location).map_err(ApiError::internal)?;
    let mut answer = finish(answer(StatusCode::PERMANENT_REDIRECT, TEXT, ""));
    answer.headers_mut().insert(LOCATION, location);
    Ok(answer)
}

/// An error as plain text.
pub(super) fn error(error: &ApiError) -> Answer {
    finish(plain_error(error))
}

fn finish(answer: Answer) -> Answer {
    with_headers(
        answer,
        &[
            (ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
            (CACHE_CONTROL, "no-store"),
            (CONTENT_SECURITY_POLICY, "sandbox allow-scripts"),
            (REFERRER_POLICY, "no-referrer"),
        ],
    )
}

fn forbidden() -> ApiError {
    ApiError::forbidden("Forbidden")
}

fn not_found() -> ApiError {
    ApiError::not_found("Not Found")
}

/// The resolved path of a file in the app's `app/` folder.
fn resolve(app: &Path, rel: &str) -> Result<PathBuf, ApiError> {
    if rel.starts_with('/') || rel.split('/').any(|part| part == "..") {
        return Err(forbidden());
    }
    let root = app.join(APP_FOLDER);
    for folder in [app, &root] {
        match fs::symlink_metadata(folder) {
            Ok(metadata) if metadata.is_symlink() => return Err(forbidden()),
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) | Err(_) => return Err(not_found()),
        }
    }
    // A name that no file can have (a NUL, too long, a loop of links) is a file that is not there.
    let resolved = |path: &Path| {
        fs::canonicalize(path).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => forbidden(),
            _ => not_found(),
        })
    };
    let root = resolved(&root)?;
    let path = resolved(&root.join(rel))?;
    if path.starts_with(&root) { Ok(path) } else { Err(forbidden()) }
}

/// The bytes of a regular file.
fn read(path: &Path) -> Result<Vec<u8>, ApiError> {
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => not_found(),
        io::ErrorKind::PermissionDenied => forbidden(),
        _ => ApiError::internal(error),
    };
    // ORDER: the kind is looked at before the file is opened, because opening a pipe would wait for its writer.
    if !fs::metadata(path).map_err(refused)?.is_file() {
        return Err(not_found());
    }
    let file = fs::File::open(path).map_err(refused)?;
    let size = file.metadata().map_err(refused)?.len();
    let too_large = || ApiError::too_large(format!("the file is larger than {FILE_BYTES_MAX} bytes"));
    if size > FILE_BYTES_MAX {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(refused)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(too_large());
    }
    Ok(bytes)
}

/// The media type of a file by its extension, in any case. Texts, scripts and JSON are UTF-8.
fn content_type(path: &Path) -> &'static str {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json; charset=utf-8",
        "txt" | "log" => "text/plain; charset=utf-8",
        "md" => "text/markdown; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "webmanifest" => "application/manifest+json",
        "xml" => "application/xml",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "ico" => "image/vnd.microsoft.icon",
        "woff2" => "font/woff2",
        "woff" => "font/woff",
        "ttf" => "font/ttf",
        "otf" => "font/otf",
        "wasm" => "application/wasm",
        "pdf" => "application/pdf",
        "mp3" => "audio/mpeg",
        "ogg" => "audio/ogg",
        "wav" => "audio/wav",
        "m4a" => "audio/mp4",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[track_caller]
    fn resolves(app: &Path, rel: &str, expected: u16) {
        let status = match resolve(app, rel).and_then(|path| read(&path)) {
            Ok(_) => 200,
            Err(error) => error.status.as_u16(),
        };
        assert_eq!(status, expected, "for {rel:?}");
    }

    #[test]
    fn only_regular_files_inside_app_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let app = folder.path().join("spesa");
        fs::create_dir_all(app.join("app/sub")).unwrap();
        fs::create_dir_all(app.join("data")).unwrap();
        fs::write(app.join("app.json"), "{}").unwrap();
        fs::write(app.join("data/items.jsonl"), "{}").unwrap();
        for file in ["index.html", "sub/a.js", ".hidden", "x y.txt", "a..b"] {
            fs::write(app.join("app").join(file), "x").unwrap();
        }
        symlink("index.html", app.join("app/inside")).unwrap();
        symlink("../data", app.join("app/outside")).unwrap();
        symlink("/etc/passwd", app.join("app/passwd")).unwrap();
        symlink("loop", app.join("app/loop")).unwrap();
        for rel in ["index.html", "sub/a.js", "./sub//a.js", ".hidden", "x y.txt", "a..b", "inside"] {
            resolves(&app, rel, 200);
        }
        for rel in [
            "..",
            "../app.json",
            "sub/../index.html",
            "/etc/passwd",
            "passwd",
            "outside/items.jsonl",
            "outside",
        ] {
            resolves(&app, rel, 403);
        }
        let long = "x".repeat(300);
        for rel in ["missing", "sub", "app.json", "data/items.jsonl", "index.html/x", "a\0b", &long, "loop"] {
            resolves(&app, rel, 404);
        }
    }

    #[test]
    fn a_linked_app_or_app_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("real");
        fs::create_dir_all(real.join("app")).unwrap();
        fs::write(real.join("app/index.html"), "x").unwrap();
        symlink(&real, folder.path().join("linked")).unwrap();
        resolves(&folder.path().join("linked"), INDEX, 403);
        let half = folder.path().join("half");
        fs::create_dir(&half).unwrap();
        symlink(real.join("app"), half.join("app")).unwrap();
        resolves(&half, INDEX, 403);
        resolves(&folder.path().join("absent"), INDEX, 404);
    }

    #[test]
    fn a_file_over_the_limit_is_413() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("big");
        let file = fs::File::create(&path).unwrap();
        file.set_len(FILE_BYTES_MAX + 1).unwrap();
        assert_eq!(read(&path).unwrap_err().status, 413);
        file.set_len(FILE_BYTES_MAX).unwrap();
        assert_eq!(read(&path).unwrap().len() as u64, FILE_BYTES_MAX);
    }

    #[test]
    fn types_follow_the_extension() {
        for (name, expected) in [
            ("a.html", "text/html; charset=utf-8"),
            ("a.MJS", "text/javascript; charset=utf-8"),
            ("a.json", "application/json; charset=utf-8"),
            ("a.svg", "image/svg+xml"),
            ("a.js.map", "application/octet-stream"),
            ("a", "application/octet-stream"),
            (".html", "application/octet-stream"),
        ] {
            assert_eq!(content_type(Path::new(name)), expected, "for {name}");
        }
    }
}
