//! Several processes on one file: writers, the command line, an editor, and a killer.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linekeep_tests::Cli;
use linekeep_tests::hammer::{State, Step, now_ns, read_marks};
use linekeep_tests::sim::Random;

/// A number from the environment, for longer runs.
fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

struct Hammer {
    child: Child,
}

impl Hammer {
    fn start(root: &Path, first_thread: u64, threads: u64, records: u64, durability: &str) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_hammer"))
            .arg(root)
            .args([
                "marks",
                &first_thread.to_string(),
                &threads.to_string(),
                &records.to_string(),
                durability,
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child }
    }

    /// Reads all that it says until it ends.
    fn finish(mut self) -> Vec<Step> {
        let mut out = String::new();
        self.child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        let mut complaint = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {complaint}");
        out.lines().map(|line| Step::parse(line).unwrap()).collect()
    }
}

/// What was acknowledged last of each mark.
fn last_states(steps: &[Step]) -> BTreeMap<u64, State> {
    let mut states = BTreeMap::new();
    for step in steps {
        states.insert(step.mark, step.state);
    }
    states
}

fn collection_in(folder: &Path) -> PathBuf {
    folder.join("marks.jsonl")
}

#[test]
fn four_writers_in_two_processes_and_the_command_line_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = collection_in(folder.path());
    // 3 steps and a third: 2 x 2 writers of 740 records make 9,868 operations, the command line adds 175.
    let records = setting("LINEKEEP_PROCESS_RECORDS", 740);
    let hammers: Vec<Hammer> =
        (0..2).map(|process| Hammer::start(folder.path(), process * 2, 2, records, "sync")).collect();
    let cli = Cli::new(folder.path());
    let mut ours = BTreeMap::new();
    for turn in 0..70 {
        let json = format!("{{\"cli\":{turn}}}");
        let added = cli.run(["data", "append", "marks.jsonl", &json]).json(0);
        let id = added["record"]["id"].as_str().unwrap().to_owned();
        let updated = cli.run(["data", "update", "marks.jsonl", &id, r#"{"more":true}"#]).json(0);
        assert_eq!(updated["ok"], true);
        if turn % 2 == 0 {
            assert_eq!(cli.run(["data", "delete", "marks.jsonl", &id]).json(0)["deleted"], id.as_str());
        } else {
            ours.insert(turn, id);
        }
    }
    let steps: Vec<Step> = hammers.into_iter().flat_map(Hammer::finish).collect();
    let operations = steps.len() + 70 * 2 + 35;
    assert!(records < 740 || operations >= 10_000, "{operations} operations");

    let (marks, others) = read_marks(&std::fs::read(&file).unwrap());
    let expected: BTreeMap<u64, Vec<u8>> = last_states(&steps)
        .into_iter()
        .filter_map(|(mark, state)| match state {
            State::Value(value) => Some((mark, vec![value])),
            State::Gone => None,
        })
        .collect();
    assert_eq!(marks, expected);
    assert_eq!(others.len(), ours.len());
    for (turn, id) in ours {
        let line = others.iter().find(|line| line.contains(&id)).unwrap();
        assert!(line.ends_with(&format!(r#""cli":{turn},"more":true}}"#)), "{line}");
    }
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 1, "no temp file is left");
}

#[test]
fn a_killed_writer_loses_nothing_that_it_acknowledged() {
    let rounds = setting("LINEKEEP_KILL_ROUNDS", 200);
    let mut random = Random(setting("LINEKEEP_KILL_SEED", u64::from(std::process::id())));
    let seed = random.0;
    let mut acknowledged = 0;
    let folder = tempfile::tempdir().unwrap();
    let file = collection_in(folder.path());
    // The file goes on from round to round, so each round also opens what the last kill left.
    let mut known: BTreeMap<u64, State> = BTreeMap::new();
    for round in 0..rounds {
        if round % 25 == 0 {
            for left in std::fs::read_dir(folder.path()).unwrap() {
                std::fs::remove_file(left.unwrap().path()).unwrap();
            }
            known.clear();
        }
        let durability = if round % 2 == 0 { "sync" } else { "flush" };
        let mut hammer = Hammer::start(folder.path(), round % 25 * 4, 4, 1_000_000, durability);
        let mut lines = BufReader::new(hammer.child.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        std::thread::sleep(Duration::from_micros(random.below(15_000)));
        hammer.child.kill().unwrap();
        hammer.child.wait().unwrap();
        let steps: Vec<Step> = std::iter::once(first)
            .chain(lines.map(Result::unwrap))
            .filter_map(|line| Step::parse(&line))
            .collect();
        acknowledged += steps.len();
        let states = last_states(&steps);
        known.extend(states.iter().map(|(mark, state)| (*mark, *state)));

        let context = || format!("round {round}, seed {seed}");
        let content = std::fs::read(&file).unwrap();
        let (marks, others) = read_marks(&content);
        assert_eq!(others, Vec::<String>::new(), "{}", context());
        for (mark, values) in &marks {
            assert_eq!(values.len(), 1, "mark {mark} stands more than once, {}", context());
            // A step may have been done and the kill have come before its line.
            let now = State::Value(values[0]);
            let before = known.get(mark).copied();
            let right = match before {
                Some(state) => now == state || state.next(*mark) == Some(now),
                None => now == State::Value(0),
            };
            assert!(right, "mark {mark} is {now:?}, was acknowledged {before:?}, {}", context());
            known.insert(*mark, now);
        }
        for (mark, state) in &mut known {
            if !marks.contains_key(mark) {
                let gone = *state == State::Gone || state.next(*mark) == Some(State::Gone);
                assert!(gone, "mark {mark} is gone, was acknowledged {state:?}, {}", context());
                *state = State::Gone;
            }
        }
    }
    assert!(
        acknowledged as u64 > rounds * 4,
        "only {acknowledged} operations were acknowledged in {rounds} rounds"
    );
    // The last process's temp file may be there until the next process writes.
    assert_eq!(Cli::new(folder.path()).run(["data", "append", "marks.jsonl", "{}"]).json(0)["ok"], true);
    let names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["marks.jsonl"], "temp files of dead processes are swept");
}

/// One save of the editor: from before it read the file to after it saved it.
struct Save {
    start_ns: u128,
    end_ns: u128,
}

/// Saves every 20 ms what it has read, with a line of its own more; by rename and in place in turn.
fn edit(file: &Path, done: &AtomicBool) -> Vec<Save> {
    let mut saves = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let number = saves.len();
        let start_ns = now_ns();
        let content = std::fs::read(file).unwrap();
        // The line goes to the start of some line, so that it is in the way of a rewrite.
        let middle = content.len() / 2;
        let at = content[..middle].iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let line = format!("{{\"id\":\"editor-{number}\",\"editor\":{number}}}\n");
        let saved = [&content[..at], line.as_bytes(), &content[at..]].concat();
        if number % 2 == 0 {
            let temp = file.with_extension("editor");
            std::fs::write(&temp, saved).unwrap();
            std::fs::rename(&temp, file).unwrap();
        } else {
            std::fs::write(file, saved).unwrap();
        }
        saves.push(Save { start_ns, end_ns: now_ns() });
        std::thread::sleep(Duration::from_millis(20));
    }
    saves
}

#[test]
fn an_editor_that_saves_all_the_time_loses_nothing_it_wrote_and_nothing_acknowledged_between_its_saves() {
    let folder = tempfile::tempdir().unwrap();
    let file = collection_in(folder.path());
    std::fs::write(&file, "{\"id\":\"first\"}\n").unwrap();
    let records = setting("LINEKEEP_EDITOR_RECORDS", 300);
    let hammers: Vec<Hammer> =
        (0..2).map(|it| Hammer::start(folder.path(), it * 2, 2, records, "sync")).collect();
    let done = AtomicBool::new(false);
    let (saves, steps) = std::thread::scope(|scope| {
        let editor = scope.spawn(|| edit(&file, &done));
        let steps: Vec<Step> = hammers.into_iter().flat_map(Hammer::finish).collect();
        done.store(true, Ordering::Relaxed);
        (editor.join().unwrap(), steps)
    });

    let (marks, others) = read_marks(&std::fs::read(&file).unwrap());
    let missing: Vec<usize> = (0..saves.len())
        .filter(|number| !others.iter().any(|line| line.contains(&format!("\"editor\":{number}}}"))))
        .collect();
    assert_eq!(missing, Vec::<usize>::new(), "lines of the editor are lost, of {} saves", saves.len());

    // A step that lies between two saves was read by the next save, so nothing may have undone it. What was asked or
    // acknowledged while the editor was between reading and saving is the editor's to lose.
    let clear =
        |step: &Step| saves.iter().all(|save| step.end_ns < save.start_ns || step.start_ns > save.end_ns);
    let mut judged = 0;
    for (mark, state) in last_states(&steps) {
        if steps.iter().filter(|step| step.mark == mark).all(clear) {
            judged += 1;
            let expected = match state {
                State::Value(value) => Some(vec![value]),
                State::Gone => None,
            };
            assert_eq!(marks.get(&mark), expected.as_ref(), "mark {mark} was acknowledged as {state:?}");
        }
    }
    assert!(judged > 20, "only {judged} records had all their steps between the saves");
    assert!(saves.len() > 20, "only {} saves", saves.len());
}
