//! Measures all contests and writes the table. `benches/table` in the repository runs it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use linekeep_benches::{DataSet, LIMIT, LIST, SETTLED, id_of, priority};
use linekeep_engine::{Durability, Fields, RecordId};
use linekeep_peers::contests::{self, Contest, Size};
use linekeep_peers::{child, contests::Bar};

/// How many rounds a contest has at most, and how long it goes on beyond the least.
const ROUNDS_MAX: usize = 25;
const ROUNDS_MIN: usize = 5;
const ROUNDS_TIME: Duration = Duration::from_secs(6);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["sqlite-version"] => println!("{}", rusqlite::version()),
        ["child", what, folder] => child::run(what, Path::new(folder)),
        ["measure", folder, out] => {
            measure(&Size { folder: PathBuf::from(folder), toy: false }, Path::new(out))
        }
        ["measure-toy", folder, out] => {
            measure(&Size { folder: PathBuf::from(folder), toy: true }, Path::new(out))
        }
        ["write", date, machine, page, readme, main, phone] => {
            let [main, phone] = [main, phone].map(|path| read(Path::new(path)));
            write(date, machine, Path::new(page), Path::new(readme), &main, &phone);
        }
        _ => {
            eprintln!(
                "usage: peers measure|measure-toy FOLDER OUT, or write DATE MACHINE PAGE README MAIN PHONE"
            );
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The quartiles of some numbers.
#[derive(Debug, Clone, Copy)]
struct Spread {
    low: f64,
    median: f64,
    high: f64,
}

impl Spread {
    fn of(mut numbers: Vec<f64>) -> Self {
        numbers.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| numbers[((numbers.len() - 1) as f64 * part).round() as usize];
        Self { low: at(0.25), median: at(0.5), high: at(0.75) }
    }
}

/// What a run found: a line each, by its key.
type Results = BTreeMap<String, Vec<String>>;

fn read(path: &Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).expect("the results are there");
    text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

fn measure(size: &Size, out: &Path) {
    let mut lines = Vec::new();
    // One line only, while working on it.
    let only = std::env::var("LINEKEEP_ONLY").ok();
    for (id, make) in contests::ALL {
        if only.as_deref().is_none_or(|only| only == id) {
            run(make(size), size, &mut lines);
        }
    }
    if only.is_none() {
        memory(size, &mut lines);
        growth(size, &mut lines);
    }
    std::fs::write(out, lines.join("\n") + "\n").expect("the results can be written");
}

/// Lets the contestants take turns.
fn run(mut contest: Contest, size: &Size, lines: &mut Vec<String>) {
    println!("{}: {}", contest.id, contest.what);
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); contest.contestants.len()];
    let start = Instant::now();
    let rounds_max = if size.toy { 2 } else { ROUNDS_MAX };
    for round in 0..=rounds_max {
        if round > ROUNDS_MIN && start.elapsed() > ROUNDS_TIME {
            break;
        }
        for (contestant, times) in contest.contestants.iter_mut().zip(&mut times) {
            // What the one before left to the background should not be this one's to wait for.
            if !size.toy {
                std::thread::sleep(Duration::from_millis(3));
            }
            let ns = (contestant.step)();
            // The first round warms up.
            if round > 0 {
                times.push(ns);
            }
        }
    }
    let times_of = |name: &str| {
        let place = contest.contestants.iter().position(|it| it.name == name).expect("it takes part");
        &times[place]
    };
    for contestant in &contest.contestants {
        let Spread { low, median, high } = Spread::of(times_of(contestant.name).clone());
        println!("    {:45} {:>10}  ({} to {})", contestant.name, shown(median), shown(low), shown(high));
        lines.push(row("time", &contest, contestant.name, &[low, median, high]));
    }
    for Bar { ours, theirs, ratio_max } in &contest.bars {
        let pairs = times_of(ours).iter().zip(times_of(theirs)).map(|(ours, theirs)| ours / theirs);
        let Spread { low, median, high } = Spread::of(pairs.collect());
        let verdict = if median <= *ratio_max { "met" } else { "MISSED" };
        println!("    {ours} / {theirs}: {median:.2} ({low:.2} to {high:.2}), bar {ratio_max:.2}: {verdict}");
        lines.push(row("bar", &contest, &format!("{ours} / {theirs}"), &[low, median, high, *ratio_max]));
    }
    if let Some(note) = &contest.note {
        println!("    {}", note());
        lines.push(row("note", &contest, &note(), &[]));
    }
}

