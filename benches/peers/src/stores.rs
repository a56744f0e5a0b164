//! linekeep and the stores that users would pick instead, behind one trait: the same records, the same questions.
//!
//! Each does its work as its own documentation advises: prepared statements, one write transaction a commit, an index
//! where one can be had. An answer to a query is the JSON array of up to [`LIMIT`] records and the count of all; redb and
//! fjall give the first by id, the others the first in the file. redb and fjall keep their index with every write, also
//! where none is asked for.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use linekeep_benches::{DataSet, LIMIT, LIST, TASK, id_of, priority};
use linekeep_engine::{Collection, Durability, Fields, Op, RecordId};

/// What the benchmarks ask of a store. Every call that writes is acknowledged when it returns.
pub trait Peer: Sync {
    /// Adds a record.
    fn append(&self);
    /// Adds records in one transaction.
    fn append_together(&self, len: usize);
    /// Changes one field of a record.
    fn update(&self, id: &str, value: u64);
    /// Changes one field of each of these in one transaction.
    fn update_together(&self, ids: &[&str], value: u64);
    /// The records of one list: how many bytes were returned, and the count of all.
    fn by_list(&self) -> (usize, u64);
    /// The record with this id: how many bytes.
    fn by_id(&self, id: &str) -> usize;
}

/// Makes the records that peers add: their id and their text, as linekeep would write it.
#[derive(Debug, Default)]
struct Maker(AtomicU64);

impl Maker {
    fn record(&self) -> (String, String) {
        let number =
            self.0.fetch_add(1, Ordering::Relaxed).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let id = format!("{:012x}", number >> 16);
        let json = format!(r#"{{"id":"{id}","ts":"2026-12-01T00:19:57+00:00",{}"#, &TASK[1..]);
        (id, json)
    }
}

/// A record's text with another priority.
fn with_priority(json: &str, value: u64) -> String {
    const KEY: &str = "\"priority\":";
    let start = json.find(KEY).expect("each record has a priority") + KEY.len();
    let end = json[start..].find([',', '}']).expect("the record goes on") + start;
    format!("{}{value}{}", &json[..start], &json[end..])
}

fn list_of(line: &str) -> &str {
    const KEY: &str = "\"list\":\"";
    let start = line.find(KEY).expect("each record has a list") + KEY.len();
    line[start..].split('"').next().expect("it has an end")
}

/// Our engine.
#[derive(Debug)]
pub struct Linekeep {
    collection: Collection,
    fields: Fields,
    by_list: Fields,
}

impl Linekeep {
    /// Over a copy of the data set.
    pub fn new(data_set: &DataSet, durability: Durability) -> Self {
        let parse = |json: &str| Fields::parse(json.as_bytes()).expect("an object");
        Self {
            collection: data_set.open_warm(durability).expect("the copy is a collection"),
            fields: parse(TASK),
            by_list: parse(&format!("{{\"list\":\"{LIST}\"}}")),
        }
    }

