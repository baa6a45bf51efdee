//! Stopping: what was answered is kept, what was begun is finished, nobody gets in any more.

use std::net::{IpAddr, Ipv4Addr, TcpStream};

use glintdb_server::{ServerConfig, ServerError, Shutdown, run};

use crate::support::{TestServer, encode, show};

#[test]
fn shutdown_keeps_what_was_answered() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let address = server.address;
    let mut client = server.client();
    let mut bytes = Vec::new();
    for key in 0..500 {
        bytes.extend(encode(&["SET", &format!("k{key}"), "v"]));
    }
    bytes.extend(encode(&["SHUTDOWN"]));
    client.send(&bytes);
    for _ in 0..500 {
        assert_eq!(show(&client.receive()), "OK");
    }
    assert!(client.try_receive().is_none());
    server.wait().unwrap();
    assert!(TcpStream::connect(address).is_err());
    let server = TestServer::start(dir.path());
    assert_eq!(server.client().run(&["DBSIZE"]), "(integer) 500");
}

#[test]
fn a_stop_ends_idle_connections() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let mut client = server.client();
    assert_eq!(client.run(&["PING"]), "PONG");
    server.stop().unwrap();
    assert!(client.try_receive().is_none());
}

#[test]
fn a_server_for_everyone_needs_a_password() {
    let dir = tempfile::tempdir().unwrap();
    let db = glintdb::Db::open(dir.path()).unwrap();
    let mut config = ServerConfig::default();
    config.bind = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    config.port = 0;
    let error = run(db, config, &Shutdown::new()).unwrap_err();
    assert!(matches!(error, ServerError::PasswordNeeded(_)));
    assert!(error.to_string().contains("without a password"), "{error}");
}

#[test]
fn an_address_in_use_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let server = TestServer::start(dir.path());
    let other = tempfile::tempdir().unwrap();
    let db = glintdb::Db::open(other.path()).unwrap();
    let mut config = ServerConfig::default();
    config.port = server.address.port();
    config.signals = false;
    let error = run(db, config, &Shutdown::new()).unwrap_err();
    assert!(
        error.to_string().contains(&server.address.to_string()),
        "{error}"
    );
}
