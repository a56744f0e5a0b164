//! The crash sweep: every call to the disk fails once, fails for ever, or is where the power goes.
//!
//! A scenario is a file and a list of groups of operations. It runs again and again with the fault at call 0, 1, 2 and
//! so on until a run ends before the fault is reached. After each run the machine starts again, keeping any subset of
//! what was not synced, and the file is judged:
//!
//! - I1: what was acknowledged is there, exactly as it was answered;
//! - I2: what was not acknowledged is there whole or not at all;
//! - I3: every line that no operation named is there, byte for byte and in its place.
//!
//! Then a second process recovers under a second power cut, and the file is judged again.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use linekeep_engine::{
    Collection, CollectionName, Durability, Error, Fields, Op, Options, Outcome, RetainPolicy, Store,
};
use linekeep_tests::sim::{Edit, Fault, Keep, Save, SimDisk, SimSystem, What};

const ROOT: &str = "/root";

/// How many draws of what survives a power cut, besides everything and nothing.
fn draws() -> u64 {
    std::env::var("LINEKEEP_CRASH_DRAWS").ok().and_then(|draws| draws.parse().ok()).unwrap_or(6)
}

/// An operation on the record that carries the mark `k`.
#[derive(Debug, Clone, Copy)]
enum Do {
    Append(u32),
    Set(u32, u32),
    Update(u32, u32),
    Delete(u32),
    /// Retain as it is meant for readings: of the marks 20 to 23 only the last stays.
    Retain,
}

struct Scenario {
    name: &'static str,
    /// The file before; `None` for no file and no folder.
    before: Option<Vec<u8>>,
    groups: Vec<Vec<Do>>,
}

/// The lines of the files that are there before: records with marks 1 to 4 between lines that nobody names.
fn before() -> Vec<u8> {
    [
        &b"\xEF\xBB\xBF{\"id\":\"k1\",\"k\":1,\"v\":0}\n"[..],
        b"{broken\n",
        b"{\"id\": \"k2\", \"k\": 2, \"v\": 0}{\"id\": \"k3\", \"k\": 3, \"v\": 0}\n",
        b"\n",
        b"{\"n\":12345678901234567890123456789,\"bytes\":\"\xFF\"}\r\n",
        b"{\"id\":\"k4\",\"k\":4,\"v\":0}\n",
    ]
    .concat()
}

/// The pieces of [`before`] that no operation names.
const UNTOUCHED: [&[u8]; 4] =
    [b"\xEF\xBB\xBF", b"{broken\n", b"\n", b"{\"n\":12345678901234567890123456789,\"bytes\":\"\xFF\"}\r\n"];

fn scenarios() -> Vec<Scenario> {
    let torn = [before(), b"{\"id\":\"torn\",\"te".to_vec()].concat();
    let scenario = |name, before, groups| Scenario { name, before, groups };
    vec![
        scenario("append to nothing", None, vec![vec![Do::Append(10)], vec![Do::Append(11)]]),
        scenario("append", Some(before()), vec![vec![Do::Append(10)], vec![Do::Append(11)]]),
        scenario(
            "append behind a torn tail",
            Some(torn.clone()),
            vec![vec![Do::Append(10)], vec![Do::Append(11)]],
        ),
        scenario("set a new id", Some(before()), vec![vec![Do::Set(10, 1)], vec![Do::Set(10, 2)]]),
        scenario("set", Some(before()), vec![vec![Do::Set(1, 1)], vec![Do::Set(3, 2)]]),
        scenario("update", Some(before()), vec![vec![Do::Update(2, 1)], vec![Do::Update(2, 2)]]),
        scenario("delete", Some(torn), vec![vec![Do::Delete(4)], vec![Do::Delete(2)], vec![Do::Delete(1)]]),
        scenario(
            "append then rewrite",
            Some(before()),
            vec![vec![Do::Append(10)], vec![Do::Delete(1)], vec![Do::Append(11)]],
        ),
        scenario(
            "batch of appends",
            Some(before()),
            vec![vec![Do::Append(10), Do::Append(11), Do::Append(12)], vec![Do::Append(13)]],
        ),
        scenario(
            "retain",
            Some(before()),
            vec![vec![Do::Append(20), Do::Append(21), Do::Append(22), Do::Append(23)], vec![Do::Retain]],
        ),
        scenario(
            "batch of everything",
            Some(before()),
            vec![
                vec![
                    Do::Append(10),
                    Do::Update(1, 1),
                    Do::Delete(3),
                    Do::Set(4, 1),
                    Do::Append(11),
                    Do::Update(1, 2),
                ],
                vec![Do::Delete(10), Do::Update(4, 2)],
            ],
        ),
    ]
}

