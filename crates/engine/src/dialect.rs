//! The SQL we parse: sqlparser's generic dialect, and what it lacks.
//!
//! * Tables as they were: `t VERSION AS OF 12`, `t TIMESTAMP AS OF …`, `t FOR SYSTEM_TIME AS OF …`,
//!   `t AT (VERSION => 12)`.
//! * `MERGE` with `DO NOTHING`, `UPDATE SET *` and `INSERT *`.
//! * `ABORT`, PostgreSQL's other word for ROLLBACK.
//! * `SUMMARIZE t`, `SUMMARIZE SELECT …`, which is `DESCRIBE` with an option.
//! * `||` binds as loosely as in PostgreSQL.
//! * `substring(a FOR 2 FROM 3)` and `trim(BOTH FROM a)`.
//! * `a ISNULL`, `a NOTNULL`, `a BETWEEN SYMMETRIC b AND c`, `a # b`, `@ a`, `|/ a`, `||/ a`.
//! * `(VALUES (1))` where a value stands.
//! * `a IS DISTINCT FROM b AND c` is `(a IS DISTINCT FROM b) AND c`; sqlparser takes all that follows
//!   for the right side.

use std::any::TypeId;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, BinaryOperator, DescribeAlias, Expr, Ident, Merge, MergeAction,
    MergeClause, MergeClauseKind, MergeInsertExpr, MergeInsertKind, MergeUpdateExpr, ObjectName,
    Parens, Query, SetExpr, Statement, TableFactor, TrimWhereField, UnaryOperator, UtilityOption,
    Values,
};
use datafusion::sql::sqlparser::dialect::{Dialect, GenericDialect, Precedence};
use datafusion::sql::sqlparser::keywords::{
    Keyword, RESERVED_FOR_COLUMN_ALIAS, RESERVED_FOR_TABLE_ALIAS,
};
use datafusion::sql::sqlparser::parser::{IsOptional, Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Stands for every column in `UPDATE SET *` and `INSERT *`; no column can be named so.
pub const ALL_COLUMNS: &str = "*\0";

/// The option of `DESCRIBE` that asks for values and not for columns alone.
pub const SUMMARIZE: &str = "SUMMARIZE";

const IS_NOT_DISTINCT_FROM: [Keyword; 4] =
    [Keyword::IS, Keyword::NOT, Keyword::DISTINCT, Keyword::FROM];

/// Aliases without AS that the parser would not have. VALUES may follow as a clause of MySQL's, which is
/// not ours.
const ALIASES: [Keyword; 9] = [
    Keyword::ANALYZE,
    Keyword::CLUSTER,
    Keyword::DISTRIBUTE,
    Keyword::EXCLUDE,
    Keyword::EXPLAIN,
    Keyword::SORT,
    Keyword::TOP,
    Keyword::VALUES,
    Keyword::VIEW,
];

#[derive(Debug)]
pub struct Thalweg;

macro_rules! as_generic {
    ($($method:ident)*) => {$(
        fn $method(&self) -> bool {
            GenericDialect.$method()
        }
    )*};
}

impl Dialect for Thalweg {
    /// What the parser allows to the generic dialect by its type, it allows to us.
    fn dialect(&self) -> TypeId {
        GenericDialect.dialect()
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        GenericDialect.is_delimited_identifier_start(ch)
    }

    /// `#` and `@` are operators.
    fn is_identifier_start(&self, ch: char) -> bool {
        GenericDialect.is_identifier_start(ch) && !matches!(ch, '#' | '@')
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        GenericDialect.is_identifier_part(ch) && !matches!(ch, '#' | '@')
    }

    fn supports_table_versioning(&self) -> bool {
        true
    }

    fn supports_order_by_all(&self) -> bool {
        true
    }

    /// `list_transform(a, x -> x + 1)`
    fn supports_lambda_functions(&self) -> bool {
        true
    }

    /// `ALTER COLUMN a TYPE INT USING …`
    fn supports_alter_column_type_using(&self) -> bool {
        true
    }

    /// `INSERT INTO t AS x … RETURNING x.a`
    fn supports_insert_table_alias(&self) -> bool {
        true
    }

    /// `SELECT 1 view`: what PostgreSQL does not reserve is an alias also without AS.
    fn is_column_alias(&self, word: &Keyword, _: &mut Parser) -> bool {
        !RESERVED_FOR_COLUMN_ALIAS.contains(word) || ALIASES.contains(word)
    }

    /// `FROM t view`; words that begin a clause do so where the rest of it follows.
    fn is_table_alias(&self, word: &Keyword, parser: &mut Parser) -> bool {
        let next = parser.peek_token_ref();
        let is_next = |word: Keyword| matches!(&next.token, Token::Word(w) if w.keyword == word);
        match word {
            Keyword::EXPLAIN | Keyword::VIEW => true,
            Keyword::CLUSTER => !is_next(Keyword::BY),
            Keyword::START => !is_next(Keyword::WITH),
            Keyword::SET => is_next(Keyword::SET),
            Keyword::GLOBAL => ![
                Keyword::ANY,
                Keyword::ALL,
                Keyword::ASOF,
                Keyword::INNER,
                Keyword::LEFT,
                Keyword::RIGHT,
                Keyword::FULL,
                Keyword::CROSS,
                Keyword::JOIN,
            ]
            .into_iter()
            .any(is_next),
            word => !RESERVED_FOR_TABLE_ALIAS.contains(word),
        }
    }

    /// As in PostgreSQL: `2 * 3 ^ 2` begins with the power, and all operators that are none of arithmetic and
    /// none of comparison have one level, between the two: `'a' || n + 1` adds first, and compares last.
    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        let precedence = match &parser.peek_token_ref().token {
            Token::StringConcat
            | Token::Sharp
            | Token::Ampersand
            | Token::Pipe
            | Token::ShiftLeft
            | Token::ShiftRight
            | Token::CaretAt
            | Token::AtArrow
            | Token::ArrowAt
            | Token::Overlap
            | Token::Tilde
            | Token::TildeAsterisk
            | Token::ExclamationMarkTilde
            | Token::ExclamationMarkTildeAsterisk
            | Token::DoubleTilde
            | Token::DoubleTildeAsterisk
            | Token::ExclamationMarkDoubleTilde
            | Token::ExclamationMarkDoubleTildeAsterisk
            | Token::Arrow
            | Token::LongArrow
            | Token::HashArrow
            | Token::HashLongArrow
            | Token::HashMinus
            | Token::AtQuestion
            | Token::AtAt
            | Token::Question
            | Token::QuestionAnd
            | Token::QuestionPipe
            | Token::CustomBinaryOperator(_) => Precedence::Pipe,
            Token::Word(word)
                if word.keyword == Keyword::OPERATOR && word.quote_style.is_none() =>
            {
                Precedence::Pipe
            }
            Token::Caret => Precedence::AtTz,
            token if null_test(token).is_some() => Precedence::Is,
            _ => return None,
        };
        Some(Ok(self.prec_value(precedence)))
    }

    /// `a LIKE b = true` compares what LIKE gives.
    fn prec_value(&self, precedence: Precedence) -> u8 {
        match precedence {
            Precedence::Like => GenericDialect.prec_value(Precedence::Between),
            Precedence::Eq => GenericDialect.prec_value(Precedence::Like),
            other => GenericDialect.prec_value(other),
        }
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        let operators = self.prec_value(Precedence::Pipe);
        // A sign belongs to what follows it, but for casts: `-2 ^ 2` is 4.
        let signs = self.prec_value(Precedence::AtTz) + 1;
        let op = match parser.peek_token_ref().token {
            Token::Minus => Some((UnaryOperator::Minus, signs)),
            Token::Plus => Some((UnaryOperator::Plus, signs)),
            Token::Tilde => Some((UnaryOperator::BitwiseNot, operators)),
            Token::AtSign => Some((UnaryOperator::PGAbs, operators)),
            Token::PGSquareRoot => Some((UnaryOperator::PGSquareRoot, operators)),
            Token::PGCubeRoot => Some((UnaryOperator::PGCubeRoot, operators)),
            _ => None,
        };
        if let Some((op, precedence)) = op {
            parser.next_token();
            let expr = parser.parse_subexpr(precedence);
            return Some(expr.map(|expr| Expr::UnaryOp { op, expr: Box::new(expr) }));
        }
        if parser.peek_token_ref().token == Token::LParen
            && is_word(parser.peek_nth_token_ref(1), Keyword::VALUES)
            && parser.peek_nth_token_ref(2).token == Token::LParen
        {
            parser.next_token();
            let query = parser.parse_query();
            return Some(query.and_then(|query| {
                parser.expect_token(&Token::RParen)?;
                Ok(Expr::Subquery(query))
            }));
        }
        let (is_substring, is_trim) =
            (parser.peek_keyword(Keyword::SUBSTRING), parser.peek_keyword(Keyword::TRIM));
        let is_call = || parser.peek_nth_token_ref(1).token == Token::LParen;
        if !(is_substring || is_trim) || !is_call() {
            return None;
        }
        if is_substring {
            return Some(substring(parser));
        }
        let keyword = |nth: usize| match &parser.peek_nth_token_ref(nth).token {
            Token::Word(word) if word.quote_style.is_none() => word.keyword,
            _ => Keyword::NoKeyword,
        };
        let at = match keyword(2) {
            Keyword::BOTH => TrimWhereField::Both,
            Keyword::LEADING => TrimWhereField::Leading,
            Keyword::TRAILING => TrimWhereField::Trailing,
            _ => return None,
        };
        (keyword(3) == Keyword::FROM).then(|| trim(parser, at))
    }

    fn parse_infix(
        &self,
        parser: &mut Parser,
        left: &Expr,
        _: u8,
    ) -> Option<Result<Expr, ParserError>> {
        if let Some(is_null) = null_test(&parser.peek_token_ref().token) {
            parser.next_token();
            let operand = Box::new(left.clone());
            return Some(Ok(match is_null {
                true => Expr::IsNull(operand),
                false => Expr::IsNotNull(operand),
            }));
        }
        if parser.consume_token(&Token::Sharp) {
            let right = parser.parse_subexpr(self.prec_value(Precedence::Pipe));
            return Some(right.map(|right| Expr::BinaryOp {
                left: Box::new(left.clone()),
                op: BinaryOperator::PGBitwiseXor,
                right: Box::new(right),
            }));
        }
        if let Some(between) = between(parser, left) {
            return Some(between);
        }
        let same = if parser.parse_keywords(&[Keyword::IS, Keyword::DISTINCT, Keyword::FROM]) {
            false
        } else if parser.parse_keywords(&IS_NOT_DISTINCT_FROM) {
            true
        } else {
            return None;
        };
        let right = parser.parse_subexpr(self.prec_value(Precedence::Is)).map(Box::new);
        Some(right.map(|right| {
            let left = Box::new(left.clone());
            match same {
                true => Expr::IsNotDistinctFrom(left, right),
                false => Expr::IsDistinctFrom(left, right),
            }
        }))
    }

    fn parse_statement(&self, parser: &mut Parser) -> Option<Result<Statement, ParserError>> {
        if parser.peek_keyword(Keyword::MERGE) {
            return Some(merge(parser));
        }
        if matches!(&parser.peek_token_ref().token, Token::Word(word)
            if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(SUMMARIZE))
        {
            return Some(summarize(parser));
        }
        if parser.parse_keyword(Keyword::ABORT) {
            return Some(Ok(Statement::Rollback { chain: false, savepoint: None }));
        }
        None
    }

    as_generic! {
        supports_unicode_string_literal supports_partition_by_after_order_by
        supports_array_join_syntax supports_group_by_expr supports_group_by_with_modifier
        supports_left_associative_joins_without_parens supports_connect_by
        supports_match_recognize supports_pipe_operator supports_start_transaction_modifier
        supports_window_function_null_treatment_arg supports_dictionary_syntax
        supports_window_clause_named_window_reference supports_parenthesized_set_variables
        supports_select_wildcard_except support_map_literal_syntax allow_extract_custom
        allow_extract_single_quotes supports_extract_comma_syntax
        supports_create_view_comment_syntax supports_parens_around_table_factor
        supports_values_as_table_factor supports_create_index_with_clause
        supports_explain_with_utility_options supports_limit_comma supports_update_order_by
        supports_from_first_select supports_projection_trailing_commas
        supports_asc_desc_in_column_definition supports_try_convert
        supports_bitwise_shift_operators supports_comment_on supports_load_extension
        supports_named_fn_args_with_assignment_operator supports_struct_literal
        supports_empty_projections supports_nested_comments supports_multiline_comment_hints
        supports_user_host_grantee supports_string_escape_constant
        supports_array_typedef_with_brackets supports_match_against supports_set_names
        supports_comma_separated_set_assignments supports_filter_during_aggregation
        supports_select_wildcard_exclude supports_data_type_signed_suffix
        supports_interval_options supports_quote_delimited_string
        supports_select_wildcard_replace supports_select_wildcard_ilike
        supports_select_wildcard_rename supports_optimize_table supports_install
        supports_detach supports_prewhere supports_with_fill supports_limit_by
        supports_interpolate supports_settings supports_select_format
        supports_comment_optimizer_hint supports_constraint_keyword_without_name
        supports_key_column_option supports_comma_separated_trim supports_cte_without_as
        supports_select_item_multi_column_alias supports_xml_expressions
    }
}

