//! `GET /api/apps/<slug>/actions/<name>`: what each operation answers and does to the file, each status, and the order
//! in which faults are found.

use std::collections::HashSet;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use linekeep_tests::lines::{is_new_id, is_timestamp, keys, lines, records, spelled};
use linekeep_tests::server::{SECRET, action_target, encode};
use linekeep_tests::{Reply, TestServer, Workspace, process};
use serde_json::{Value, json};

const ITEMS: &str = "spesa/data/items.jsonl";
const TASKS: &str = "attivita/data/tasks.jsonl";

fn values(file: &[u8]) -> Vec<Value> {
    lines(file).into_iter().map(|line| serde_json::from_slice(line).expect("the fixture is JSON")).collect()
}

/// The position of the one line that differs between two files of as many lines.
#[track_caller]
fn only_changed_line(before: &[u8], after: &[u8]) -> usize {
    let (before, after) = (lines(before), lines(after));
    assert_eq!(before.len(), after.len());
    let changed: Vec<_> = (0..before.len()).filter(|line| before[*line] != after[*line]).collect();
    let [line] = changed[..] else { panic!("lines {changed:?} changed") };
    line
}

/// Added and removed lines as git counts them.
#[track_caller]
fn numstat(before: &[u8], after: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("a folder can be made");
    fs::write(folder.path().join("before"), before).expect("a file can be written");
    fs::write(folder.path().join("after"), after).expect("a file can be written");
    let mut git = Command::new("git");
    git.args(["diff", "--no-index", "--numstat", "before", "after"]).current_dir(folder.path());
    git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    let diff = process::run(&mut git, Duration::from_secs(20));
    assert_eq!(diff.code, Some(1), "git finds a difference: {diff:?}");
    diff.stdout.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check_new_record(record: &Value, expected_keys: &[&str]) {
    assert_eq!(keys(record), expected_keys);
    assert!(is_new_id(record["id"].as_str().expect("an id is a text")), "{record}");
    assert!(is_timestamp(record["ts"].as_str().expect("a ts is a text")), "{record}");
}

#[test]
fn a_query_answers_with_the_records_of_the_file_in_order() {
    let server = Workspace::new().fixture_app("spesa").serve();
    let file = server.read(ITEMS);
    let envelope = server.ok("spesa", "list_items", "{}");
    assert_eq!(keys(&envelope), ["ok", "records", "count"]);
    assert_eq!(envelope["records"], Value::Array(values(&file)));
    assert_eq!(envelope["count"], 169);
    assert_eq!(server.ok("spesa", "list_items", "")["count"], 169, "no params are an empty object");
    let target = format!("/api/apps/spesa/actions/list_items?token={SECRET}");
    assert_eq!(server.get(&target).envelope(200)["count"], 169);
    assert_eq!(server.read(ITEMS), file, "a query writes nothing");
}

#[test]
fn a_query_filters_by_equality_and_counts_what_the_limit_leaves_out() {
    let server = Workspace::new().fixture_app("spesa").fixture_app("attivita").serve();
    let items = values(&server.read(ITEMS));
    let wanted: Vec<_> =
        items.iter().filter(|item| item["done"] == true && item["shop"] == "bakery").cloned().collect();
    assert!(wanted.len() > 3, "the fixture has such records");
    let all = server.ok("spesa", "list_items", r#"{"shop":"bakery","done":true}"#);
    assert_eq!((&all["records"], &all["count"]), (&json!(wanted), &json!(wanted.len())));
    let some = server.ok("spesa", "list_items", r#"{"shop":"bakery","done":true,"limit":3}"#);
    assert_eq!((&some["records"], &some["count"]), (&json!(wanted[..3]), &json!(wanted.len())));
    let none = server.ok("spesa", "list_items", r#"{"shop":"nowhere"}"#);
    assert_eq!((&none["records"], &none["count"]), (&json!([]), &json!(0)));

    let tasks = values(&server.read(TASKS));
    let wanted: Vec<_> =
        tasks.iter().filter(|task| task["list"] == "fitness" && task["done"] == false).collect();
    let found = server.ok("attivita", "find", r#"{"list":"fitness","done":false,"limit":27000}"#);
    assert_eq!((&found["records"], &found["count"]), (&json!(wanted), &json!(wanted.len())));
}

#[test]
fn a_query_gives_200_records_unless_told_otherwise() {
    let server = Workspace::new().fixture_app("attivita").serve();
    let given = |params: &str| {
        let envelope = server.ok("attivita", "find", params);
        assert_eq!(envelope["count"], 27_000, "{params}");
        envelope["records"].as_array().map(Vec::len).expect("records are an array")
    };
    for params in ["{}", r#"{"limit":0}"#, r#"{"limit":-5}"#, r#"{"limit":200}"#] {
        assert_eq!(given(params), 200, "{params}");
    }
    assert_eq!(given(r#"{"limit":1}"#), 1);
    assert_eq!(given(r#"{"limit":26999}"#), 26_999);
    assert_eq!(given(r#"{"limit":99999999999999999999999999}"#), 27_000);
}

#[test]
fn an_append_adds_one_line_at_the_end_with_a_new_id_and_the_time() {
    let server = Workspace::new().fixture_app("spesa").fixture_app("attivita").serve();
    for (slug, action, path, params, expected) in [
        (
            "spesa",
            "add_item",
            ITEMS,
            r#"{"shop":"market","what":"pane","qty":2}"#,
            ["id", "ts", "shop", "what", "qty"],
        ),
        (
            "attivita",
            "add",
            TASKS,
            r#"{"text":"x","done":false,"list":"a"}"#,
            ["id", "ts", "text", "done", "list"],
        ),
    ] {
        let before = server.read(path);
        let envelope = server.ok(slug, action, params);
        assert_eq!(keys(&envelope), ["ok", "record"]);
        let record = &envelope["record"];
        check_new_record(record, &expected);
        let given: Value = serde_json::from_str(params).unwrap();
        for key in keys(&given) {
            assert_eq!(record[key], given[key]);
        }

        let after = server.read(path);
        let added = after.strip_prefix(&before[..]).expect("what was there stays");
        assert_eq!(lines(added).len(), 1);
        assert_eq!(&serde_json::from_slice::<Value>(added.strip_suffix(b"\n").unwrap()).unwrap(), record);
        assert_eq!(numstat(&before, &after), "1 0");
    }
}

#[test]
fn an_append_to_a_collection_without_a_file_makes_it() {
    let server = Workspace::new().file("spesa/app.json", fixture_manifest("spesa")).serve();
    assert_eq!(server.action("spesa", "list_items", "{}").text(), r#"{"ok":true,"records":[],"count":0}"#);
    assert!(!server.path("spesa/data").exists(), "a query makes nothing");
    let record = server.ok("spesa", "add_item", r#"{"what":"pane"}"#)["record"].take();
    check_new_record(&record, &["id", "ts", "what"]);
    assert_eq!(values(&server.read(ITEMS)), [record]);
}

fn fixture_manifest(slug: &str) -> Vec<u8> {
    let path = process::fixtures().join("workspace/apps").join(slug).join("app.json");
    fs::read(path).expect("the fixture has the app")
}

#[test]
fn an_update_changes_one_line_and_git_sees_one_line() {
    let server = Workspace::new().fixture_app("spesa").fixture_app("attivita").fixture_app("diario").serve();
    for (slug, action, path, fields) in [
        ("spesa", "set_done", ITEMS, r#""done":"new""#),
        ("attivita", "change", TASKS, r#""text":"bought \"two\" 🌱","list":"new""#),
        ("diario", "edit", "diario/data/notes.jsonl", r#""text":"今日","tags":["a","b"]"#),
    ] {
        let fields = fields.replace(r#""done":"new""#, r#""done":false"#);
        let before = server.read(path);
        let old = values(&before);
        // A record in the middle, so that bytes before and after it must stay.
        let line =
            (old.len() / 2..old.len()).find(|line| old[*line]["done"] != false).expect("one to change");
        let id = old[line]["id"].as_str().unwrap();
        let envelope = server.ok(slug, action, &format!(r#"{{"id":"{id}",{fields}}}"#));
        assert_eq!(keys(&envelope), ["ok", "record"]);

        let mut expected = old[line].clone();
        let fields: Value = serde_json::from_str(&format!("{{{fields}}}")).unwrap();
        for key in keys(&fields) {
            expected[key] = fields[key].clone();
        }
        assert_eq!(envelope["record"], expected);
        assert_eq!(
            keys(&envelope["record"]),
            keys(&expected),
            "old members keep their place, new ones follow"
        );
        let after = server.read(path);
        assert_eq!(only_changed_line(&before, &after), line);
        assert_eq!(values(&after)[line], expected);
        assert_eq!(numstat(&before, &after), "1 1");
    }
}

#[test]
fn a_set_replaces_a_record_wholesale_and_keeps_its_time() {
    let server = Workspace::new().fixture_app("spesa").serve();
    let before = server.read(ITEMS);
    let old = values(&before);
    let id = old[80]["id"].as_str().unwrap();
    let envelope = server.ok("spesa", "replace_item", &format!(r#"{{"what":"olio","id":"{id}","qty":7}}"#));
    assert_eq!(envelope["record"], json!({"id": id, "ts": old[80]["ts"], "what": "olio", "qty": 7}));
    assert_eq!(keys(&envelope["record"]), ["id", "ts", "what", "qty"]);
    let after = server.read(ITEMS);
    assert_eq!(only_changed_line(&before, &after), 80);
    assert_eq!(values(&after)[80], envelope["record"]);
    assert_eq!(numstat(&before, &after), "1 1");
}

#[test]
fn a_set_with_a_new_id_appends_the_record() {
    let server = Workspace::new().fixture_app("spesa").serve();
    let before = server.read(ITEMS);
    let envelope = server.ok("spesa", "replace_item", r#"{"id":"my own è","what":"olio"}"#);
    let record = &envelope["record"];
    assert_eq!((keys(record), &record["id"]), (vec!["id", "ts", "what"], &json!("my own è")));
    assert!(is_timestamp(record["ts"].as_str().unwrap()));
    let after = server.read(ITEMS);
    assert_eq!(&values(after.strip_prefix(&before[..]).unwrap()), std::slice::from_ref(record));
    server.ok("spesa", "remove_item", r#"{"id":"my own è"}"#);
    assert_eq!(server.read(ITEMS), before, "and a delete takes it away again");
}

#[test]
fn a_delete_takes_one_line_and_answers_with_the_id() {
    let server = Workspace::new().fixture_app("spesa").fixture_app("attivita").serve();
    for (slug, action, path) in [("spesa", "remove_item", ITEMS), ("attivita", "drop", TASKS)] {
        let before = server.read(path);
        let middle = lines(&before).len() / 2;
        let id = values(&before)[middle]["id"].as_str().unwrap().to_owned();
        let envelope = server.ok(slug, action, &format!(r#"{{"id":"{id}"}}"#));
        assert_eq!(envelope, json!({"ok": true, "deleted": id}));
        let mut left = lines(&before);
        left.remove(middle);
        let after = server.read(path);
        assert!(after == left.concat(), "all other lines stay as they are");
        assert_eq!(numstat(&before, &after), "0 1");
        let again = server.action(slug, action, &format!(r#"{{"id":"{id}"}}"#));
        assert_eq!(again.error(404), format!("record '{id}' not found"));
    }
}

#[test]
fn the_other_fixture_apps_work_too() {
    let server = Workspace::new().fixture_app("piante").fixture_app("diario").fixture_app("meteo").serve();
    let logged = server.ok("piante", "annota_cura", r#"{"pianta":"felce","nota":"concimata 🌱"}"#);
    check_new_record(&logged["record"], &["id", "ts", "pianta", "nota"]);
    let file = values(&server.read("piante/data/cure.jsonl"));
    let count = file.iter().filter(|record| record["pianta"] == "felce").count();
    let found = server.ok("piante", "elenco_cure", r#"{"pianta":"felce","limit":1000}"#);
    assert_eq!(found["count"], count);
    assert_eq!(found["records"].as_array().and_then(|records| records.last()), Some(&logged["record"]));

    let written =
        server.ok("diario", "write", r#"{"text":"今日はいい天気","mood":null,"tags":["casa","è"]}"#);
    check_new_record(&written["record"], &["id", "ts", "text", "mood", "tags"]);
    assert_eq!(written["record"]["mood"], Value::Null, "a list of types takes each of them");

    let readings = server.ok("meteo", "letture", r#"{"sensor":"balcone","limit":1}"#);
    let first = json!({"id": "83be0e2806fc", "ts": "2025-09-01T00:00:00+00:00", "sensor": "balcone",
        "moisture": 59.8, "temp": 31.0});
    assert_eq!((&readings["records"], &readings["count"]), (&json!([first]), &json!(3_640)));
}

#[test]
fn without_a_credential_an_action_is_401() {
    let server = Workspace::new().fixture_app("spesa").serve();
    let reply = server.get(&action_target("spesa", "add_item", r#"{"what":"x"}"#));
    assert_eq!(reply.error(401), "Unauthorized");
    assert_eq!(lines(&server.read(ITEMS)).len(), 169);
}

#[test]
fn with_apps_disabled_every_apps_route_is_503() {
    let server = Workspace::new().fixture_app("spesa").apps_config(json!({"enabled": false})).serve();
    assert_eq!(server.action("spesa", "list_items", "{}").error(503), "apps are disabled");
    for target in ["/api/webui/apps", "/apps/spesa/", "/apps/spesa/index.html"] {
        let reply = server.get(&format!("{target}?token={SECRET}"));
        assert_eq!((reply.status, reply.text()), (503, "apps are disabled"), "{target}");
    }
}

#[test]
fn names_that_are_no_slug_or_no_action_name_are_400() {
    let server = Workspace::new().fixture_app("spesa").serve();
    let long = "a".repeat(33);
    for slug in [
        "Not_A_Slug",
        "..",
        "%2e%2e",
        "..%2f..%2fetc",
        "spesa%2f..%2fspesa",
        "spesa%0a",
        "%0aspesa",
        "spesa%00",
        "spesa%20",
        "%2fetc",
        "spesa%5c..",
        "-",
        "a--b",
        "SPESA",
        "sp%c3%a9sa",
        "%ff",
        "",
        &long,
    ] {
        let target = format!("/api/apps/{slug}/actions/list_items?token={SECRET}");
        assert_eq!(server.get(&target).error(400), "invalid app slug", "{slug}");
    }
    for name in [
        "..",
        "%2e%2e",
        "..%2flist_items",
        "list_items%0a",
        "list%2fitems",
        "list_items%00",
        "List_items",
        "1st",
        "_x",
        "list-items",
        "list_items%20",
        "%ff",
        "list%5citems",
    ] {
        let target = format!("/api/apps/spesa/actions/{name}?token={SECRET}");
        assert_eq!(server.get(&target).error(400), "invalid action name", "{name}");
    }
    // One encoding is taken off, not two, and a name that is spelled in a roundabout way is still the name.
    let target = format!("/api/apps/sp%65sa/actions/list%5fitems/?token={SECRET}");
    assert_eq!(server.get(&target).envelope(200)["count"], 169);
    let target = format!("/api/apps/spesa%252f/actions/list_items?token={SECRET}");
    assert_eq!(server.get(&target).error(400), "invalid app slug");
}

#[test]
fn a_path_that_is_no_route_of_the_api_is_404() {
    let server = Workspace::new().fixture_app("spesa").serve();
    for target in [
        "/api/apps/spesa/actions/list_items/more",
        "/api/apps/../apps/spesa/actions/list_items",
        "/api/apps/spesa/../../../etc/passwd",
        "/api/apps/spesa/actions",
        "/api/apps/spesa",
        "/api/nothing",
        "/api",
    ] {
        let reply = server.get(&format!("{target}?token={SECRET}"));
        assert_eq!((reply.status, reply.text()), (404, "API route not found"), "{target}");
    }
}

#[test]
fn params_that_are_no_json_object_are_400() {
    let server = Workspace::new().fixture_app("spesa").serve();
    for params in [
        "{",
        "x",
        "{\"what\":}",
        "{\"what\":\"a\"}}",
        "{\"what\":NaN}",
        "{'what':1}",
        "\u{FEFF}{}",
        "{\"what\":\"a\n\"}",
        "\"a",
        "[1,]",
        "{\"qty\":01}",
        "nul",
    ] {
        let error = server.action("spesa", "add_item", params).error(400);
        assert!(error.starts_with("params is not valid JSON: "), "{params}: {error}");
    }
    for params in ["[]", "[{}]", "1", "\"a\"", "null", "true", " [ ] "] {
        assert_eq!(
            server.action("spesa", "add_item", params).error(400),
            "params must be a JSON object",
            "{params}"
        );
    }
    assert_eq!(lines(&server.read(ITEMS)).len(), 169);
}

#[test]
fn params_that_do_not_fit_the_schema_are_400_and_say_each_what() {
    let server = Workspace::new().fixture_app("spesa").serve();
    let error = |action: &str, params: &str| {
        let error = server.action("spesa", action, params).error(400);
        error.strip_prefix("invalid params: ").unwrap_or_else(|| panic!("{error}")).to_owned()
    };
    assert_eq!(error("add_item", r#"{"what":"a","zeta":1,"alfa":2}"#), "unknown params: alfa, zeta");
    assert_eq!(error("add_item", r#"{"what":"a","id":"x","ts":"y"}"#), "unknown params: id, ts");
    assert_eq!(error("list_items", r#"{"__proto__":1}"#), "unknown params: __proto__");
    assert_eq!(error("add_item", "{}"), "'what' is required");
    assert_eq!(error("set_done", r#"{"done":true}"#), "'id' is required");
    for (action, params, words) in [
        ("add_item", r#"{"what":"a","qty":0}"#, &["qty", "0", "1"][..]),
        ("add_item", r#"{"what":"a","qty":1.5}"#, &["qty", "1.5", "integer"]),
        ("add_item", r#"{"what":"a","qty":true}"#, &["qty", "true", "integer"]),
        ("add_item", r#"{"what":"a","qty":"2"}"#, &["qty", "\"2\"", "integer"]),
        ("add_item", r#"{"what":7}"#, &["what", "7", "string"]),
        ("add_item", r#"{"what":"a","shop":"bank"}"#, &["shop", "bank", "market", "bakery", "pharmacy"]),
        ("add_item", r#"{"shop":"bank","x":1}"#, &["'what' is required", "shop", "unknown params: x"]),
        ("list_items", r#"{"limit":"3"}"#, &["limit", "integer"]),
        ("set_done", r#"{"id":7,"done":true}"#, &["id", "7", "string"]),
        ("set_done", r#"{"id":"","done":true}"#, &["id"]),
        ("set_done", r#"{"id":null,"done":true}"#, &["id", "null", "string"]),
    ] {
        let error = error(action, params);
        for word in words {
            assert!(error.contains(word), "{action} {params}: {error} does not say {word}");
        }
    }
    let long = format!(r#"{{"id":"{}","done":true}}"#, "x".repeat(257));
    let error = server.action("spesa", "set_done", &long).error(400);
    assert!(error.contains("id") && error.contains("256"), "{error}");
    assert_eq!(server.action("spesa", "set_done", &long.replacen('x', "", 1)).error(404).len(), 256 + 19);
    assert_eq!(lines(&server.read(ITEMS)).len(), 169);
}

#[test]
fn what_is_not_there_is_404_and_a_broken_app_is_409() {
    let server = Workspace::fixture().serve();
    assert_eq!(server.action("niente", "list_items", "{}").error(404), "app 'niente' not found");
    assert_eq!(server.action("spesa", "dance", "{}").error(404), "app 'spesa' has no action 'dance'");
    for (action, params) in
        [("set_done", r#"{"id":"ffff","done":true}"#), ("remove_item", r#"{"id":"ffff"}"#)]
    {
        assert_eq!(server.action("spesa", action, params).error(404), "record 'ffff' not found");
    }
    assert_eq!(
        server.action("con-auth", "anything", "{}").error(409),
        "app 'con-auth' is broken: app.json: server.auth is declared but app-server credentials are not supported \
         yet — remove the 'auth' block (every http action would be refused with 501)"
    );
    let error = server.action("rotta", "anything", "{}").error(409);
    assert!(error.starts_with("app 'rotta' is broken: app.json: is not valid JSON: "), "{error}");
}

#[test]
fn params_are_counted_as_they_stand_in_the_url() {
    let server = Workspace::new().fixture_app("spesa").serve();
    let of_length = |chars: usize, filler: &str| {
        let (start, end) = (encode(r#"{"what":""#), encode(r#""}"#));
        let fillers = (chars - start.len() - end.len()) / filler.len();
        let rest = chars - start.len() - end.len() - fillers * filler.len();
        let params = format!("{start}{}{}{end}", filler.repeat(fillers), "a".repeat(rest));
        assert_eq!(params.len(), chars);
        server.get(&format!("/api/apps/spesa/actions/add_item?params={params}&token={SECRET}"))
    };
    // A plant takes twelve characters in the URL, and so reaches the limit with 500 of them.
    for filler in ["a", "%C3%A8", "%F0%9F%8C%B1", "+"] {
        let record = of_length(6_000, filler).envelope(200)["record"].take();
        check_new_record(&record, &["id", "ts", "what"]);
        assert_eq!(of_length(6_001, filler).error(413), "params exceed 6000 chars");
    }
    assert_eq!(of_length(30_000, "a").error(413), "params exceed 6000 chars");
    assert_eq!(lines(&server.read(ITEMS)).len(), 169 + 4);

    let server = Workspace::new().fixture_app("spesa").apps_config(json!({"params_max_chars": 20})).serve();
    assert_eq!(server.ok("spesa", "list_items", "{}")["count"], 169);
    assert_eq!(server.action("spesa", "list_items", r#"{"done":true}"#).error(413), "params exceed 20 chars");
}

#[test]
fn a_collection_over_its_cap_takes_no_more_and_a_delete_still_works() {
    let server =
        Workspace::new().fixture_app("spesa").apps_config(json!({"maxCollectionBytes": 20_000})).serve();
    let before = server.read(ITEMS);
    assert!(before.len() > 20_000, "the fixture is over the cap of this test");
    let id = values(&before)[0]["id"].as_str().unwrap().to_owned();
    for (action, params) in [
        ("add_item", r#"{"what":"x"}"#.to_owned()),
        ("replace_item", r#"{"id":"new","what":"x"}"#.to_owned()),
        ("replace_item", format!(r#"{{"id":"{id}","what":"x"}}"#)),
        ("set_done", format!(r#"{{"id":"{id}","done":false}}"#)),
    ] {
        let error = server.action("spesa", action, &params).error(413);
        assert!(error.contains("'items'") && error.contains("20000"), "{action}: {error}");
    }
    assert_eq!(server.read(ITEMS), before);
    assert_eq!(server.ok("spesa", "list_items", "{}")["count"], 169);
    for record in values(&before).iter().take(20) {
        server.ok("spesa", "remove_item", &format!(r#"{{"id":{}}}"#, record["id"]));
    }
    assert!(server.read(ITEMS).len() < 20_000);
    server.ok("spesa", "add_item", r#"{"what":"fits again"}"#);
}

#[test]
fn the_cap_counts_the_file_as_it_would_be() {
    let manifest = fixture_manifest("spesa");
    let one = br#"{"id":"1","ts":"2026-11-30T19:33:00+00:00","what":"a"}"#;
    let workspace = Workspace::new().file("spesa/app.json", manifest).file(ITEMS, [one, &b"\n"[..]].concat());
    let server = workspace.apps_config(json!({"maxCollectionBytes": one.len() + 1 + 5})).serve();
    let update =
        |what: &str| server.action("spesa", "replace_item", &format!(r#"{{"id":"1","what":"{what}"}}"#));
    update("aaaaaa").envelope(200);
    assert_eq!(server.read(ITEMS).len(), one.len() + 1 + 5);
    assert!(update("aaaaaaa").error(413).contains(&format!("{} bytes", one.len() + 1 + 6)));
    update("b").envelope(200);
}

#[test]
fn a_method_other_than_get_and_head_is_405() {
    let server = Workspace::new().fixture_app("spesa").serve();
    let target = format!("{}&token={SECRET}", action_target("spesa", "add_item", r#"{"what":"x"}"#));
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW", "get"] {
        let reply = server.send(method, &target, &[]);
        assert!(reply.error(405).starts_with("method not allowed"), "{method}");
        assert_eq!(reply.header("allow"), Some("GET, HEAD"), "{method}");
    }
    assert_eq!(server.send("POST", "/apps/spesa/", &[]).status, 405);
    assert_eq!(server.send("POST", "/api/webui/apps", &[]).status, 405);
    assert_eq!(server.send("POST", "/", &[]).status, 405);
    assert_eq!(lines(&server.read(ITEMS)).len(), 169);
}

#[test]
fn head_has_the_headers_of_get_and_no_body() {
    let server = Workspace::new().fixture_app("spesa").serve();
    for (params, status) in [("{}", 200), ("[]", 400)] {
        let target = format!("{}&token={SECRET}", action_target("spesa", "list_items", params));
        let get = server.get(&target);
        let head = server.send("HEAD", &target, &[]);
        assert_eq!((head.status, get.status), (status, status));
        let but_date = |reply: &Reply| -> HashSet<(String, String)> {
            reply.headers.iter().filter(|(name, _)| name != "date").cloned().collect()
        };
        assert_eq!(but_date(&head), but_date(&get));
        assert_eq!(head.body, b"");
    }
}

#[test]
fn head_runs_no_action_that_is_not_a_query() {
    let server = Workspace::new().fixture_app("spesa").fixture_app("piante").serve();
    let before = server.read(ITEMS);
    let id =
        server.ok("spesa", "list_items", r#"{"limit":1}"#)["records"][0]["id"].as_str().unwrap().to_owned();
    for (slug, name, params) in [
        ("spesa", "add_item", r#"{"what":"x"}"#.to_owned()),
        ("spesa", "add_item", r#"{"unknown":1}"#.to_owned()),
        ("spesa", "set_done", format!(r#"{{"id":"{id}","done":true}}"#)),
        ("spesa", "replace_item", format!(r#"{{"id":"{id}","what":"x"}}"#)),
        ("spesa", "remove_item", format!(r#"{{"id":"{id}"}}"#)),
        ("piante", "lista_piante", "{}".to_owned()),
    ] {
        let target = format!("{}&token={SECRET}", action_target(slug, name, &params));
        let reply = server.send("HEAD", &target, &[]);
        assert_eq!((reply.status, reply.header("allow")), (405, Some("GET")), "{name}");
        assert_eq!(reply.body, b"");
    }
    assert_eq!(server.read(ITEMS), before);
    let target = |slug: &str, name: &str| format!("{}&token={SECRET}", action_target(slug, name, "{}"));
    assert_eq!(server.send("HEAD", &target("spesa", "nope"), &[]).status, 404);
    assert_eq!(server.send("HEAD", &action_target("spesa", "add_item", "{}"), &[]).status, 401);
}

/// Each request has all the faults from its own to the last, as far as one request can have them.
#[test]
fn of_several_faults_the_earlier_one_is_told() {
    let long = format!("{{{}", "a".repeat(6_000));
    let disabled = Workspace::fixture().apps_config(json!({"enabled": false})).serve();
    let nobody = disabled.get(&action_target("Not_A_Slug", "Not-An-Action", &long));
    assert_eq!(nobody.error(401), "Unauthorized");
    assert_eq!(disabled.action("Not_A_Slug", "Not-An-Action", &long).error(503), "apps are disabled");
    drop(disabled);

    let over_cap = json!({"maxCollectionBytes": 10});
    let server = Workspace::fixture().apps_config(over_cap).serve();
    let checks: [(&str, &str, &str, u16, &str); 11] = [
        ("Not_A_Slug", "Not-An-Action", &long, 400, "invalid app slug"),
        ("niente", "Not-An-Action", &long, 400, "invalid action name"),
        ("rotta", "nothing", &long, 413, "params exceed 6000 chars"),
        ("niente", "nothing", "[", 400, "params is not valid JSON"),
        ("rotta", "nothing", "[]", 400, "params must be a JSON object"),
        ("niente", "nothing", r#"{"x":1}"#, 404, "app 'niente' not found"),
        ("rotta", "nothing", r#"{"x":1}"#, 409, "app 'rotta' is broken"),
        ("spesa", "nothing", r#"{"x":1}"#, 404, "app 'spesa' has no action 'nothing'"),
        ("spesa", "add_item", r#"{"x":1}"#, 400, "invalid params: 'what' is required; unknown params: x"),
        ("spesa", "set_done", r#"{"id":"none","done":1}"#, 400, "invalid params: "),
        ("spesa", "add_item", r#"{"what":"x"}"#, 413, "append on collection 'items' refused"),
    ];
    for (slug, action, params, status, start) in checks {
        let error = server.action(slug, action, params).error(status);
        assert!(error.starts_with(start), "{slug} {action}: {error}");
    }
}

#[test]
fn a_collection_that_is_a_link_is_refused_and_what_it_points_to_stays() {
    let workspace = Workspace::new().fixture_app("spesa").file("outside.jsonl", "{\"id\":\"1\"}\n");
    fs::remove_file(workspace.path(ITEMS)).unwrap();
    std::os::unix::fs::symlink(workspace.path("outside.jsonl"), workspace.path(ITEMS)).unwrap();
    let server = workspace.serve();
    for (action, params) in
        [("list_items", "{}"), ("add_item", r#"{"what":"x"}"#), ("remove_item", r#"{"id":"1"}"#)]
    {
        let error = server.action("spesa", action, params).error(409);
        assert!(error.contains("symbolic link"), "{error}");
        assert!(!error.contains('/'), "no path is told: {error}");
    }
    assert_eq!(server.read("outside.jsonl"), b"{\"id\":\"1\"}\n");
}

#[test]
fn acked_writes_of_many_clients_are_all_in_the_file_and_outlive_the_gateway() {
    const CLIENTS: usize = 6;
    const WRITES: usize = 20;
    let mut server = Workspace::new().fixture_app("spesa").serve();
    let before = server.read(ITEMS);
    let client = |server: &TestServer, number: usize| -> Vec<Value> {
        let mut kept = Vec::new();
        for write in 0..WRITES {
            let what = format!("client {number} write {write}");
            let mut record =
                server.ok("spesa", "add_item", &format!(r#"{{"what":"{what}"}}"#))["record"].take();
            if write % 3 == 1 {
                let params = format!(r#"{{"id":{},"done":true}}"#, record["id"]);
                record = server.ok("spesa", "set_done", &params)["record"].take();
                assert_eq!(record["what"], what);
            }
            if write % 5 == 2 {
                server.ok("spesa", "remove_item", &format!(r#"{{"id":{}}}"#, record["id"]));
            } else {
                kept.push(record);
            }
        }
        kept
    };
    let acked: Vec<Value> = std::thread::scope(|scope| {
        let server = &server;
        let clients: Vec<_> =
            (0..CLIENTS).map(|number| scope.spawn(move || client(server, number))).collect();
        clients.into_iter().flat_map(|client| client.join().expect("no client fails")).collect()
    });
    let check = |server: &TestServer| {
        let file = server.read(ITEMS);
        let added = values(file.strip_prefix(&before[..]).expect("the old lines stay as they are"));
        assert_eq!(added.len(), acked.len());
        for record in &acked {
            assert_eq!(added.iter().filter(|line| *line == record).count(), 1, "{record}");
        }
        let found = server.action("spesa", "list_items", r#"{"limit":1000}"#);
        let served: Vec<Value> =
            records(found.text()).into_iter().map(|record| serde_json::from_str(record).unwrap()).collect();
        assert_eq!(served, values(&file));
    };
    check(&server);
    server.restart();
    check(&server);
}

#[test]
fn a_gateway_that_is_told_to_stop_ends_well_and_printed_one_line() {
    let server = Workspace::new().fixture_app("spesa").serve();
    let added = server.action("spesa", "add_item", r#"{"what":"x"}"#);
    assert_eq!(spelled(spelled(added.text(), "record"), "what"), r#""x""#);
    // A connection that is open and idle must not hold it up.
    let _idle = server.connect();
    let stopped = server.stop();
    assert!(stopped.status.success(), "{stopped:?}");
    assert_eq!(stopped.stdout, [] as [&str; 0], "it printed more than where it listens");
}

#[test]
fn work_that_hangs_does_not_keep_a_gateway_that_was_told_twice_to_stop() {
    let server = Workspace::new().fixture_app("spesa").serve();
    let mut waiting = server.connect();
    let file = fs::File::open(server.path(ITEMS)).unwrap();
    // As another program would that does not let go.
    file.lock().unwrap();
    let target = format!("{}&token={SECRET}", action_target("spesa", "add_item", r#"{"what":"x"}"#));
    waiting.send(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
    let started = Instant::now();
    while server.has_open(ITEMS) == Some(false) {
        assert!(started.elapsed() < Duration::from_secs(5), "the gateway does not open the file");
        std::thread::yield_now();
    }
    server.tell_to_stop();
    // Two signals of one kind that come at once are one.
    while !server.log().contains("stopping") {
        assert!(started.elapsed() < Duration::from_secs(5), "the gateway does not hear the signal");
        std::thread::yield_now();
    }
    let stopped = server.stop();
    assert!(stopped.status.success(), "{stopped:?}");
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    file.unlock().unwrap();
}