    /// The engine's own door.
    pub fn collection(&self) -> &Collection {
        &self.collection
    }
}

fn parse_id(id: &str) -> RecordId {
    id.parse().expect("an id")
}

impl Peer for Linekeep {
    fn append(&self) {
        self.collection.append(self.fields.clone()).expect("the record is kept");
    }
    fn append_together(&self, len: usize) {
        let ops = (0..len).map(|_| Op::Append { fields: self.fields.clone() }).collect();
        assert!(self.collection.run_all(ops).iter().all(Result::is_ok));
    }
    fn update(&self, id: &str, value: u64) {
        self.collection.update(parse_id(id), priority(value)).expect("the record is there");
    }
    fn update_together(&self, ids: &[&str], value: u64) {
        let ops = ids.iter().map(|id| Op::Update { id: parse_id(id), fields: priority(value) }).collect();
        assert!(self.collection.run_all(ops).iter().all(Result::is_ok));
    }
    fn by_list(&self) -> (usize, u64) {
        let found = self.collection.query(&self.by_list, LIMIT).expect("the file is read");
        (found.as_array().len(), found.count())
    }
    fn by_id(&self, id: &str) -> usize {
        let filter = Fields::parse(format!("{{\"id\":\"{id}\"}}").as_bytes()).expect("an object");
        self.collection.query(&filter, 1).expect("the file is read").as_array().len()
    }
}

/// SQLite in WAL mode.
#[derive(Debug)]
pub struct Sqlite {
    connection: Mutex<rusqlite::Connection>,
    maker: Maker,
}

impl Sqlite {
    /// A database with the records of the data set. `full` is `synchronous=FULL`, otherwise NORMAL; `index` makes an index
    /// on the expression that queries ask for.
    pub fn new(folder: &Path, data_set: &DataSet, full: bool, index: bool) -> Self {
        let peer = Self::open(folder, full);
        {
            let mut connection = peer.connection.lock().expect("no thread panicked");
            let create = "create table tasks (id text primary key, json text not null)";
            connection.execute(create, []).expect("the table is made");
            if index {
                let create = "create index by_list on tasks (json_extract(json, '$.list'))";
                connection.execute(create, []).expect("the index is made");
            }
            let all = connection.transaction().expect("it begins");
            for line in text(data_set).lines() {
                let mut insert =
                    all.prepare_cached("insert into tasks values (?1, ?2)").expect("it is valid");
                insert.execute([id_of(line), line]).expect("it is kept");
            }
            all.commit().expect("it is kept");
            connection.execute_batch("pragma wal_checkpoint(truncate); analyze").expect("it is written back");
        }
        peer
    }

    /// The database of a folder.
    pub fn open(folder: &Path, full: bool) -> Self {
        let connection = rusqlite::Connection::open(folder.join("sqlite.db")).expect("it opens");
        connection.pragma_update(None, "journal_mode", "wal").expect("it has WAL");
        connection
            .pragma_update(None, "synchronous", if full { "full" } else { "normal" })
            .expect("it is set");
        Self { connection: Mutex::new(connection), maker: Maker::default() }
    }

    fn with<T>(&self, work: impl FnOnce(&rusqlite::Connection) -> T) -> T {
        work(&self.connection.lock().expect("no thread panicked"))
    }

    fn together(&self, work: impl FnOnce(&rusqlite::Connection)) {
        self.with(|connection| {
            connection.execute_batch("begin immediate").expect("it begins");
            work(connection);
            connection.execute_batch("commit").expect("it is kept");
        });
    }

    fn insert(&self, connection: &rusqlite::Connection) {
        let (id, json) = self.maker.record();
        let mut insert = connection.prepare_cached("insert into tasks values (?1, ?2)").expect("it is valid");
        insert.execute([id, json]).expect("it is kept");
    }