/// What may be true of each mark: the values its record may have, `None` being no record.
#[derive(Debug, Clone, Default)]
struct Truth {
    marks: BTreeMap<u32, Vec<Option<u32>>>,
    /// The answers that were given: the text that must stand in the file while the mark has one value only.
    texts: BTreeMap<u32, Vec<u8>>,
    /// Whether any operation was left without a good answer, so that a torn line may stand at the end.
    failures: bool,
}

impl Truth {
    fn new(scenario: &Scenario) -> Self {
        let there = scenario.before.is_some();
        Self {
            marks: (1..5).filter(|_| there).map(|mark| (mark, vec![Some(0)])).collect(),
            ..Self::default()
        }
    }

    fn note(&mut self, what: Do, answer: &Result<Outcome, Error>) {
        let (mark, value) = match what {
            Do::Retain => {
                let removed = match answer {
                    Ok(Outcome::Retained(retained)) => {
                        retained.removed.iter().filter_map(mark_of).map(|(mark, _)| mark).collect()
                    }
                    Ok(other) => panic!("retain answered {other:?}"),
                    // It may have been done: all that have a later one go together.
                    Err(_) => (20..23).filter(|mark| self.marks.contains_key(mark)).collect::<Vec<u32>>(),
                };
                for mark in removed {
                    self.note(
                        Do::Delete(mark),
                        &answer.clone().map(|_| Outcome::Deleted("x".parse().unwrap())),
                    );
                }
                return;
            }
            Do::Append(mark) => (mark, Some(0)),
            Do::Set(mark, value) | Do::Update(mark, value) => (mark, Some(value)),
            Do::Delete(mark) => (mark, None),
        };
        let states = self.marks.entry(mark).or_insert_with(|| vec![None]);
        match answer {
            Ok(outcome) => {
                *states = vec![value];
                match outcome {
                    Outcome::Record(record) => self.texts.insert(mark, record.as_bytes().to_vec()),
                    Outcome::Deleted(_) | Outcome::Records(_) | Outcome::Retained(_) => {
                        self.texts.remove(&mark)
                    }
                };
            }
            Err(Error::NotFound { .. }) => {
                assert!(states.contains(&None), "{what:?}: not found, but it must be there: {states:?}");
                *states = vec![None];
            }
            Err(Error::Io { .. } | Error::Busy { .. }) => {
                states.push(value);
                self.texts.remove(&mark);
                self.failures = true;
            }
            Err(other) => panic!("{what:?}: {other}"),
        }
    }

    /// Judges the bytes of the file, and narrows what may be true to what is.
    fn judge(&mut self, content: &[u8], touched: bool, context: &str) {
        let show = || format!("{context}\nfile:\n{}", String::from_utf8_lossy(content));
        let mut found: BTreeMap<u32, Vec<Option<u32>>> = BTreeMap::new();
        let mut torn = 0;
        for line in content.split(|byte| *byte == b'\n') {
            for piece in split_records(line) {
                match mark_of(piece) {
                    Some((mark, value)) => {
                        assert!(
                            self.marks.contains_key(&mark),
                            "a record that nobody made: {mark}\n{}",
                            show()
                        );
                        let known = self.texts.get(&mark);
                        assert!(
                            known.is_none_or(|text| text == piece),
                            "mark {mark} changed its text\n{}",
                            show()
                        );
                        found.entry(mark).or_default().push(Some(value));
                    }
                    None if UNTOUCHED.iter().any(|bytes| trimmed(bytes) == trimmed(piece)) => {}
                    None if piece.starts_with(b"{\"id\":\"torn\"") => {}
                    None => torn += 1,
                }
            }
        }
        assert!(torn == 0 || self.failures, "{torn} torn lines without a failure\n{}", show());
        for (mark, states) in &mut self.marks {
            let now = found.remove(mark).unwrap_or_else(|| vec![None]);
            assert_eq!(now.len(), 1, "mark {mark} stands more than once\n{}", show());
            assert!(states.contains(&now[0]), "mark {mark} is {:?}, may be {states:?}\n{}", now[0], show());
            *states = now;
        }
        if touched {
            let (rest, before) = (skeleton(content), skeleton(&before()));
            let exact =
                rest == before || (rest.starts_with(&before) && (self.failures || torn_tail(content)));
            assert!(exact, "lines that nobody named are not as they were\n{}", show());
        }
    }
}

