//! A kernel that refuses, and signals that interrupt: each in a process of its own (this binary again), because both hit the whole process.
#![allow(
    unsafe_code,
    reason = "seccomp, timers and signal handlers have no safe interface here"
)]

use crate::conformance;
use glintdb_core::ErrorKind;
use glintdb_flash::{DirOptions, DirVolume, ReadEngine, Volume};

const ROLE: &str = "GLINTDB_TEST_HOSTILE_ROLE";

/// Whether this process was started to be the child of `test`; starts it and checks on it if not.
fn in_child(test: &str) -> bool {
    if std::env::var(ROLE).is_ok_and(|role| role == test) {
        return true;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("hostile::{test}"), "--nocapture"])
        .env(ROLE, test)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(
        child.status.success() && text.contains("1 passed"),
        "{text}{errors}"
    );
    false
}

/// Makes the system calls of these numbers fail with `EPERM`, as container runtimes do.
fn refuse_system_calls(numbers: &[libc::c_long]) {
    let statement = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap(),
        jt,
        jf,
        k,
    };
    let eperm = u32::try_from(libc::EPERM).unwrap();
    // Load the number (offset 0 of seccomp_data); for each: where it is equal, refuse; else go on; at the end allow.
    let mut program = vec![statement(
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        0,
        0,
        0,
    )];
    for number in numbers {
        let number = u32::try_from(*number).unwrap();
        program.push(statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            number,
        ));
        program.push(statement(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | eperm,
        ));
    }
    program.push(statement(
        libc::BPF_RET | libc::BPF_K,
        0,
        0,
        libc::SECCOMP_RET_ALLOW,
    ));
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap(),
        filter: program.as_mut_ptr(),
    };
    // SAFETY: plain integers; the second call reads `filter` and `program`, which live until after it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let result = libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const filter,
        );
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }
}

#[test]
fn refused_io_uring_falls_back_with_the_reason() {
    if !in_child("refused_io_uring_falls_back_with_the_reason") {
        return;
    }
    refuse_system_calls(&[libc::SYS_io_uring_setup]);
    let directory = tempfile::tempdir().unwrap();
    let asked = DirOptions {
        read_engine: ReadEngine::IoUring,
        ..DirOptions::default()
    };
    let refused = DirVolume::open(directory.path(), asked)
        .map(|_| ())
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    let volume = DirVolume::open(directory.path(), DirOptions::default()).unwrap();
    let text = volume.describe();
    assert!(
        text.contains("io_uring refused: Operation not permitted"),
        "{text}"
    );
    assert!(
        text.contains("libaio batches") || text.contains("read threads"),
        "{text}"
    );
    conformance::run(&*volume);
}

#[test]
fn refused_libaio_too_leaves_threads() {
    if !in_child("refused_libaio_too_leaves_threads") {
        return;
    }
    refuse_system_calls(&[libc::SYS_io_uring_setup, libc::SYS_io_setup]);
    let directory = tempfile::tempdir().unwrap();
    let asked = DirOptions {
        read_engine: ReadEngine::Libaio,
        ..DirOptions::default()
    };
    let refused = DirVolume::open(directory.path(), asked).map(|_| ());
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused}");
    let volume = DirVolume::open(directory.path(), DirOptions::default()).unwrap();
    let text = volume.describe();
    assert!(text.contains("read threads"), "{text}");
    conformance::run(&*volume);
}

#[test]
fn rings_that_stop_working_after_open_cost_nothing_but_speed() {
    if !in_child("rings_that_stop_working_after_open_cost_nothing_but_speed") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let volume = DirVolume::open(directory.path(), DirOptions::default()).unwrap();
    refuse_system_calls(&[libc::SYS_io_uring_setup, libc::SYS_io_uring_enter]);
    conformance::run(&*volume);
}

#[test]
fn reserving_works_where_fallocate_is_refused() {
    if !in_child("reserving_works_where_fallocate_is_refused") {
        return;
    }
    refuse_system_calls(&[libc::SYS_fallocate]);
    let directory = tempfile::tempdir().unwrap();
    conformance::run(&*DirVolume::open(directory.path(), DirOptions::default()).unwrap());
}

#[test]
fn ring_is_plain_memory_where_mapping_is_refused_but_never_instead_of_an_existing_one() {
    if !in_child(
        "ring_is_plain_memory_where_mapping_is_refused_but_never_instead_of_an_existing_one",
    ) {
        return;
    }
    let [old, new] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let open =
        |path: &tempfile::TempDir| DirVolume::open(path.path(), DirOptions::default()).unwrap();
    let (old, new) = (open(&old), open(&new));
    drop(old.ring(4096).unwrap());
    // The name of the file system is what is asked for; without an answer nothing is mapped that may end in a signal.
    refuse_system_calls(&[libc::SYS_fstatfs]);
    let ring = new.ring(4096).unwrap();
    assert!(!ring.survives_kill() && !ring.sync().unwrap());
    ring.write(8, &[5; 8]);
    let file = new
        .create(conformance::id(1), conformance::options(true))
        .unwrap();
    ring.write_to(0, 4096, &*file, 0).unwrap();
    assert_eq!(&file.read_at(7, 3).unwrap()[..], [0, 5, 5]);
    assert!(
        new.describe().contains("plain memory"),
        "{}",
        new.describe()
    );
    assert_eq!(new.existing_ring_bytes().unwrap(), None);
    assert!(old.ring(4096).unwrap().survives_kill());
}

#[test]
fn signals_interrupt_nothing() {
    extern "C" fn ignore(_: libc::c_int) {}
    if !in_child("signals_interrupt_nothing") {
        return;
    }
    // SAFETY: `action` and `timer` are plain structs for which zeros are values, filled before use; the handler does nothing. Without SA_RESTART, blocking calls of
    // any thread end in EINTR two thousand times a second.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as *const () as usize;
        assert_eq!(
            libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()),
            0
        );
        let every = libc::timeval {
            tv_sec: 0,
            tv_usec: 500,
        };
        let timer = libc::itimerval {
            it_interval: every,
            it_value: every,
        };
        assert_eq!(
            libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()),
            0
        );
    }
    let directory = tempfile::tempdir().unwrap();
    for read_engine in conformance::READ_ENGINES {
        let options = DirOptions {
            read_engine,
            ..DirOptions::default()
        };
        // An engine that this system has not is said to be so.
        let Ok(volume) = DirVolume::open(directory.path(), options) else {
            continue;
        };
        conformance::run(&*volume);
        volume.remove_ring().unwrap();
    }
}
