//! Forms of SQL that are about texts: `substring`, `trim`, `normalize`, `string_agg`.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::{AggregateUDF, Expr, lit};
use datafusion::sql::sqlparser::ast::{self, NormalizationForm, TrimWhereField};

use crate::binder::Binder;
use crate::failure::{Result, not_covered};
use crate::literal;
use crate::operator::mismatch;
use crate::place::Place;
use crate::typed::Typed;
use crate::types::{self, TEXT, is_text};

impl Binder<'_> {
    /// `text ~ 'expression'`
    pub(crate) fn matches(
        &self,
        l: Typed,
        op: &str,
        r: Typed,
        negated: bool,
        any_case: bool,
    ) -> Result<Typed> {
        for side in [&l, &r] {
            if !side.is_open() && !is_text(&side.data_type) {
                return mismatch(&l, op, &r);
            }
        }
        let letters = if any_case { "i" } else { "" };
        let letters = Typed::new(Expr::Literal(ScalarValue::from(letters), None), TEXT, false);
        let (l, r) = (l.cast(&TEXT), r.cast(&TEXT));
        let is_match = self.scalar("regexp_is_match", vec![l, r, letters])?;
        Ok(match negated {
            false => is_match,
            true => Typed { expr: Expr::Not(Box::new(is_match.expr)), ..is_match },
        })
    }

    /// `a || b` of bytes; `None` if these are none.
    pub(crate) fn of_bytes(&self, l: &Typed, r: &Typed) -> Result<Option<Typed>> {
        let is_bytes = |t: &Typed| types::is_bytes(&t.data_type);
        let may_be = |t: &Typed| is_bytes(t) || t.is_open();
        if !(is_bytes(l) || is_bytes(r)) || !may_be(l) || !may_be(r) {
            return Ok(None);
        }
        let sides = [l, r].map(|side| side.clone().cast(&DataType::Binary));
        self.scalar("bytes_concat", sides.to_vec()).map(Some)
    }

    /// `substring(text FROM 2 FOR 3)`, and `substring(text FROM 'expression')`.
    pub(crate) fn substring(
        &self,
        text: &ast::Expr,
        from: Option<&ast::Expr>,
        count: Option<&ast::Expr>,
        is_substr: bool,
        place: Place<'_>,
    ) -> Result<Typed> {
        let mut args = vec![self.expr(text, place)?];
        match (from, count) {
            (Some(from), _) => args.push(self.expr(from, place)?),
            (None, Some(_)) => args.push(literal::count(1)),
            (None, None) => {}
        }
        if let Some(count) = count {
            args.push(self.expr(count, place)?);
        }
        let is_pattern =
            |arg: &Typed| is_text(&arg.data_type) && !matches!(arg.expr, Expr::Placeholder(_));
        match &args[1..] {
            [from] if is_pattern(from) && !is_substr => self.scalar("regexp_part", args),
            [from, escape] if is_pattern(from) && is_pattern(escape) => {
                not_covered("substring with a pattern of SIMILAR TO")
            }
            _ => self.called("substr", args),
        }
    }

    pub(crate) fn trim(
        &self,
        text: &ast::Expr,
        at: Option<TrimWhereField>,
        what: impl IntoIterator<Item = impl std::borrow::Borrow<ast::Expr>>,
        place: Place<'_>,
    ) -> Result<Typed> {
        let mut args = vec![self.expr(text, place)?];
        for what in what {
            args.push(self.expr(what.borrow(), place)?);
        }
        let function = match at {
            None | Some(TrimWhereField::Both) => "btrim",
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
        };
        self.called(function, args)
    }

    /// `x IS NFC NORMALIZED`
    pub(crate) fn is_normalized(
        &self,
        text: &ast::Expr,
        form: Option<&NormalizationForm>,
        negated: bool,
        place: Place<'_>,
    ) -> Result<Typed> {
        let form = form.map_or("NFC".to_string(), |form| form.to_string());
        let form = Typed::new(Expr::Literal(ScalarValue::from(form), None), DataType::Utf8, false);
        let is_normal = self.scalar("is_normalized", vec![self.expr(text, place)?, form])?;
        Ok(match negated {
            false => is_normal,
            true => Typed { expr: Expr::Not(Box::new(is_normal.expr)), ..is_normal },
        })
    }

    /// `NFC`, which is written without quotes.
    pub(crate) fn normal_form(&self, form: &ast::Expr, place: Place<'_>) -> Result<Typed> {
        match form {
            ast::Expr::Identifier(word) if word.quote_style.is_none() => {
                let form = Expr::Literal(ScalarValue::from(word.value.as_str()), None);
                Ok(Typed::new(form, DataType::Utf8, false))
            }
            other => self.expr(other, place),
        }
    }

    /// How `string_agg` is made of a list of what it joins, if it is: the aggregate is that of the list
    /// then, and the arguments and the order are that one's. Only lists can be followed where the rows of a
    /// frame also go: where it `moves`.
    pub(crate) fn joining(
        &self,
        udaf: &mut Arc<AggregateUDF>,
        args: &mut Vec<Typed>,
        order_by: &mut Vec<Sort>,
        distinct: bool,
        moves: bool,
    ) -> Result<Joining> {
        if udaf.name() != "string_agg" || args.len() != 2 {
            return Ok(Joining::No);
        }
        let is_constant = |expr: &Expr| matches!(expr, Expr::Literal(..) | Expr::Placeholder(_));
        let is_constant = match &args[1].expr {
            Expr::Cast(cast) => is_constant(&cast.expr),
            other => is_constant(other),
        };
        // The order of what is there once is that of the list: no other aggregate has to see it.
        let descending = match &order_by[..] {
            [] => Some(false),
            [by] => (by.expr == args[0].expr).then_some(!by.asc),
            _ => None,
        };
        let joining = match (is_constant, distinct, descending) {
            (true, true, Some(descending)) if !moves => {
                order_by.clear();
                let delimiter = args.remove(1).cast(&TEXT);
                args[0] = args[0].clone().cast(&TEXT);
                Joining::Once { delimiter, descending }
            }
            (true, ..) if !moves => return Ok(Joining::No),
            _ => {
                args.reverse();
                let pair = args.drain(..).map(|arg| arg.cast(&TEXT)).collect();
                args.push(self.scalar("make_array", pair)?);
                Joining::Each
            }
        };
        match self.names.get_aggregate_meta("array_agg") {
            Some(lists) => *udaf = lists,
            None => return not_covered("string_agg of this kind"),
        }
        Ok(joining)
    }

    /// The text that is made of the list.
    pub(crate) fn with_joined(&self, list: Typed, joining: Joining) -> Result<Typed> {
        match joining {
            Joining::No => Ok(list),
            Joining::Each => self.scalar("join_delimited", vec![list]),
            Joining::Once { delimiter, descending } => {
                let descending = Typed::new(lit(descending), DataType::Boolean, false);
                self.scalar("join_once", vec![list, delimiter, descending])
            }
        }
    }
}

/// What `string_agg` is made of.
pub(crate) enum Joining {
    /// It is an aggregate of its own.
    No,
    /// A list of texts with their delimiters.
    Each,
    /// A list in which each text is once.
    Once { delimiter: Typed, descending: bool },
}
