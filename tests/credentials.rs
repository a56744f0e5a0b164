//! Who may open what: which credential counts, on which route, and that none of them is ever logged.

use linekeep_tests::server::{SECRET, action_target, encode};
use linekeep_tests::{TestServer, Workspace};

const PAGE: &str = "<!doctype html><title>page</title>";

fn two_apps() -> Workspace {
    Workspace::new()
        .fixture_app("spesa")
        .file("spesa/app/index.html", PAGE)
        .fixture_app("piante")
        .file("piante/app/index.html", PAGE)
}

/// The three routes that ask for a credential.
const ACTION: &str = "/api/apps/spesa/actions/list_items";
const FILE: &str = "/apps/spesa/index.html";
const LIST: &str = "/api/webui/apps";

/// Sends each route a query and headers, and looks whether it lets in as expected: action, file, list.
#[track_caller]
fn check(server: &TestServer, query: &str, headers: &[(&str, &[u8])], expected: [bool; 3]) {
    for (route, lets_in) in [ACTION, FILE, LIST].into_iter().zip(expected) {
        let reply = server.send("GET", &format!("{route}{query}"), headers);
        let status = if lets_in { 200 } else { 401 };
        assert_eq!(reply.status, status, "{route}{query} {headers:?}: {}", reply.text());
        match (route, lets_in) {
            (ACTION, false) => assert_eq!(reply.error(401), "Unauthorized"),
            (ACTION, true) => assert_eq!(reply.envelope(200)["count"], 169),
            (_, false) => assert_eq!(reply.text(), "Unauthorized"),
            (_, true) => {}
        }
    }
}

const ALL: [bool; 3] = [true; 3];
const NONE: [bool; 3] = [false; 3];
const APP: [bool; 3] = [true, true, false];

#[test]
fn the_install_secret_opens_everything_as_bearer_or_as_token() {
    let server = two_apps().serve();
    let bearer = format!("Bearer {SECRET}");
    check(&server, "", &[("Authorization", bearer.as_bytes())], ALL);
    check(&server, "", &[("authorization", format!("bEARER   {SECRET}  ").as_bytes())], ALL);
    check(&server, &format!("?token={SECRET}"), &[], ALL);
    check(&server, &format!("?token={}", encode(SECRET)), &[], ALL);
    check(&server, &format!("?x=1&token={SECRET}&token=wrong"), &[], ALL);
    check(&server, &format!("?token=wrong&token={SECRET}"), &[], NONE);
}

