use super::parse::Flags;
use super::search::Regexp;

/// The match and its groups; `-` for one that took no part.
fn found(pattern: &str, text: &str) -> Option<Vec<String>> {
    let regexp = Regexp::new(pattern, Flags::default()).unwrap();
    let found = regexp.find(text, 0, true).unwrap()?;
    let one = |place: Option<(usize, usize)>| match place {
        Some((from, to)) => text[from..to].to_string(),
        None => "-".to_string(),
    };
    Some(found.into_iter().map(one).collect())
}

#[test]
fn matches_are_those_of_postgresql() {
    for (pattern, text, expected) in [
        ("foo|foobar", "xfoobar", &["foobar"][..]),
        ("a*(ab)*", "abab", &["abab", "ab"]),
        ("(a*)(ab)*", "abab", &["abab", "", "ab"]),
        ("(.*?)(\\d+)(.*)", "abc01234xyz", &["abc0", "abc", "0", ""]),
        ("(?:(.*?)(\\d+)(.*)){1,1}", "abc01234xyz", &["abc01234xyz", "abc", "01234", "xyz"]),
        ("(.*)(\\d+)(.*)", "abc01234xyz", &["abc01234xyz", "abc0123", "4", "xyz"]),
        ("(x)?b", "abc", &["b", "-"]),
        ("((a)|(b))*", "ab", &["ab", "b", "-", "b"]),
        ("(a|ab)(bc|c)", "abc", &["abc", "ab", "c"]),
        (
            "^(https?)://(?:www\\.)?([^/]+)/.*$",
            "https://www.x.org/a/b",
            &["https://www.x.org/a/b", "https", "x.org"],
        ),
        ("(.)\\1", "abccd", &["cc", "c"]),
        ("(a+)b\\1", "aabaaa", &["aabaa", "aa"]),
        ("\\d+(?=€)", "12 34€", &["34"]),
        ("(?<=x)a+", "a xaa", &["aa"]),
        ("(?<!x)a", "xa a", &["a"]),
        ("a.b", "a\nb", &["a\nb"]),
        ("[[:alpha:]]+", "1äöü2", &["äöü"]),
        ("\\mb\\M", "ab b", &["b"]),
        ("(?i)ÄB", "äb", &["äb"]),
        ("***=a.b", "axb a.b", &["a.b"]),
        ("(?x) a b # c", "ab", &["ab"]),
        ("a{,2}", "a{,2}", &["a{,2}"]),
        ("[]a]+", "]a", &["]a"]),
        ("(a{2}){2}", "aaaaa", &["aaaa", "aa"]),
        ("((a))", "a", &["a", "a", "a"]),
        ("(a?)*b", "b", &["b", ""]),
        ("((x)?)?b", "b", &["b", "", "-"]),
        ("(?:(a?)(a*))*b", "aab", &["aab", "a", "a"]),
        ("(\\y)?a", "a", &["a", ""]),
    ] {
        assert_eq!(
            found(pattern, text).as_deref(),
            Some(expected.iter().map(|s| s.to_string()).collect::<Vec<_>>()).as_deref(),
            "{pattern}"
        );
    }
    for (pattern, text) in [("a$", "a\n"), ("(?n)a.b", "a\nb"), ("^b", "ab"), ("\\yb\\y", "ab")] {
        assert_eq!(found(pattern, text), None, "{pattern}");
    }
}

#[test]
fn what_is_no_expression_is_refused() {
    for pattern in [
        "(", ")", "[a", "a**", "*a", "a{2,1}", "[b-a]", "[[:x:]]", "\\q", "(?z)a", "\\1", "a{1",
        "^*",
    ] {
        let error = Regexp::new(pattern, Flags::default()).expect_err(pattern);
        assert_eq!(error.code_text(), Some("2201B"), "{pattern}");
    }
}

/// Both ways to take a match apart agree, where the quick one is taken.
#[test]
fn quick_ways_give_what_the_slow_ones_give() {
    let parts = [
        "a",
        "b*",
        "(a+)",
        "(b?)",
        "[ab]*?",
        "(?:ab)?",
        "(.)",
        "(a|b)",
        "(ab)*",
        "b{2}",
        "(a?)?",
        "(?:(b)|a)*",
    ];
    let texts = ["", "ab", "aabb", "abab", "bbaab", "aababb"];
    for first in parts {
        for second in parts {
            for third in ["", "(b?)"] {
                let pattern = format!("{first}{second}{third}");
                let regexp = Regexp::new(&pattern, Flags::default()).unwrap();
                for text in texts {
                    let quick = regexp.find(text, 0, true).unwrap();
                    let slow = regexp.find_slowly(text, 0).unwrap();
                    assert_eq!(quick, slow, "{pattern} in {text}");
                }
            }
        }
    }
}
