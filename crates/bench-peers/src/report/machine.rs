//! The machine, the sources and the day of a run.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use glintdb_bench::bytes;
use glintdb_bench::figures::Machine;

/// The machine, with the file system and the disk of `dir`; `unknown` is what no file tells.
pub(super) fn machine(dir: &Path) -> Machine {
    let cpu = read("/proc/cpuinfo");
    let memory = read("/proc/meminfo");
    let (file_system, source) = file_system(&read("/proc/self/mountinfo"), dir).unwrap_or_default();
    Machine {
        cpu: processor(&cpu),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: field(&memory, "MemTotal")
            .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
            .map_or(0, |kib| kib << 10),
        kernel: known(read("/proc/sys/kernel/osrelease").trim()),
        file_system: known(&file_system),
        disk: disk(&source),
    }
}

/// The commit of the sources that this program was built from, and whether they differ from it.
pub(super) fn commit() -> (String, bool) {
    let git = |arguments: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let output = command.args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "HEAD"]);
    // Only what engines are built from: a report that is written into the tree changes no engine.
    let sources = ["crates", "Cargo.toml", "Cargo.lock"];
    let changes = git(&[&["status", "--porcelain", "--"], &sources[..]].concat());
    (
        known(&commit.unwrap_or_default()),
        changes.is_none_or(|changes| !changes.is_empty()),
    )
}

/// Today in UTC, as `2026-11-27`.
pub(super) fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    date(since.map_or(0, |since| since.as_secs() / 86_400))
}

/// The date that is so many days after 1 January 1970.
fn date(mut days: u64) -> String {
    let leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, days + 1)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn known(text: &str) -> String {
    match text {
        "" => "unknown".to_owned(),
        text => text.to_owned(),
    }
}

/// The value in a line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.split_once(':').filter(|(key, _)| key.trim() == name);
    text.lines().find_map(value).map(|(_, value)| value.trim())
}

/// Model of the processor; family and model number tell generations with one name apart.
fn processor(cpuinfo: &str) -> String {
    let Some(name) = field(cpuinfo, "model name") else {
        return known("");
    };
    match (field(cpuinfo, "cpu family"), field(cpuinfo, "model")) {
        (Some(family), Some(model)) => format!("{name} (family {family}, model {model})"),
        _ => name.to_owned(),
    }
}

/// Kind and source of the file system that `dir` is in: of the deepest mount point above it.
fn file_system(mountinfo: &str, dir: &Path) -> Option<(String, String)> {
    let absolute = std::path::absolute(dir).ok()?;
    // A data directory that is not there yet is where the first directory above it is.
    let exists = absolute.ancestors().find(|path| path.exists())?;
    let dir = exists.canonicalize().ok()?;
    let mounts = mountinfo.lines().filter_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let point = Path::new(before.split(' ').nth(4)?);
        let mut words = after.split(' ');
        let (kind, source) = (words.next()?, words.next()?);
        dir.starts_with(point).then_some((point, kind, source))
    });
    let (_, kind, source) = mounts.max_by_key(|(point, _, _)| point.components().count())?;
    Some((kind.to_owned(), source.to_owned()))
}

/// A block device in words: name, size, model if it has one, driver.
fn disk(source: &str) -> String {
    let Some(name) = source.strip_prefix("/dev/") else {
        return known(source);
    };
    let mut words = vec![name.to_owned()];
    let Ok(mut block) = Path::new("/sys/class/block").join(name).canonicalize() else {
        return name.to_owned();
    };
    let size = fs::read_to_string(block.join("size")).unwrap_or_default();
    if let Ok(sectors) = size.trim().parse::<u64>() {
        words.push(bytes(sectors * 512));
    }
    // A partition's device is the disk's.
    if !block.join("device").exists() {
        block.pop();
    }
    let model = fs::read_to_string(block.join("device/model")).unwrap_or_default();
    if !model.trim().is_empty() {
        words.push(model.trim().to_owned());
    }
    if let Ok(driver) = block.join("device/driver").canonicalize()
        && let Some(name) = driver.file_name()
    {
        words.push(name.to_string_lossy().into_owned());
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(59), "1970-03-01");
        assert_eq!(date(19_782), "2024-02-29");
        assert_eq!(date(20_784), "2026-11-27");
    }

    #[test]
    fn processors_and_mounts_are_read_from_what_the_kernel_tells() {
        let cpuinfo = "processor\t: 0\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n";
        assert_eq!(processor(cpuinfo), "AMD EPYC (family 25, model 17)");
        assert_eq!(processor(""), "unknown");
        let dir = std::env::temp_dir().canonicalize().unwrap();
        let mounts = format!(
            "1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 0:5 / {} rw,nosuid shared:3 - xfs /dev/vdb rw\n\
             3 1 0:6 / /proc rw - proc proc rw\n",
            dir.display()
        );
        let found = file_system(&mounts, &dir.join("not/there/yet")).unwrap();
        assert_eq!(found, ("xfs".to_owned(), "/dev/vdb".to_owned()));
        assert_eq!(file_system(&mounts, Path::new("/")).unwrap().1, "/dev/vda");
        assert_eq!(disk("tmpfs"), "tmpfs");
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = machine(Path::new("."));
        assert!(
            machine.cores > 0 && machine.memory_bytes > 1 << 27,
            "{machine:?}"
        );
    }
}
