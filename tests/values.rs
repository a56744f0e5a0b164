//! Values that other programs lose: every digit and every character on the way from a URL to the file and back.

use linekeep_tests::lines::{lines, records, spelled};
use linekeep_tests::server::SECRET;
use linekeep_tests::{TestServer, Workspace};
use serde_json::{Value, json};

const MANIFEST: &str = r#"{
  "name": "Valori", "description": "values of every kind",
  "actions": [
    {"name": "add", "description": "append", "kind": "storage", "op": "append", "collection": "values", "params": {
      "text": {"type": "string"}, "number": {"type": "number"}, "whole": {"type": "integer"},
      "flag": {"type": "boolean"}, "list": {"type": "array"}, "object": {"type": "object"},
      "any": {"type": ["string", "number", "boolean", "object", "array", "null"]}}},
    {"name": "find", "description": "query", "kind": "storage", "op": "query", "collection": "values", "params": {
      "text": {"type": "string"}, "number": {"type": "number"}, "whole": {"type": "integer"},
      "flag": {"type": "boolean"}, "list": {"type": "array"}, "object": {"type": "object"},
      "any": {"type": ["string", "number", "boolean", "object", "array", "null"]}}},
    {"name": "change", "description": "update", "kind": "storage", "op": "update", "collection": "values", "params": {
      "text": {"type": "string"}}}
  ]
}"#;
const FILE: &str = "valori/data/values.jsonl";
const DIGITS: &str = "1234567890123456789012345678901234567890";

fn server() -> TestServer {
    Workspace::new().app("valori", MANIFEST).serve()
}

/// How many records are equal in this.
#[track_caller]
fn count(server: &TestServer, filter: &str) -> Value {
    server.ok("valori", "find", filter)["count"].take()
}

