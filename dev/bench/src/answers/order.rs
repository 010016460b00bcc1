//! What order a query asks for, read from its text.
//!
//! The peers' answers come without it, and no planner is asked: one of ours would make a mistake
//! in ORDER BY on both sides of the comparison.

/// Which columns of the answer it is sorted by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Order {
    /// Column indices, most significant first.
    pub keys: Vec<usize>,
    /// False if the query sorts by something that is no column of its answer; `keys` has what
    /// comes before it.
    pub complete: bool,
    /// Rows that the query asks for at most.
    pub limit: Option<usize>,
    /// Rows that it leaves out before them.
    pub offset: usize,
}

impl Order {
    /// Of the last ORDER BY outside of parentheses, and the LIMIT and OFFSET after it. `columns` are those
    /// of the answer.
    pub fn of_sql(sql: &str, columns: &[String]) -> Order {
        let words = top_level_words(sql);
        let is = |i: usize, text: &str| {
            words.get(i).is_some_and(|w: &String| w.eq_ignore_ascii_case(text))
        };
        let limit = (0..words.len())
            .filter(|&i| {
                is(i, "limit") || (is(i, "fetch") && (is(i + 1, "first") || is(i + 1, "next")))
            })
            .filter_map(|i| words.get(i + if is(i, "limit") { 1 } else { 2 })?.parse().ok())
            .next_back();
        let offset = (0..words.len())
            .filter(|&i| is(i, "offset"))
            .filter_map(|i| words.get(i + 1)?.parse().ok())
            .next_back()
            .unwrap_or(0);
        let mut order = Order { keys: Vec::new(), complete: true, limit, offset };
        let Some(by) = (0..words.len()).rev().find(|&i| is(i, "order") && is(i + 1, "by")) else {
            return order;
        };

        let end = (by + 2..words.len())
            .find(|&i| ["limit", "offset", "fetch", ";"].iter().any(|stop| is(i, stop)))
            .unwrap_or(words.len());
        for key in words[by + 2..end].split(|w| w == ",") {
            match column_of(key, columns) {
                Some(column) => order.keys.push(column),
                None => {
                    order.complete = false;
                    break;
                }
            }
        }
        order
    }
}

/// The column that a sort key names: by number, name, alias, or qualified name.
fn column_of(key: &[String], columns: &[String]) -> Option<usize> {
    let is_direction = |w: &str| {
        ["asc", "desc", "nulls", "first", "last"].iter().any(|d| w.eq_ignore_ascii_case(d))
    };
    let direction = key.iter().skip(1).position(|w| is_direction(w)).map_or(key.len(), |i| i + 1);
    let name = match &key[..direction] {
        [name] => name,
        [_, dot, name] if dot == "." => name,
        _ => return None,
    };
    if let Ok(number) = name.parse::<usize>() {
        return number.checked_sub(1).filter(|&i| i < columns.len());
    }
    columns
        .iter()
        .position(|column| column == name)
        .or_else(|| columns.iter().position(|column| column.eq_ignore_ascii_case(name)))
}

/// The words and signs of a statement that stand outside of parentheses. What is inside of them
/// is one word, `()`; quotes of names are taken off.
fn top_level_words(sql: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut depth = 0usize;
    let mut chars = sql.chars().peekable();
    while let Some(c) = chars.next() {
        let mut word = c.to_string();
        match c {
            '-' if chars.peek() == Some(&'-') => {
                while chars.next_if(|&c| c != '\n').is_some() {}
                continue;
            }
            '/' if chars.next_if_eq(&'*').is_some() => {
                while let Some(c) = chars.next() {
                    if c == '*' && chars.next_if_eq(&'/').is_some() {
                        break;
                    }
                }
                continue;
            }
            '\'' | '"' => {
                let mut text = String::new();
                while let Some(inside) = chars.next() {
                    if inside == c && chars.next_if_eq(&c).is_none() {
                        break;
                    }
                    text.push(inside);
                }
                // A string is no name: with its quotes it matches no column and no keyword.
                word = if c == '"' { text } else { format!("'{text}'") };
            }
            '(' => {
                depth += 1;
                if depth > 1 {
                    continue;
                }
                words.push("()".to_string());
                continue;
            }
            ')' => {
                depth = depth.saturating_sub(1);
                continue;
            }
            c if c.is_whitespace() => continue,
            c if c.is_alphanumeric() || c == '_' => {
                while let Some(c) = chars.next_if(|&c| c.is_alphanumeric() || c == '_') {
                    word.push(c);
                }
            }
            _ => {}
        }
        if depth == 0 {
            words.push(word);
        }
    }
    words
}
