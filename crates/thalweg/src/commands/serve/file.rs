//! The configuration file: TOML, of which every key must be known.

use std::path::Path;

use thalweg_base::{Error, Result, text};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::settings::{ALL, Settings, nearest};

/// Takes over what the file says.
pub fn read(path: &Path, settings: &mut Settings) -> Result<()> {
    let name = text::quoted(&path.display().to_string());
    let content = std::fs::read_to_string(path)
        .map_err(|e| Error::io(format!("cannot read the configuration {name}"), e))?;
    apply(&name, &content, settings)
}

/// `name` is the file's, for messages.
pub fn apply(name: &str, content: &str, settings: &mut Settings) -> Result<()> {
    let file = File { name, content };
    let table = DeTable::parse(content).map_err(|e| {
        let at = e.span().map_or(0, |span| span.start);
        file.wrong(at, e.message()).hint("the file is TOML: https://toml.io")
    })?;
    file.table("", table.get_ref(), settings)
}

struct File<'a> {
    name: &'a str,
    content: &'a str,
}

impl File<'_> {
    fn table(&self, within: &str, table: &DeTable<'_>, settings: &mut Settings) -> Result<()> {
        for (key, value) in table {
            let name = format!("{within}{}", key.get_ref());
            self.entry(&name, key.span().start, value, settings)?;
        }
        Ok(())
    }

    fn entry(
        &self,
        name: &str,
        at: usize,
        value: &Spanned<DeValue<'_>>,
        settings: &mut Settings,
    ) -> Result<()> {
        let inner = format!("{name}.");
        if let DeValue::Table(table) = value.get_ref()
            && ALL.iter().any(|s| s.key.starts_with(&inner))
        {
            return self.table(&inner, table, settings);
        }
        let Some(setting) = ALL.iter().find(|s| s.key == name) else {
            let hint = match nearest(name, ALL.iter().map(|s| s.key)) {
                Some(key) => format!("perhaps {key} is meant; docs/configuration.md lists them"),
                None => "docs/configuration.md lists the settings".to_string(),
            };
            return Err(self.wrong(at, &format!("there is no setting {name}")).hint(hint));
        };
        let at = value.span().start;
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str().to_string(),
            DeValue::Float(number) => number.as_str().to_string(),
            DeValue::Boolean(on) => if *on { "on" } else { "off" }.to_string(),
            other => {
                let why = format!("{name}: expected {}, not {}", setting.takes, other.type_str());
                return Err(self.wrong(at, &why));
            }
        };
        (setting.set)(settings, &text)
            .map_err(|why| self.wrong(at, &format!("{name}: {why}, not {text:?}")))
    }

    fn wrong(&self, at: usize, why: &str) -> Error {
        let before = self.content.as_bytes().iter().take(at);
        let line = 1 + before.filter(|b| **b == b'\n').count();
        Error::user(format!("{}, line {line}: {why}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(content: &str) -> Result<Settings> {
        let mut settings = Settings::default();
        apply("\"t.toml\"", content, &mut settings).map(|()| settings)
    }

    #[track_caller]
    fn fails(content: &str, want: &str) {
        let error = applied(content).err().expect("an error");
        let text = format!("{error:#}");
        assert!(text.contains(want), "{text}");
    }

    #[test]
    fn tables_and_dotted_keys_say_the_same() {
        let a = applied("[listen]\npg = \"127.0.0.1:1\"\nflight = false\n").unwrap();
        let b = applied("listen.pg = '127.0.0.1:1'\nlisten.flight = 'off'\n").unwrap();
        for s in [&a, &b] {
            assert_eq!(s.server.pg.unwrap().port(), 1);
            assert_eq!(s.server.flight, None);
        }
        let c = applied("[limits]\nconnections = 12\nstatement_timeout = 1.5\n").unwrap();
        assert_eq!(c.server.connections_max, 12);
        assert_eq!(c.server.statement_timeout.unwrap().as_millis(), 1500);
    }

    #[test]
    fn the_example_is_understood() {
        let settings = applied(include_str!("../../../../../dev/ops/thalweg.toml")).unwrap();
        assert_eq!(settings.server.connections_max, 500);
        assert!(settings.server.tls_key.is_some() && settings.database.is_some());
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        fails("\n[listen]\npgg = 'off'\n", "\"t.toml\", line 3: there is no setting listen.pgg");
        fails("\n[listen]\npgg = 'off'\n", "perhaps listen.pg is meant");
        fails("[limit]\nconnections = 3\n", "line 1: there is no setting limit");
        fails("[limits]\n\nconnections = 'x'\n", "line 3: limits.connections: expected a number");
        fails("[limits]\nconnections = [1]\n", "line 2: limits.connections: expected number");
        fails("limits = 3\n", "there is no setting limits");
        fails("[limits\n", "line 1: ");
        fails("[listen]\npg = 'off'\npg = 'off'\n", "line 3: ");
    }
}
