//! The command line: what can be asked, and the help that teaches it.
//!
//! Only parsing; [`crate::run`] carries it out. What needs a restart is a flag with a twin in the environment; what may
//! change while the gateway runs is in config.json.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// The data directory when none is given.
pub const DATA_DIR_DEFAULT: &str = "./linekeep-data";

/// A small gateway that keeps your mini-apps' data in plain JSONL files.
#[derive(Debug, Parser)]
#[command(
    name = "linekeep",
    version,
    about = "A small gateway that keeps your mini-apps' data in plain JSONL files",
    long_about = "A small gateway that keeps your mini-apps' data in plain JSONL files: readable, greppable, \
                  editable, never lost.\n\nAn app is a folder: app.json says what it can do, app/index.html is its \
                  screen, data/*.jsonl is its data, one JSON object a line. You may edit all of them while the \
                  gateway runs.",
    after_help = "Examples:\n  linekeep serve                      create ./linekeep-data if need be, and serve it\n  \
                  linekeep app check my-app           say everything that is wrong with an app\n  \
                  linekeep data query items.jsonl --where '{\"done\":false}'\n\nLogs go to standard error; \
                  LINEKEEP_LOG=debug shows more of them.",
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve a workspace of apps over HTTP
    #[command(
        long_about = "Serve a workspace of apps over HTTP.\n\nUses DIR/workspace. If it does not exist it is created \
                      with a config.json, readable by you alone, that holds a new secret, and with a few sample \
                      apps. Prints one line when it listens and, on a terminal, a link that opens each app.",
        after_help = "Examples:\n  linekeep serve\n  linekeep serve --data-dir ~/apps --port 0     take any free \
                      port\n\nCtrl-C finishes open requests first, for at most 10 seconds; a second one ends at \
                      once."
    )]
    Serve(ServeArgs),
    /// Create a data directory with a secret and sample apps, without serving it
    #[command(after_help = "Example:\n  linekeep init ~/apps")]
    Init {
        /// The directory to create
        dir: PathBuf,
    },
    /// Print the token that opens one app
    #[command(
        long_about = "Print the token that opens one app: its page at /apps/SLUG/ and its actions, nothing else.\n\n\
                      It is derived from the install secret, so it stays the same until the secret changes.",
        after_help = "Example:\n  curl \"http://127.0.0.1:8765/api/apps/shopping/actions/list_items?token=$(linekeep \
                      token shopping)\""
    )]
    Token {
        /// The app's folder name
        slug: String,
        #[command(flatten)]
        #[expect(missing_docs, reason = "a doc comment here would replace the command's help")]
        data_dir: DataDir,
    },
    /// Work on app folders
    #[command(after_help = "Example:\n  linekeep app check my-app")]
    App {
        /// What to do with them.
        #[command(subcommand)]
        command: AppCommand,
    },
    /// Work on a collection file directly, with the gateway running or not
    #[command(
        long_about = "Work on a collection file directly, with the gateway running or not.\n\nFILE is a collection, \
                      NAME.jsonl, with one JSON object a line. The answer is one line of JSON on standard output: \
                      {\"ok\":true,...}, or {\"ok\":false,\"error\":...,\"status\":404} with exit status 1.",
        after_help = "Examples:\n  linekeep data append items.jsonl '{\"what\":\"milk\"}'\n  \
                      linekeep data query items.jsonl --where '{\"done\":false}' --limit 10\n  \
                      linekeep data health items.jsonl"
    )]
    Data {
        /// What to do with it.
        #[command(subcommand)]
        command: DataCommand,
    },
}

/// Where the data directory is.
#[derive(Debug, clap::Args)]
pub struct DataDir {
    /// The directory that holds `workspace`
    #[arg(long = "data-dir", value_name = "DIR", env = "LINEKEEP_DATA_DIR", default_value = DATA_DIR_DEFAULT)]
    pub path: PathBuf,
}

/// What `serve` takes.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    #[command(flatten)]
    #[expect(missing_docs, reason = "a doc comment here would replace the command's help")]
    pub data_dir: DataDir,
    /// The address or name to listen on, instead of websocket.host in config.json
    #[arg(long, env = "LINEKEEP_HOST")]
    pub host: Option<String>,
    /// The port to listen on, instead of websocket.port in config.json; 0 takes a free one
    #[arg(long, env = "LINEKEEP_PORT")]
    pub port: Option<u16>,
}

/// The commands on app folders.
#[derive(Debug, Subcommand)]
pub enum AppCommand {
    /// Say everything that is wrong with the apps; exit status 1 if anything is
    #[command(after_help = "Examples:\n  linekeep app check              every app of \
                            ./linekeep-data/workspace/apps\n  linekeep app check --data-dir ~/apps\n  linekeep \
                            app check my-app other-app\n  linekeep app check examples/workspace/apps")]
    Check {
        /// App folders, or folders of app folders; without any, the apps of the data directory
        #[arg(value_name = "DIR")]
        dirs: Vec<PathBuf>,
        #[command(flatten)]
        #[expect(missing_docs, reason = "a doc comment here would replace the command's help")]
        data_dir: DataDir,
    },
}

