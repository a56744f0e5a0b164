//! A look over every collection below a root.

use std::io;
use std::path::{Path, PathBuf};

use crate::disk::Kind;
use crate::error::{Error, Result, Unsupported};
use crate::health::Health;
use crate::name::CollectionName;
use crate::store::Store;

/// How deep folders are followed below the root.
pub const SURVEY_DEPTH_MAX: usize = 16;
/// How many files and folders are looked at.
pub const SURVEY_ENTRIES_MAX: usize = 100_000;

/// Everything below a root that is a collection, or looks like one.
#[derive(Debug)]
pub struct Survey {
    /// The collections in the order of their paths (relative to the root), each with its health or why it cannot be
    /// read.
    pub collections: Vec<(PathBuf, Result<Health>)>,
    /// Files that carry `.jsonl` in their name and are not collections: conflict copies of a folder sync, copies that a
    /// repair kept, names that no action can reach. Relative to the root.
    pub others: Vec<PathBuf>,
    /// Folders that were not looked into, and why: no right to, or nested too deep. Relative to the root.
    pub unread: Vec<(PathBuf, Error)>,
}

impl Store {
    /// Reads every collection below the root and tells how it is. Folders whose name starts with a dot are passed over;
    /// links are not followed.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there are more than [`SURVEY_ENTRIES_MAX`] entries. What cannot be read is in the survey.
    pub fn survey(&self) -> Result<Survey> {
        let mut survey = Survey { collections: Vec::new(), others: Vec::new(), unread: Vec::new() };
        let mut entries = 0;
        self.survey_folder("", 0, &mut entries, &mut survey)?;
        survey.collections.sort_by(|(a, _), (b, _)| a.cmp(b));
        survey.others.sort();
        Ok(survey)
    }

    fn survey_folder(
        &self,
        folder: &str,
        depth: usize,
        entries: &mut usize,
        survey: &mut Survey,
    ) -> Result<()> {
        let disk = self.disk();
        let path = self.root().join(folder);
        let names = match disk.list(&path) {
            Ok(names) if depth <= SURVEY_DEPTH_MAX => names,
            Ok(_) => {
                let reason = format!("folders are nested deeper than {SURVEY_DEPTH_MAX}");
                survey.unread.push((PathBuf::from(folder), Error::invalid(reason)));
                return Ok(());
            }
            Err(error) => {
                survey.unread.push((PathBuf::from(folder), Error::io("list", &path, error)));
                return Ok(());
            }
        };
        for name in names {
            *entries += 1;
            if *entries > SURVEY_ENTRIES_MAX {
                let root = self.root().display();
                return Err(Error::invalid(format!(
                    "{root} has more than {SURVEY_ENTRIES_MAX} files and folders"
                )));
            }
            let within = Path::new(folder).join(&name);
            let kind = match disk.stat(&path.join(&name)) {
                Ok(stat) => stat.kind,
                // It went away since the folder was listed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    let error = Error::io("stat", &path.join(&name), error);
                    survey.unread.push((within, error));
                    continue;
                }
            };
            // What is not Unicode cannot be named by any action.
            let text = name.to_str();
            if kind == Kind::Folder {
                if let (Some(text), Some(within)) =
                    (text.filter(|text| !text.starts_with('.')), within.to_str())
                    && !text.is_empty()
                {
                    self.survey_folder(within, depth + 1, entries, survey)?;
                }
            } else if let Ok((_, collection)) = CollectionName::of_file(&within) {
                let health = match kind {
                    Kind::Symlink => Err(Error::unsupported(&path.join(&name), Unsupported::Symlink)),
                    Kind::File | Kind::Folder | Kind::Other => {
                        self.collection(folder, &collection).and_then(|collection| collection.health())
                    }
                };
                survey.collections.push((within, health));
            } else if name.to_string_lossy().contains(".jsonl") {
                survey.others.push(within);
            }
        }
        Ok(())
    }
}
