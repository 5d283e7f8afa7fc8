//! PostgreSQL.

use std::process::Command;

use lock_testing::{PostgresServer, limit};

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
        "PREPARE charge (bigint, bigint, bigint) AS {}\nPREPARE stamp (bigint, bigint) AS {}\n\
         PREPARE write (bigint, bigint, bigint) AS {}\nPREPARE fence (text, bigint) AS {}\n\
         PREPARE enter (text, bigint, bigint, bigint) AS {}",
        take(&mut page, "compute in one row"),
        take(&mut page, "stamp one row"),
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
    assert_eq!(one.run("EXECUTE write (7, 20, 999);"), ["UPDATE 0"], "without a stamp");
    assert_eq!(one.run("EXECUTE stamp (7, 20);"), ["0", "UPDATE 1"]);
    assert_eq!(one.run("EXECUTE write (7, 20, 100);"), ["UPDATE 1"]);
    assert_eq!(one.run("EXECUTE write (7, 20, 110);"), ["UPDATE 1"], "the same holder again");
    assert_eq!(two.run("EXECUTE stamp (7, 10);"), ["UPDATE 0"], "an older one");
    assert_eq!(two.run("EXECUTE write (7, 10, 999);"), ["UPDATE 0"], "an older one");
    assert_eq!(two.run("EXECUTE charge (7, 10, 999);"), ["UPDATE 0"], "an older one");
    assert_eq!(two.run("EXECUTE charge (7, 20, 10);"), ["UPDATE 1"]);
    let greatest = i64::MAX;
    assert_eq!(two.run(&format!("EXECUTE stamp (7, {greatest});")), ["100", "UPDATE 1"]);
    assert_eq!(one.run("EXECUTE write (7, 20, 999);"), ["UPDATE 0"], "another has stamped");
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

/// The holder stands still between its last look at the lock and its write: the statement is in the pipe of the client, which is
/// stopped. Its lease ends, and another holder reads. Then the write arrives, and after it that of the other.
#[test]
#[limit(180)]
fn a_write_that_arrives_late_in_postgresql_undoes_no_other() {
    // Of the recipe: what each holder sends under its token, and what it writes after it has read a balance.
    type Recipe = (fn(i64) -> String, fn(i64, i64) -> String);
    let recipes: [(&str, Recipe, &str); 3] = [
        // Both pass, and one charge is undone. It is not in the page.
        (
            "read, then write with the fence",
            (
                |_| "SELECT balance FROM account WHERE id = 7;".to_owned(),
                |token, balance| {
                    format!(
                        "UPDATE account SET balance = {balance} - 10, fence = {token} WHERE id = 7 AND fence <= {token};"
                    )
                },
            ),
            "90",
        ),
        // The late one is refused, and its caller told.
        (
            "stamp, then write",
            (
                |token| format!("EXECUTE stamp (7, {token});"),
                |token, balance| format!("EXECUTE write (7, {token}, {balance} - 10);"),
            ),
            "90",
        ),
        ("compute", (|_| "SELECT 0;".to_owned(), |token, _| format!("EXECUTE charge (7, {token}, 10);")), "80"),
    ];
    let (postgres, prepared, _) = prepared();
    for (name, (read, write), left) in recipes {
        let (mut one, mut two) = (session(&postgres, &prepared), session(&postgres, &prepared));
        two.run("UPDATE account SET balance = 100, fence = 0;");
        let balance = |answers: Vec<String>| answers[0].parse::<i64>().unwrap();
        let seen = balance(one.run(&read(10)));
        one.freeze();
        one.send(&write(10, seen));
        let other = balance(two.run(&read(20)));
        one.thaw();
        let late = one.answers();
        assert_eq!(two.run(&write(20, other)), ["UPDATE 1"], "{name}");
        let charged = i64::from(late == ["UPDATE 1"]) + 1;
        assert_eq!(two.run("SELECT balance FROM account;"), [left], "{name}");
        let is_lost = 100 - 10 * charged != left.parse::<i64>().unwrap();
        assert_eq!(is_lost, name == "read, then write with the fence", "{name}: {late:?}");
    }
}

/// Waits until a session waits for another.
fn waits(postgres: &PostgresServer) {
    let waiting = || postgres.run("SELECT count(*) FROM pg_locks WHERE NOT granted");
    eventually("one session waits for the other", || waiting().starts_with('1').then_some(()));
}
