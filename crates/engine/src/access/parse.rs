//! `CREATE ROLE`, `GRANT`, `SET ROLE` and their like: text into a [`Command`].
//!
//! By hand and not with sqlparser's parser, whose errors repeat the token that they did not expect:
//! here it may be a password.

use std::fmt;

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use thalweg_base::{Error, Place, Result};

use super::grant::Privilege;

/// A text that is shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    Login(bool),
    Superuser(bool),
    /// `None`: it has none.
    Password(Option<Secret>),
    /// `None`: no limit.
    Connections(Option<u32>),
    ValidUntil(String),
    InRole(Vec<String>),
    /// `None`: the default one.
    Workload(Option<String>),
}

/// What GRANT names after ON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    /// Parts of each name.
    Tables(Vec<Vec<String>>),
    AllTables(Vec<String>),
    Schemas(Vec<String>),
    Workloads(Vec<String>),
    Parameters(Vec<String>),
    Database(String),
}

/// What gets another owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owned {
    Relation(Vec<String>),
    Schema(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    CreateRole {
        name: String,
        if_not_exists: bool,
        options: Vec<Setting>,
    },
    AlterRole {
        name: String,
        options: Vec<Setting>,
    },
    RenameRole {
        name: String,
        to: String,
    },
    DropRole {
        names: Vec<String>,
        if_exists: bool,
    },
    AddToken {
        role: String,
        name: String,
        valid_until: Option<String>,
    },
    DropToken {
        role: String,
        name: String,
    },
    GrantRole {
        roles: Vec<String>,
        to: Vec<String>,
        admin: bool,
    },
    RevokeRole {
        roles: Vec<String>,
        from: Vec<String>,
        admin_only: bool,
    },
    /// `privileges`: none are all that there are. `to`: `public` is all.
    Grant {
        privileges: Vec<Privilege>,
        on: On,
        to: Vec<String>,
        option: bool,
    },
    Revoke {
        privileges: Vec<Privilege>,
        on: On,
        from: Vec<String>,
        option_only: bool,
    },
    /// `None`: the role that logged in.
    SetRole(Option<String>),
    ChangeOwner {
        of: Owned,
        to: String,
    },
    Reassign {
        from: Vec<String>,
        to: String,
    },
}

impl Command {
    /// As a client is told that it is done.
    pub fn tag(&self) -> &'static str {
        match self {
            Command::CreateRole { .. } => "CREATE ROLE",
            Command::AlterRole { .. }
            | Command::RenameRole { .. }
            | Command::AddToken { .. }
            | Command::DropToken { .. } => "ALTER ROLE",
            Command::DropRole { .. } => "DROP ROLE",
            Command::GrantRole { .. } => "GRANT ROLE",
            Command::RevokeRole { .. } => "REVOKE ROLE",
            Command::Grant { .. } => "GRANT",
            Command::Revoke { .. } => "REVOKE",
            Command::SetRole(Some(_)) => "SET",
            Command::SetRole(None) => "RESET",
            Command::ChangeOwner { of: Owned::Relation(_), .. } => "ALTER TABLE",
            Command::ChangeOwner { of: Owned::Schema(_), .. } => "ALTER SCHEMA",
            Command::Reassign { .. } => "REASSIGN OWNED",
        }
    }
}

/// Whether a statement begins like one of these.
pub fn is_command(tokens: &[TokenWithSpan]) -> bool {
    let mut at = Cursor::new(tokens);
    if at.word("create") || at.word("drop") {
        return at.any(&["role", "user"]);
    }
    if at.word("alter") {
        return at.any(&["role", "user"])
            || at.any(&["table", "view", "schema"]) && at.changes_owner();
    }
    if at.word("set") {
        let _ = at.any(&["session", "local"]);
        return at.any(&["role", "authorization"]);
    }
    if at.word("reset") {
        return at.any(&["role"]) || at.word("session") && at.word("authorization");
    }
    at.any(&["grant", "revoke"]) || at.word("reassign")
}

