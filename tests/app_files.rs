//! `GET /apps/<slug>/<rel>`: the files below `app/`, and nothing else, whatever the path looks like.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use linekeep_tests::process;
use linekeep_tests::server::{SECRET, encode};
use linekeep_tests::{Reply, TestServer, Workspace};

const PAGE: &str = "<!doctype html><title>page</title>";
/// Stands in every file that is not to be served.
const HIDDEN: &str = "never-to-be-served";

fn workspace() -> Workspace {
    let manifest = format!(r#"{{"name":"Pagina","description":"{HIDDEN}"}}"#);
    Workspace::new()
        .app("pagina", &manifest)
        .file("pagina/app/index.html", PAGE)
        .file("pagina/app/sub/part.js", "part()")
        .file("pagina/app/a b.txt", "spaced")
        .file("pagina/app/%2e%2e/app.json", "a folder whose name looks encoded")
        .file("pagina/app/è🌱.txt", "unicode")
        .file("pagina/app/.hidden", "dot")
        .file("pagina/app/a..b", "dots")
        .file("pagina/app/sub/index.html", "the index of a folder below")
        .file("pagina/AGENT.md", HIDDEN)
        .file("pagina/data/items.jsonl", HIDDEN)
        .file("pagina/app-other/index.html", HIDDEN)
        .file("pagina/outside.txt", HIDDEN)
        .file("outside.txt", HIDDEN)
}

fn get(server: &TestServer, path: &str) -> Reply {
    server.get(&format!("{path}?token={SECRET}"))
}

#[track_caller]
fn check(server: &TestServer, path: &str, status: u16) {
    drop(checked(server, path, status));
}

/// Looks at the status, and that no answer shows what is not to be served.
#[track_caller]
fn checked(server: &TestServer, path: &str, status: u16) -> Reply {
    let reply = get(server, path);
    assert_eq!(reply.status, status, "{path}: {}", reply.text());
    assert!(!reply.text().contains(HIDDEN), "{path} shows {}", reply.text());
    assert!(!reply.text().contains("root:"), "{path} shows the system's users");
    check_headers(&reply);
    reply
}

#[track_caller]
fn check_headers(reply: &Reply) {
    for (name, value) in [
        ("access-control-allow-origin", "*"),
        ("cache-control", "no-store"),
        ("content-security-policy", "sandbox allow-scripts"),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
    ] {
        assert_eq!(reply.header(name), Some(value), "{name} of {reply:?}");
    }
}

#[test]
fn the_files_below_app_are_served() {
    let server = workspace().serve();
    for (path, body) in [
        ("", PAGE),
        ("/", PAGE),
        ("//", PAGE),
        ("/index.html", PAGE),
        ("/index.html/", PAGE),
        ("/%69ndex.html", PAGE),
        ("/./index.html", PAGE),
        ("/sub/part.js", "part()"),
        ("/sub%2fpart.js", "part()"),
        ("/a%20b.txt", "spaced"),
        ("/%C3%A8%F0%9F%8C%B1.txt", "unicode"),
        ("/.hidden", "dot"),
        ("/a..b", "dots"),
        ("/sub/index.html", "the index of a folder below"),
        ("/%252e%252e/app.json", "a folder whose name looks encoded"),
    ] {
        let reply = checked(&server, &format!("/apps/pagina{path}"), 200);
        assert_eq!(reply.text(), body, "{path}");
    }
}

#[test]
fn no_path_leads_out_of_app() {
    let server = workspace().serve();
    let name = "x".repeat(300);
    let token = server.app_token("pagina");
    let refused = [
        "/..",
        "/../app.json",
        "/../../pagina/app/index.html",
        "/../data/items.jsonl",
        "/../../outside.txt",
        "/../../../../../../../../etc/passwd",
        "/sub/../index.html",
        "/sub/../../app.json",
        "/sub/..",
        "/%2e%2e/app.json",
        "/.%2e/app.json",
        "/%2e%2E/app.json",
        "/%2e%2e%2fapp.json",
        "/..%2fapp.json",
        "/..%2f..%2foutside.txt",
        "/sub%2f..%2f..%2fapp.json",
        "/../app-other/index.html",
        "//etc/passwd",
        "/%2fetc%2fpasswd",
        "//index.html",
        "/%2f/index.html",
    ];
    let absent = [
        "/app.json",
        "/AGENT.md",
        "/data/items.jsonl",
        "/app/index.html",
        "/missing",
        "/sub",
        "/sub/",
        "/./",
        "/%252e%252e%252fapp.json",
        "/%252fetc%252fpasswd",
        "/..%255capp.json",
        "/..%5capp.json",
        "/%5c..%5capp.json",
        "/..%5c..%5coutside.txt",
        "/C:%5cwindows",
        "/a%00b",
        "/index.html%00",
        "/index.html%00.png",
        "/%00",
        "/..%00/app.json",
        "/index.html/x",
        "/index.html%0a",
        "/index.html%20",
        "/INDEX.HTML",
        "/.../app.json",
        "/%ff",
        "/%c0%ae%c0%ae/app.json",
        "/%e0%80%ae/app.json",
        "/%zz",
        "/~",
        "/*",
    ];
    for base in ["/apps/pagina".to_owned(), format!("/apps/pagina/~{token}")] {
        for path in refused {
            assert_eq!(checked(&server, &format!("{base}{path}"), 403).text(), "Forbidden");
        }
        for path in absent {
            // Without a token in the path, the part with the tilde is one, and an empty one is wrong.
            let status = if path == "/~" && !base.contains('~') { 401 } else { 404 };
            check(&server, &format!("{base}{path}"), status);
        }
        assert_eq!(checked(&server, &format!("{base}/{name}"), 404).text(), "Not Found");
        check(&server, &format!("{base}/{}", "d/".repeat(3_000)), 404);
        check(&server, &format!("{base}/{name}/../../app.json"), 403);
    }
}

#[test]
fn a_slug_is_never_a_path() {
    let server = workspace().serve();
    for slug in [
        "..",
        ".",
        "%2e%2e",
        "%2e",
        "..%2fpagina",
        "pagina%2f..%2fpagina",
        "%2fetc",
        "pagina%00",
        "pagina%0a",
        "PAGINA",
        "%c3%a8",
        "%ff",
        "-",
        "pagina%2fapp",
        "pagina%5capp",
        "outside.txt",
    ] {
        for rel in ["", "/", "/index.html", "/etc/passwd"] {
            let reply = checked(&server, &format!("/apps/{slug}{rel}"), 400);
            assert_eq!(reply.text(), "invalid app slug", "{slug}{rel}");
        }
    }
    assert_eq!(checked(&server, "/apps//index.html", 400).text(), "invalid app slug");
    assert_eq!(checked(&server, "/apps/niente/", 404).text(), "Not Found");
    // An app's own token is no help where the slug is none.
    let token = server.app_token("pagina");
    assert_eq!(server.get(&format!("/apps/../pagina/index.html?token={token}")).status, 401);
}

#[test]
fn links_that_leave_app_are_refused_and_links_inside_it_work() {
    let workspace = workspace();
    let link = |target: &str, path: &str| symlink(target, workspace.path(path)).unwrap();
    link("index.html", "pagina/app/inside.html");
    link("sub", "pagina/app/inside");
    link("../app.json", "pagina/app/manifest");
    link("../data", "pagina/app/data");
    link("../app-other/index.html", "pagina/app/other.html");
    link("/etc/passwd", "pagina/app/passwd");
    link("/", "pagina/app/root");
    link("loop", "pagina/app/loop");
    link("gone", "pagina/app/dangling");
    fs::create_dir(workspace.path("half")).unwrap();
    link("../pagina/app", "half/app");
    link("pagina", "linked");
    let server = workspace.serve();
    for path in ["inside.html", "inside/part.js"] {
        check(&server, &format!("/apps/pagina/{path}"), 200);
    }
    for path in ["manifest", "data/items.jsonl", "data", "other.html", "passwd", "root/etc/passwd", "root"] {
        check(&server, &format!("/apps/pagina/{path}"), 403);
    }
    for path in ["loop", "dangling"] {
        check(&server, &format!("/apps/pagina/{path}"), 404);
    }
    for path in ["/apps/half/", "/apps/half/index.html", "/apps/linked/", "/apps/linked/index.html"] {
        check(&server, path, 403);
    }
}

#[test]
fn only_regular_files_are_served_and_a_pipe_does_not_hold_anybody_up() {
    let workspace = workspace();
    let made =
        process::run(Command::new("mkfifo").arg(workspace.path("pagina/app/pipe")), Duration::from_secs(10));
    assert_eq!(made.code, Some(0), "{made:?}");
    let server = workspace.serve();
    check(&server, "/apps/pagina/pipe", 404);
    check(&server, "/apps/pagina/sub", 404);
    check(&server, "/apps/pagina/index.html", 200);
}

#[test]
fn a_file_over_32_mib_is_413() {
    let server = workspace().file("pagina/app/big.bin", "").serve();
    let big = fs::OpenOptions::new().write(true).open(server.path("pagina/app/big.bin")).unwrap();
    big.set_len(32 * 1024 * 1024 + 1).unwrap();
    check(&server, "/apps/pagina/big.bin", 413);
    big.set_len(1024 * 1024).unwrap();
    assert_eq!(get(&server, "/apps/pagina/big.bin").body, vec![0; 1024 * 1024]);
}

#[test]
fn an_app_without_a_manifest_or_with_a_broken_one_still_has_its_page() {
    let server = Workspace::new()
        .fixture_app("rotta")
        .file("rotta/app/index.html", PAGE)
        .file("nuda/app/index.html", PAGE)
        .serve();
    for slug in ["rotta", "nuda"] {
        assert_eq!(server.listed(slug).unwrap()["broken"], true);
        assert_eq!(checked(&server, &format!("/apps/{slug}/"), 200).text(), PAGE);
    }
}

#[test]
fn types_follow_the_extension_and_texts_say_their_encoding() {
    let types = [
        ("a.html", "text/html; charset=utf-8"),
        ("a.HTML", "text/html; charset=utf-8"),
        ("a.css", "text/css; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.mjs", "text/javascript; charset=utf-8"),
        ("a.json", "application/json; charset=utf-8"),
        ("a.txt", "text/plain; charset=utf-8"),
        ("a.md", "text/markdown; charset=utf-8"),
        ("a.csv", "text/csv; charset=utf-8"),
        ("a.svg", "image/svg+xml"),
        ("a.png", "image/png"),
        ("a.webp", "image/webp"),
        ("a.ico", "image/vnd.microsoft.icon"),
        ("a.woff2", "font/woff2"),
        ("a.wasm", "application/wasm"),
        ("a.webmanifest", "application/manifest+json"),
        ("a.mp3", "audio/mpeg"),
        ("a.js.map", "application/octet-stream"),
        ("a.unknown", "application/octet-stream"),
        ("a", "application/octet-stream"),
    ];
    let workspace = types.iter().fold(workspace(), |workspace, (name, _)| {
        workspace.file(&format!("pagina/app/{name}"), format!("bytes of {name}"))
    });
    let server = workspace.serve();
    for (name, expected) in types {
        let reply = checked(&server, &format!("/apps/pagina/{}", encode(name)), 200);
        assert_eq!(reply.header("content-type"), Some(expected), "{name}");
        assert_eq!(reply.text(), format!("bytes of {name}"));
    }
    assert_eq!(
        checked(&server, "/apps/pagina/missing", 404).header("content-type"),
        Some("text/plain; charset=utf-8")
    );
}

#[test]
fn head_on_a_file_has_its_headers_and_no_body() {
    let server = workspace().serve();
    for (path, status) in [("", 200), ("/sub/part.js", 200), ("/missing", 404), ("/%2e%2e/app.json", 403)] {
        let target = format!("/apps/pagina{path}?token={SECRET}");
        let (get, head) = (server.get(&target), server.send("HEAD", &target, &[]));
        assert_eq!((get.status, head.status), (status, status), "{path}");
        check_headers(&head);
        assert_eq!(head.header("content-length"), get.header("content-length"));
        assert_eq!(head.header("content-length"), Some(get.body.len().to_string().as_str()));
        assert_eq!(head.header("content-type"), get.header("content-type"));
        assert_eq!(head.body, b"");
    }
}

#[test]
fn the_front_page_needs_no_credential_and_shows_no_app() {
    let server = workspace().serve();
    for path in ["/", "/apps", "/apps/"] {
        let reply = server.get(path);
        assert_eq!(reply.status, 200);
        assert!(reply.text().contains("linekeep"));
        assert!(!reply.text().contains("agina") && !reply.text().contains(HIDDEN));
    }
    assert_eq!(server.get("/favicon.ico").status, 404);
    assert_eq!(server.get("/config.json").status, 404);
}