fn is_word(token: &TokenWithSpan, word: Keyword) -> bool {
    matches!(&token.token, Token::Word(w) if w.quote_style.is_none() && w.keyword == word)
}

/// `ISNULL`, which is true for NULL, and `NOTNULL`.
fn null_test(token: &Token) -> Option<bool> {
    let Token::Word(word) = token else { return None };
    if word.quote_style.is_some() {
        return None;
    }
    match word.value.to_ascii_uppercase().as_str() {
        "ISNULL" => Some(true),
        "NOTNULL" => Some(false),
        _ => None,
    }
}

/// `a [NOT] BETWEEN SYMMETRIC b AND c`, whose bounds may stand in any order, and `BETWEEN ASYMMETRIC`; `None`
/// if neither of the two words is there.
fn between(parser: &mut Parser, value: &Expr) -> Option<Result<Expr, ParserError>> {
    let negated = is_word(parser.peek_token_ref(), Keyword::NOT);
    let first = usize::from(negated);
    if !is_word(parser.peek_nth_token_ref(first), Keyword::BETWEEN) {
        return None;
    }
    let Token::Word(word) = &parser.peek_nth_token_ref(first + 1).token else { return None };
    let symmetric = word.value.eq_ignore_ascii_case("SYMMETRIC");
    if word.quote_style.is_some() || !(symmetric || word.value.eq_ignore_ascii_case("ASYMMETRIC")) {
        return None;
    }
    for _ in 0..first + 2 {
        parser.next_token();
    }
    Some(bounds(parser).map(|(low, high)| {
        let one = |low: &Expr, high: &Expr, negated: bool| Expr::Between {
            expr: Box::new(value.clone()),
            negated,
            low: Box::new(low.clone()),
            high: Box::new(high.clone()),
        };
        if !symmetric {
            return one(&low, &high, negated);
        }
        // Outside of both, or within one of the two.
        let (left, right) = (one(&low, &high, negated), one(&high, &low, negated));
        let op = if negated { BinaryOperator::And } else { BinaryOperator::Or };
        let both = Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) };
        Expr::Nested(Box::new(both))
    }))
}

