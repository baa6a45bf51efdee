//! Transfers money between accounts from several threads. A transaction whose commit fails with a
//! conflict runs again, so the sum over all accounts never changes.
//!
//! `cargo run --release -p glintdb --example transactions`
#![allow(clippy::print_stdout, reason = "an example prints its results")]

use glintdb::{Db, Error, ErrorKind, Isolation, Keyspace, Options, Result, TransactionOptions};

const ACCOUNTS: u64 = 4;
const START: u64 = 1_000;
const THREADS: u64 = 4;
const TRANSFERS: u64 = 500;

fn account(number: u64) -> String {
    format!("account-{number}")
}

fn balance(bytes: Option<glintdb::Bytes>) -> Result<u64> {
    let bytes = bytes.ok_or_else(|| Error::invalid("no such account"))?;
    let bytes =
        <[u8; 8]>::try_from(&bytes[..]).map_err(|_| Error::invalid("a balance has eight bytes"))?;
    Ok(u64::from_le_bytes(bytes))
}

/// Transfers `amount`, unless the payer has less, and returns the number of attempts.
fn transfer(db: &Db, accounts: &Keyspace, from: u64, to: u64, amount: u64) -> Result<u32> {
    for attempt in 1.. {
        let mut transaction = db.transaction();
        let payer = balance(transaction.get(accounts, account(from))?)?;
        let payee = balance(transaction.get(accounts, account(to))?)?;
        if from == to || payer < amount {
            transaction.rollback();
            return Ok(attempt);
        }
        // Transactions this short seldom conflict. Yield, so that another thread runs in between.
        std::thread::yield_now();
        transaction.put(accounts, account(from), (payer - amount).to_le_bytes())?;
        transaction.put(accounts, account(to), (payee + amount).to_le_bytes())?;
        match transaction.commit() {
            // Another transaction wrote one of the two accounts first: run this one again.
            Err(error) if error.kind() == ErrorKind::Conflict => continue,
            result => return result.map(|()| attempt),
        }
    }
    unreachable!("an attempt either commits, fails or is followed by another")
}

fn main() -> Result<()> {
    let directory = tempfile::tempdir().map_err(|error| Error::io("make a directory", error))?;
    let db = Options::default()
        .memory_budget_bytes(16 << 20)
        .open(directory.path().join("bank"))?;
    let accounts = db.default_keyspace();
    for number in 0..ACCOUNTS {
        accounts.put(account(number), START.to_le_bytes())?;
    }

    let attempts = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (db, accounts) = (&db, &accounts);
                scope.spawn(move || -> Result<u64> {
                    let mut attempts = 0;
                    for n in 0..TRANSFERS {
                        let (from, to) = ((thread + n) % ACCOUNTS, (thread * 3 + n * 7) % ACCOUNTS);
                        attempts += u64::from(transfer(db, accounts, from, to, 1 + n % 20)?);
                    }
                    Ok(attempts)
                })
            })
            .collect();
        let mut attempts = 0;
        for thread in threads {
            attempts += thread
                .join()
                .map_err(|_| Error::invalid("a thread panicked"))??;
        }
        Ok::<_, Error>(attempts)
    })?;

    // A serializable transaction also detects later writes to what it only read. This audit does
    // not commit, so a snapshot would do as well.
    let mut audit =
        db.transaction_with(TransactionOptions::default().isolation(Isolation::Serializable));
    let mut total = 0;
    for entry in audit.prefix(&accounts, "account-") {
        total += balance(Some(entry?.1))?;
    }
    assert_eq!(total, ACCOUNTS * START, "money was made or lost");
    let conflicts = db.stats().conflicts;
    assert_eq!(attempts, THREADS * TRANSFERS + conflicts);
    println!(
        "{} transfers in {attempts} attempts ({conflicts} conflicts), {total} in all accounts",
        THREADS * TRANSFERS
    );
    Ok(())
}

#[test]
fn it_runs() {
    main().unwrap();
}
