//! The command line: what it creates, prints and answers, and its exit status: 0 done, 1 not done, 2 asked wrongly.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use linekeep_tests::lines::{is_new_id, is_timestamp, keys, lines};
use linekeep_tests::process::{fixtures, repository};
use linekeep_tests::server::{SECRET, encode};
use linekeep_tests::{Cli, Finished, TestServer, Workspace};
use serde_json::{Value, json};
use tempfile::TempDir;

fn folder() -> (TempDir, Cli) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let cli = Cli::new(folder.path());
    (folder, cli)
}

/// Everything below a folder: mode and bytes by path.
fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    fn walk(root: &Path, folder: &Path, into: &mut BTreeMap<PathBuf, (u32, Vec<u8>)>) {
        for entry in fs::read_dir(folder).expect("a folder can be listed") {
            let path = entry.expect("a folder can be listed").path();
            let metadata = fs::symlink_metadata(&path).expect("an entry has metadata");
            let bytes =
                if metadata.is_dir() { Vec::new() } else { fs::read(&path).expect("a file can be read") };
            let name = path.strip_prefix(root).expect("it lies below").to_owned();
            into.insert(name, (metadata.permissions().mode() & 0o7777, bytes));
            if metadata.is_dir() {
                walk(root, &path, into);
            }
        }
    }
    let mut into = BTreeMap::new();
    walk(root, root, &mut into);
    into
}

#[track_caller]
fn says(finished: &Finished, code: i32, stderr: &[&str]) {
    assert_eq!((finished.code, finished.stdout.as_str()), (Some(code), ""), "{finished:?}");
    for words in stderr {
        assert!(finished.stderr.contains(words), "{finished:?} does not say {words}");
    }
}