/// The commands on a collection file.
#[derive(Debug, Subcommand)]
pub enum DataCommand {
    /// Add a record; it gets a new id and the time
    #[command(after_help = "Example:\n  linekeep data append items.jsonl '{\"what\":\"milk\"}'")]
    Append {
        /// The collection
        file: PathBuf,
        /// The record's fields, a JSON object
        json: String,
    },
    /// Replace a record wholesale, or add it under this id
    #[command(after_help = "Example:\n  linekeep data set items.jsonl bread '{\"what\":\"bread\"}'")]
    Set {
        /// The collection
        file: PathBuf,
        /// The record's id
        id: String,
        /// The record's fields, a JSON object
        json: String,
    },
    /// Merge fields into a record
    #[command(after_help = "Example:\n  linekeep data update items.jsonl bread '{\"done\":true}'")]
    Update {
        /// The collection
        file: PathBuf,
        /// The record's id
        id: String,
        /// The fields to change, a JSON object
        json: String,
    },
    /// Remove a record
    #[command(after_help = "Example:\n  linekeep data delete items.jsonl bread")]
    Delete {
        /// The collection
        file: PathBuf,
        /// The record's id
        id: String,
    },
    /// Find records, in the order of the file
    #[command(
        after_help = "Example:\n  linekeep data query items.jsonl --where '{\"done\":false}' --limit 10"
    )]
    Query {
        /// The collection
        file: PathBuf,
        /// Fields that must be equal, a JSON object
        #[arg(long = "where", value_name = "JSON", default_value = "{}")]
        filter: String,
        /// Most records to print; 0 means 200
        #[arg(long, value_name = "N", default_value_t = linekeep_engine::QUERY_LIMIT_DEFAULT)]
        limit: usize,
    },
    /// Say how the file is: records, bytes, lines that cannot be read, a torn end
    #[command(
        long_about = "Say how a collection is: records, bytes, lines that cannot be read, a torn end, duplicate ids.\n\n\
                      For a folder: all of this for every collection below it, and the files there that look like \
                      collections but are none.",
        after_help = "Examples:\n  linekeep data health items.jsonl\n  linekeep data health \
                      linekeep-data/workspace/apps"
    )]
    Health {
        /// The collection, or a folder
        path: PathBuf,
    },
    /// Thin a collection of readings
    #[command(
        long_about = "Thin a collection of readings: keep the last 48 records of each series and, besides those, the \
                      last record of each UTC day for 396 days back from the series' newest record.\n\nRecords \
                      without a readable ts, and lines that are no records, stay.",
        after_help = "Example:\n  linekeep data retain readings.jsonl --key sensor --dry-run"
    )]
    Retain {
        /// The collection
        file: PathBuf,
        /// The field whose value tells series apart; without it all records are one series
        #[arg(long, value_name = "FIELD")]
        key: Option<String>,
        /// Only print what would go
        #[arg(long)]
        dry_run: bool,
    },
    /// Print what a repair would drop or change; with --apply, do it
    #[command(
        long_about = "Print what a repair would drop or change; with --apply, do it.\n\nA repair drops what is never \
                      served (torn and corrupt lines, NULs, byte order marks), gives each record a line of its own, \
                      and replaces bytes that are not UTF-8. The file as it was is kept beside it under the name that \
                      is printed. Nothing else ever drops a byte that you did not name.",
        after_help = "Examples:\n  linekeep data repair items.jsonl\n  linekeep data repair items.jsonl --apply"
    )]
    Repair {
        /// The collection
        file: PathBuf,
        /// Only print (the default)
        #[arg(long, conflicts_with = "apply")]
        dry_run: bool,
        /// Do it
        #[arg(long)]
        apply: bool,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_help_of_every_command_ends_with_an_example() {
        fn check(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let name = command.get_name();
            assert!(help.starts_with("Example"), "{name}: {help}");
            assert!(help.contains(name), "{name}: {help}");
            command.get_subcommands().for_each(check);
        }
        check(&Args::command());
    }

    #[test]
    fn serve_takes_flags_and_has_defaults() {
        let Command::Serve(serve) = Args::parse_from(["linekeep", "serve", "--port", "0"]).command else {
            panic!("not serve");
        };
        assert_eq!((serve.port, serve.host), (Some(0), None));
    }

    #[test]
    fn usage_errors_have_exit_code_2() {
        for line in
            [&["linekeep"][..], &["linekeep", "data", "query"], &["linekeep", "serve", "--port", "70000"]]
        {
            assert_eq!(Args::try_parse_from(line).unwrap_err().exit_code(), 2, "{line:?}");
        }
    }
}