fn row(kind: &str, contest: &Contest, name: &str, numbers: &[f64]) -> String {
    let numbers: String = numbers.iter().map(|number| format!("\t{number}")).collect();
    format!("{kind}\t{}\t{}\t{name}{numbers}", contest.id, contest.what)
}

/// Memory of a process of its own: with nothing in memory, and with the collection hot and indexed.
fn memory(size: &Size, lines: &mut Vec<String>) {
    let data_set = DataSet::copy_into(&size.folder).expect("the folder takes files");
    let mb = data_set.bytes().len() as f64 / 1e6;
    let idle = child::measure("memory-idle", data_set.folder());
    let hot = child::measure("memory-hot", data_set.folder());
    let mib = |kib: f64| kib / 1024.0;
    let growth = (hot[0] - idle[0]) * 1024.0 / 1e6;
    let verdict = if growth <= 3.0 * mb { "met" } else { "MISSED" };
    let text = format!(
        "store open {:.1} MiB; {mb:.2} MB hot and indexed {:.1} MiB: {growth:.1} MB more, {:.2} times the file, bar 3: {verdict}; \
         at most {:.1} MiB on the way there: {:.2} MB a MB of data",
        mib(idle[0]),
        mib(hot[0]),
        growth / mb,
        mib(hot[1]),
        (hot[1] - idle[0]) * 1024.0 / 1e6 / mb,
    );
    println!("P13: {text}");
    lines.push(format!("note\tP13\tresident memory, engine alone\t{text}"));
}

/// How work grows with the number of records.
fn growth(size: &Size, lines: &mut Vec<String>) {
    let mut found: Vec<[f64; 5]> = Vec::new();
    for times in [1, 2, 4] {
        let folder = tempfile::tempdir_in(&size.folder).expect("the folder takes files");
        let file = folder.path().join("tasks.jsonl");
        let data_set = DataSet::copy_into(&size.folder).expect("the folder takes files");
        let mut ids: Vec<RecordId> = Vec::new();
        let mut text = String::new();
        for copy in 0..times {
            for line in std::str::from_utf8(data_set.bytes()).expect("it is UTF-8").lines() {
                let id = format!("{}{copy}", id_of(line));
                text.push_str(&format!("{{\"id\":\"{id}{}\n", &line[19..]));
                ids.push(id.parse().expect("an id"));
            }
        }
        std::fs::write(&file, &text).expect("there is room");
        std::thread::sleep(SETTLED);
        let open = || linekeep_benches::open(folder.path(), Durability::Flush).expect("a collection");
        let by_list = Fields::parse(format!("{{\"list\":\"{LIST}\"}}").as_bytes()).expect("an object");
        let median = |rounds: usize, work: &mut dyn FnMut()| {
            let times = (0..rounds).map(|_| {
                let start = Instant::now();
                work();
                start.elapsed().as_nanos() as f64
            });
            Spread::of(times.collect()).median
        };
        let rounds = if size.toy { 3 } else { 21 };
        let first = median(rounds, &mut || drop(open().query(&by_list, LIMIT).expect("it is read")));
        let image = median(rounds, &mut || drop(open().query(&Fields::new(), 0).expect("it is read")));
        let tasks = open();
        for _ in 0..3 {
            tasks.query(&by_list, LIMIT).expect("it is read");
        }
        let query = median(1_000, &mut || drop(tasks.query(&by_list, LIMIT).expect("it is read")));
        let append = median(1_000, &mut || drop(tasks.append(by_list.clone()).expect("it is kept")));
        let mut turn = 0;
        let update = median(rounds, &mut || {
            turn += 1;
            let id = ids[turn * 7_919 % ids.len()].clone();
            tasks.update(id, priority(turn as u64)).expect("the record is there");
        });
        found.push([query, append, update, first, image]);
    }
    let names = ["warm query by index", "append, flush", "update, flush", "first query", "image"];
    for (place, name) in names.into_iter().enumerate() {
        let [one, two, four] = [found[0][place], found[1][place], found[2][place]];
        let text = format!(
            "{name}: {} at 1x, {} at 2x, {} at 4x ({:.2} and {:.2} times)",
            shown(one),
            shown(two),
            shown(four),
            two / one,
            four / one
        );
        println!("P15: {text}");
        lines.push(format!("note\tP15\tgrowth, 27,000 to 108,000 records\t{text}"));
    }
}