    fn set(connection: &rusqlite::Connection, id: &str, value: u64) {
        let update = "update tasks set json = json_set(json, '$.priority', ?2) where id = ?1";
        let mut update = connection.prepare_cached(update).expect("it is valid");
        let value = i64::try_from(value).expect("a small number");
        assert_eq!(update.execute(rusqlite::params![id, value]).expect("it is kept"), 1);
    }
}

impl Peer for Sqlite {
    fn append(&self) {
        self.with(|connection| self.insert(connection));
    }
    fn append_together(&self, len: usize) {
        self.together(|connection| (0..len).for_each(|_| self.insert(connection)));
    }
    fn update(&self, id: &str, value: u64) {
        self.with(|connection| Self::set(connection, id, value));
    }
    fn update_together(&self, ids: &[&str], value: u64) {
        self.together(|connection| ids.iter().for_each(|id| Self::set(connection, id, value)));
    }
    fn by_list(&self) -> (usize, u64) {
        self.with(|connection| {
            let select = "select json from tasks where json_extract(json, '$.list') = ?1 limit ?2";
            let mut select = connection.prepare_cached(select).expect("it is valid");
            let limit = i64::try_from(LIMIT).expect("a small number");
            let mut rows = select.query(rusqlite::params![LIST, limit]).expect("it is read");
            let mut answer = String::from("[");
            while let Some(row) = rows.next().expect("it is read") {
                answer.push_str(row.get_ref(0).and_then(|it| Ok(it.as_str()?)).expect("a text"));
                answer.push(',');
            }
            close(&mut answer);
            let count = "select count(*) from tasks where json_extract(json, '$.list') = ?1";
            let mut count = connection.prepare_cached(count).expect("it is valid");
            let count: i64 = count.query_row([LIST], |row| row.get(0)).expect("it is read");
            (answer.len(), u64::try_from(count).expect("a count"))
        })
    }
    fn by_id(&self, id: &str) -> usize {
        self.with(|connection| {
            let select = "select json from tasks where id = ?1";
            let mut select = connection.prepare_cached(select).expect("it is valid");
            select.query_row([id], |row| Ok(row.get_ref(0)?.as_str()?.to_owned().len())).expect("it is there")
        })
    }
}

const REDB_TASKS: redb::TableDefinition<'_, &str, &str> = redb::TableDefinition::new("tasks");
const REDB_LISTS: redb::MultimapTableDefinition<'_, &str, &str> = redb::MultimapTableDefinition::new("lists");

/// redb, with an index kept by hand.
#[derive(Debug)]
pub struct Redb {
    database: redb::Database,
    sync: bool,
    maker: Maker,
}

impl Redb {
    /// A database with the records of the data set.
    pub fn new(folder: &Path, data_set: &DataSet, sync: bool) -> Self {
        let database = redb::Database::create(folder.join("redb")).expect("it opens");
        let peer = Self { database, sync, maker: Maker::default() };
        peer.write(|tasks, lists| {
            for line in text(data_set).lines() {
                tasks.insert(id_of(line), line).expect("it is kept");
                lists.insert(list_of(line), id_of(line)).expect("it is kept");
            }
        });
        peer
    }

    fn write(
        &self,
        work: impl FnOnce(&mut redb::Table<'_, &str, &str>, &mut redb::MultimapTable<'_, &str, &str>),
    ) {
        let mut transaction = self.database.begin_write().expect("it begins");
        let durability = if self.sync { redb::Durability::Immediate } else { redb::Durability::None };
        transaction.set_durability(durability).expect("it is set");
        {
            let mut tasks = transaction.open_table(REDB_TASKS).expect("it opens");
            let mut lists = transaction.open_multimap_table(REDB_LISTS).expect("it opens");
            work(&mut tasks, &mut lists);
        }
        transaction.commit().expect("it is kept");
    }

