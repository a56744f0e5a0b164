//! Files that people edit while the gateway runs: manifests, config.json, collections. Each call sees them as they are.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use linekeep_tests::lines::lines;
use linekeep_tests::{TestServer, Workspace};
use serde_json::{Value, json};

const ITEMS: &str = "lista/data/items.jsonl";

fn manifest(description: &str, collection: &str) -> String {
    json!({"name": "Lista", "description": description, "actions": [
        {"name": "add", "description": "adds", "kind": "storage", "op": "append", "collection": collection,
            "params": {"what": {"type": "string"}}},
        {"name": "all", "description": "lists", "kind": "storage", "op": "query", "collection": collection},
    ]})
    .to_string()
}

fn server() -> TestServer {
    Workspace::new().app("lista", &manifest("first", "items")).serve()
}

#[track_caller]
fn description(server: &TestServer) -> String {
    let app = server.listed("lista").expect("the app is listed");
    app["description"].as_str().expect("a description is a text").to_owned()
}

/// Waits until the last change of a file is old enough for the gateway to keep what it read in memory, which it does
/// not while a further change could go unnoticed.
fn wait_until_old(path: &Path) {
    let metadata = fs::metadata(path).expect("the file is there");
    let changed =
        Duration::new(metadata.ctime().unsigned_abs(), metadata.ctime_nsec().try_into().unwrap_or(0));
    let old = SystemTime::UNIX_EPOCH + changed + Duration::from_millis(250);
    if let Ok(left) = old.duration_since(SystemTime::now()) {
        thread::sleep(left.min(Duration::from_secs(1)));
    }
}