/// Of a statement that [`is_command`].
pub fn parse(tokens: &[TokenWithSpan]) -> Result<Command> {
    let mut at = Cursor::new(tokens);
    let command = if at.word("create") {
        at.create()
    } else if at.word("alter") {
        if at.any(&["role", "user"]) { at.alter_role() } else { at.change_owner() }
    } else if at.word("drop") {
        at.expect(&["role", "user"])?;
        let if_exists = at.word("if") && at.word("exists");
        Ok(Command::DropRole { names: at.names()?, if_exists })
    } else if at.word("grant") {
        at.grant()
    } else if at.word("revoke") {
        at.revoke()
    } else if at.word("reassign") {
        at.expect(&["owned"])?;
        at.expect(&["by"])?;
        let from = at.names()?;
        at.expect(&["to"])?;
        Ok(Command::Reassign { from, to: at.name()? })
    } else {
        at.set_role()
    }?;
    at.end()?;
    Ok(command)
}

/// Over the tokens that mean something.
struct Cursor<'a> {
    tokens: Vec<&'a TokenWithSpan>,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn new(tokens: &'a [TokenWithSpan]) -> Self {
        let meant = tokens.iter().filter(|t| !matches!(t.token, Token::Whitespace(_)));
        Cursor { tokens: meant.collect(), at: 0 }
    }

    fn peek(&self) -> &Token {
        self.tokens.get(self.at).map_or(&Token::EOF, |t| &t.token)
    }

    fn is(token: &Token, word: &str) -> bool {
        matches!(token, Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
    }

    fn word(&mut self, word: &str) -> bool {
        let found = Self::is(self.peek(), word);
        self.at += usize::from(found);
        found
    }

    fn any(&mut self, words: &[&str]) -> bool {
        words.iter().any(|word| self.word(word))
    }

    fn token(&mut self, token: &Token) -> bool {
        let found = self.peek() == token;
        self.at += usize::from(found);
        found
    }

    /// Says where, and never what was found there.
    fn wrong(&self, expected: &str) -> Error {
        let (message, place) = match self.tokens.get(self.at) {
            Some(t) if t.token != Token::EOF => {
                let [line, column] = [t.span.start.line, t.span.start.column].map(|n| n as u32);
                // A text may be a password, and so may a word that is none of SQL's.
                let found = match &t.token {
                    Token::Word(word) if word.keyword != Keyword::NoKeyword => word.value.as_str(),
                    Token::SingleQuotedString(_) => "'…'",
                    _ => "…",
                };
                (format!("syntax error at or near \"{found}\""), Place::Line(line, column))
            }
            _ => ("syntax error at end of input".into(), Place::Line(0, 0)),
        };
        Error::user(message).code("42601").detail(format!("expected: {expected}")).at(place)
    }

    fn expect(&mut self, words: &[&str]) -> Result<()> {
        if self.any(words) {
            return Ok(());
        }
        Err(self.wrong(&words.join(" or ").to_uppercase()))
    }

    fn end(&mut self) -> Result<()> {
        let _ = self.token(&Token::SemiColon);
        if *self.peek() == Token::EOF { Ok(()) } else { Err(self.wrong("nothing more")) }
    }

    /// A word, not quoted in lower case.
    fn name(&mut self) -> Result<String> {
        let name = match self.peek() {
            Token::Word(w) if w.quote_style.is_none() => w.value.to_lowercase(),
            Token::Word(w) => w.value.clone(),
            _ => return Err(self.wrong("a name")),
        };
        self.at += 1;
        Ok(name)
    }

    fn names(&mut self) -> Result<Vec<String>> {
        let mut names = vec![self.name()?];
        while self.token(&Token::Comma) {
            names.push(self.name()?);
        }
        Ok(names)
    }

    fn parts(&mut self) -> Result<Vec<String>> {
        let mut parts = vec![self.name()?];
        while self.token(&Token::Period) {
            parts.push(self.name()?);
        }
        Ok(parts)
    }

    fn string(&mut self, what: &str) -> Result<String> {
        let text = match self.peek() {
            Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) => text.clone(),
            Token::DollarQuotedString(text) => text.value.clone(),
            _ => return Err(self.wrong(what)),
        };
        self.at += 1;
        Ok(text)
    }

    fn create(&mut self) -> Result<Command> {
        let is_user = self.word("user");
        if !is_user {
            self.expect(&["role"])?;
        }
        let if_not_exists = self.word("if") && {
            self.expect(&["not"])?;
            self.expect(&["exists"])?;
            true
        };
        let name = self.name()?;
        let mut options = self.options()?;
        if is_user {
            options.insert(0, Setting::Login(true));
        }
        Ok(Command::CreateRole { name, if_not_exists, options })
    }

    fn alter_role(&mut self) -> Result<Command> {
        let name = self.name()?;
        if self.word("rename") {
            self.expect(&["to"])?;
            return Ok(Command::RenameRole { name, to: self.name()? });
        }
        if self.word("add") {
            self.expect(&["token"])?;
            let token = self.string("the token's name in quotes")?;
            let valid_until = if self.word("valid") {
                self.expect(&["until"])?;
                Some(self.string("a time in quotes")?)
            } else {
                None
            };
            return Ok(Command::AddToken { role: name, name: token, valid_until });
        }
        if self.word("drop") {
            self.expect(&["token"])?;
            let token = self.string("the token's name in quotes")?;
            return Ok(Command::DropToken { role: name, name: token });
        }
        let options = self.options()?;
        if options.is_empty() {
            return Err(self.wrong("what is to be changed"));
        }
        if options.iter().any(|o| matches!(o, Setting::InRole(_))) {
            return Err(Error::user("ALTER ROLE takes no IN ROLE")
                .code("42601")
                .hint("GRANT a TO b makes b a member of a"));
        }
        Ok(Command::AlterRole { name, options })
    }

    fn options(&mut self) -> Result<Vec<Setting>> {
        let _ = self.word("with");
        let mut options = vec![];
        while !matches!(self.peek(), Token::EOF | Token::SemiColon) {
            if self.any(&["inherit", "nocreatedb", "nocreaterole", "noreplication", "nobypassrls"])
            {
                continue;
            }
            options.push(self.option()?);
        }
        Ok(options)
    }

    fn option(&mut self) -> Result<Setting> {
        const OPTIONS: &str = "LOGIN, NOLOGIN, SUPERUSER, NOSUPERUSER, PASSWORD, CONNECTION LIMIT, \
                               VALID UNTIL, IN ROLE or WORKLOAD";
        for (word, option) in [
            ("login", Setting::Login(true)),
            ("nologin", Setting::Login(false)),
            ("superuser", Setting::Superuser(true)),
            ("nosuperuser", Setting::Superuser(false)),
        ] {
            if self.word(word) {
                return Ok(option);
            }
        }
        if self.word("encrypted") && !Self::is(self.peek(), "password") {
            return Err(self.wrong("PASSWORD"));
        }
        if self.word("password") {
            if self.word("null") {
                return Ok(Setting::Password(None));
            }
            return Ok(Setting::Password(Some(Secret(
                self.string("a password in quotes, or NULL")?,
            ))));
        }
        if self.word("connection") {
            self.expect(&["limit"])?;
            let none = self.token(&Token::Minus);
            let number = match self.peek() {
                Token::Number(digits, _) => digits.parse::<u32>().ok(),
                _ => None,
            };
            let number = number.filter(|n| !none || *n == 1);
            let Some(number) = number else { return Err(self.wrong("a number, or -1 for none")) };
            self.at += 1;
            return Ok(Setting::Connections((!none).then_some(number)));
        }
        if self.word("valid") {
            self.expect(&["until"])?;
            return Ok(Setting::ValidUntil(self.string("a time in quotes, or 'infinity'")?));
        }
        if self.word("in") {
            self.expect(&["role", "group"])?;
            return Ok(Setting::InRole(self.names()?));
        }
        if self.word("workload") {
            let name = self.name()?;
            let name = Some(name).filter(|n| n != crate::config::DEFAULT_WORKLOAD);
            return Ok(Setting::Workload(name));
        }
        Err(self.wrong(OPTIONS))
    }

    /// Whether a GRANT is of roles: there is no ON before TO or FROM.
    fn is_of_roles(&self) -> bool {
        let rest = &self.tokens[self.at..];
        let end = rest.iter().find(|t| ["on", "to", "from"].iter().any(|w| Self::is(&t.token, w)));
        end.is_some_and(|t| !Self::is(&t.token, "on"))
    }

    fn grant(&mut self) -> Result<Command> {
        if self.is_of_roles() {
            let roles = self.names()?;
            self.expect(&["to"])?;
            let to = self.names()?;
            let admin = self.word("with") && {
                self.expect(&["admin"])?;
                self.expect(&["option"])?;
                true
            };
            return Ok(Command::GrantRole { roles, to, admin });
        }
        let privileges = self.privileges()?;
        let on = self.on()?;
        self.expect(&["to"])?;
        let to = self.grantees()?;
        let option = self.word("with") && {
            self.expect(&["grant"])?;
            self.expect(&["option"])?;
            true
        };
        Ok(Command::Grant { privileges, on, to, option })
    }

    fn revoke(&mut self) -> Result<Command> {
        if self.is_of_roles() {
            let admin_only = self.word("admin") && {
                self.expect(&["option"])?;
                self.expect(&["for"])?;
                true
            };
            let roles = self.names()?;
            self.expect(&["from"])?;
            return Ok(Command::RevokeRole { roles, from: self.names()?, admin_only });
        }
        let option_only = self.word("grant") && {
            self.expect(&["option"])?;
            self.expect(&["for"])?;
            true
        };
        let privileges = self.privileges()?;
        let on = self.on()?;
        self.expect(&["from"])?;
        let from = self.grantees()?;
        // Grants know no grantor: there are none that hang on this one.
        let _ = self.any(&["cascade", "restrict"]);
        Ok(Command::Revoke { privileges, on, from, option_only })
    }

    fn grantees(&mut self) -> Result<Vec<String>> {
        let mut all = vec![];
        loop {
            let _ = self.word("group");
            all.push(self.name()?);
            if !self.token(&Token::Comma) {
                return Ok(all);
            }
        }
    }

    fn privileges(&mut self) -> Result<Vec<Privilege>> {
        let mut all = vec![];
        if self.word("all") {
            let _ = self.word("privileges");
        } else {
            loop {
                let place = self.wrong(
                    "SELECT, INSERT, UPDATE, DELETE, TRUNCATE, MAINTAIN, USAGE, CREATE, SET or ALL",
                );
                let name = self.name()?;
                all.push(Privilege::named(&name).ok_or(place)?);
                if *self.peek() == Token::LParen {
                    return Err(Error::unsupported(
                        "privileges are on whole tables, not on columns",
                    )
                    .hint("a view of some columns can be granted"));
                }
                if !self.token(&Token::Comma) {
                    break;
                }
            }
        }
        self.expect(&["on"])?;
        Ok(all)
    }

    fn on(&mut self) -> Result<On> {
        if self.word("all") {
            self.expect(&["tables"])?;
            self.expect(&["in"])?;
            self.expect(&["schema"])?;
            return Ok(On::AllTables(self.names()?));
        }
        if self.word("schema") {
            return Ok(On::Schemas(self.names()?));
        }
        if self.word("workload") {
            return Ok(On::Workloads(self.names()?));
        }
        if self.word("database") {
            return Ok(On::Database(self.name()?));
        }
        if self.word("parameter") {
            let mut names = vec![self.parts()?.join(".")];
            while self.token(&Token::Comma) {
                names.push(self.parts()?.join("."));
            }
            return Ok(On::Parameters(names));
        }
        let _ = self.word("table");
        let mut names = vec![self.parts()?];
        while self.token(&Token::Comma) {
            names.push(self.parts()?);
        }
        Ok(On::Tables(names))
    }

    fn changes_owner(&self) -> bool {
        self.tokens
            .windows(3)
            // `RENAME COLUMN owner TO other`
            .filter(|three| !["column", "rename"].iter().any(|w| Self::is(&three[0].token, w)))
            .any(|three| Self::is(&three[1].token, "owner") && Self::is(&three[2].token, "to"))
    }

    fn change_owner(&mut self) -> Result<Command> {
        let is_schema = self.word("schema");
        if !is_schema {
            self.expect(&["table", "view"])?;
        }
        let parts = self.parts()?;
        self.expect(&["owner"])?;
        self.expect(&["to"])?;
        let of = match (is_schema, &parts[..]) {
            (false, _) => Owned::Relation(parts),
            (true, [schema]) => Owned::Schema(schema.clone()),
            (true, _) => return Err(self.wrong("the name of a schema")),
        };
        Ok(Command::ChangeOwner { of, to: self.name()? })
    }

    fn set_role(&mut self) -> Result<Command> {
        let reset = self.word("reset");
        if !reset {
            self.expect(&["set"])?;
        }
        let of_transaction = self.word("local");
        let session = !of_transaction && self.word("session");
        if self.word("authorization") || session && Self::is(self.peek(), "authorization") {
            return Err(Error::unsupported("the role that logged in stays for the session")
                .hint("SET ROLE acts as another; RESET ROLE goes back"));
        }
        if of_transaction {
            return Err(Error::unsupported("SET LOCAL ROLE is not supported")
                .hint("SET ROLE holds until RESET ROLE"));
        }
        self.expect(&["role"])?;
        if reset || self.word("none") {
            return Ok(Command::SetRole(None));
        }
        if matches!(self.peek(), Token::SingleQuotedString(_)) {
            return self.string("a role").map(|name| Command::SetRole(Some(name)));
        }
        let _ = self.any(&["to"]) || self.token(&Token::Eq);
        self.name().map(|name| Command::SetRole(Some(name)))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::tokenizer::Tokenizer;

    use super::*;
    use crate::dialect::Thalweg;

    fn parsed(sql: &str) -> Result<Command> {
        let tokens = Tokenizer::new(&Thalweg, sql).tokenize_with_location().unwrap();
        assert!(is_command(&tokens), "{sql}");
        parse(&tokens)
    }

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|n| n.to_string()).collect()
    }

    #[test]
    fn statements_about_roles() {
        use Setting as O;
        let password = |text: &str| O::Password(Some(Secret(text.into())));
        for (sql, expected) in [
            (
                "CREATE ROLE Ann WITH LOGIN SUPERUSER PASSWORD 'x' CONNECTION LIMIT 3 VALID UNTIL \
                 '2030-01-01' IN ROLE a, \"B\" WORKLOAD w;",
                Command::CreateRole {
                    name: "ann".into(),
                    if_not_exists: false,
                    options: vec![
                        O::Login(true),
                        O::Superuser(true),
                        password("x"),
                        O::Connections(Some(3)),
                        O::ValidUntil("2030-01-01".into()),
                        O::InRole(names(&["a", "B"])),
                        O::Workload(Some("w".into())),
                    ],
                },
            ),
            (
                "create user if not exists u encrypted password 'p' inherit connection limit -1",
                Command::CreateRole {
                    name: "u".into(),
                    if_not_exists: true,
                    options: vec![O::Login(true), password("p"), O::Connections(None)],
                },
            ),
            (
                "ALTER ROLE u PASSWORD NULL WORKLOAD default",
                Command::AlterRole {
                    name: "u".into(),
                    options: vec![O::Password(None), O::Workload(None)],
                },
            ),
            ("ALTER USER a RENAME TO b", Command::RenameRole { name: "a".into(), to: "b".into() }),
            (
                "ALTER ROLE a ADD TOKEN 'ci' VALID UNTIL 'tomorrow'",
                Command::AddToken {
                    role: "a".into(),
                    name: "ci".into(),
                    valid_until: Some("tomorrow".into()),
                },
            ),
            (
                "DROP ROLE IF EXISTS a, b",
                Command::DropRole { names: names(&["a", "b"]), if_exists: true },
            ),
            (
                "GRANT a, b TO c WITH ADMIN OPTION",
                Command::GrantRole { roles: names(&["a", "b"]), to: names(&["c"]), admin: true },
            ),
            (
                "REVOKE ADMIN OPTION FOR a FROM c",
                Command::RevokeRole { roles: names(&["a"]), from: names(&["c"]), admin_only: true },
            ),
            ("SET ROLE 'a'", Command::SetRole(Some("a".into()))),
            ("SET SESSION ROLE a", Command::SetRole(Some("a".into()))),
            ("SET ROLE NONE", Command::SetRole(None)),
            ("RESET ROLE", Command::SetRole(None)),
            (
                "ALTER TABLE s.t OWNER TO a",
                Command::ChangeOwner { of: Owned::Relation(names(&["s", "t"])), to: "a".into() },
            ),
            ("REASSIGN OWNED BY a TO b", Command::Reassign { from: names(&["a"]), to: "b".into() }),
        ] {
            assert_eq!(parsed(sql).expect(sql), expected);
        }
    }

    #[test]
    fn grants() {
        use Privilege as P;
        let grant = |privileges: &[P], on, to: &[&str], option| Command::Grant {
            privileges: privileges.to_vec(),
            on,
            to: names(to),
            option,
        };
        for (sql, expected) in [
            (
                "GRANT SELECT, insert ON TABLE t, s.\"T\" TO a, GROUP b WITH GRANT OPTION",
                grant(
                    &[P::Select, P::Insert],
                    On::Tables(vec![names(&["t"]), names(&["s", "T"])]),
                    &["a", "b"],
                    true,
                ),
            ),
            (
                "GRANT ALL PRIVILEGES ON ALL TABLES IN SCHEMA public TO PUBLIC",
                grant(&[], On::AllTables(names(&["public"])), &["public"], false),
            ),
            (
                "GRANT USAGE ON SCHEMA s TO a",
                grant(&[P::Usage], On::Schemas(names(&["s"])), &["a"], false),
            ),
            (
                "GRANT USAGE ON WORKLOAD w TO a",
                grant(&[P::Usage], On::Workloads(names(&["w"])), &["a"], false),
            ),
            (
                "GRANT SET ON PARAMETER thalweg.policy TO a",
                grant(&[P::Set], On::Parameters(names(&["thalweg.policy"])), &["a"], false),
            ),
            (
                "GRANT CREATE ON DATABASE thalweg TO a",
                grant(&[P::Create], On::Database("thalweg".into()), &["a"], false),
            ),
            (
                "REVOKE GRANT OPTION FOR SELECT ON t FROM a CASCADE",
                Command::Revoke {
                    privileges: vec![P::Select],
                    on: On::Tables(vec![names(&["t"])]),
                    from: names(&["a"]),
                    option_only: true,
                },
            ),
        ] {
            assert_eq!(parsed(sql).expect(sql), expected);
        }
    }

    #[test]
    fn errors_say_where_and_not_what() {
        for (sql, message) in [
            ("CREATE ROLE", "expected: a name"),
            ("CREATE ROLE a 's3cret'", "expected: LOGIN, NOLOGIN"),
            ("CREATE ROLE a PASWORD 's3cret'", "syntax error at or near"),
            ("CREATE ROLE a PASSWORD 's3cret' 's3cret'", "syntax error at or near"),
            ("CREATE ROLE a PASSWORD s3cret", "expected: a password in quotes, or NULL"),
            ("CREATE ROLE a CONNECTION LIMIT -2", "expected: a number"),
            ("ALTER ROLE a", "expected: what is to be changed"),
            ("GRANT FLY ON t TO a", "expected: SELECT, INSERT"),
            ("GRANT SELECT (x) ON t TO a", "not on columns"),
            ("GRANT SELECT ON t", "expected: TO"),
            ("SET ROLE", "expected: a name"),
            ("SET SESSION AUTHORIZATION a", "the role that logged in stays"),
            ("DROP ROLE a b", "expected: nothing more"),
        ] {
            let error = parsed(sql).unwrap_err();
            assert!(format!("{error:#}").contains(message), "{sql}: {error:#}");
            assert!(!format!("{error:#}").contains("s3cret"), "{error:#}");
        }
        for other in
            ["CREATE TABLE role (a INT)", "ALTER TABLE t RENAME TO u", "SET thalweg.policy = x"]
        {
            let tokens = Tokenizer::new(&Thalweg, other).tokenize_with_location().unwrap();
            assert!(!is_command(&tokens), "{other}");
        }
    }
}