/// `b AND c`
fn bounds(parser: &mut Parser) -> Result<(Expr, Expr), ParserError> {
    let precedence = Thalweg.prec_value(Precedence::Between);
    let low = parser.parse_subexpr(precedence)?;
    parser.expect_keyword_is(Keyword::AND)?;
    Ok((low, parser.parse_subexpr(precedence)?))
}

/// `substring(a FROM 2 FOR 3)`, its parts in any order, and `substring(a, 2, 3)`.
fn substring(parser: &mut Parser) -> Result<Expr, ParserError> {
    parser.expect_keyword(Keyword::SUBSTRING)?;
    parser.expect_token(&Token::LParen)?;
    let expr = Box::new(parser.parse_expr()?);
    let (mut from, mut count) = (None, None);
    let special = parser.consume_token(&Token::Comma);
    if special {
        from = Some(Box::new(parser.parse_expr()?));
        if parser.consume_token(&Token::Comma) {
            count = Some(Box::new(parser.parse_expr()?));
        }
    } else {
        // Two parts at most.
        for _ in 0..2 {
            if from.is_none() && parser.parse_keyword(Keyword::FROM) {
                from = Some(Box::new(parser.parse_expr()?));
            } else if count.is_none() && parser.parse_keyword(Keyword::FOR) {
                count = Some(Box::new(parser.parse_expr()?));
            }
        }
    }
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::Substring {
        expr,
        substring_from: from,
        substring_for: count,
        special,
        shorthand: false,
    })
}

