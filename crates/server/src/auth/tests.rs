use thalweg_base::ManualClock;
use thalweg_engine::{Config, Engine};

use super::*;

struct At(Arc<ManualClock>);

impl Clock for At {
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }
}

struct Door {
    engine: Arc<Engine>,
    authenticator: Authenticator,
    clock: Arc<ManualClock>,
}

fn door(mode: Authentication, statements: &[&str]) -> Door {
    let engine = Engine::open(":memory:", Config::default()).unwrap();
    let clock = Arc::new(ManualClock::default());
    let at = Box::new(At(Arc::clone(&clock)));
    let authenticator = Authenticator::with_clock(Arc::clone(&engine), mode, None, at);
    let door = Door { engine, authenticator, clock };
    statements.iter().for_each(|sql| door.run(sql));
    door
}

impl Door {
    fn run(&self, sql: &str) {
        let session = self.engine.session();
        let done = self.engine.block_on(async { session.query(sql).await?.collect().await });
        done.expect(sql);
    }

    fn text(&self, sql: &str) -> String {
        let session = self.engine.session();
        let rows = self.engine.block_on(async { session.query(sql).await?.collect().await });
        let rows = rows.expect(sql);
        let column = rows[0].column(0);
        let column = column.as_any().downcast_ref::<arrow::array::StringArray>().unwrap();
        column.value(0).to_owned()
    }

    /// As a client of PostgreSQL does.
    fn scram(&self, name: &str, password: &str) -> Result<User> {
        let mut scram = self.authenticator.scram(name, None, false)?;
        assert_eq!(scram.mechanisms(), ["SCRAM-SHA-256"]);
        let first = scram.first("SCRAM-SHA-256", b"n,,n=,r=abcdef")?;
        let first = String::from_utf8(first).unwrap();
        let last = scram::tests::answer(password, "n=,r=abcdef", b"n,,", &first);
        scram.last(last.as_bytes()).map(|(_, user)| user)
    }

    fn salt(&self, name: &str) -> String {
        let mut scram = self.authenticator.scram(name, None, false).unwrap();
        let first = scram.first("SCRAM-SHA-256", b"n,,n=,r=abcdef").unwrap();
        let first = String::from_utf8(first).unwrap();
        first.split(",s=").nth(1).unwrap().to_owned()
    }
}

fn code(result: Result<User>) -> &'static str {
    result.expect_err("it is refused").sqlstate()
}

#[test]
fn a_password_lets_in() {
    let door = door(
        Authentication::Scram,
        &["CREATE ROLE ann LOGIN PASSWORD 'größe'", "CREATE ROLE bob PASSWORD 'x'"],
    );
    let user = door.scram("ann", "größe").unwrap();
    assert_eq!(door.authenticator.session(&user).unwrap().user(), "ann");
    assert_eq!(door.authenticator.password("ann", "größe", None).unwrap().name, "ann");
    assert_eq!(code(door.authenticator.trusted("ann", None)), "28000");
    // Who knows the password is told more.
    assert_eq!(code(door.scram("bob", "x")), "28000");
    assert_eq!(code(door.scram("bob", "y")), "28P01");
    door.run("ALTER ROLE bob LOGIN VALID UNTIL '2001-01-01'");
    assert_eq!(code(door.scram("bob", "x")), "28P01");
    assert_eq!(code(door.authenticator.password("bob", "x", None)), "28P01");
    door.run("ALTER ROLE bob VALID UNTIL 'infinity'");
    assert!(door.scram("bob", "x").is_ok());
    door.run("ALTER ROLE bob PASSWORD NULL");
    assert_eq!(code(door.scram("bob", "x")), "28P01");
    assert_eq!(code(door.scram("bob", "")), "28P01");
}

#[test]
fn who_is_refused_does_not_learn_who_there_is() {
    let door = door(
        Authentication::Scram,
        &["CREATE ROLE ann LOGIN PASSWORD 'x'", "CREATE ROLE bare LOGIN"],
    );
    let message = |name: &str| {
        let error = door.scram(name, "wrong").unwrap_err();
        (error.sqlstate(), format!("{error:#}").replace(name, "…"))
    };
    assert_eq!(message("ann"), message("nosuch"));
    assert_eq!(message("ann"), message("bare"));
    // The same salt each time, of the same length, whether there is such a user or not.
    for name in ["ann", "nosuch", "bare", ""] {
        assert_eq!(door.salt(name), door.salt(name), "{name}");
        assert_eq!(door.salt(name).len(), door.salt("ann").len());
    }
    assert_ne!(door.salt("nosuch"), door.salt("nosuch2"));
    // Also after the server has been started again.
    let again = Authenticator::new(Arc::clone(&door.engine), Authentication::Scram, None);
    let before = door.salt("nosuch");
    let door = Door { authenticator: again, ..door };
    assert_eq!(door.salt("nosuch"), before);
}

