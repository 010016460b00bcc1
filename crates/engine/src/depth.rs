//! Bounds the depth of what the planner walks recursively.
//!
//! The parser bounds brackets, but `a OR b OR c …` is read in a loop and becomes a tree as deep as
//! the chain is long, and the stack of every recursive walk over it with it.

use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use thalweg_base::limits::OPERATOR_CHAIN_MAX;
use thalweg_base::{Error, Result};

/// Refuses a statement with more operators in a row than [`OPERATOR_CHAIN_MAX`]: in one pair of
/// parentheses and between two commas. What is no SQL is left to the parser.
pub fn check(sql: &str) -> Result<()> {
    // Shorter than an operator and an operand each, it cannot chain too many.
    if sql.len() < 2 * OPERATOR_CHAIN_MAX {
        return Ok(());
    }
    let Ok(tokens) = Tokenizer::new(&GenericDialect {}, sql).tokenize() else { return Ok(()) };
    // Operators so far, per open parenthesis.
    let mut chains = vec![0];
    for token in &tokens {
        match token {
            Token::LParen | Token::LBracket => chains.push(0),
            Token::RParen | Token::RBracket if chains.len() > 1 => {
                chains.pop();
            }
            Token::Comma | Token::SemiColon => *top(&mut chains) = 0,
            token if is_operator(token) => {
                let chain = top(&mut chains);
                *chain += 1;
                if *chain > OPERATOR_CHAIN_MAX {
                    return Err(Error::user(format!(
                        "the statement chains more than {OPERATOR_CHAIN_MAX} operators"
                    ))
                    .hint(
                        "use IN (…) for chains of OR, or INSERT … VALUES for chains of UNION ALL",
                    ));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn top(chains: &mut [usize]) -> &mut usize {
    chains.last_mut().expect("the outermost is never popped")
}

fn is_operator(token: &Token) -> bool {
    match token {
        Token::Word(word) => matches!(
            word.keyword,
            Keyword::AND
                | Keyword::OR
                | Keyword::NOT
                | Keyword::IS
                | Keyword::IN
                | Keyword::LIKE
                | Keyword::ILIKE
                | Keyword::BETWEEN
                | Keyword::UNION
                | Keyword::EXCEPT
                | Keyword::INTERSECT
                | Keyword::JOIN
                | Keyword::AT
        ),
        Token::Whitespace(_)
        | Token::Number(..)
        | Token::Char(_)
        | Token::SingleQuotedString(_)
        | Token::Period
        | Token::Placeholder(_)
        | Token::LParen
        | Token::RParen
        | Token::LBracket
        | Token::RBracket
        | Token::EOF => false,
        // Strings of other quoting and symbols; the first are rare enough to count as the second.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::{OPERATOR_CHAIN_MAX, check};

    #[test]
    fn chains_are_counted_and_lists_are_not() {
        let over = OPERATOR_CHAIN_MAX + 1;
        for chained in [" OR a", " + 1", " || 'x'", " UNION ALL SELECT 1", "::INT", " IS NULL"] {
            assert!(check(&format!("SELECT 1{}", chained.repeat(over))).is_err(), "{chained}");
            assert!(check(&format!("SELECT ({})", chained.repeat(over))).is_err(), "{chained}");
        }
        for listed in [", -1", ", (1 + 1)", ", 'a = b'", ", a.b", ", f(a, b) * 2"] {
            assert!(check(&format!("SELECT 1{}", listed.repeat(over))).is_ok(), "{listed}");
        }
        assert!(check(&")".repeat(3 * over)).is_ok());
    }
}