/// Whether the file's last line, or the one that a writer closed before its own, is the torn one of a scenario.
fn torn_tail(content: &[u8]) -> bool {
    find(content, b"{\"id\":\"torn\"").is_some()
}

/// What is left of a file without the records that have marks, and without the lines that held nothing else.
fn skeleton(content: &[u8]) -> Vec<u8> {
    let mut left = Vec::new();
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        let mut rest = line.to_vec();
        for piece in split_records(line.strip_suffix(b"\n").unwrap_or(line)) {
            if mark_of(piece).is_some()
                && let Some(at) = find(&rest, piece)
            {
                rest.drain(at..at + piece.len());
            }
        }
        if rest == line || !rest.trim_ascii().is_empty() {
            left.extend(rest);
        }
    }
    left
}

fn find(content: &[u8], bytes: &[u8]) -> Option<usize> {
    content.windows(bytes.len()).position(|window| window == bytes)
}

fn trimmed(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    bytes.trim_ascii()
}

/// Splits the one glued line of [`before`]; everything else has one piece a line.
fn split_records(line: &[u8]) -> Vec<&[u8]> {
    let line = trimmed(line);
    match find(line, b"}{") {
        Some(at) => vec![&line[..=at], &line[at + 1..]],
        None if line.is_empty() => Vec::new(),
        None => vec![line],
    }
}

/// The mark and the value of a whole record.
fn mark_of(piece: &[u8]) -> Option<(u32, u32)> {
    let value: serde_json::Value = serde_json::from_slice(piece).ok()?;
    let number = |key: &str| u32::try_from(value.get(key)?.as_u64()?).ok();
    Some((number("k")?, number("v")?))
}

struct Run<'a> {
    scenario: &'a Scenario,
    disk: SimDisk,
    durability: Durability,
}