#[test]
fn a_manifest_is_read_again_after_an_edit_a_break_and_a_repair() {
    let server = server();
    assert_eq!(description(&server), "first");
    let record = server.ok("lista", "add", r#"{"what":"pane"}"#)["record"].take();

    server.write("lista/app.json", manifest("second, and longer", "items"));
    assert_eq!(description(&server), "second, and longer");

    server.write("lista/app.json", &manifest("x", "items")[..60]);
    let app = server.listed("lista").unwrap();
    assert_eq!((&app["broken"], &app["name"]), (&json!(true), &json!("lista")));
    let error = server.action("lista", "all", "{}").error(409);
    assert!(error.starts_with("app 'lista' is broken: app.json: is not valid JSON: "), "{error}");

    server.write("lista/app.json", manifest("mended", "items"));
    assert_eq!(description(&server), "mended");
    assert_eq!(server.ok("lista", "all", "{}")["records"], json!([record]));

    server.write("lista/app.json", manifest("mended", "others"));
    assert_eq!(server.ok("lista", "all", "{}")["count"], 0, "the action goes to another collection now");

    fs::remove_file(server.path("lista/app.json")).unwrap();
    let error = server.action("lista", "all", "{}").error(409);
    assert_eq!(error, "app 'lista' is broken: app.json is missing");
}

#[test]
fn an_edit_that_keeps_the_size_is_noticed_even_when_it_keeps_the_time() {
    let server = server();
    let path = server.path("lista/app.json");
    wait_until_old(&path);
    assert_eq!(description(&server), "first");
    assert_eq!(description(&server), "first", "from memory now");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();

    server.write("lista/app.json", manifest("other", "items"));
    fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    assert_eq!(description(&server), "other");

    wait_until_old(&path);
    assert_eq!(description(&server), "other");
    // As an editor saves: a new file of the same size and time in the place of the old one.
    let saved = server.path("lista/app.json.new");
    fs::write(&saved, manifest("third", "items")).unwrap();
    fs::File::options().write(true).open(&saved).unwrap().set_modified(modified).unwrap();
    fs::rename(&saved, &path).unwrap();
    assert_eq!(description(&server), "third");
}

#[test]
fn edits_in_quick_succession_are_all_noticed() {
    let server = server();
    for round in 0..100 {
        let text = format!("{round:05}");
        server.write("lista/app.json", manifest(&text, "items"));
        assert_eq!(description(&server), text);
    }
}

#[test]
fn apps_come_and_go_without_a_restart() {
    let server = server();
    let slugs = || -> Vec<Value> { server.list().into_iter().map(|mut app| app["slug"].take()).collect() };
    assert_eq!(slugs(), ["lista"]);
    server.write("altra/app.json", manifest("new", "items"));
    assert_eq!(slugs(), ["altra", "lista"]);
    server.ok("altra", "add", r#"{"what":"x"}"#);
    fs::rename(server.path("altra"), server.path("terza")).unwrap();
    assert_eq!(slugs(), ["lista", "terza"]);
    assert_eq!(server.action("altra", "all", "{}").error(404), "app 'altra' not found");
    assert_eq!(server.ok("terza", "all", "{}")["count"], 1);
    fs::remove_dir_all(server.path("terza")).unwrap();
    assert_eq!(server.action("terza", "all", "{}").error(404), "app 'terza' not found");
    fs::remove_dir_all(server.path("")).unwrap();
    assert_eq!(slugs(), [] as [Value; 0]);
    assert_eq!(server.action("lista", "all", "{}").error(404), "app 'lista' not found");
}

#[test]
fn a_collection_name_is_never_a_path() {
    let names = [
        "../items",
        "a/b",
        "a\\b",
        "..",
        ".",
        "",
        "items\n",
        "\nitems",
        "items ",
        "Items",
        "a--b",
        "-a",
        "a-",
        "a.b",
        "items.jsonl",
        "é",
        "a\0",
        "/etc/passwd",
        &"a".repeat(65),
    ];
    let workspace = names.iter().enumerate().fold(Workspace::new(), |workspace, (number, name)| {
        workspace.app(&format!("app{number}"), &manifest("x", name))
    });
    let server = workspace.app("longest", &manifest("x", &"a".repeat(64))).serve();
    for (number, name) in names.iter().enumerate() {
        let slug = format!("app{number}");
        let app = server.listed(&slug).unwrap();
        assert_eq!(app["broken"], true, "{name:?}");
        let error = app["error"].as_str().unwrap();
        assert!(error.contains("actions[0] (add): 'collection'"), "{name:?}: {error}");
        server.action(&slug, "add", r#"{"what":"x"}"#).error(409);
        assert!(!server.path(&slug).join("data").exists(), "{name:?}");
        assert_eq!(fs::read_dir(server.path(&slug)).unwrap().count(), 1, "{name:?} made a file");
    }
    server.ok("longest", "add", r#"{"what":"x"}"#);
    assert_eq!(server.list().len(), names.len() + 1);
    assert_eq!(fs::read_dir(server.path("..")).unwrap().count(), 2, "apps and config.json");
}

#[test]
fn a_fragment_that_is_no_schema_breaks_the_app_when_it_is_loaded() {
    let fragments = [
        r#"{"type":"strin"}"#,
        r#"{"minimum":1}"#,
        r#""string""#,
        r#"{"type":"integer","minimum":"a"}"#,
        r#"{"type":"array","items":7}"#,
        r#"{"type":"string","enum":5}"#,
        r#"{"type":"string","pattern":"("}"#,
        r#"{"type":"object","$ref":"https://example.org/schema.json"}"#,
        r##"{"type":"object","anyOf":[{"properties":{"l":{"$ref":"#"}}},{"properties":{"l":{"$ref":"#"}}}]}"##,
        r##"{"type":"object","$defs":{"a":{"allOf":[{"$ref":"#/$defs/b"},{"$ref":"#/$defs/b"}]},"b":{}}}"##,
        r##"{"type":"object","$dynamicRef":"#"}"##,
        r#"{"type":"string","pattern":"[a-z]{4000}"}"#,
        r#"{"type":[]}"#,
        "null",
        "[]",
    ];
    let workspace = fragments.iter().enumerate().fold(Workspace::new(), |workspace, (number, fragment)| {
        let text = manifest("x", "items").replace(r#"{"type":"string"}"#, fragment);
        workspace.app(&format!("app{number}"), &text)
    });
    let server = workspace.serve();
    for (number, fragment) in fragments.iter().enumerate() {
        let error = server.action(&format!("app{number}"), "add", r#"{"what":"x"}"#).error(409);
        assert!(error.contains("(add): param 'what'"), "{fragment}: {error}");
    }
}

#[test]
fn the_apps_section_of_the_configuration_changes_without_a_restart() {
    let mut server = server();
    server.ok("lista", "add", r#"{"what":"a"}"#);
    server.write_apps_config(json!({"enabled": false}));
    assert_eq!(server.action("lista", "all", "{}").error(503), "apps are disabled");
    server.write_apps_config(json!({"enabled": "yes"}));
    for _ in 0..3 {
        assert_eq!(
            server.action("lista", "all", "{}").error(503),
            "apps are disabled",
            "what was in force stays"
        );
    }
    let log = server.log();
    assert_eq!(log.matches("apps.enabled").count(), 1, "said once: {log}");
    assert!(!log.contains(server.secret()));
    server.write_apps_config(json!({"maxCollectionBytes": 10}));
    assert_eq!(server.ok("lista", "all", "{}")["count"], 1);
    server.action("lista", "add", r#"{"what":"b"}"#).error(413);
    server.write_apps_config(json!({}));
    server.ok("lista", "add", r#"{"what":"b"}"#);
    assert_eq!(server.ok("lista", "all", "{}")["count"], 2);
}

#[test]
fn a_collection_edited_by_hand_is_served_as_it_now_is() {
    let server = server();
    server.ok("lista", "add", r#"{"what":"pane"}"#);
    let whats = || -> Vec<Value> {
        let mut envelope = server.ok("lista", "all", "{}");
        let records = envelope["records"].as_array_mut().expect("records are an array");
        records.iter_mut().map(|record| record["what"].take()).collect()
    };
    // In place.
    let file = String::from_utf8(server.read(ITEMS)).unwrap();
    server.write(ITEMS, file.replace("pane", "riso"));
    assert_eq!(whats(), ["riso"]);
    // By rename, with a line of the person's own and without a newline at the end.
    fs::write(server.path("lista/data/.items.swp"), format!("{file}\n  {{ \"what\" : \"mine\" }}")).unwrap();
    fs::rename(server.path("lista/data/.items.swp"), server.path(ITEMS)).unwrap();
    assert_eq!(whats(), ["pane", "mine"]);
    server.ok("lista", "add", r#"{"what":"olio"}"#);
    assert_eq!(whats(), ["pane", "mine", "olio"]);
    let bytes = server.read(ITEMS);
    let kept = format!("{file}\n  {{ \"what\" : \"mine\" }}\n");
    assert!(bytes.starts_with(kept.as_bytes()), "{}", String::from_utf8_lossy(&bytes));
    // By truncation.
    let first = lines(&bytes)[0].to_vec();
    fs::File::options().write(true).open(server.path(ITEMS)).unwrap().set_len(first.len() as u64).unwrap();
    assert_eq!(whats(), ["pane"]);
    // By removal.
    fs::remove_file(server.path(ITEMS)).unwrap();
    assert_eq!(whats(), [] as [&str; 0]);
    server.ok("lista", "add", r#"{"what":"new"}"#);
    assert_eq!(whats(), ["new"]);
}

#[test]
fn the_command_line_and_the_gateway_share_a_collection() {
    let server = server();
    let file = server.path(ITEMS);
    let file = file.to_str().unwrap();
    server.ok("lista", "add", r#"{"what":"by the gateway"}"#);
    let added = server.cli().run(["data", "append", file, r#"{"what":"by hand"}"#]).json(0);
    let all = server.ok("lista", "all", "{}");
    assert_eq!((&all["count"], &all["records"][1]), (&json!(2), &added["record"]));

    let deadline = Instant::now() + Duration::from_mins(1);
    thread::scope(|scope| {
        let by_gateway = scope.spawn(|| {
            for number in 0..20 {
                server.ok("lista", "add", &format!(r#"{{"what":"g{number}"}}"#));
            }
        });
        for number in 0..20 {
            server.cli().run(["data", "append", file, &format!(r#"{{"what":"c{number}"}}"#)]).json(0);
            assert!(Instant::now() < deadline, "neither waits for the other for long");
        }
        by_gateway.join().expect("every write of the gateway is answered");
    });
    assert_eq!(server.ok("lista", "all", "{}")["count"], 42);
    assert_eq!(lines(&server.read(ITEMS)).len(), 42);
}