    fn set(tasks: &mut redb::Table<'_, &str, &str>, id: &str, value: u64) {
        use redb::ReadableTable as _;
        let old = tasks.get(id).expect("it is read").expect("it is there").value().to_owned();
        tasks.insert(id, with_priority(&old, value).as_str()).expect("it is kept");
    }
}

impl Peer for Redb {
    fn append(&self) {
        self.append_together(1);
    }
    fn append_together(&self, len: usize) {
        self.write(|tasks, lists| {
            for _ in 0..len {
                let (id, json) = self.maker.record();
                tasks.insert(id.as_str(), json.as_str()).expect("it is kept");
                lists.insert("home", id.as_str()).expect("it is kept");
            }
        });
    }
    fn update(&self, id: &str, value: u64) {
        self.write(|tasks, _| Self::set(tasks, id, value));
    }
    fn update_together(&self, ids: &[&str], value: u64) {
        self.write(|tasks, _| ids.iter().for_each(|id| Self::set(tasks, id, value)));
    }
    fn by_list(&self) -> (usize, u64) {
        use redb::ReadableDatabase as _;
        let transaction = self.database.begin_read().expect("it begins");
        let tasks = transaction.open_table(REDB_TASKS).expect("it opens");
        let lists = transaction.open_multimap_table(REDB_LISTS).expect("it opens");
        let ids = lists.get(LIST).expect("it is read");
        let (mut answer, count) = (String::from("["), ids.len());
        for id in ids.take(LIMIT) {
            let id = id.expect("it is read");
            let task = tasks.get(id.value()).expect("it is read").expect("it is there");
            answer.push_str(task.value());
            answer.push(',');
        }
        close(&mut answer);
        (answer.len(), count)
    }
    fn by_id(&self, id: &str) -> usize {
        use redb::ReadableDatabase as _;
        let transaction = self.database.begin_read().expect("it begins");
        let tasks = transaction.open_table(REDB_TASKS).expect("it opens");
        let task = tasks.get(id).expect("it is read").expect("it is there");
        task.value().to_owned().len()
    }
}

/// fjall, with an index kept by hand.
pub struct Fjall {
    database: fjall::Database,
    tasks: fjall::Keyspace,
    lists: fjall::Keyspace,
    sync: bool,
    maker: Maker,
}

impl Fjall {
    /// A database with the records of the data set.
    pub fn new(folder: &Path, data_set: &DataSet, sync: bool) -> Self {
        let database = fjall::Database::builder(folder.join("fjall")).open().expect("it opens");
        let keyspace =
            |name: &str| database.keyspace(name, fjall::KeyspaceCreateOptions::default).expect("it opens");
        let (tasks, lists) = (keyspace("tasks"), keyspace("lists"));
        let peer = Self { database, tasks, lists, sync, maker: Maker::default() };
        let mut batch = peer.batch();
        for line in text(data_set).lines() {
            batch.insert(&peer.tasks, id_of(line), line);
            batch.insert(&peer.lists, format!("{}\0{}", list_of(line), id_of(line)), "");
        }
        batch.commit().expect("it is kept");
        peer
    }

    fn batch(&self) -> fjall::OwnedWriteBatch {
        // Without a mode nothing leaves the process's own buffer: the same promise as a flush is `Buffer`.
        let mode = if self.sync { fjall::PersistMode::SyncData } else { fjall::PersistMode::Buffer };
        self.database.batch().durability(Some(mode))
    }
}

impl Peer for Fjall {
    fn append(&self) {
        self.append_together(1);
    }
    fn append_together(&self, len: usize) {
        let mut batch = self.batch();
        for _ in 0..len {
            let (id, json) = self.maker.record();
            batch.insert(&self.lists, format!("home\0{id}"), "");
            batch.insert(&self.tasks, id, json);
        }
        batch.commit().expect("it is kept");
    }
    fn update(&self, id: &str, value: u64) {
        self.update_together(&[id], value);
    }
    fn update_together(&self, ids: &[&str], value: u64) {
        let mut batch = self.batch();
        for id in ids {
            let old = self.tasks.get(id).expect("it is read").expect("it is there");
            let old = std::str::from_utf8(&old).expect("a text");
            batch.insert(&self.tasks, *id, with_priority(old, value));
        }
        batch.commit().expect("it is kept");
    }
    fn by_list(&self) -> (usize, u64) {
        let (mut answer, mut count) = (String::from("["), 0);
        for entry in self.lists.prefix(format!("{LIST}\0")) {
            if count < LIMIT as u64 {
                let key = entry.key().expect("it is read");
                let task = self.tasks.get(&key[LIST.len() + 1..]).expect("it is read").expect("it is there");
                answer.push_str(std::str::from_utf8(&task).expect("a text"));
                answer.push(',');
            }
            count += 1;
        }
        close(&mut answer);
        (answer.len(), count)
    }
    fn by_id(&self, id: &str) -> usize {
        self.tasks.get(id).expect("it is read").expect("it is there").to_vec().len()
    }
}

/// Ends an array: the last comma becomes its bracket.
fn close(array: &mut String) {
    array.pop();
    array.push(']');
}

fn text(data_set: &DataSet) -> &str {
    std::str::from_utf8(data_set.bytes()).expect("the data set is UTF-8")
}