#[test]
fn tries_are_limited() {
    let door = door(Authentication::Scram, &["CREATE ROLE ann LOGIN PASSWORD 'x'"]);
    for _ in 0..5 {
        assert_eq!(code(door.authenticator.password("ann", "wrong", None)), "28P01");
    }
    // Right or wrong, it waits; and so does a name that is nobody's.
    assert_eq!(code(door.authenticator.password("ann", "x", None)), "53400");
    assert_eq!(code(door.scram("ann", "x")), "53400");
    door.clock.advance_ns(1_000_000_001);
    assert!(door.authenticator.password("ann", "x", None).is_ok());
    for _ in 0..5 {
        assert_eq!(code(door.authenticator.password("nosuch", "wrong", None)), "28P01");
    }
    assert_eq!(code(door.authenticator.password("nosuch", "wrong", None)), "53400");
    // Exchanges that began before the failures do not help.
    let mut begun: Vec<Scram> =
        (0..8).map(|_| door.authenticator.scram("ann", None, false).unwrap()).collect();
    let refusals: Vec<&str> = begun
        .drain(..)
        .map(|mut scram| {
            let first = scram.first("SCRAM-SHA-256", b"n,,n=,r=abc").unwrap();
            let first = String::from_utf8(first).unwrap();
            let last = scram::tests::answer("wrong", "n=,r=abc", b"n,,", &first);
            scram.last(last.as_bytes()).err().unwrap().sqlstate()
        })
        .collect();
    assert_eq!(refusals[4..6], ["28P01", "53400"]);
    let from = Some(IpAddr::from([10, 0, 0, 1]));
    for _ in 0..5 {
        assert_eq!(code(door.authenticator.token("thalweg_x", from)), "28P01");
    }
    assert_eq!(code(door.authenticator.token("thalweg_x", from)), "53400");
}

#[test]
fn connections_of_a_role_are_limited() {
    let door = door(
        Authentication::Scram,
        &[
            "CREATE ROLE ann LOGIN PASSWORD 'x' CONNECTION LIMIT 2",
            "CREATE ROLE shut LOGIN PASSWORD 'x' CONNECTION LIMIT 0",
        ],
    );
    let first = door.scram("ann", "x").unwrap();
    let second = door.scram("ann", "x").unwrap();
    assert_eq!(code(door.scram("ann", "x")), "53300");
    let copy = second.clone();
    drop(second);
    assert_eq!(code(door.scram("ann", "x")), "53300");
    drop(copy);
    assert!(door.scram("ann", "x").is_ok());
    drop(first);
    assert_eq!(code(door.scram("shut", "x")), "53300");
    assert!(door.authenticator.shared.open.lock().is_empty());
}

#[test]
fn a_token_lets_in_until_it_is_dropped() {
    let door = door(Authentication::Scram, &["CREATE ROLE ann LOGIN"]);
    let token = door.text("ALTER ROLE ann ADD TOKEN 'ci'");
    assert_eq!(door.authenticator.token(&token, None).unwrap().name, "ann");
    assert_eq!(code(door.authenticator.token(&format!("{token}x"), None)), "28P01");
    let old = door.text("ALTER ROLE ann ADD TOKEN 'old' VALID UNTIL '2001-01-01'");
    assert_eq!(code(door.authenticator.token(&old, None)), "28P01");
    door.run("ALTER ROLE ann NOLOGIN");
    assert_eq!(code(door.authenticator.token(&token, None)), "28000");
    door.run("ALTER ROLE ann LOGIN");
    door.run("ALTER ROLE ann DROP TOKEN 'ci'");
    assert_eq!(code(door.authenticator.token(&token, None)), "28P01");
}

#[test]
fn trust_takes_any_name_until_there_are_roles() {
    let door = door(Authentication::Trust, &[]);
    let user = door.authenticator.trusted("karl", None).unwrap();
    assert_eq!(door.authenticator.session(&user).unwrap().user(), "thalweg");
    door.run("CREATE ROLE ann LOGIN");
    assert_eq!(code(door.authenticator.trusted("karl", None)), "28000");
    assert_eq!(door.authenticator.trusted("ann", None).unwrap().name, "ann");
    assert_eq!(door.authenticator.trusted("thalweg", None).unwrap().name, "thalweg");
    door.run("CREATE ROLE bob");
    assert_eq!(code(door.authenticator.trusted("bob", None)), "28000");
    // What a client says besides its name is not asked for.
    assert_eq!(door.authenticator.password("ann", "anything", None).unwrap().name, "ann");
}
