//! The routes, called as a service without a socket, on a copy of the fixture workspace.

use std::{fs, path::Path};

use http_body_util::Empty;
use serde_json::Value;

use super::*;
use crate::{init, state::config_path};

const SECRET: &str = "s3cret";

struct Gateway {
    app: App,
    folder: tempfile::TempDir,
}

/// What came back.
struct Reply {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Reply {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            // Read and written, not copied: the fixtures may be read-only.
            fs::write(target, fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

impl Gateway {
    fn new() -> Self {
        Self::configured(&format!(r#"{{"websocket":{{"tokenIssueSecret":"{SECRET}"}}}}"#))
    }

    fn configured(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/workspace");
        copy(&fixtures, &folder.path().join("workspace"));
        fs::write(config_path(folder.path()), config).unwrap();
        let state = State::open(folder.path()).unwrap();
        Self { app: app(Arc::new(state)), folder }
    }

    fn apps(&self) -> std::path::PathBuf {
        self.folder.path().join("workspace/apps")
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Reply {
        let (head, body) = self.app.answer(request).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Reply {
            status: head.status.as_u16(),
            headers: head.headers,
            body: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    /// A GET with the install secret.
    async fn get(&self, target: &str) -> Reply {
        let request = Request::get(target).header("Authorization", format!("Bearer {SECRET}"));
        self.send(request.body(Full::default()).unwrap()).await
    }

    /// A GET without a credential.
    async fn get_plain(&self, target: &str) -> Reply {
        self.send(Request::get(target).body(Full::default()).unwrap()).await
    }

    async fn action(&self, slug: &str, name: &str, params: &str) -> Reply {
        let params = percent_encoding::utf8_percent_encode(params, percent_encoding::NON_ALPHANUMERIC);
        self.get(&format!("/api/apps/{slug}/actions/{name}?params={params}")).await
    }

    #[track_caller]
    fn token(&self, slug: &str) -> String {
        self.app.state.tokens.of_app(&slug.parse().unwrap()).unwrap()
    }
}

#[track_caller]
fn failed(reply: &Reply, status: u16, error: &str) {
    assert_eq!((reply.status, reply.json()["error"].as_str().unwrap()), (status, error));
    assert_eq!(reply.json()["ok"], false);
    assert_eq!(reply.header("access-control-allow-origin"), "*");
    assert_eq!(reply.header("cache-control"), "no-store");
    assert_eq!(reply.header("content-type"), "application/json");
}

#[tokio::test]
async fn the_list_shows_eight_folders_and_three_broken_ones() {
    let gateway = Gateway::new();
    let reply = gateway.get("/api/webui/apps/").await;
    assert_eq!(reply.status, 200);
    let list = reply.json();
    let apps = list["apps"].as_array().unwrap();
    let slugs: Vec<_> = apps.iter().map(|app| app["slug"].as_str().unwrap()).collect();
    assert_eq!(slugs, ["Not_A_Slug", "attivita", "con-auth", "diario", "meteo", "piante", "rotta", "spesa"]);
    let broken: Vec<_> =
        apps.iter().filter(|app| app["broken"] == true).map(|app| app["slug"].clone()).collect();
    assert_eq!(broken, ["Not_A_Slug", "con-auth", "rotta"]);
    assert!(
        reply.body.contains(concat!(
            r#"{"slug":"Not_A_Slug","broken":true,"name":"Not_A_Slug","description":"","#,
            r#""icon":"ti-alert-triangle","has_server":false,"#,
            r#""error":"folder name 'Not_A_Slug' is not a valid slug"}"#
        )),
        "{}",
        reply.body
    );
    assert!(reply.body.contains(r#""icon":"ti-plant","has_server":true}"#), "{}", reply.body);
    assert_eq!(
        apps[2]["error"],
        "app.json: server.auth is declared but app-server credentials are not supported yet — remove the 'auth' \
         block (every http action would be refused with 501)"
    );
}

#[tokio::test]
async fn records_are_added_changed_found_and_removed() {
    let gateway = Gateway::new();
    let tricky = r#"{"what":"🥛 \"x\" \u2028","qty":1234567890123456789012345678901234567890}"#;
    let added = gateway.action("spesa", "add_item", tricky).await;
    assert_eq!(added.status, 200, "{}", added.body);
    assert!(added.body.contains("1234567890123456789012345678901234567890"), "{}", added.body);
    assert!(added.body.starts_with(r#"{"ok":true,"record":{"id":""#), "{}", added.body);
    assert_eq!(added.header("access-control-allow-origin"), "*");
    let id = added.json()["record"]["id"].as_str().unwrap().to_owned();

    let changed = gateway.action("spesa", "set_done", &format!(r#"{{"id":"{id}","done":true}}"#)).await;
    assert_eq!(changed.json()["record"]["done"], true, "{}", changed.body);
    let replaced = gateway.action("spesa", "replace_item", &format!(r#"{{"id":"{id}","what":"tea"}}"#)).await;
    assert_eq!(replaced.json()["record"]["what"], "tea", "{}", replaced.body);
    let found = gateway.action("spesa", "list_items", r#"{"limit":1}"#).await.json();
    assert_eq!(found["records"].as_array().unwrap().len(), 1);
    assert!(found["count"].as_u64().unwrap() > 1);
    let removed = gateway.action("spesa", "remove_item", &format!(r#"{{"id":"{id}"}}"#)).await;
    assert_eq!(removed.body, format!(r#"{{"ok":true,"deleted":"{id}"}}"#));
    let again = gateway.action("spesa", "remove_item", &format!(r#"{{"id":"{id}"}}"#)).await;
    failed(&again, 404, &format!("record '{id}' not found"));
}

#[tokio::test]
async fn each_check_of_the_action_route_has_its_status() {
    let gateway = Gateway::new();
    let plain = gateway.get_plain("/api/apps/Bad/actions/Bad").await;
    failed(&plain, 401, "Unauthorized");
    let cases = [
        ("Spesa", "list_items", "", 400, "invalid app slug"),
        ("spesa%0A", "list_items", "", 400, "invalid app slug"),
        ("spesa", "List", "", 400, "invalid action name"),
        ("spesa", "list_items%0a", "", 400, "invalid action name"),
        ("spesa", "list_items", "[]", 400, "params must be a JSON object"),
        ("nessuna", "list_items", "7", 400, "params must be a JSON object"),
        ("nessuna", "list_items", "", 404, "app 'nessuna' not found"),
        (
            "con-auth",
            "x",
            "",
            409,
            concat!(
                "app 'con-auth' is broken: app.json: server.auth is declared but app-server credentials are not supported ",
                "yet — remove the 'auth' block (every http action would be refused with 501)"
            ),
        ),
        ("spesa", "nope", "", 404, "app 'spesa' has no action 'nope'"),
        (
            "spesa",
            "add_item",
            r#"{"z":1,"a":2}"#,
            400,
            "invalid params: 'what' is required; unknown params: a, z",
        ),
        ("spesa", "remove_item", r#"{"id":""}"#, 400, "invalid params: id: \"\" is shorter than 1 character"),
        (
            "piante",
            "lista_piante",
            "",
            501,
            "action 'lista_piante' of app 'piante' is a http action, which this version of linekeep does not run yet",
        ),
    ];
    for (slug, name, params, status, error) in cases {
        failed(&gateway.action(slug, name, params).await, status, error);
    }
    for text in [
        "{",
        "{\"a\":NaN}",
        "nope",
        "{\"a\":1e400}",
        "\u{feff}{}",
        &format!("{}{}", "{\"a\":".repeat(200), "1"),
    ] {
        let reply = gateway.action("spesa", "list_items", text).await;
        assert_eq!(reply.status, 400, "{text}: {}", reply.body);
        let error = reply.json()["error"].as_str().unwrap().to_owned();
        assert!(error.starts_with("params is not valid JSON: ") && error.len() < 300, "{error}");
        assert!(!error.contains("JSON: not valid JSON"), "{error}");
    }
    let long = gateway.action("spesa", "remove_item", &format!(r#"{{"id":"{}"}}"#, "x".repeat(257))).await;
    assert_eq!(long.status, 400, "{}", long.body);
    assert!(long.body.contains("invalid params: id: "), "{}", long.body);
}

#[tokio::test]
async fn the_length_of_params_counts_as_it_stands_in_the_url() {
    let gateway = Gateway::new();
    // `%7B%7D` is `{}` in six characters; the rest are spaces, which JSON allows.
    let fits = format!("%7B%7D{}", "+".repeat(5_994));
    let url = |params: &str| format!("/api/apps/spesa/actions/list_items?params={params}");
    assert_eq!(gateway.get(&url(&fits)).await.status, 200);
    failed(&gateway.get(&url(&format!("{fits}+"))).await, 413, "params exceed 6000 chars");
}

#[tokio::test]
async fn an_app_token_opens_its_app_and_nothing_else() {
    let gateway = Gateway::new();
    let token = gateway.token("spesa");
    let get = async |target: &str| gateway.get_plain(&format!("{target}?token={token}")).await.status;
    assert_eq!(get("/api/apps/spesa/actions/list_items").await, 200);
    assert_eq!(get("/api/apps/diario/actions/read").await, 401);
    assert_eq!(get("/api/webui/apps").await, 401);
    assert_eq!(get("/apps/spesa").await, 404, "the fixture has no screen");
    assert_eq!(get("/apps/diario/").await, 401);
}

#[tokio::test]
async fn app_files_are_served_with_their_headers() {
    let gateway = Gateway::new();
    let folder = gateway.apps().join("rotta/app");
    fs::create_dir_all(folder.join("sub")).unwrap();
    fs::write(folder.join("index.html"), "<p>hi").unwrap();
    fs::write(folder.join("sub/a b.js"), "1").unwrap();
    let token = gateway.token("rotta");
    for target in ["/apps/rotta", "/apps/rotta/", "/apps/rotta/index.html"] {
        let reply = gateway.get(target).await;
        assert_eq!((reply.status, reply.body.as_str()), (200, "<p>hi"), "for {target}");
        assert_eq!(reply.header("content-type"), "text/html; charset=utf-8");
        assert_eq!(reply.header("cache-control"), "no-store");
        assert_eq!(reply.header("access-control-allow-origin"), "*");
        assert_eq!(reply.header("referrer-policy"), "no-referrer");
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
    }
    for target in ["", "/", "/index.html", "/sub/a%20b.js"] {
        let reply = gateway.get_plain(&format!("/apps/rotta/~{token}{target}")).await;
        assert_eq!(reply.status, 200, "for {target}");
    }
    assert_eq!(gateway.get_plain(&format!("/apps/rotta/~{SECRET}/")).await.status, 401);
    assert_eq!(gateway.get_plain(&format!("/apps/spesa/~{token}/")).await.status, 401);
    for (target, status, text) in [
        ("/apps/Rotta/x", 400, "invalid app slug"),
        ("/apps/rotta/%2e%2e/app.json", 403, "Forbidden"),
        ("/apps/rotta/../app.json", 403, "Forbidden"),
        ("/apps/rotta/%2fetc/passwd", 403, "Forbidden"),
        ("/apps/rotta//etc/passwd", 403, "Forbidden"),
        ("/apps/rotta/a%00b", 404, "Not Found"),
        ("/apps/rotta/sub", 404, "Not Found"),
        ("/apps/rotta/app.json", 404, "Not Found"),
        ("/apps/none/x", 404, "Not Found"),
    ] {
        let reply = gateway.get(target).await;
        assert_eq!((reply.status, reply.body.as_str()), (status, text), "for {target}");
    }
    assert_eq!(gateway.get_plain("/apps/rotta").await.body, "Unauthorized");
}

#[tokio::test]
async fn other_methods_and_bodies_are_answered() {
    let gateway = Gateway::new();
    let post = Request::post("/api/apps/spesa/actions/list_items").body(Full::default()).unwrap();
    let reply = gateway.send(post).await;
    failed(&reply, 405, "method not allowed, use GET");
    assert_eq!(reply.header("allow"), "GET, HEAD");
    let body = Request::get("/api/apps/spesa/actions/list_items").body(Full::from("{}")).unwrap();
    let reply = gateway.send(body).await;
    assert_eq!((reply.status, reply.header("connection")), (413, "close"));
    assert_eq!(reply.json()["ok"], false);
    let reply = gateway.send(Request::delete("/").body(Full::default()).unwrap()).await;
    assert_eq!((reply.status, reply.header("content-type")), (405, "text/plain; charset=utf-8"));
}

#[tokio::test]
async fn head_is_get_without_the_bytes() {
    let gateway = Gateway::new();
    let get = gateway.get_plain("/").await;
    assert_eq!(get.status, 200);
    let head = gateway.send(Request::head("/").body(Full::default()).unwrap()).await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(head.header("content-length"), get.body.len().to_string());
}

#[tokio::test]
async fn unknown_routes_are_404_without_a_credential() {
    let gateway = Gateway::new();
    for target in
        ["/api/x", "/api", "/api/apps/spesa/actions", "/api/apps/spesa/actions/a/b", "/api/apps/a%2Fb"]
    {
        let reply = gateway.get_plain(target).await;
        assert_eq!((reply.status, reply.body.as_str()), (404, "API route not found"), "for {target}");
    }
    for target in ["/x", "//api/webui/apps", "/%61pi/webui/apps"] {
        assert_eq!(gateway.get_plain(target).await.status, 404, "for {target}");
    }
}

#[tokio::test]
async fn disabled_apps_are_503_after_the_credential() {
    let gateway = Gateway::configured(&format!(
        r#"{{"websocket":{{"tokenIssueSecret":"{SECRET}"}},"apps":{{"enabled":false}}}}"#
    ));
    failed(&gateway.get("/api/apps/Bad/actions/Bad").await, 503, "apps are disabled");
    for target in ["/api/webui/apps", "/apps/Bad/x"] {
        let reply = gateway.get(target).await;
        assert_eq!((reply.status, reply.body.as_str()), (503, "apps are disabled"));
        assert_eq!(gateway.get_plain(target).await.status, 401);
    }
    fs::write(config_path(gateway.folder.path()), r#"{"apps":{"enabled":true}}"#).unwrap();
    assert_eq!(
        gateway.get("/api/webui/apps").await.status,
        200,
        "the switch is read live, the secret is not"
    );
}

#[tokio::test]
async fn without_a_secret_every_call_is_401() {
    let gateway = Gateway::configured("{}");
    for target in ["/api/webui/apps", "/apps/spesa/", "/api/apps/spesa/actions/list_items?token="] {
        assert_eq!(gateway.get(target).await.status, 401);
        assert_eq!(gateway.get_plain(target).await.status, 401);
    }
}

#[tokio::test]
async fn the_size_cap_is_read_live() {
    let gateway = Gateway::new();
    fs::write(config_path(gateway.folder.path()), r#"{"apps":{"maxCollectionBytes":10}}"#).unwrap();
    let reply = gateway.action("spesa", "add_item", r#"{"what":"milk"}"#).await;
    assert_eq!(reply.status, 413, "{}", reply.body);
    fs::write(config_path(gateway.folder.path()), "{}").unwrap();
    assert_eq!(gateway.action("spesa", "add_item", r#"{"what":"milk"}"#).await.status, 200);
}

#[tokio::test]
async fn an_edited_a_new_and_a_removed_app_show_at_once() {
    let gateway = Gateway::new();
    let folder = gateway.apps().join("nuova");
    assert_eq!(gateway.action("nuova", "list", "").await.status, 404);
    fs::create_dir(&folder).unwrap();
    assert_eq!(
        gateway.action("nuova", "list", "").await.json()["error"],
        "app 'nuova' is broken: app.json is missing"
    );
    let manifest = |name: &str| {
        format!(
            concat!(
                r#"{{"name":"N","description":"d","actions":[{{"name":"{name}","description":"d","#,
                r#""kind":"storage","op":"query","collection":"c"}}]}}"#
            ),
            name = name
        )
    };
    for name in ["list", "lost", "last"] {
        fs::write(folder.join("app.json"), manifest(name)).unwrap();
        let reply = gateway.action("nuova", name, "").await;
        assert_eq!(reply.body, r#"{"ok":true,"records":[],"count":0}"#);
    }
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(gateway.action("nuova", "last", "").await.status, 404);
}

#[tokio::test]
async fn an_app_that_was_read_is_served_from_memory_and_its_removal_noticed() {
    let gateway = Gateway::new();
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert_eq!(gateway.action("meteo", "letture", r#"{"limit":1}"#).await.status, 200);
    let apps = &gateway.app.state.apps;
    let slug = "meteo".parse().unwrap();
    let first = apps.load(&slug).unwrap();
    assert!(Arc::ptr_eq(&first, &apps.load(&slug).unwrap()));
    fs::write(gateway.apps().join("meteo/app.json"), "{}").unwrap();
    assert!(apps.load(&slug).unwrap().manifest.is_err());
}

#[tokio::test]
async fn a_panic_is_a_500_with_a_fixed_text() {
    let error = blocking(|| panic!("on purpose")).await.unwrap_err();
    assert_eq!((error.status.as_u16(), error.message.as_ref()), (500, "internal error"));
}

#[tokio::test]
async fn it_serves_on_a_socket_keeps_alive_and_stops() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let folder = tempfile::tempdir().unwrap();
    init::ensure(folder.path()).unwrap();
    let state = Arc::new(State::open(folder.path()).unwrap());
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (trigger, shutdown) = crate::shutdown::channel();
    let server = tokio::spawn(serve(listener, app(state), shutdown));

    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut seen = String::new();
    for _ in 0..2 {
        stream.write_all(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        while !seen.ends_with("\r\n\r\n") {
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).await.unwrap();
            assert_ne!(count, 0, "closed after {seen}");
            seen.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
        assert!(seen.starts_with("HTTP/1.1 200"), "{seen}");
        seen.clear();
    }
    stream
        .write_all(
            b"POST /api/apps/a/actions/b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        )
        .await
        .unwrap();
    stream.read_to_string(&mut seen).await.unwrap();
    assert!(seen.starts_with("HTTP/1.1 405") && seen.contains("connection: close"), "{seen}");

    trigger.drain();
    server.await.unwrap();
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn any_kind_of_body_type_can_be_served() {
    let gateway = Gateway::new();
    let request = Request::get("/").body(Empty::<Bytes>::new()).unwrap();
    assert_eq!(Service::call(&gateway.app, request).await.unwrap().status(), 200);
}

#[tokio::test]
async fn an_open_request_is_finished_before_the_server_stops() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    let gateway = Gateway::new();
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (trigger, shutdown) = crate::shutdown::channel();
    let server = tokio::spawn(serve(listener, gateway.app.clone(), shutdown));
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    // A request with a body that does not end is open until the body is given up.
    stream.write_all(b"GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n12").await.unwrap();
    while gateway.app.requests.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    trigger.drain();
    stream.write_all(b"345").await.unwrap();
    let mut seen = String::new();
    stream.read_to_string(&mut seen).await.unwrap();
    assert!(seen.starts_with("HTTP/1.1 413"), "{seen}");
    server.await.unwrap();
}
