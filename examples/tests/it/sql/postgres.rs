//! PostgreSQL.

use std::process::Command;

use lock_core::testing::{PostgresServer, limit};

use crate::program::eventually;
use crate::sql::session::Session;
use crate::sql::{program, statements, take};

/// Opens a session, and prepares statements in it.
fn session(server: &PostgresServer, prepared: &str) -> Session {
    let mut client = Command::new(program(&["psql"]));
    client.args(["-XAt", "-Utest", "-dpostgres", "-h127.0.0.1"]).arg(format!("-p{}", server.port()));
    let mut session = Session::open(&mut client);
    session.run(prepared);
    session
}

/// A server with the tables of the page, its statements, and how a transaction begins.
fn prepared() -> (PostgresServer, String, String) {
    let mut page = statements("postgresql");
    let postgres = PostgresServer::start();
    let schema = [take(&mut page, "schema"), take(&mut page, "fence schema")].join("\n");
    session(&postgres, &schema).run("INSERT INTO account (id, balance) VALUES (7, 0);");
    let prepared = format!(
        "PREPARE write (bigint, bigint, bigint) AS {}\nPREPARE fence (text, bigint) AS {}\n\
         PREPARE enter (text, bigint, bigint, bigint) AS {}",
        take(&mut page, "write one row"),
        take(&mut page, "fence"),
        take(&mut page, "fence and write"),
    );
    let begin = take(&mut page, "begin");
    assert!(page.is_empty(), "statements that nothing runs: {page:?}");
    (postgres, prepared, begin)
}

#[test]
#[limit(180)]
fn a_holder_that_freezes_in_mid_transaction_blocks_nobody_in_postgresql() {
    let (postgres, prepared, begin) = prepared();
    let open = || session(&postgres, &prepared);
    let (mut one, mut two) = (open(), open());

    // One statement: frozen after it, nothing is held.
    assert_eq!(one.run("EXECUTE enter ('account:7', 10, 7, 100);"), ["INSERT 0 1"]);
    one.freeze();
    assert_eq!(two.run("EXECUTE enter ('account:7', 20, 7, 200);"), ["INSERT 0 1"]);
    assert_eq!(two.run("EXECUTE enter ('account:7', 19, 7, 999);"), ["INSERT 0 0"], "refused, and nothing written");

    // Frozen before the fence, among rows of its own.
    let mut one = open();
    assert_eq!(one.run("EXECUTE fence ('account:7', 30);"), ["30", "INSERT 0 1"], "the stamp");
    one.run(&format!("{begin} INSERT INTO entry VALUES (7, 300, 30);"));
    one.freeze();
    assert_eq!(two.run("EXECUTE fence ('account:7', 40);"), ["40", "INSERT 0 1"], "no row is in the way");

    // Frozen between the fence and the commit: the server frees the row, however often the successor has to ask.
    let mut one = open();
    let fenced = one.run(&format!("{begin} EXECUTE fence ('account:7', 50);"));
    assert_eq!(fenced[fenced.len() - 2..], ["50", "INSERT 0 1"]);
    one.freeze();
    eventually("the successor is admitted", || {
        let answers = two.run(&format!("{begin} EXECUTE fence ('account:7', 60); COMMIT;"));
        answers.contains(&"60".to_owned()).then_some(())
    });
    assert_eq!(two.run("SELECT sum(amount) FROM entry;"), ["300"], "what was frozen has not been written");
}

#[test]
#[limit(180)]
fn postgresql_refuses_whoever_is_not_the_newest_holder() {
    let (postgres, prepared, _) = prepared();
    let open = || session(&postgres, &prepared);
    let (mut one, mut two) = (open(), open());

    // One row.
    assert_eq!(one.run("EXECUTE write (7, 20, 100);"), ["UPDATE 1"]);
    assert_eq!(one.run("EXECUTE write (7, 20, 110);"), ["UPDATE 1"], "the same holder again");
    assert_eq!(two.run("EXECUTE write (7, 10, 999);"), ["UPDATE 0"], "an older one");
    let greatest = i64::MAX;
    assert_eq!(two.run(&format!("EXECUTE write (7, {greatest}, 120);")), ["UPDATE 1"]);
    assert_eq!(one.run("SELECT balance, fence FROM account;"), [format!("120|{greatest}")]);

    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let begin = format!("BEGIN ISOLATION LEVEL {level};");
        one.run("TRUNCATE fence;");
        // The newer holder comes first: the older one waits for its commit, and is refused.
        let name = "EXECUTE fence ('account:7', 20);";
        assert_eq!(one.run(&format!("{begin} {name}"))[1..], ["20", "INSERT 0 1"]);
        two.run(&begin);
        // At the stricter levels the refusal is an error, after which only a rollback is accepted.
        two.send("EXECUTE fence ('account:7', 10); ROLLBACK;");
        waits(&postgres);
        one.run("COMMIT;");
        let refused = two.answers();
        assert!(
            !refused.contains(&"10".to_owned()) && !refused.contains(&"INSERT 0 1".to_owned()),
            "{level}: {refused:?}"
        );
        // The older holder comes first, and is in the middle of its write: the newer one waits, and
        // then goes on.
        assert_eq!(one.run(&format!("{begin} EXECUTE fence ('account:7', 30);"))[1..], ["30", "INSERT 0 1"]);
        two.send("EXECUTE fence ('account:7', 40);");
        waits(&postgres);
        one.run("COMMIT;");
        assert_eq!(two.answers(), ["40", "INSERT 0 1"], "{level}");
        assert_eq!(one.run("EXECUTE fence ('account:7', 30);"), ["INSERT 0 0"], "{level}");
    }
}

/// Waits until a session waits for another.
fn waits(postgres: &PostgresServer) {
    let waiting = || postgres.run("SELECT count(*) FROM pg_locks WHERE NOT granted");
    eventually("one session waits for the other", || waiting().starts_with('1').then_some(()));
}