/// A time in a readable unit.
fn shown(ns: f64) -> String {
    match ns {
        ns if ns < 1_000.0 => format!("{ns:.0} ns"),
        ns if ns < 1_000_000.0 => format!("{:.1} us", ns / 1e3),
        ns => format!("{:.2} ms", ns / 1e6),
    }
}

/// Writes the page of one day, and the latest figures into the README.
fn write(date: &str, machine: &str, page: &Path, readme: &Path, main: &[Vec<String>], phone: &[Vec<String>]) {
    let number =
        |row: &[String], at: usize| row.get(at).and_then(|it| it.parse::<f64>().ok()).unwrap_or(f64::NAN);
    let key = |row: &[String]| row[..4].join("\t");
    let phones: Results = phone.iter().map(|row| (key(row), row.clone())).collect();
    let mut bars = String::from(
        "| # | what | ratio (quartiles) | one core, 256 MiB | bar | |\n|---|---|---|---|---|---|\n",
    );
    for row in main.iter().filter(|row| row[0] == "bar") {
        let [low, median, high, max] = [4, 5, 6, 7].map(|at| number(row, at));
        let phone = phones.get(&key(row)).map_or("-".to_owned(), |row| format!("{:.2}", number(row, 5)));
        let verdict = if median <= max { "met" } else { "**missed**" };
        writeln!(
            bars,
            "| {} | {}: {} | {median:.2} ({low:.2} to {high:.2}) | {phone} | {max:.2} | {verdict} |",
            row[1], row[2], row[3]
        )
        .expect("a string grows");
    }
    let mut text = format!(
        "# Measured on {date}\n\n{machine}\n\nTimes of one operation, medians of rounds in which the contestants take turns; quartiles in brackets. A ratio is the median of the ratios of the rounds, and below 1 we are faster. The last column is the same program held to one core and 256 MiB.\n\n"
    );
    text += &bars;
    text += "\n## All times\n\n| # | what | who | time (quartiles) | one core, 256 MiB |\n|---|---|---|---|---|\n";
    for row in main.iter().filter(|row| row[0] == "time") {
        let [low, median, high] = [4, 5, 6].map(|at| shown(number(row, at)));
        let phone = phones.get(&key(row)).map_or("-".to_owned(), |row| shown(number(row, 5)));
        writeln!(text, "| {} | {} | {} | {median} ({low} to {high}) | {phone} |", row[1], row[2], row[3])
            .expect("a string grows");
    }
    text += "\n## Besides\n\n";
    for row in main.iter().filter(|row| row[0] == "note") {
        writeln!(text, "- {} {}: {}", row[1], row[2], row[3]).expect("a string grows");
    }
    text += "\nOne core, 256 MiB:\n\n";
    for row in phone.iter().filter(|row| row[0] == "note") {
        writeln!(text, "- {} {}: {}", row[1], row[2], row[3]).expect("a string grows");
    }
    std::fs::write(page, text).expect("the page can be written");
    let old = std::fs::read_to_string(readme).expect("there is a README");
    let (open, close) = ("<!-- figures -->\n", "<!-- end of figures -->");
    let (before, rest) = old.split_once(open).expect("the README has a place for figures");
    let (_, after) = rest.split_once(close).expect("the place has an end");
    std::fs::write(readme, format!("{before}{open}{bars}{close}{after}")).expect("the README can be written");
}