/// `trim(BOTH FROM a)`
fn trim(parser: &mut Parser, at: TrimWhereField) -> Result<Expr, ParserError> {
    parser.expect_keyword(Keyword::TRIM)?;
    parser.expect_token(&Token::LParen)?;
    for _ in 0..2 {
        parser.next_token();
    }
    let expr = Box::new(parser.parse_expr()?);
    parser.expect_token(&Token::RParen)?;
    Ok(Expr::Trim { expr, trim_where: Some(at), trim_what: None, trim_characters: None })
}

/// `MERGE INTO target USING source ON condition WHEN …`. `DO NOTHING` becomes an update without
/// assignments, which cannot be written otherwise.
fn merge(parser: &mut Parser) -> Result<Statement, ParserError> {
    let merge_token = parser.expect_keyword(Keyword::MERGE)?;
    let into = parser.parse_keyword(Keyword::INTO);
    let table = parser.parse_table_factor()?;
    parser.expect_keyword_is(Keyword::USING)?;
    let source = parser.parse_table_factor()?;
    parser.expect_keyword_is(Keyword::ON)?;
    let on = Box::new(parser.parse_expr()?);
    let mut clauses = vec![];
    while parser.parse_keyword(Keyword::WHEN) {
        clauses.push(merge_clause(parser)?);
    }
    if clauses.is_empty() {
        return parser.expected_ref("WHEN [NOT] MATCHED", parser.peek_token_ref());
    }
    Ok(Statement::Merge(Merge {
        merge_token: merge_token.into(),
        optimizer_hints: vec![],
        into,
        table,
        source,
        on,
        clauses,
        output: None,
    }))
}