#[test]
fn an_apps_token_opens_that_app_and_nothing_else() {
    let server = two_apps().serve();
    let (own, other) = (server.app_token("spesa"), server.app_token("piante"));
    assert_eq!((own.len(), other.len()), (43, 43));
    assert_ne!(own, other);
    check(&server, &format!("?token={own}"), &[], APP);
    check(&server, "", &[("Authorization", format!("Bearer {own}").as_bytes())], APP);
    check(&server, &format!("?token={other}"), &[], NONE);
    check(&server, "", &[("Authorization", format!("Bearer {other}").as_bytes())], NONE);
    let logged = server.action_as(&other, "piante", "annota_cura", r#"{"pianta":"felce"}"#);
    assert_eq!(logged.envelope(200)["record"]["pianta"], "felce");
    // Neither a valid token nor a hint of what exists for those who have none.
    assert_eq!(server.action_as(&own, "piante", "annota_cura", "{}").error(401), "Unauthorized");
    assert_eq!(server.action_as(&own, "niente", "x", "{}").error(401), "Unauthorized");
    assert_eq!(server.action_as(&own, "..", "x", "{}").error(401), "Unauthorized");
}

#[test]
fn a_bearer_decides_before_a_token_and_an_empty_one_is_none() {
    let server = two_apps().serve();
    let token = format!("?token={SECRET}");
    for wrong in ["Bearer wrong", "bearer Wrong", "Bearer   x "] {
        check(&server, &token, &[("Authorization", wrong.as_bytes())], NONE);
    }
    for none in ["Bearer ", "Bearer", "bearer    ", "", "Basic dXNlcjpwYXNz", "Bearerwrong"] {
        check(&server, &token, &[("Authorization", none.as_bytes())], ALL);
        check(&server, "", &[("Authorization", none.as_bytes())], NONE);
    }
    check(&server, "?token=wrong", &[("Authorization", format!("Bearer {SECRET}").as_bytes())], ALL);
}

#[test]
fn odd_credentials_are_401_and_never_500() {
    let server = two_apps().serve();
    let bearer = format!("Bearer {SECRET}");
    let right = bearer.as_bytes();
    let token = format!("?token={SECRET}");
    check(&server, "", &[], NONE);
    check(&server, "?token=", &[], NONE);
    check(&server, "?token", &[], NONE);
    check(&server, "", &[("Authorization", right), ("Authorization", right)], NONE);
    check(&server, &token, &[("Authorization", right), ("Authorization", b"Basic x")], NONE);
    check(&server, "", &[("Authorization", b"Bearer s\xC3\xA8cret")], NONE);
    check(&server, &token, &[("Authorization", b"Bearer \xFF\xFE")], NONE);
    check(&server, "", &[("Authorization", &[right, b"\xE9"].concat())], NONE);
    for query in ["?token=%ff%fe", "?token=s%c3%a8cret", "?token=%00", "?token=%F0%9F%8C%B1", "?token=%zz"] {
        check(&server, query, &[], NONE);
    }
    check(&server, &format!("?token=%20{SECRET}"), &[], NONE);
    check(&server, &format!("?token={SECRET}%0a"), &[], NONE);
    check(&server, &format!("?token={SECRET}%ff"), &[], NONE);
    check(&server, &format!("?token={}", &SECRET[..SECRET.len() - 1]), &[], NONE);
    check(&server, &format!("?TOKEN={SECRET}"), &[], NONE);
    check(&server, "", &[("X-Jenny-Auth", SECRET.as_bytes())], NONE);
    check(&server, "", &[("Cookie", format!("token={SECRET}").as_bytes())], NONE);
}

#[test]
fn without_an_install_secret_nothing_is_let_in() {
    for secret in ["", "   "] {
        let server = two_apps().secret(secret).serve();
        for query in ["", "?token=", "?token=%20%20%20", "?token=x"] {
            check(&server, query, &[], NONE);
        }
        check(&server, "", &[("Authorization", b"Bearer ")], NONE);
        check(&server, "", &[("Authorization", b"Bearer x")], NONE);
        let token = server.cli().run(["token", "spesa", "--data-dir", "."]);
        assert_eq!((token.code, token.stdout.as_str()), (Some(1), ""), "no token is made of no secret");
    }
}

#[test]
fn a_token_in_the_path_opens_the_apps_files_and_their_relatives_inherit_it() {
    let server = two_apps().file("spesa/app/sub/part.js", "1").serve();
    let (own, other) = (server.app_token("spesa"), server.app_token("piante"));
    for rel in ["/", "/index.html", "/sub/part.js", "/sub/../index.html"] {
        let reply = server.get(&format!("/apps/spesa/~{own}{rel}"));
        // A browser resolves the dots away before it asks; what still has them is not one.
        assert_eq!(reply.status, if rel.contains("..") { 403 } else { 200 }, "{rel}");
    }
    let with_query = server.get(&format!("/apps/spesa/~{own}/index.html?token={own}&theme=dark"));
    assert_eq!((with_query.status, with_query.text()), (200, PAGE));
    for token in [&other, "", "wrong", SECRET, &encode(SECRET), "%ff", &own[..42]] {
        let reply = server.get(&format!("/apps/spesa/~{token}/index.html"));
        assert_eq!((reply.status, reply.text()), (401, "Unauthorized"), "{token}");
    }
    let beside = server.get(&format!("/apps/spesa/~{other}/index.html?token={SECRET}"));
    assert_eq!(beside.status, 401, "a token in the path decides before one in the query");
    let elsewhere = server.get(&format!("/apps/piante/~{own}/index.html"));
    assert_eq!(elsewhere.status, 401);
}

#[test]
fn an_address_that_ends_with_the_token_leads_to_the_one_with_a_slash() {
    let server = two_apps().serve();
    let token = server.app_token("spesa");
    for query in ["", "?token=x&theme=dark"] {
        let reply = server.get(&format!("/apps/spesa/~{token}{query}"));
        assert_eq!(reply.status, 308);
        assert_eq!(reply.header("location"), Some(format!("./~{token}/{query}").as_str()));
        assert_eq!(reply.header("cache-control"), Some("no-store"));
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
    }
    let there = server.get(&format!("/apps/spesa/~{token}/?token=x&theme=dark"));
    assert_eq!((there.status, there.text()), (200, PAGE));
    assert_eq!(server.get(&format!("/apps/piante/~{token}")).status, 401);
    assert_eq!(server.get("/apps/spesa/~wrong").status, 401);
}

#[test]
fn a_changed_secret_ends_all_tokens() {
    let before = two_apps().serve();
    let token = before.app_token("spesa");
    before.action_as(&token, "spesa", "list_items", "{}").envelope(200);
    drop(before);
    let after = two_apps().secret("another secret of this gateway").serve();
    assert_ne!(after.app_token("spesa"), token);
    assert_eq!(after.action_as(&token, "spesa", "list_items", "{}").error(401), "Unauthorized");
    after.action("spesa", "list_items", "{}").envelope(200);
}

#[test]
fn no_credential_reaches_the_log_or_an_answer() {
    let server = Workspace::fixture().file("spesa/app/index.html", PAGE).log_level("trace").serve();
    let token = server.app_token("spesa");
    let mut answers = Vec::new();
    for credential in [SECRET, &token, "hunter2-wrong-one"] {
        let bearer = format!("Bearer {credential}");
        for target in [
            action_target("spesa", "list_items", "{}"),
            action_target("spesa", "list_items", r#"{"limit":"x"}"#),
            action_target("rotta", "x", "{}"),
            "/apps/spesa/index.html?a=1".to_owned(),
            "/apps/spesa/missing.png?a=1".to_owned(),
            "/apps/spesa/%2e%2e/app.json?a=1".to_owned(),
            format!("/apps/spesa/~{credential}/index.html?a=1"),
            format!("/apps/spesa/~{credential}/%2e%2e/app.json?a=1"),
            format!("/api/apps/{credential}/actions/{credential}?a=1"),
            format!("/{credential}?a=1"),
            "/api/webui/apps?a=1".to_owned(),
        ] {
            answers.push(server.get(&format!("{target}&token={credential}")));
            answers.push(server.send("GET", &target, &[("Authorization", bearer.as_bytes())]));
            answers.push(server.send("POST", &format!("{target}&token={credential}"), &[]));
        }
    }
    let log = server.log();
    assert!(log.contains("answered"), "the log of this level has something to hide things in: {log}");
    for credential in [SECRET, &token, "hunter2-wrong-one"] {
        assert!(!log.contains(credential), "{credential} is in the log:\n{log}");
        for answer in &answers {
            assert!(!format!("{answer:?}").contains(credential), "{credential} is in {answer:?}");
            assert!(!answer.text().contains(credential), "{credential} is in {}", answer.text());
        }
    }
}
