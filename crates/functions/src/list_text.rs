//! Lists as PostgreSQL spells them: `{1,2,NULL,"a b"}`.

/// An item of a list, as it is spelled.
#[derive(Debug, PartialEq, Eq)]
pub enum Item {
    Null,
    Text(String),
    /// A list within the list, with its braces.
    List(String),
}

/// The items of a list; `None` if the text is none.
pub fn items(text: &str) -> Option<Vec<Item>> {
    let inside = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut items = vec![];
    let mut chars = inside.char_indices().peekable();
    loop {
        while chars.next_if(|(_, c)| c.is_whitespace()).is_some() {}
        match chars.peek() {
            // `{}` has no item, and `{1,}` no last one.
            None => return items.is_empty().then_some(items),
            Some((start, '{')) => {
                let start = *start;
                let end = end_of_list(inside, start)?;
                while chars.next_if(|(at, _)| *at < end).is_some() {}
                items.push(Item::List(inside[start..end].to_owned()));
            }
            Some((_, '"')) => {
                chars.next();
                let mut item = String::new();
                loop {
                    match chars.next()?.1 {
                        '"' => break,
                        '\\' => item.push(chars.next()?.1),
                        c => item.push(c),
                    }
                }
                items.push(Item::Text(item));
            }
            Some(_) => items.push(bare(&mut chars)?),
        }
        while chars.next_if(|(_, c)| c.is_whitespace()).is_some() {}
        match chars.next() {
            None => return Some(items),
            Some((_, ',')) => {}
            Some(_) => return None,
        }
        if chars.clone().all(|(_, c)| c.is_whitespace()) {
            return None;
        }
    }
}

type Chars<'t> = std::iter::Peekable<std::str::CharIndices<'t>>;

/// An item without quotes, up to the comma behind it.
fn bare(chars: &mut Chars<'_>) -> Option<Item> {
    let mut item = String::new();
    // Up to here blanks at the end are a part of it.
    let mut kept = 0;
    let mut escaped = false;
    while let Some((_, c)) = chars.next_if(|(_, c)| *c != ',') {
        match c {
            '"' | '{' | '}' => return None,
            '\\' => {
                item.push(chars.next()?.1);
                escaped = true;
                kept = item.len();
            }
            c => {
                item.push(c);
                if !c.is_whitespace() {
                    kept = item.len();
                }
            }
        }
    }
    item.truncate(kept);
    if item.is_empty() {
        return None;
    }
    let is_null = !escaped && item.eq_ignore_ascii_case("null");
    Some(if is_null { Item::Null } else { Item::Text(item) })
}

/// Where the list ends that begins at `start`.
fn end_of_list(text: &str, start: usize) -> Option<usize> {
    let (mut depth, mut quoted) = (0_usize, false);
    let mut chars = text[start..].char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()?),
            '"' => quoted = !quoted,
            '{' if !quoted => depth += 1,
            '}' if !quoted => {
                depth -= 1;
                if depth == 0 {
                    return Some(start + at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_they_are_spelled() {
        let text = |item: &str| Item::Text(item.into());
        let check = |spelled: &str, expected: Option<Vec<Item>>| {
            assert_eq!(items(spelled), expected, "{spelled}");
        };
        check("{}", Some(vec![]));
        check(" { } ", Some(vec![]));
        check("{1, 2 ,NULL}", Some(vec![text("1"), text("2"), Item::Null]));
        check(
            r#"{"a b","",a b,"NULL"}"#,
            Some(vec![text("a b"), text(""), text("a b"), text("NULL")]),
        );
        check(r#"{"a\"b",a\,b,\ }"#, Some(vec![text("a\"b"), text("a,b"), text(" ")]));
        check(r"{\null}", Some(vec![text("null")]));
        check(
            r#"{{1,"}"},{}}"#,
            Some(vec![Item::List(r#"{1,"}"}"#.into()), Item::List("{}".into())]),
        );
        for wrong in [
            "", "1", "{", "{1", "1}", "{1,}", "{,1}", "{1,,2}", "{a\"b}", "{\"a\"b}", "{{1}",
            "{1}}", "{\"a}", "{{1}2}",
        ] {
            check(wrong, None);
        }
    }
}
