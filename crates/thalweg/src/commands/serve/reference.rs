//! The page that lists every setting, as it is in the documentation.

use std::fmt::Write;

use super::settings::{ALL, Setting};

const HEAD: &str = "\
# Configuration of the server

`thalweg serve` takes its settings from flags, from the environment, and from a file that \
`--config` (or `THALWEG_CONFIG`) names. What a flag says goes before what the environment says, \
and that before the file; what nobody says has its default. `thalweg serve DB` needs none of them.

A key such as `listen.pg` stands in the file as `pg` in the table `[listen]`:

```toml
[listen]
pg = \"127.0.0.1:5433\"
http = false
```

A key or a value that is not understood is an error that names its line. A *size* is a number with \
a unit (`64MiB`, `4GB`); a *time* too (`500ms`, `30s`, `5min`, `1h`; seconds without one). In the \
file `true` and `false` stand for `on` and `off`.

This page is made from the program: `thalweg serve --print-reference`.
";

pub fn page() -> String {
    let mut page = HEAD.to_string();
    let mut section = None;
    for setting in ALL {
        let of = setting.key.split_once('.').map(|(table, _)| table);
        if section != Some(of) {
            section = Some(of);
            let title = of.map_or("Database".to_string(), |table| format!("`[{table}]`"));
            let head =
                "| key | flag | environment | takes | default | |\n|---|---|---|---|---|---|";
            let _ = write!(page, "\n## {title}\n\n{head}\n");
        }
        let Setting { key, takes, about, .. } = setting;
        let (flag, default) = match setting.default() {
            none if none.is_empty() => ("`DB`".to_string(), String::new()),
            default => (format!("`--{}`", setting.flag), format!("`{default}`")),
        };
        let variable = setting.variable();
        let _ =
            writeln!(page, "| `{key}` | {flag} | `{variable}` | {takes} | {default} | {about} |");
    }
    page
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_in_the_documentation_is_this_one() {
        let written = include_str!("../../../../../docs/configuration.md");
        assert!(
            written == super::page(),
            "docs/configuration.md is stale: thalweg serve --print-reference > docs/configuration.md"
        );
    }
}