/// `SUMMARIZE` of a query, or of what can stand in FROM.
fn summarize(parser: &mut Parser) -> Result<Statement, ParserError> {
    parser.next_token();
    let is_query = matches!(&parser.peek_token_ref().token, Token::LParen)
        || [Keyword::SELECT, Keyword::WITH, Keyword::VALUES, Keyword::FROM]
            .into_iter()
            .any(|keyword| parser.peek_keyword(keyword));
    let query = match is_query {
        true => parser.parse_query()?,
        false => every_column_of(parser.parse_table_factor()?)?,
    };
    Ok(Statement::Explain {
        describe_alias: DescribeAlias::Describe,
        analyze: false,
        verbose: false,
        query_plan: false,
        estimate: false,
        statement: Box::new(Statement::Query(query)),
        format: None,
        options: Some(vec![UtilityOption { name: Ident::new(SUMMARIZE), arg: None }]),
    })
}

/// `SELECT * FROM …`
pub fn every_column_of(item: TableFactor) -> Result<Box<Query>, ParserError> {
    let mut query = Parser::new(&Thalweg).try_with_sql("SELECT * FROM t")?.parse_query()?;
    if let SetExpr::Select(select) = query.body.as_mut()
        && let [from] = &mut select.from[..]
    {
        from.relation = item;
    }
    Ok(query)
}

