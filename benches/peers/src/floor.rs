//! The floors: the plain system calls and searches in memory without which an operation cannot be done.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use linekeep_benches::{LIMIT, LIST};
use memchr::memmem;

/// A line as an append writes it.
pub const LINE: &[u8] = b"{\"id\":\"239ec2c063fe\",\"ts\":\"2026-12-01T00:19:57+00:00\",\"text\":\"water the plants on the balcony and in the hall\",\"done\":false,\"list\":\"home\",\"priority\":7,\"score\":662.4985}\n";

/// A file to append to.
///
/// # Errors
/// When the file system refuses.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Lines in one write, and one sync.
///
/// # Errors
/// When the file system refuses.
pub fn append(mut file: &File, lines: &[u8], sync: bool) -> io::Result<()> {
    file.write_all(lines)?;
    if sync { file.sync_data() } else { Ok(()) }
}

/// A file's new content by way of a temp file: write, sync, rename, sync of the folder.
///
/// # Errors
/// When the file system refuses.
pub fn replace(folder: &Path, content: &[u8]) -> io::Result<()> {
    let temp = folder.join("floor.tmp");
    let mut new = File::create_new(&temp)?;
    new.write_all(content)?;
    new.sync_data()?;
    drop(new);
    std::fs::rename(&temp, folder.join("floor.jsonl"))?;
    File::open(folder)?.sync_all()
}

/// The first query: the file through a small buffer, a search for the value's bytes, and a parse of the lines that have
/// them. Returns the bytes of the answer and the count.
///
/// # Errors
/// When the file cannot be read.
pub fn first_query(path: &Path) -> io::Result<(usize, u64)> {
    let needle = format!("\"{LIST}\"");
    let finder = memmem::Finder::new(&needle);
    let mut file = File::open(path)?;
    let mut buffer = vec![0; 128 << 10];
    let (mut filled, mut answer, mut count) = (0, vec![b'['], 0);
    loop {
        let read = file.read(&mut buffer[filled..])?;
        if read == 0 {
            return Ok((answer.len(), count));
        }
        filled += read;
        let whole = memchr::memrchr(b'\n', &buffer[..filled]).map_or(0, |newline| newline + 1);
        let mut after = 0;
        for at in finder.find_iter(&buffer[..whole]) {
            if at < after {
                continue;
            }
            let start = memchr::memrchr(b'\n', &buffer[..at]).map_or(0, |newline| newline + 1);
            let end = memchr::memchr(b'\n', &buffer[at..]).map_or(whole, |len| at + len);
            after = end;
            let record: serde_json::Value = serde_json::from_slice(&buffer[start..end])?;
            if record["list"] == LIST {
                count += 1;
                if count <= LIMIT as u64 {
                    answer.extend_from_slice(&buffer[start..end]);
                    answer.push(b',');
                }
            }
        }
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
    }
}
