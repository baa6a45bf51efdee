//! GlintDB's options by name, as `--option NAME=VALUE` takes them: in measurements, and in the
//! commands of `glintdb` that write.
//!
//! Names are those of `docs/options.md`. Durability, and whether the database exists, are left out:
//! commands have options of their own for them.

use glintdb::{DirectIo, KeyspaceOptions, Options};

use crate::store::Result;

/// Options of a database, and of one of its keyspaces if any of those was set.
#[derive(Clone, Debug, Default)]
pub struct GlintOptions {
    /// The options of the database.
    pub database: Options,
    /// The options of the keyspace; `None` until one of them is set.
    pub keyspace: Option<KeyspaceOptions>,
}

/// The command's own.
const NOT_HERE: [&str; 3] = ["create_if_missing", "error_if_exists", "durability"];

impl GlintOptions {
    /// Names of the options that [`set`](Self::set) accepts. Options for experiments are left out,
    /// though `set` accepts them too.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let database = Options::NAMES.into_iter();
        database
            .filter(|name| !NOT_HERE.contains(name))
            .chain(KeyspaceOptions::NAMES)
    }

    /// Sets the options in `NAME=VALUE`s.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn set_all<'a>(&mut self, assignments: impl IntoIterator<Item = &'a str>) -> Result<()> {
        assignments
            .into_iter()
            .try_for_each(|assignment| self.set(assignment))
    }

    /// Sets the option in `NAME=VALUE`. Limits are checked when the database is opened.
    ///
    /// # Errors
    /// Where there is no such option, or the value is of another kind.
    pub fn set(&mut self, assignment: &str) -> Result<()> {
        let (name, value) = assignment
            .split_once('=')
            .ok_or_else(|| format!("`{assignment}` is not NAME=VALUE"))?;
        let (name, value) = (name.trim().replace('-', "_"), value.trim());
        if KeyspaceOptions::has(&name) {
            self.keyspace.get_or_insert_default().set(&name, value)?;
        } else if Options::has(&name) && !NOT_HERE.contains(&name.as_str()) {
            self.database.set(&name, value)?;
        } else {
            let names: Vec<_> = Self::names().collect();
            let names = names.join(" ");
            return Err(format!(
                "option {name}: there is no option of this name; the names are {names}"
            )
            .into());
        }
        Ok(())
    }

    /// Sets `memory_budget_bytes`.
    pub fn set_memory_bytes(&mut self, bytes: u64) {
        self.database.memory_budget_bytes = bytes as usize;
    }

    /// Whether reads go round the page cache, so that memory which the engine does not hold is of no use to it.
    #[must_use]
    pub fn reads_directly(&self) -> bool {
        self.database.direct_io != DirectIo::Off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_go_where_they_belong() {
        let mut options = GlintOptions::default();
        assert!(options.reads_directly() && options.keyspace.is_none());
        let assignments =
            "log-segment-bytes=4m size-ratio=4 direct-io=off hot-keys=off level0-runs-stop=30";
        options.set_all(assignments.split(' ')).unwrap();
        assert_eq!(options.database.log_segment_bytes, 4 << 20);
        assert!(!options.database.experiments.hot_keys);
        let lsm = &options.keyspace.as_ref().unwrap().lsm;
        assert_eq!((lsm.size_ratio, lsm.experiments.level0_runs_stop), (4, 30));
        assert!(!options.reads_directly());
    }

    #[test]
    fn nonsense_is_refused_in_words() {
        for (assignment, words) in [
            ("size_ratio", "not NAME=VALUE"),
            ("size_ration=4", "there is no option of this name"),
            ("durability=sync", "there is no option of this name"),
            ("size_ratio=four", "`four` is not a number"),
        ] {
            let error = GlintOptions::default().set(assignment).unwrap_err();
            assert!(error.to_string().contains(words), "{assignment}: {error}");
        }
    }
}
