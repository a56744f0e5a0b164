//! The end-to-end tests: one binary, one file a subject.

mod actions;
mod app_files;
mod apps_list;
mod browser;
mod cli;
mod connections;
mod credentials;
mod damage;
mod http_actions;
mod manifests;
mod values;
mod views;