impl Run<'_> {
    fn open(&self, seed: u64) -> Result<Collection, Error> {
        let options = Options {
            durability: self.durability,
            disk: Arc::new(self.disk.clone()),
            system: Arc::new(SimSystem::new(seed)),
            ..Options::default()
        };
        let store = Store::open(Path::new(ROOT), options)?;
        store.collection("data", &"c".parse::<CollectionName>()?)
    }

    fn file(&self) -> Option<Vec<u8>> {
        self.disk.content(&Path::new(ROOT).join("data/c.jsonl"))
    }

    /// Runs all groups, whatever fails. Ids of appended records are learned from their answers.
    fn work(&self, collection: &Collection, truth: &mut Truth) {
        let mut ids: BTreeMap<u32, String> = BTreeMap::new();
        for group in &self.scenario.groups {
            // A record that was appended under an id we never heard of cannot be named.
            let known: Vec<Do> =
                group.iter().copied().filter(|what| self.op(*what, &ids).is_some()).collect();
            let ops = known.iter().filter_map(|what| self.op(*what, &ids)).collect();
            let answers = collection.run_all(ops);
            // A client that was told of a failure tries again, but for appends, which would be a second record.
            let failed = answers.iter().any(|answer| matches!(answer, Err(Error::Io { .. })));
            let again: Vec<Do> =
                known.iter().copied().filter(|what| failed && !matches!(what, Do::Append(_))).collect();
            for (what, answer) in known.iter().zip(answers) {
                if let (Do::Append(mark), Ok(Outcome::Record(record))) = (what, &answer) {
                    let value: serde_json::Value = serde_json::from_slice(record.as_bytes()).unwrap();
                    ids.insert(*mark, value["id"].as_str().unwrap().to_owned());
                }
                truth.note(*what, &answer);
            }
            let ops = again.iter().filter_map(|what| self.op(*what, &ids)).collect();
            for (what, answer) in again.iter().zip(collection.run_all(ops)) {
                truth.note(*what, &answer);
            }
        }
    }

    fn op(&self, what: Do, ids: &BTreeMap<u32, String>) -> Option<Op> {
        let appended =
            |mark| self.scenario.groups.iter().flatten().any(|it| matches!(it, Do::Append(m) if *m == mark));
        let id = |mark: u32| match ids.get(&mark) {
            Some(id) => Some(id.parse().unwrap()),
            None if appended(mark) => None,
            None => Some(format!("k{mark}").parse().unwrap()),
        };
        let fields = |mark: u32, value: u32| {
            Fields::parse(
                format!("{{\"k\":{mark},\"v\":{value},\"text\":\"some words to tear\"}}").as_bytes(),
            )
            .unwrap()
        };
        Some(match what {
            Do::Append(mark) => Op::Append { fields: fields(mark, 0) },
            Do::Set(mark, value) => Op::Set { id: id(mark)?, fields: fields(mark, value) },
            Do::Update(mark, value) => Op::Update { id: id(mark)?, fields: fields(mark, value) },
            Do::Delete(mark) => Op::Delete { id: id(mark)? },
            Do::Retain => {
                let policy = RetainPolicy { records_kept: 1, ..RetainPolicy::default() };
                Op::Retain { policy }
            }
        })
    }
}

/// A disk whose files can exchange their names, or one that can only rename.
fn new_disk(exchange: bool) -> SimDisk {
    let disk = SimDisk::new(Path::new(ROOT));
    if exchange { disk.with_exchange() } else { disk }
}

fn start(scenario: &Scenario, durability: Durability, exchange: bool) -> Run<'_> {
    let disk = new_disk(exchange);
    if let Some(before) = &scenario.before {
        disk.place(&Path::new(ROOT).join("data/c.jsonl"), before);
    }
    Run { scenario, disk, durability }
}

/// One run with a fault, a reboot, a judgement; then a recovery with a second cut, and a judgement.
/// Returns whether the fault was reached.
fn try_fault(
    scenario: &Scenario,
    (durability, exchange): (Durability, bool),
    fault: Fault,
    keep: Keep,
) -> bool {
    let context = format!("{}, {durability:?}, exchange {exchange}, {fault:?}, {keep:?}", scenario.name);
    let run = start(scenario, durability, exchange);
    let mut truth = Truth::new(scenario);
    let collection = run.open(1).unwrap();
    run.disk.arm(Some(fault));
    run.work(&collection, &mut truth);
    if !run.disk.fired() {
        return false;
    }
    drop(collection);
    run.disk.reboot(keep);
    let touched = scenario.before.is_some();
    let judge = |run: &Run<'_>, truth: &mut Truth, context: &str| {
        let content = run.file();
        assert!(content.is_some() || !touched, "the file is gone: {context}");
        truth.judge(&content.unwrap_or_default(), touched, context);
    };
    judge(&run, &mut truth, &context);

    // Recovery: a new process reads and writes; the power goes again at each of its calls.
    for second in 0.. {
        let run = Run { scenario, disk: run.disk.fork(), durability };
        let mut truth = truth.clone();
        let collection = run.open(2).unwrap();
        run.disk.arm(Some(Fault { call: second, what: What::PowerCut }));
        let _counted = collection.query(&Fields::new(), 1000);
        let fields = Fields::parse(b"{\"k\":99,\"v\":0}").unwrap();
        truth.note(Do::Append(99), &collection.run(Op::Append { fields }));
        if truth.marks.get(&1) == Some(&vec![Some(0)]) {
            let fields = Fields::parse(b"{\"v\":7}").unwrap();
            let answer = collection.run(Op::Update { id: "k1".parse().unwrap(), fields });
            truth.note(Do::Update(1, 7), &answer);
        }
        let fired = run.disk.fired();
        drop(collection);
        if !fired {
            // Nothing failed: the recovery swept the temp files of the first process too.
            let names = run.disk.names(&Path::new(ROOT).join("data"));
            assert_eq!(names.len(), 1, "{context}: {names:?}");
        }
        run.disk.reboot(keep);
        judge(&run, &mut truth, &format!("{context}, then a cut at call {second} of the recovery"));
        if !fired {
            break;
        }
    }
    true
}