#[test]
fn texts_and_digits_survive_the_way_to_the_file_and_back_and_a_rewrite_of_another_record() {
    let server = server();
    let text = "emoji 🌱👩‍👩‍👧 \"quote\" 'single' back\\slash \u{2028}\u{2029}\u{85} tab\t nul\0 \u{7f} e\u{301} é \u{FEFF} 中文 مرحبا </script>";
    let params = format!(r#"{{"text":{},"number":{DIGITS},"whole":-{DIGITS}}}"#, json!(text));
    let added = server.action("valori", "add", &params);
    assert_eq!(added.envelope(200)["record"]["text"], text);
    let other = server.ok("valori", "add", r#"{"text":"other"}"#)["record"]["id"].take();

    let check = || {
        let file = server.read(FILE);
        let line = std::str::from_utf8(lines(&file)[0]).unwrap();
        assert_eq!(serde_json::from_str::<String>(spelled(line, "text")).unwrap(), text);
        assert_eq!(spelled(line, "number"), DIGITS);
        assert_eq!(spelled(line, "whole"), format!("-{DIGITS}"));
        assert!(line.contains('🌱') && line.contains("中文"), "a person can read it: {line}");
        let found = server.action("valori", "find", "{}");
        let record = records(found.text())[0];
        assert_eq!(record, line.trim_end());
        assert_eq!(found.envelope(200)["records"][0]["text"], text);
        line.to_owned()
    };
    let line = check();
    assert_eq!(line.trim_end(), spelled(added.text(), "record"));
    for round in 0..5 {
        server.ok("valori", "change", &format!(r#"{{"id":{other},"text":"round {round}"}}"#));
        assert_eq!(check(), line);
    }
    assert_eq!(lines(&server.read(FILE)).len(), 2, "nothing in a text ends a line");
}

#[test]
fn numbers_are_equal_by_value_to_the_last_digit() {
    let server = server();
    server.ok("valori", "add", &format!(r#"{{"number":{DIGITS}}}"#));
    let filter = |number: &str| count(&server, &format!(r#"{{"number":{number}}}"#));
    let last_digit_changed = format!("{}1", &DIGITS[..39]);
    for (number, expected) in [
        (DIGITS, 1),
        (&format!("{DIGITS}.0"), 1),
        (&format!("{DIGITS}.00e0"), 1),
        (&format!("{}e1", &DIGITS[..39]), 1),
        ("1.234567890123456789012345678901234567890E+39", 1),
        (&last_digit_changed, 0),
        (&format!("-{DIGITS}"), 0),
        (&format!("{DIGITS}0"), 0),
        ("1.2345678901234568e39", 0),
    ] {
        assert_eq!(filter(number), expected, "{number}");
    }
    for (stored, equal, unequal) in [
        ("10", "1e1", "10.000000000000000000000001"),
        ("9007199254740993", "9007199254740993.0", "9007199254740992"),
        ("0", "-0.0", "1e-300"),
        ("0.1", "1e-1", "0.1000000000000000055511151231257827"),
    ] {
        server.ok("valori", "add", &format!(r#"{{"number":{stored}}}"#));
        assert_eq!(
            (filter(stored), filter(equal), filter(unequal)),
            (json!(1), json!(1), json!(0)),
            "{stored}"
        );
    }
}

#[test]
fn values_of_different_kinds_are_never_equal() {
    let server = server();
    for any in ["1", "true", "\"1\"", "null", "[1]", r#"{"a":1,"b":[2,{"c":null}]}"#, "\"\"", "{}", "[]"] {
        server.ok("valori", "add", &format!(r#"{{"any":{any}}}"#));
    }
    server.ok("valori", "add", r#"{"text":"without"}"#);
    for (filter, expected) in [
        ("1", 1),
        ("1.0", 1),
        ("true", 1),
        ("false", 0),
        ("\"1\"", 1),
        ("\"true\"", 0),
        ("[1.0]", 1),
        ("[true]", 0),
        ("[1,1]", 0),
        (r#"{"b":[2,{"c":null}],"a":1.0}"#, 1),
        (r#"{"b":[2,{}],"a":1}"#, 0),
        (r#"{"a":1}"#, 0),
        ("\"\"", 1),
        ("{}", 1),
        ("[]", 1),
        // An absent member is equal to null.
        ("null", 2),
    ] {
        assert_eq!(count(&server, &format!(r#"{{"any":{filter}}}"#)), expected, "{filter}");
    }
}

#[test]
fn texts_are_equal_by_character_however_they_are_spelled() {
    let server = server();
    server.ok("valori", "add", r#"{"text":"🌱é"}"#);
    assert_eq!(count(&server, r#"{"text":"🌱é"}"#), 1);
    assert_eq!(count(&server, r#"{"text":"\ud83c\udf31\u00e9"}"#), 1);
    assert_eq!(count(&server, "{\"text\":\"🌱e\u{301}\"}"), 0, "nothing is normalised");
    assert_eq!(count(&server, r#"{"text":"🌱É"}"#), 0);
}

#[test]
fn numbers_that_no_reader_has_are_refused() {
    let server = server();
    let digits = "9".repeat(309);
    for number in ["1e400", "-1e400", "1E+309", "1.8e308", &digits] {
        for params in [format!(r#"{{"number":{number}}}"#), format!(r#"{{"object":{{"a":[{number}]}}}}"#)] {
            let error = server.action("valori", "add", &params).error(400);
            assert!(error.contains("number"), "{params}: {error}");
            assert!(error.len() < 600, "the value does not flood the answer");
        }
        server.action("valori", "find", &format!(r#"{{"number":{number}}}"#)).error(400);
    }
    for word in ["NaN", "Infinity", "-Infinity", "undefined", "0x10", "1_000", "+1", ".5", "1.", "--1"] {
        let error = server.action("valori", "add", &format!(r#"{{"number":{word}}}"#)).error(400);
        assert!(error.starts_with("params is not valid JSON: "), "{word}: {error}");
    }
    assert!(!server.path(FILE).exists());
    for number in ["1e308", "-1.7976931348623157e308", "1e-400", "0e999999999999"] {
        let added = server.action("valori", "add", &format!(r#"{{"number":{number}}}"#));
        assert_eq!(spelled(spelled(added.text(), "record"), "number"), number);
    }
}

#[test]
fn nesting_is_bounded() {
    let server = server();
    let nested = |levels: usize| format!(r#"{{"list":{}{}}}"#, "[".repeat(levels), "]".repeat(levels));
    for levels in [128, 129, 200, 900] {
        let error = server.action("valori", "add", &nested(levels)).error(400);
        assert!(error.starts_with("params is not valid JSON: "), "{error}");
        server.action("valori", "find", &nested(levels)).error(400);
    }
    assert!(!server.path(FILE).exists());
    // With the record around it this is as deep as a line may be.
    let list = "[".repeat(127) + &"]".repeat(127);
    let added = server.action("valori", "add", &nested(127));
    assert_eq!((added.status, spelled(spelled(added.text(), "record"), "list")), (200, list.as_str()));
    for (levels, expected) in [(127, "1"), (126, "0")] {
        let found = server.action("valori", "find", &nested(levels));
        assert_eq!((found.status, spelled(found.text(), "count")), (200, expected), "{levels}");
    }
}

#[test]
fn keys_that_mean_something_elsewhere_are_plain_data_here() {
    let server = server();
    let object = r#"{"__proto__":{"admin":true},"constructor":1,"toString":null,"id":"inner","":"empty","a.b":1,"ключ":"🌱"}"#;
    let added = server.action("valori", "add", &format!(r#"{{"object":{object}}}"#));
    assert_eq!(spelled(spelled(added.text(), "record"), "object"), object);
    let file = server.read(FILE);
    assert_eq!(spelled(std::str::from_utf8(&file).unwrap().trim_end(), "object"), object);
    assert_eq!(count(&server, &format!(r#"{{"object":{object}}}"#)), 1);
    assert_eq!(count(&server, r#"{"object":{"__proto__":{"admin":true}}}"#), 0);
    let error = server.action("valori", "add", r#"{"__proto__":{"text":"x"}}"#).error(400);
    assert_eq!(error, "invalid params: unknown params: __proto__");
}

#[test]
fn of_duplicate_keys_the_last_counts() {
    let server = server();
    let added = server.action("valori", "add", r#"{"text":"a","flag":true,"text":"b"}"#);
    assert_eq!(added.envelope(200)["record"]["text"], "b");
    let file = server.read(FILE);
    assert_eq!(String::from_utf8_lossy(&file).matches("\"text\"").count(), 1);
    assert_eq!(count(&server, r#"{"text":"a","text":"b"}"#), 1);
    assert_eq!(count(&server, r#"{"text":"b","text":"a"}"#), 0);
    // The check of the kind is of the value that counts.
    server.action("valori", "add", r#"{"text":1,"text":"b"}"#).envelope(200);
    server.action("valori", "add", r#"{"text":"b","text":1}"#).error(400);
}

#[test]
fn half_a_character_becomes_the_replacement_character_everywhere() {
    let server = server();
    let added = server.action("valori", "add", r#"{"text":"a\ud800b\udc00c"}"#);
    assert_eq!(added.envelope(200)["record"]["text"], "a\u{FFFD}b\u{FFFD}c");
    assert_eq!(count(&server, r#"{"text":"a\ufffdb\udfffc"}"#), 1);
    let file = String::from_utf8(server.read(FILE)).expect("a collection is UTF-8");
    assert!(file.contains("a\u{FFFD}b\u{FFFD}c") && !file.contains("\\ud"), "{file}");
    // Bytes that are no UTF-8 in the URL become it too.
    let target = "/api/apps/valori/actions/add?params=%7B%22text%22:%22x%ffy%22%7D&token=";
    assert_eq!(server.get(&format!("{target}{SECRET}")).envelope(200)["record"]["text"], "x\u{FFFD}y");
}

#[test]
fn a_plus_in_the_query_is_a_space_and_an_encoded_one_is_itself() {
    let server = server();
    let target =
        "/api/apps/valori/actions/add?params=%7B%22text%22:+%22a+b%2Bc;d%22%7D&params=ignored&token=";
    assert_eq!(server.get(&format!("{target}{SECRET}")).envelope(200)["record"]["text"], "a b+c;d");
}

#[test]
fn what_a_browser_leaves_unencoded_in_a_query_is_taken_as_it_is() {
    let server = server();
    let target = "/api/apps/valori/actions/add?params={%22text%22:%22{}[]|^`'()*!$,:@~/?\\\\%22}&token=";
    assert_eq!(
        server.get(&format!("{target}{SECRET}")).envelope(200)["record"]["text"],
        "{}[]|^`'()*!$,:@~/?\\"
    );
}
