//! The workloads with sockets for a moment each: whether they work, not what they cost. The bench itself fails when ours
//! does; those that other libraries are compared by must work, too.

use std::process::Command;

#[test]
fn sockets_for_a_moment() {
    let contenders = ["gort", "gort-sink", "tokio", "std", "mio"];
    let output = Command::new(env!("CARGO_BIN_EXE_switch"))
        .args(["--suite", "net", "--quick", "--procs", "2", "--limit", "100", "--only", &contenders.join(",")])
        .output()
        .expect("runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(!stdout.contains("fails"), "{stdout}{stderr}");
    // Echo twice, churn, a stream, idleness, and dialling with two numbers of Ps.
    let counts = contenders.map(|contender| {
        let row = format!("{contender} ");
        stdout.lines().filter(|line| line.trim_start().starts_with(&row) && line.contains(" .. ")).count()
    });
    assert_eq!(counts, [7, 2, 5, 3, 3], "{stdout}{stderr}");
}
