//! The engine that the environment names, in a process of its own: a test cannot change its own environment.

use std::process::Command;

/// What `connect_from_env` says in a process with these variables.
fn said(variables: &[(&str, &str)]) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["from_env::in_the_child", "--exact", "--nocapture"]);
    child.env_remove("TENURE_URL").env_remove("TENURE_URL_FILE").env("TENURE_TEST_CHILD", "1");
    let output = child.envs(variables.iter().copied()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Does nothing unless it was started by the test below.
#[tokio::test]
async fn in_the_child() {
    if std::env::var_os("TENURE_TEST_CHILD").is_none() {
        return;
    }
    match tenure::connect_from_env().await {
        Ok(tenure) => println!("connected with {:?}", tenure.default_term()),
        Err(error) => println!("{error} {error:?}"),
    }
}

#[test]
fn it_connects_to_what_the_environment_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("url");
    std::fs::write(&path, "memory:?ttl=7s\n").unwrap();
    let file = ("TENURE_URL_FILE", path.to_str().unwrap());
    assert!(said(&[file]).contains("connected with 7s"), "{}", said(&[file]));
    let both = said(&[file, ("TENURE_URL", "memory:?ttl=8s")]);
    assert!(both.contains("connected with 8s"), "{both}");
    let none = said(&[]);
    assert!(
        none.contains("connect: the environment names no engine; set TENURE_URL or TENURE_URL_FILE"),
        "{none}"
    );
    std::fs::write(&path, "nosuch://:secret@h\n").unwrap();
    let bad = said(&[file]);
    assert!(bad.contains("no engine is known for \"nosuch:\"") && !bad.contains("secret"), "{bad}");
}