fn merge_clause(parser: &mut Parser) -> Result<MergeClause, ParserError> {
    let not = parser.parse_keyword(Keyword::NOT);
    parser.expect_keyword_is(Keyword::MATCHED)?;
    let clause_kind = if !not {
        MergeClauseKind::Matched
    } else if parser.parse_keywords(&[Keyword::BY, Keyword::SOURCE]) {
        MergeClauseKind::NotMatchedBySource
    } else if parser.parse_keywords(&[Keyword::BY, Keyword::TARGET]) {
        MergeClauseKind::NotMatchedByTarget
    } else {
        MergeClauseKind::NotMatched
    };
    let predicate =
        if parser.parse_keyword(Keyword::AND) { Some(parser.parse_expr()?) } else { None };
    parser.expect_keyword_is(Keyword::THEN)?;
    // A row that is only in the source can but be inserted; any other is there already.
    let inserts =
        matches!(clause_kind, MergeClauseKind::NotMatched | MergeClauseKind::NotMatchedByTarget);
    let action = if parser.parse_keyword(Keyword::DO) {
        parser.expect_keyword_is(Keyword::NOTHING)?;
        update(vec![])
    } else if inserts {
        if !parser.parse_keyword(Keyword::INSERT) {
            return parser.expected_ref("INSERT or DO NOTHING", parser.peek_token_ref());
        }
        merge_insert(parser)?
    } else if parser.parse_keyword(Keyword::DELETE) {
        MergeAction::Delete { delete_token: AttachedToken::empty() }
    } else if parser.parse_keyword(Keyword::UPDATE) {
        parser.expect_keyword_is(Keyword::SET)?;
        if parser.consume_token(&Token::Mul) {
            let target = AssignmentTarget::ColumnName(ObjectName::from(every()));
            update(vec![Assignment { target, value: Expr::Identifier(every()) }])
        } else {
            update(parser.parse_comma_separated(Parser::parse_assignment)?)
        }
    } else {
        return parser.expected_ref("UPDATE, DELETE or DO NOTHING", parser.peek_token_ref());
    };
    Ok(MergeClause { when_token: AttachedToken::empty(), clause_kind, predicate, action })
}

fn merge_insert(parser: &mut Parser) -> Result<MergeAction, ParserError> {
    let nothing = || Values {
        explicit_row: false,
        value_keyword: false,
        rows: vec![Parens::with_empty_span(vec![])],
    };
    let (columns, values) = if parser.consume_token(&Token::Mul) {
        (vec![ObjectName::from(every())], nothing())
    } else if parser.parse_keywords(&[Keyword::DEFAULT, Keyword::VALUES]) {
        (vec![], nothing())
    } else {
        let columns =
            parser.parse_parenthesized_qualified_column_list(IsOptional::Optional, false)?;
        parser.expect_keyword_is(Keyword::VALUES)?;
        (columns, parser.parse_values(false, false)?)
    };
    Ok(MergeAction::Insert(MergeInsertExpr {
        insert_token: AttachedToken::empty(),
        columns,
        kind_token: AttachedToken::empty(),
        kind: MergeInsertKind::Values(values),
        insert_predicate: None,
    }))
}