#[test]
fn init_creates_a_private_configuration_and_the_sample_apps() {
    let (folder, cli) = folder();
    let created = cli.run(["init", "new"]);
    assert_eq!((created.code, created.line()), (Some(0), "created new"));

    let made = tree(&folder.path().join("new"));
    let (mode, config) = &made[Path::new("workspace/config.json")];
    assert_eq!(*mode, 0o600);
    let folders = made.values().filter(|(mode, _)| *mode == 0o700).count();
    assert_eq!(folders, 11, "each folder is its owner's: {:?}", made.keys());
    let config: Value = serde_json::from_slice(config).unwrap();
    let secret = config["websocket"]["token_issue_secret"].as_str().unwrap();
    assert_eq!(secret.len(), 43);
    assert!(secret.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{secret}");
    assert_eq!(config["websocket"]["enabled"], true);

    let sample = tree(&repository().join("examples/workspace"));
    let only_files = |tree: &BTreeMap<PathBuf, (u32, Vec<u8>)>| -> BTreeMap<PathBuf, Vec<u8>> {
        let files = tree.iter().filter(|(path, _)| path.extension().is_some());
        files.map(|(path, (_, bytes))| (path.clone(), bytes.clone())).collect()
    };
    let expected =
        only_files(&sample).into_iter().map(|(path, bytes)| (Path::new("workspace").join(path), bytes));
    let mut made = only_files(&made);
    made.remove(Path::new("workspace/config.json"));
    assert!(made == expected.collect(), "the sample workspace, byte for byte: {:?}", made.keys());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");

    let config = |name: &str| fs::read(folder.path().join(name).join("workspace/config.json")).unwrap();
    assert_eq!(cli.run(["init", "other"]).code, Some(0));
    assert_ne!(config("new"), config("other"), "each has its own secret");
}

#[test]
fn init_overwrites_nothing() {
    let (folder, cli) = folder();
    assert_eq!(cli.run(["init", "data"]).code, Some(0));
    let notes = folder.path().join("notes");
    fs::create_dir(&notes).unwrap();
    fs::write(notes.join("mine.txt"), "mine").unwrap();
    fs::write(folder.path().join("file"), "mine").unwrap();
    let before = tree(folder.path());
    for dir in ["data", "data/", "notes", "."] {
        says(&cli.run(["init", dir]), 1, &["linekeep: ", "exists"]);
    }
    assert_eq!(cli.run(["init", "file"]).code, Some(1));
    assert_eq!(cli.run(["init", "file/below"]).code, Some(1));
    assert!(tree(folder.path()) == before, "everything is as it was");

    fs::create_dir(folder.path().join("empty")).unwrap();
    assert_eq!(cli.run(["init", "empty"]).code, Some(0), "an empty folder is no loss");
    assert_eq!(cli.run(["init", "a/b/c"]).code, Some(0));
    assert!(folder.path().join("a/b/c/workspace/config.json").is_file());
}

#[test]
fn serve_creates_what_is_missing_and_leaves_what_is_there() {
    let mut server = TestServer::sample();
    let config = server.path("../config.json");
    let (before, mode) = (fs::read(&config).unwrap(), fs::metadata(&config).unwrap().permissions().mode());
    assert_eq!(mode & 0o777, 0o600);
    server.ok("shopping", "add_item", r#"{"what":"bread","qty":1,"done":false}"#);
    let items = server.read("shopping/data/items.jsonl");
    server.restart();
    assert!(fs::read(&config).unwrap() == before && server.read("shopping/data/items.jsonl") == items);
    assert_eq!(fs::metadata(&config).unwrap().permissions().mode(), mode);
}

#[test]
fn the_token_is_the_one_that_the_gateway_accepts() {
    let server = Workspace::new().fixture_app("spesa").serve();
    let token = server.app_token("spesa");
    assert_eq!(server.action_as(&token, "spesa", "list_items", "{}").envelope(200)["count"], 169);
    assert_eq!(server.app_token("spesa"), token, "it stays the same");
    assert!(!token.contains(SECRET) && !SECRET.contains(&token));
    // It does not need the app to be there yet.
    assert_eq!(server.app_token("not-yet").len(), 43);
    let cli = server.cli();
    says(&cli.run(["token", "Not_A_Slug", "--data-dir", "."]), 1, &["Not_A_Slug"]);
    says(&cli.run(["token", "spesa", "--data-dir", "absent"]), 1, &["absent"]);
    says(&cli.run(["token", "--data-dir", "."]), 2, &["SLUG"]);
}

#[test]
fn a_check_of_the_fixture_apps_finds_the_three_broken_ones() {
    let (_folder, cli) = folder();
    let apps = fixtures().join("workspace/apps");
    let checked = cli.run(["app".as_ref(), "check".as_ref(), apps.as_os_str()]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    let lines: Vec<_> = checked.stdout.lines().collect();
    assert_eq!(lines.len(), 8, "{lines:#?}");
    assert_eq!(lines[0], "error Not_A_Slug: folder name 'Not_A_Slug' is not a valid slug");
    assert_eq!(lines[1], "ok   attivita");
    assert!(lines[2].starts_with("error con-auth: app.json: server.auth is declared but "), "{}", lines[2]);
    assert_eq!(lines[3..6], ["ok   diario", "ok   meteo", "ok   piante"]);
    assert!(lines[6].starts_with("error rotta: app.json: is not valid JSON: "), "{}", lines[6]);
    assert_eq!(lines[7], "ok   spesa");

    let checked = cli.run(["app".as_ref(), "check".as_ref(), apps.join("spesa").as_os_str()]);
    assert_eq!((checked.code, checked.line()), (Some(0), "ok   spesa"));
}

#[test]
fn a_check_of_the_sample_apps_finds_nothing() {
    let (folder, cli) = folder();
    let apps = repository().join("examples/workspace/apps");
    let checked = cli.run(["app".as_ref(), "check".as_ref(), apps.as_os_str()]);
    assert_eq!(
        (checked.code, checked.stdout.as_str()),
        (Some(0), "ok   diary\nok   plants\nok   shopping\n")
    );

    // Without a folder it is the workspace of the default data directory.
    says(&cli.run(["app", "check"]), 1, &["linekeep-data"]);
    assert_eq!(cli.run(["init", "linekeep-data"]).code, Some(0));
    let by_default = cli.run(["app", "check"]);
    assert_eq!((by_default.code, by_default.stdout), (Some(0), checked.stdout));
    fs::write(folder.path().join("linekeep-data/workspace/apps/diary/app.json"), "{").unwrap();
    assert_eq!(cli.run(["app", "check"]).code, Some(1));
}

#[test]
fn a_check_tells_every_error_of_an_app_at_once() {
    let (folder, cli) = folder();
    let manifest = json!({
        "name": " ", "icon": 7,
        "server": {"baseUrl": "ftp://192.168.1.9", "auth": {"secretRef": "x"}},
        "actions": [
            {"name": "Add", "description": "d", "kind": "storage", "op": "push", "collection": "../items"},
            {"name": "find", "kind": "storage", "op": "query", "collection": "items", "required": ["nobody"],
                "params": {"limit": {"type": "integer"}, "what": {"type": "strin"}, "plain": {}}},
            {"name": "change", "description": "d", "kind": "storage", "op": "update", "collection": "items",
                "params": {"id": {"type": "string"}}},
            {"name": "run", "description": "d", "kind": "python", "code": "1"},
            {"name": "call", "description": "d", "kind": "http", "method": "get", "path": "plants/{who}"},
            {"name": "run", "description": "d", "kind": "storage", "op": "append", "collection": "items"},
            "not an action",
        ],
    });
    fs::create_dir(folder.path().join("bad")).unwrap();
    fs::write(folder.path().join("bad/app.json"), manifest.to_string()).unwrap();
    let checked = cli.run(["app", "check", "bad"]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    let lines: Vec<_> = checked.stdout.lines().collect();
    assert!(lines.iter().all(|line| line.starts_with("error bad: app.json: ")), "{lines:#?}");
    for words in [
        &["json: 'name' must be"][..],
        &["json: 'description' is missing"],
        &["server.auth is declared"],
        &["server.baseUrl", "http://"],
        &["actions[0]", "'name'", "\"Add\""],
        &["actions[0]", "'op'", "\"push\""],
        &["actions[0]", "'collection'", "\"../items\""],
        &["actions[1] (find)", "'description' is missing"],
        &["actions[1] (find)", "param 'limit'"],
        &["actions[1] (find)", "param 'what'"],
        &["actions[1] (find)", "param 'plain'", "'type'"],
        &["actions[1] (find)", "'required'", "'nobody'"],
        &["actions[2] (change)", "param 'id'"],
        &["actions[3] (run)", "'kind'", "\"python\""],
        &["actions[4] (call)", "server.baseUrl"],
        &["actions[4] (call)", "'method'", "\"get\""],
        &["actions[4] (call)", "'path'", "plants/"],
        &["actions[6]", "object"],
        &["more than one action", "'run'"],
    ] {
        let matching = lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).count();
        assert_eq!(matching, 1, "{words:?} in {lines:#?}");
    }
    assert_eq!(lines.len(), 19, "{lines:#?}");
}

#[test]
fn a_check_of_what_is_not_there_fails() {
    let (folder, cli) = folder();
    says(&cli.run(["app", "check", "absent"]), 1, &["absent"]);
    fs::create_dir(folder.path().join("empty")).unwrap();
    says(&cli.run(["app", "check", "empty"]), 1, &["empty"]);
    fs::create_dir_all(folder.path().join("apps/no-manifest/app")).unwrap();
    let checked = cli.run(["app", "check", "apps"]);
    assert_eq!((checked.code, checked.line()), (Some(1), "error no-manifest: app.json is missing"));
}

#[test]
fn a_check_goes_on_after_a_folder_that_is_not_there() {
    let (folder, cli) = folder();
    assert_eq!(cli.run(["init", "mine"]).code, Some(0));
    let checked = cli.run(["app", "check", "absent", "mine/workspace/apps", "nowhere"]);
    assert_eq!(
        (checked.code, checked.stdout.as_str()),
        (Some(1), "ok   diary\nok   plants\nok   shopping\n")
    );
    assert!(checked.stderr.contains("absent") && checked.stderr.contains("nowhere"), "{checked:?}");

    // The data directory may be another one.
    let flagged = cli.run(["app", "check", "--data-dir", "mine"]);
    assert_eq!((flagged.code, &flagged.stdout), (Some(0), &checked.stdout));
    let mut command = linekeep_tests::process::linekeep();
    command.args(["app", "check"]).env("LINEKEEP_DATA_DIR", "mine").current_dir(folder.path());
    let by_environment = linekeep_tests::process::run(&mut command, std::time::Duration::from_secs(20));
    assert_eq!((by_environment.code, &by_environment.stdout), (Some(0), &checked.stdout));
}

#[test]
fn no_name_forges_a_line_of_a_check() {
    let (folder, cli) = folder();
    let name = "x\u{1b}[2K\nok   forged";
    let app = folder.path().join("apps").join(name);
    fs::create_dir_all(&app).unwrap();
    let manifest = json!({"name": "N", "description": "d\n\u{1b}[31m", "actions": [
        {"name": "a\u{7f}\n", "description": "d", "kind": "http", "method": "GET", "path": "/{\n\u{9b}}",
            "params": {"p\u{2028}\nerror": 7}},
    ]});
    fs::write(app.join("app.json"), manifest.to_string()).unwrap();
    let checked = cli.run(["app", "check", "apps", "absent\n\u{1b}"]);
    assert_eq!(checked.code, Some(1));
    assert!(checked.stdout.lines().count() > 4, "{checked:?}");
    for line in checked.stdout.lines() {
        assert!(line.starts_with("error x\\u{1b}[2K\\nok   forged: "), "{line}");
    }
    assert_eq!(checked.stderr.lines().count(), 1, "{checked:?}");
    let unprintable =
        |text: &str| text.contains(|it: char| (it.is_control() && it != '\n') || it == '\u{2028}');
    assert!(!unprintable(&checked.stdout) && !unprintable(&checked.stderr), "{checked:?}");
}

#[test]
fn a_link_to_nothing_is_said_to_be_one() {
    let (folder, cli) = folder();
    std::os::unix::fs::symlink("nowhere", folder.path().join("link")).unwrap();
    says(&cli.run(["serve", "--data-dir", "link", "--port", "0"]), 1, &["link is a link to nothing"]);
    says(&cli.run(["init", "link"]), 1, &["link is a link to nothing"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_collection_in_a_folder_that_is_not_there_is_404() {
    let (folder, cli) = folder();
    for arguments in
        [&["query", "nodir/x.jsonl"][..], &["append", "nodir/x.jsonl", "{}"], &["health", "nodir/x.jsonl"]]
    {
        assert_eq!(
            cli.run([&["data"], arguments].concat()).json(1),
            json!({"ok": false, "error": "folder 'nodir' not found", "status": 404})
        );
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn the_operations_answer_with_the_envelopes_of_the_gateway() {
    let (folder, cli) = folder();
    let data = |arguments: &[&str]| cli.run([&["data"], arguments].concat());

    let appended = data(&["append", "items.jsonl", r#"{"what":"milk","qty":1.50,"id":"ignored"}"#]).json(0);
    assert_eq!(keys(&appended), ["ok", "record"]);
    let record = &appended["record"];
    assert_eq!(keys(record), ["id", "ts", "what", "qty"]);
    let id = record["id"].as_str().unwrap();
    assert!(is_new_id(id) && is_timestamp(record["ts"].as_str().unwrap()), "{record}");
    let bytes = fs::read_to_string(folder.path().join("items.jsonl")).unwrap();
    assert!(bytes.contains(r#""qty":1.50"#), "digits stay: {bytes}");

    let updated = data(&["update", "items.jsonl", id, r#"{"done":true,"id":"ignored"}"#]).json(0);
    let expected = json!({"id": id, "ts": record["ts"], "what": "milk", "qty": 1.5, "done": true});
    assert_eq!(updated, json!({"ok": true, "record": expected}));

    let set = data(&["set", "items.jsonl", id, r#"{"what":"oil"}"#]).json(0);
    assert_eq!(set, json!({"ok": true, "record": {"id": id, "ts": record["ts"], "what": "oil"}}));
    let other = data(&["set", "items.jsonl", "my own", r#"{"what":"bread","ts":"then"}"#]).json(0);
    assert_eq!(other, json!({"ok": true, "record": {"id": "my own", "ts": "then", "what": "bread"}}));

    let found = data(&["query", "items.jsonl"]).json(0);
    assert_eq!(found, json!({"ok": true, "records": [set["record"], other["record"]], "count": 2}));
    let found = data(&["query", "items.jsonl", "--where", r#"{"what":"bread"}"#]).json(0);
    assert_eq!(found, json!({"ok": true, "records": [other["record"]], "count": 1}));
    let found = data(&["query", "items.jsonl", "--limit", "1"]).json(0);
    assert_eq!(found, json!({"ok": true, "records": [set["record"]], "count": 2}));
    assert_eq!(
        data(&["query", "items.jsonl", "--limit", "0"]).json(0)["records"].as_array().unwrap().len(),
        2
    );

    let bytes = fs::metadata(folder.path().join("items.jsonl")).unwrap().len();
    let health = data(&["health", "items.jsonl"]).json(0);
    assert_eq!((keys(&health), &health["ok"]), (vec!["ok", "health"], &json!(true)));
    for (key, value) in [
        ("records", json!(2)),
        ("bytes", json!(bytes)),
        ("limit_bytes", json!(5_000_000)),
        ("corrupt_lines", json!([])),
        ("torn_tail", Value::Null),
    ] {
        assert_eq!(health["health"].get(key), Some(&value), "{key} of {health}");
    }

    assert_eq!(data(&["delete", "items.jsonl", id]).json(0), json!({"ok": true, "deleted": id}));
    assert_eq!(data(&["query", "items.jsonl"]).json(0)["count"], 1);
    assert_eq!(lines(&fs::read(folder.path().join("items.jsonl")).unwrap()).len(), 1);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is made");
}

#[test]
fn errors_of_the_operations_are_answers_with_a_status() {
    let (folder, cli) = folder();
    let file = folder.path().join("items.jsonl");
    fs::write(&file, "{\"id\":\"a\",\"n\":1}\n").unwrap();
    let long_id = "x".repeat(257);
    let refused = |arguments: &[&str], status: u16| {
        let answer = cli.run([&["data"], arguments].concat());
        assert_eq!(answer.stderr, "", "{answer:?}");
        let answer = answer.json(1);
        assert_eq!(keys(&answer), ["ok", "error", "status"]);
        assert_eq!(
            (&answer["ok"], &answer["status"]),
            (&json!(false), &json!(status)),
            "{arguments:?}: {answer}"
        );
        answer["error"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        cli.run(["data", "delete", "items.jsonl", "none"]).line(),
        r#"{"ok":false,"error":"record 'none' not found in collection 'items'","status":404}"#
    );
    refused(&["update", "items.jsonl", "none", "{}"], 404);
    refused(&["delete", "absent.jsonl", "none"], 404);
    for json in ["", "[]", "{", "null", "{\"a\":NaN}", "{\"a\":1e400}"] {
        refused(&["append", "items.jsonl", json], 400);
        refused(&["update", "items.jsonl", "a", json], 400);
        refused(&["query", "items.jsonl", "--where", json], 400);
    }
    for id in ["", &long_id] {
        refused(&["set", "items.jsonl", id, "{}"], 400);
        refused(&["delete", "items.jsonl", id], 400);
    }
    for name in ["items.txt", "Items.jsonl", "items", ".jsonl", "a b.jsonl", ".", "..", "/"] {
        refused(&["query", name], 400);
        refused(&["append", name, "{}"], 400);
    }
    let big = folder.path().join("big.jsonl");
    fs::write(&big, vec![b' '; 5_000_001]).unwrap();
    let error = refused(&["append", "big.jsonl", "{}"], 413);
    assert!(error.contains("5000000"), "{error}");
    std::os::unix::fs::symlink("items.jsonl", folder.path().join("linked.jsonl")).unwrap();
    assert!(refused(&["append", "linked.jsonl", "{}"], 409).contains("symbolic link"));
    fs::create_dir(folder.path().join("dir.jsonl")).unwrap();
    refused(&["query", "dir.jsonl"], 409);
    assert_eq!(fs::read(&file).unwrap(), b"{\"id\":\"a\",\"n\":1}\n");
}

#[test]
fn a_missing_file_reads_as_empty_and_an_append_makes_it() {
    let (folder, cli) = folder();
    let found = cli.run(["data", "query", "items.jsonl"]);
    assert_eq!((found.code, found.line()), (Some(0), r#"{"ok":true,"records":[],"count":0}"#));
    assert_eq!(cli.run(["data", "health", "items.jsonl"]).json(0)["health"]["records"], 0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "reading makes nothing");
    let absolute = folder.path().join("items.jsonl");
    cli.run(["data".as_ref(), "append".as_ref(), absolute.as_os_str(), "{}".as_ref()]).json(0);
    cli.run(["data", "append", "./items.jsonl", "{}"]).json(0);
    assert_eq!(lines(&fs::read(absolute).unwrap()).len(), 2);
}

#[test]
fn what_is_asked_wrongly_exits_with_2_and_says_how() {
    let (folder, cli) = folder();
    for arguments in [
        &["data"][..],
        &["data", "append"],
        &["data", "append", "items.jsonl"],
        &["data", "query"],
        &["data", "query", "items.jsonl", "--limit", "many"],
        &["data", "query", "items.jsonl", "--limit=-1"],
        &["data", "destroy", "items.jsonl"],
        &["serve", "--port", "70000"],
        &["serve", "--nonsense"],
        &["nonsense"],
        &["init"],
        &[],
    ] {
        let finished = cli.run(arguments);
        says(&finished, 2, &["--help"]);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let help = cli.run(["--help"]);
    assert_eq!(help.code, Some(0));
    for word in ["serve", "init", "token", "app", "data", "linekeep serve"] {
        assert!(help.stdout.contains(word), "the help does not say {word}: {}", help.stdout);
    }
    for command in
        [&["serve", "--help"][..], &["data", "--help"], &["app", "check", "--help"], &["token", "--help"]]
    {
        let help = cli.run(command);
        assert_eq!(help.code, Some(0));
        assert!(help.stdout.contains("Example"), "{command:?} shows no example: {}", help.stdout);
    }
}

#[test]
fn serve_refuses_a_bad_value_and_names_file_key_value_and_range() {
    let (folder, cli) = folder();
    let config = folder.path().join("data/workspace/config.json");
    fs::create_dir_all(config.parent().unwrap()).unwrap();
    let serve = |text: &str| {
        fs::write(&config, text).unwrap();
        let finished = cli.run(["serve", "--data-dir", "data", "--port", "0"]);
        assert_eq!(fs::read_to_string(&config).unwrap(), text, "the file is left alone");
        assert!(!finished.stderr.contains("hunter2"), "{finished:?}");
        finished
    };
    let file = "data/workspace/config.json";
    let secret = r#""tokenIssueSecret":"hunter2""#;
    for (section, words) in [
        (r#""websocket":{"port":70000}"#, &["websocket.port", "70000", "65535"][..]),
        (r#""websocket":{"host":7}"#, &["websocket.host", "7"]),
        (r#""websocket":{"tokenIssueSecret":["hunter2"]}"#, &["websocket.tokenIssueSecret"]),
        (r#""websocket":[]"#, &["websocket", "object"]),
        (r#""websocket":"hunter2""#, &["websocket", "object"]),
        (r#""websocket":["hunter2"]"#, &["websocket", "object"]),
        (r#""websocket":{"host":{"secret":"hunter2"}}"#, &["websocket.host", "object"]),
        (r#""apps":{"enabled":"yes"}"#, &["apps.enabled", "yes", "true or false"]),
        (r#""apps":{"maxCollectionBytes":-1}"#, &["apps.maxCollectionBytes", "-1", "whole number from 1 to"]),
        (r#""apps":{"max_collection_bytes":0.5}"#, &["apps.max_collection_bytes", "0.5"]),
        (r#""apps":{"paramsMaxChars":0}"#, &["apps.paramsMaxChars", "0", "32768"]),
        (r#""apps":{"paramsMaxChars":null}"#, &["apps.paramsMaxChars", "null"]),
    ] {
        says(&serve(&format!("{{{section}}}")), 1, &[&[file], words].concat());
    }
    for text in ["", "{", "[]", &format!("{{\"websocket\":{{{secret}}},}}")] {
        says(&serve(text), 1, &[file]);
    }
    // The network may come in only where there is a secret to show.
    says(&serve(r#"{"websocket":{"host":"0.0.0.0"}}"#), 1, &["0.0.0.0", "tokenIssueSecret"]);
    says(&serve(r#"{"websocket":{"host":"::","tokenIssueSecret":"  "}}"#), 1, &["::", "tokenIssueSecret"]);
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = busy.local_addr().unwrap().port().to_string();
    fs::write(&config, "{}").unwrap();
    says(&cli.run(["serve", "--data-dir", "data", "--port", &port]), 1, &[&port]);
}

#[test]
fn flags_have_twins_in_the_environment() {
    let (folder, cli) = folder();
    assert_eq!(cli.run(["init", "data"]).code, Some(0));
    let mut command = linekeep_tests::process::linekeep();
    command.args(["token", "shopping"]).env("LINEKEEP_DATA_DIR", "data").current_dir(folder.path());
    let token = linekeep_tests::process::run(&mut command, std::time::Duration::from_secs(20));
    assert_eq!(token.line(), cli.run(["token", "shopping", "--data-dir", "data"]).line());
    assert_eq!(
        encode(token.line()).replace("%2D", "-").replace("%5F", "_"),
        token.line(),
        "it needs no encoding"
    );
}

#[test]
fn data_repair_shows_what_it_would_do_and_keeps_the_file_as_it_was_when_it_does_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("items.jsonl");
    let damaged = b"{\"id\":\"a\"}{\"id\":\"b\"}\n{torn\n{\"id\":\"c\"}";
    std::fs::write(&file, damaged).unwrap();
    let cli = Cli::new(folder.path());
    let steps = serde_json::json!([
        {"line": 1, "offset": 10, "length": 10, "what": "split_glued"},
        {"line": 2, "offset": 21, "length": 5, "what": "drop_corrupt", "reason": "unexpected 't'"},
        {"line": 3, "offset": 27, "length": 10, "what": "end_last_line"},
    ]);
    for arguments in [&["data", "repair", "items.jsonl"][..], &["data", "repair", "items.jsonl", "--dry-run"]]
    {
        let shown = cli.run(arguments).json(0);
        assert_eq!(
            (&shown["applied"], &shown["steps"], &shown["kept"]),
            (&false.into(), &steps, &Value::Null)
        );
        assert_eq!(std::fs::read(&file).unwrap(), damaged);
    }
    let done = cli.run(["data", "repair", "items.jsonl", "--apply"]).json(0);
    assert_eq!((&done["applied"], &done["steps"], &done["records"]), (&true.into(), &steps, &3.into()));
    assert_eq!(std::fs::read(&file).unwrap(), b"{\"id\":\"a\"}\n{\"id\":\"b\"}\n{\"id\":\"c\"}\n");
    let kept = folder.path().join(done["kept"].as_str().unwrap());
    assert_eq!(std::fs::read(&kept).unwrap(), damaged);
    let again = cli.run(["data", "repair", "items.jsonl", "--apply"]).json(0);
    assert_eq!((&again["steps_count"], &again["kept"]), (&0.into(), &Value::Null));
    assert_eq!(cli.run(["data", "repair", "items.jsonl", "--apply", "--dry-run"]).code, Some(2));
}

#[test]
fn data_retain_thins_the_readings_of_the_fixture_to_48_and_one_a_day() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("readings.jsonl");
    std::fs::copy(fixtures().join("workspace/apps/meteo/data/readings.jsonl"), &file).unwrap();
    let before = std::fs::read_to_string(&file).unwrap();
    let cli = Cli::new(folder.path());
    let dry = cli.run(["data", "retain", "readings.jsonl", "--key", "sensor", "--dry-run"]).json(0);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    let done = cli.run(["data", "retain", "readings.jsonl", "--key", "sensor"]).json(0);
    assert_eq!((&dry, &done["series"]), (&done, &3.into()));

    // The rule once more, in the plainest words: the text of `ts` sorts as the time does, all of it being UTC.
    let after = std::fs::read_to_string(&file).unwrap();
    let mut expected: Vec<&str> = Vec::new();
    for sensor in ["balcone", "cucina", "orto"] {
        let own: Vec<&str> = before.lines().filter(|line| line.contains(&format!("\"{sensor}\""))).collect();
        let day = |line: &str| line.split("\"ts\": \"").nth(1).unwrap()[..10].to_owned();
        let days: Vec<String> = own.iter().map(|line| day(line)).collect();
        let mut distinct = days.clone();
        distinct.dedup();
        // One reading every few hours without a gap: 396 days back from the last are the last 397 of the days.
        let oldest = &distinct[distinct.len() - 397];
        for (at, line) in own.iter().enumerate() {
            let last_of_day = days.get(at + 1) != Some(&days[at]);
            if at + 48 >= own.len() || (last_of_day && days[at] >= *oldest) {
                expected.push(line);
            }
        }
    }
    let mut left: Vec<&str> = after.lines().collect();
    left.sort_unstable();
    expected.sort_unstable();
    assert_eq!(left.len(), expected.len());
    assert_eq!(left, expected);
    let count = |text: &str| text.lines().count();
    assert_eq!(done["removed"].as_array().unwrap().len(), count(&before) - count(&after));
    assert_eq!(done["kept"], count(&after));
    let again = cli.run(["data", "retain", "readings.jsonl", "--key", "sensor"]).json(0);
    assert_eq!(again["count"], 0, "there is nothing left to thin");
}

#[test]
fn data_health_of_a_folder_is_the_health_of_every_collection_below_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("app/data");
    std::fs::create_dir_all(&data).unwrap();
    std::fs::create_dir_all(folder.path().join(".trash")).unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(data.join(name), bytes).unwrap();
    write("good.jsonl", b"{\"id\":\"a\"}\n{\"id\":\"a\"}\n{\"n\":1}\n");
    write("bad.jsonl", b"{\"id\":\"a\"}\nnot json\n");
    write("wide.jsonl", b"\xFF\xFE{\0}\0\n\0");
    write("big.jsonl", format!("{{\"text\":\"{}\"}}\n", "x".repeat(6_000_000)).as_bytes());
    write("good (conflicted copy).jsonl", b"{}\n");
    write("latest.json", b"{}");
    std::fs::write(folder.path().join(".trash/gone.jsonl"), "{}\n").unwrap();
    std::os::unix::fs::symlink(data.join("good.jsonl"), data.join("linked.jsonl")).unwrap();

    let survey = Cli::new(folder.path()).run(["data", "health", "."]).json(0);
    let paths: Vec<&str> =
        survey["collections"].as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap()).collect();
    let names = ["bad", "big", "good", "linked", "wide"].map(|name| format!("app/data/{name}.jsonl"));
    assert_eq!(paths, names);
    assert_eq!(survey["others"], serde_json::json!(["app/data/good (conflicted copy).jsonl"]));
    let of = |at: usize, field: &str| survey["collections"][at]["health"][field].clone();
    assert_eq!((of(0, "records"), of(0, "corrupt_lines_count")), (1.into(), 1.into()));
    assert_eq!((of(1, "records"), of(1, "limit_used_percent")), (1.into(), 121.into()));
    assert_eq!((of(2, "duplicate_ids"), of(2, "records_without_id")), (1.into(), 1.into()));
    for (at, reason) in [(3, "symbolic link"), (4, "UTF-16LE")] {
        let error = survey["collections"][at]["error"].as_str().unwrap();
        assert!(error.contains(reason), "{error}");
    }
}