fn sweep(durability: Durability, what: What, keeps: &[Keep]) {
    for (scenario, exchange) in scenarios().iter().flat_map(|scenario| [(scenario, false), (scenario, true)])
    {
        let mut calls = 0;
        loop {
            let fault = Fault { call: calls, what };
            let reached = |keep: &&Keep| try_fault(scenario, (durability, exchange), fault, **keep);
            // Whether a call is reached does not depend on what a later reboot keeps.
            if keeps.iter().filter(reached).count() == 0 {
                break;
            }
            calls += 1;
        }
        assert!(calls > 5, "{}: the sweep reached {calls} calls only", scenario.name);
    }
}

/// Everything, nothing, and draws of what was not synced.
fn keeps() -> Vec<Keep> {
    (0..draws()).map(Keep::Some).chain([Keep::All, Keep::Nothing]).collect()
}

#[test]
fn a_power_cut_at_any_call_loses_nothing_that_was_acknowledged() {
    sweep(Durability::Sync, What::PowerCut, &keeps());
}

#[test]
fn a_call_that_fails_once_and_a_later_power_cut_lose_nothing_that_was_acknowledged() {
    sweep(Durability::Sync, What::Once, &keeps());
    sweep(Durability::Sync, What::OnceHalf, &keeps());
}

#[test]
fn a_disk_that_fails_for_ever_loses_nothing_that_was_acknowledged() {
    sweep(Durability::Sync, What::Forever, &keeps());
}

#[test]
fn a_killed_process_loses_nothing_that_was_acknowledged_even_without_sync() {
    sweep(Durability::Flush, What::PowerCut, &[Keep::All]);
    sweep(Durability::Flush, What::Once, &[Keep::All]);
    sweep(Durability::Flush, What::OnceHalf, &[Keep::All]);
}

#[test]
fn the_calls_come_in_the_promised_order() {
    for exchange in [false, true] {
        check_order(exchange);
    }
}

fn check_order(exchange: bool) {
    let scenario = &scenarios()[2];
    let run = start(scenario, Durability::Sync, exchange);
    let collection = run.open(1).unwrap();
    let log = |op: Op| {
        run.disk.arm(None);
        collection.run(op).unwrap();
        let looks = ["stat", "stat open", "open", "read", "list", "compare"];
        let log = run.disk.log();
        let mut log: Vec<String> =
            log.into_iter().filter(|line| !looks.contains(&line.rsplit_once(' ').unwrap().0)).collect();
        // The new file is written in a few pieces.
        log.dedup();
        log
    };
    let append = || Op::Append { fields: Fields::new() };
    // The name of a file that another program made is synced with the first append; later ones need only the bytes.
    let named = ["sync folder root", "sync folder data"];
    let bytes = ["lock c.jsonl", "write c.jsonl", "sync c.jsonl"];
    assert_eq!(log(append()), [&bytes[..], &named, &["unlock c.jsonl"]].concat());
    let append_only = [&bytes[..], &["unlock c.jsonl"]].concat();
    assert_eq!(log(append()), append_only);
    let mut rewrite =
        vec!["lock c.jsonl", "create temp", "lock temp", "write temp", "set mode temp", "sync temp"];
    if exchange {
        // The old file, now under the temp name, is removed after all is done.
        rewrite.extend(["exchange temp", "sync folder data", "remove temp"]);
    } else {
        rewrite.extend(["rename temp", "sync folder data"]);
    }
    rewrite.push("unlock c.jsonl");
    assert_eq!(log(Op::Delete { id: "k4".parse().unwrap() }), rewrite);
    assert_eq!(log(append()), append_only);
}