fn update(assignments: Vec<Assignment>) -> MergeAction {
    MergeAction::Update(MergeUpdateExpr {
        update_token: AttachedToken::empty(),
        assignments,
        update_predicate: None,
        delete_predicate: None,
    })
}

fn every() -> Ident {
    Ident::with_quote('"', ALL_COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree, each operator in brackets.
    fn without_parentheses(expr: &Expr) -> String {
        match expr {
            Expr::Nested(inner) => without_parentheses(inner),
            Expr::IsDistinctFrom(l, r) => {
                format!("[{} <> {}]", without_parentheses(l), without_parentheses(r))
            }
            Expr::IsNotDistinctFrom(l, r) => {
                format!("[{} = {}]", without_parentheses(l), without_parentheses(r))
            }
            Expr::BinaryOp { left, op, right } => {
                format!("[{} {op} {}]", without_parentheses(left), without_parentheses(right))
            }
            Expr::UnaryOp { op, expr } => format!("[{op} {}]", without_parentheses(expr)),
            Expr::IsNull(inner) => format!("[{} null]", without_parentheses(inner)),
            other => other.to_string(),
        }
    }

    #[test]
    fn statements_of_our_own_are_parsed() {
        let check = |sql: &str, expected: &str| {
            let parsed = Parser::parse_sql(&Thalweg, sql).map(|s| s[0].to_string());
            assert_eq!(parsed.unwrap_or_else(|e| e.to_string()), expected, "{sql}");
        };
        for same in [
            "SELECT * FROM t VERSION AS OF 12",
            "SELECT * FROM t TIMESTAMP AS OF now()",
            "SELECT * FROM t FOR SYSTEM_TIME AS OF '2026-01-01' JOIN u ON true",
            "SELECT * FROM t AT(VERSION => 12)",
            "MERGE INTO t USING u ON t.a = u.a WHEN MATCHED AND t.b > 1 THEN DELETE",
            "MERGE INTO t USING u ON true WHEN NOT MATCHED BY SOURCE THEN UPDATE SET a = 1",
            "MERGE INTO t USING u ON true WHEN NOT MATCHED BY TARGET THEN INSERT (a) VALUES (1)",
        ] {
            check(same, same);
        }
        // The alias comes last; sqlparser prints it first.
        check("SELECT * FROM t VERSION AS OF 1 AS x", "SELECT * FROM t AS x VERSION AS OF 1");
        check("ABORT", "ROLLBACK");
        for (sql, tree) in [
            ("a IS DISTINCT FROM b AND c", "(a IS DISTINCT FROM b) AND c"),
            ("a IS NOT DISTINCT FROM b + 1 OR c", "(a IS NOT DISTINCT FROM (b + 1)) OR c"),
            ("NOT a IS DISTINCT FROM b", "NOT (a IS DISTINCT FROM b)"),
            ("a + 1 IS DISTINCT FROM b IS NULL", "((a + 1) IS DISTINCT FROM b) IS NULL"),
        ] {
            let parse = |sql: &str| {
                let mut parsed = Parser::new(&Thalweg).try_with_sql(sql)?;
                parsed.parse_expr().map(|e| without_parentheses(&e))
            };
            assert_eq!(parse(sql), parse(tree), "{sql}");
        }
        check(
            "MERGE INTO t USING u ON true WHEN NOT MATCHED THEN DO NOTHING",
            "MERGE INTO t USING u ON true WHEN NOT MATCHED THEN UPDATE SET ",
        );
        check(
            "MERGE INTO t USING u ON true WHEN MATCHED THEN INSERT VALUES (1)",
            "sql parser error: Expected: UPDATE, DELETE or DO NOTHING, found: INSERT at Line: 1, Column: 48",
        );
    }
}
