//! `GET /api/webui/apps`: every folder of the workspace is listed, and a broken one breaks nothing else.

use std::os::unix::fs::symlink;

use linekeep_tests::{Workspace, lines::keys};
use serde_json::{Value, json};

#[test]
fn the_fixture_workspace_lists_eight_apps_of_which_three_are_broken_with_a_readable_reason() {
    let server = Workspace::fixture().serve();
    let apps = server.list();
    let slugs: Vec<_> = apps.iter().map(|app| app["slug"].as_str().unwrap()).collect();
    assert_eq!(slugs, ["Not_A_Slug", "attivita", "con-auth", "diario", "meteo", "piante", "rotta", "spesa"]);

    let working = |slug: &str, name: &str, description: &str, icon: &str, has_server: bool| {
        let app = apps.iter().find(|app| app["slug"] == slug).unwrap();
        let expected = json!({"slug": slug, "broken": false, "name": name, "description": description,
            "icon": icon, "has_server": has_server});
        assert_eq!(app, &expected);
        assert_eq!(keys(app), ["slug", "broken", "name", "description", "icon", "has_server"]);
    };
    working("attivita", "Attività", "Tasks with 27 thousand records, close to the cap", "ti-apps", false);
    working("diario", "Diario", "A line a day, in any language", "ti-apps", false);
    working("meteo", "Meteo", "Readings of three sensors, one every 15 minutes", "ti-apps", false);
    working("piante", "Piante", "Monitoraggio piante: umidità, stato, diario delle cure", "ti-plant", true);
    working("spesa", "Spesa", "Shopping list shared with the assistant", "ti-shopping-cart", false);

    let broken = |slug: &str| {
        let app = apps.iter().find(|app| app["slug"] == slug).unwrap();
        assert_eq!(keys(app), ["slug", "broken", "name", "description", "icon", "has_server", "error"]);
        assert_eq!(
            (&app["broken"], &app["name"], &app["description"], &app["icon"], &app["has_server"]),
            (&json!(true), &json!(slug), &json!(""), &json!("ti-alert-triangle"), &json!(false))
        );
        app["error"].as_str().unwrap()
    };
    assert_eq!(broken("Not_A_Slug"), "folder name 'Not_A_Slug' is not a valid slug");
    assert_eq!(
        broken("con-auth"),
        "app.json: server.auth is declared but app-server credentials are not supported yet — remove the 'auth' \
         block (every http action would be refused with 501)"
    );
    let reason = broken("rotta");
    assert!(reason.starts_with("app.json: is not valid JSON: ") && reason.contains("line 1"), "{reason}");
}

#[test]
fn what_is_no_app_folder_is_not_listed_and_a_linked_folder_is_listed_as_broken() {
    let manifest = r#"{"name":"A","description":"a"}"#;
    let workspace = Workspace::new()
        .app("a", manifest)
        .app(".drafts", manifest)
        .app(".trash/a-20261130", manifest)
        .file("notes.txt", "x")
        .file("z/readme.txt", "no manifest here");
    symlink(workspace.path("a"), workspace.path("linked")).unwrap();
    symlink(workspace.path("absent"), workspace.path("dangling")).unwrap();
    let server = workspace.serve();
    let apps = server.list();
    let seen: Vec<_> = apps.iter().map(|app| (&app["slug"], &app["broken"], &app["error"])).collect();
    assert_eq!(
        seen,
        [
            (&json!("a"), &json!(false), &Value::Null),
            (&json!("linked"), &json!(true), &json!("the app folder is a symbolic link")),
            (&json!("z"), &json!(true), &json!("app.json is missing")),
        ]
    );
}

#[test]
fn a_workspace_without_apps_has_an_empty_list() {
    let server = Workspace::new().serve();
    assert_eq!(server.list(), [] as [Value; 0]);
}

#[test]
fn the_sample_workspace_holds_three_working_apps_with_a_page_each() {
    let server = linekeep_tests::TestServer::sample();
    let apps = server.list();
    let seen: Vec<_> = apps.iter().map(|app| (app["slug"].as_str().unwrap(), &app["broken"])).collect();
    assert_eq!(seen, [("diary", &json!(false)), ("plants", &json!(false)), ("shopping", &json!(false))]);
    for (slug, _) in seen {
        let page = server.get(&format!("/apps/{slug}/~{}/", server.app_token(slug)));
        assert_eq!(page.status, 200);
        assert!(page.text().starts_with("<!doctype html>"), "{slug}");
    }
}