#[test]
fn a_first_append_makes_the_folder_and_the_name_durable_before_it_returns() {
    let scenario = &scenarios()[0];
    let run = start(scenario, Durability::Sync, true);
    let collection = run.open(1).unwrap();
    run.disk.arm(None);
    collection.append(Fields::new()).unwrap();
    let changes: Vec<String> = run
        .disk
        .log()
        .into_iter()
        .filter(|line| !line.starts_with("stat") && !line.starts_with("open"))
        .collect();
    let order = [
        "create folder data",
        "create c.jsonl",
        "write c.jsonl",
        "sync c.jsonl",
        "sync folder root",
        "sync folder data",
    ];
    let places: Vec<usize> =
        order.iter().map(|call| changes.iter().position(|it| it == call).unwrap()).collect();
    assert!(places.is_sorted(), "{changes:?}");
}

const EDITED: &[u8] = b"{\"id\":\"edited\",\"by\":\"hand\"}\n";

/// One run with an editor's save before one call, and perhaps the end of the process at another. Returns whether the save
/// came, and whether the end did.
fn try_edit(scenario: &Scenario, exchange: bool, edit: (u64, Save), killed: Option<u64>) -> (bool, bool) {
    let context = format!("{}, exchange {exchange}, {edit:?}, killed {killed:?}", scenario.name);
    let run = start(scenario, Durability::Sync, exchange);
    let mut truth = Truth::new(scenario);
    let collection = run.open(1).unwrap();
    run.disk.arm(killed.map(|call| Fault { call, what: What::PowerCut }));
    let path = Path::new(ROOT).join("data/c.jsonl");
    run.disk.arm_edit(Edit { call: edit.0, path: path.clone(), line: EDITED.to_vec(), how: edit.1 });
    run.work(&collection, &mut truth);
    let (saved, fired) = (!run.disk.edit_is_due(), run.disk.fired());
    // Between the comparison and a plain rename nothing can see a save; the exchange of names is there for that.
    let unseen = saved && run.disk.log()[usize::try_from(edit.0).unwrap()].starts_with("rename");
    drop(collection);
    run.disk.reboot(Keep::All);
    if !saved || unseen || fired != killed.is_some() {
        return (saved, fired);
    }
    // The next process sweeps what the first one left.
    let collection = run.open(2).unwrap();
    truth.note(
        Do::Append(99),
        &collection.run(Op::Append { fields: Fields::parse(b"{\"k\":99,\"v\":0}").unwrap() }),
    );
    let folder = run.disk.names(&Path::new(ROOT).join("data"));
    let holds = |path: &std::path::PathBuf| {
        let content = run.disk.content(path).unwrap();
        content.windows(EDITED.len()).filter(|window| *window == EDITED).count()
    };
    let kept: usize = folder.iter().map(&holds).sum();
    assert!(kept >= 1, "the save is lost: {context}");
    if !fired {
        assert!(truth.texts.len() > 1 || scenario.name == "delete", "operations failed: {context}");
        assert_eq!((holds(&path), folder.len()), (1, 1), "{context}: {folder:?}");
        let content = run.file().unwrap();
        let at = find(&content, EDITED).unwrap();
        let others = [&content[..at], &content[at + EDITED.len()..]].concat();
        truth.judge(&others, true, &context);
    }
    (saved, fired)
}

#[test]
fn an_editor_that_saves_before_any_call_loses_nothing_even_if_the_process_ends_then() {
    let scenarios = scenarios();
    let edited = scenarios.iter().filter(|scenario| scenario.before.is_some());
    for (scenario, exchange) in edited.flat_map(|scenario| [(scenario, false), (scenario, true)]) {
        for how in [Save::Rename, Save::InPlace] {
            let mut calls = 0;
            while try_edit(scenario, exchange, (calls, how), None).0 {
                // Right after the save, and a few calls later: the swap is undone within a handful.
                for killed in calls + 1..calls + 8 {
                    try_edit(scenario, exchange, (calls, how), Some(killed));
                }
                calls += 1;
            }
            assert!(calls > 10, "{}: only {calls} calls", scenario.name);
        }
    }
}
