use std::sync::Arc;

use datafusion::common::NullEquality;
use datafusion::common::tree_node::TreeNode;
use datafusion::execution::SessionStateBuilder;
use datafusion::logical_expr::{JoinType, LogicalPlan};
use datafusion::optimizer::{Optimizer, OptimizerContext, OptimizerRule};
use datafusion::prelude::SessionContext;

use super::cross_join::guard;
use super::{JoinOrder, install};
use crate::cardinality::estimate;
use crate::cardinality::tests::{Stub, plan};

mod random;
mod search;
mod shapes;

/// A session with the rule, or with DataFusion's rules alone.
fn session(reorder: bool) -> SessionContext {
    let builder = SessionStateBuilder::new().with_default_features();
    let builder = if reorder {
        install(builder)
    } else {
        // Guarded too: a reference must give the right rows.
        let mut rules = Optimizer::new().rules;
        guard(&mut rules);
        builder.with_optimizer_rules(rules)
    };
    SessionContext::new_with_state(builder.build())
}

fn sessions(tables: Vec<(&str, Stub)>) -> [SessionContext; 2] {
    let sessions = [session(true), session(false)];
    for (name, table) in tables {
        let table = Arc::new(table);
        for session in &sessions {
            session.register_table(name, Arc::clone(&table) as _).expect("a fresh name");
        }
    }
    sessions
}

/// The joins of a plan: `(build probe)`, `x` before a cross join, outer and semi joins named.
fn order(plan: &LogicalPlan) -> String {
    match plan {
        LogicalPlan::Join(join) => {
            let kind = match join.join_type {
                JoinType::Inner if join.on.is_empty() => "x".to_string(),
                JoinType::Inner => String::new(),
                other => other.to_string(),
            };
            format!("{kind}({} {})", order(&join.left), order(&join.right))
        }
        LogicalPlan::TableScan(scan) => scan.table_name.table().to_string(),
        LogicalPlan::SubqueryAlias(alias) => {
            let inner = order(&alias.input);
            if inner.contains('(') { inner } else { alias.alias.table().to_string() }
        }
        LogicalPlan::Aggregate(aggregate) => {
            let inner = order(&aggregate.input);
            if inner.contains('(') { inner } else { format!("agg[{inner}]") }
        }
        other => other.inputs().into_iter().map(order).collect::<Vec<_>>().join(" "),
    }
}

/// Rows of all inner joins together: what a bad order pays for.
fn intermediates(plan: &LogicalPlan) -> f64 {
    let own = match plan {
        LogicalPlan::Join(join) if join.join_type == JoinType::Inner => estimate(plan).rows,
        _ => 0.0,
    };
    own + plan.inputs().into_iter().map(intermediates).sum::<f64>()
}

fn assert_idempotent(plan: &LogicalPlan) {
    let again = JoinOrder.rewrite(plan.clone(), &OptimizerContext::new()).expect("rewrites");
    assert!(!again.transformed, "changed once more:\n{plan}\n{}", again.data);
}

/// The order of a query's joins, which must not depend on the order of its `FROM`, and the
/// factor by which it puts out fewer rows than DataFusion's.
async fn check(sessions: &[SessionContext; 2], sql: &str, expected: &str, factor: f64) {
    let reordered = plan(&sessions[0], sql).await;
    let naive = plan(&sessions[1], sql).await;
    let (ours, theirs) = (intermediates(&reordered), intermediates(&naive));
    println!("{theirs:>16.0} -> {ours:>12.0}  {} -> {}", order(&naive), order(&reordered));
    assert_eq!(order(&reordered), expected, "{}", reordered.display_indent());
    assert_idempotent(&reordered);
    assert_eq!(reordered.schema().columns(), naive.schema().columns());
    assert!(ours * factor <= theirs, "{theirs} -> {ours}: {}", order(&naive));
}

fn chain() -> Vec<(&'static str, Stub)> {
    vec![
        ("a", Stub::new(1000).key("a_id").int("a_b", 100, 1, 100).int("a_v", 10, 1, 10)),
        ("b", Stub::new(100).key("b_id").int("b_c", 10, 1, 10).int("b_v", 50, 1, 50)),
        ("c", Stub::new(10).key("c_id").text("c_name", 10, "a", "z")),
        ("one", Stub::new(5000).key("one_id").int("one_v", 10, 1, 10)),
    ]
}

#[tokio::test]
async fn disconnected_parts_are_joined_each_and_crossed_last() {
    let sessions = sessions(chain());
    let sql =
        "SELECT * FROM a, c, one, b WHERE a_b = b_id AND b_c = c_id AND c_name = 'k' AND one_v = 3";
    check(&sessions, sql, "x(((c b) a) one)", 1.0).await;
    let sql = "SELECT count(*) FROM a, c, one";
    let _ = plan(&sessions[0], sql).await;
}

#[tokio::test]
async fn a_single_row_is_crossed_where_its_condition_filters() {
    let sessions = sessions(chain());
    let sql =
        "SELECT a_id FROM a, b, (SELECT avg(one_v) AS m FROM one) s WHERE a_b = b_id AND a_v > m";
    let reordered = plan(&sessions[0], sql).await;
    assert_idempotent(&reordered);
    assert_eq!(order(&reordered), "(b x(s a))", "{}", reordered.display_indent());
}

#[tokio::test]
async fn columns_keep_their_order_and_names() {
    let sessions = sessions(chain());
    for sql in [
        "SELECT * FROM a JOIN b ON a_b = b_id JOIN c ON b_c = c_id WHERE c_name = 'k'",
        "SELECT c_name, a_id, b.* FROM a JOIN b ON a_b = b_id JOIN c ON b_c = c_id",
        "SELECT * FROM (SELECT * FROM a JOIN b ON a_b = b_id JOIN c ON b_c = c_id) AS v ORDER BY 1 LIMIT 3",
        "SELECT * FROM a JOIN b ON a_b = b_id JOIN c ON b_c = c_id UNION ALL SELECT * FROM a JOIN b ON a_b = b_id JOIN c ON b_c = c_id",
    ] {
        let [ours, theirs] = [plan(&sessions[0], sql).await, plan(&sessions[1], sql).await];
        assert_eq!(ours.schema().columns(), theirs.schema().columns(), "{sql}");
        assert_idempotent(&ours);
    }
}

#[tokio::test]
async fn a_table_may_occur_many_times() {
    let sessions = sessions(chain());
    let sql = "SELECT x.a_id, y.a_id, z.a_id FROM a x, a y, a z, b \
               WHERE x.a_b = y.a_b AND y.a_b = z.a_b AND z.a_b = b_id AND b_v = 7 AND x.a_v = 1";
    let reordered = plan(&sessions[0], sql).await;
    assert_idempotent(&reordered);
    // All four are equal: the filtered b comes first although only z is written next to it.
    assert!(order(&reordered).contains("(b x)"), "{}", reordered.display_indent());
}

#[tokio::test]
async fn outer_joins_and_subqueries_are_relations_of_their_own() {
    let sessions = sessions(chain());
    let sql = "SELECT a_id FROM a LEFT JOIN (SELECT one_id FROM one, b, c WHERE one_id = b_id AND b_c = c_id AND c_name = 'k') s ON a_id = one_id";
    check(&sessions, sql, "Left(a ((c b) one))", 1.0).await;
    let sql = "SELECT a_id FROM a, b, c WHERE a_b = b_id AND b_c = c_id AND c_name = 'k' AND a_id IN (SELECT one_v FROM one)";
    let reordered = plan(&sessions[0], sql).await;
    assert_idempotent(&reordered);
    assert!(order(&reordered).contains("(c b)"), "{}", reordered.display_indent());
}

#[tokio::test]
async fn volatile_conditions_stay() {
    let sessions = sessions(chain());
    let sql = "SELECT a_id FROM a JOIN b ON a_b = b_id AND random() < a_v JOIN c ON b_c = c_id";
    let [ours, theirs] = [plan(&sessions[0], sql).await, plan(&sessions[1], sql).await];
    assert_eq!(ours.display_indent().to_string().matches("random()").count(), 1);
    assert_eq!(ours.schema().columns(), theirs.schema().columns());
}

#[tokio::test]
async fn more_relations_than_a_search_takes() {
    let sessions = sessions(chain());
    for n in [12, 40, 70] {
        let from: Vec<String> = (0..n).map(|i| format!("b AS b{i}")).collect();
        let on: Vec<String> = (1..n).map(|i| format!("b{}.b_id = b{i}.b_id", i - 1)).collect();
        let sql = format!("SELECT b0.b_v FROM {} WHERE {}", from.join(", "), on.join(" AND "));
        let started = std::time::Instant::now();
        let state = sessions[0].state();
        let unoptimised = state.create_logical_plan(&sql).await.expect("plans");
        let result = JoinOrder.rewrite(unoptimised, &OptimizerContext::new());
        println!("{n} relations: {:?}", started.elapsed());
        assert_eq!(order(&result.expect("rewrites").data).matches('b').count(), n);
    }
}

/// DataFusion 55.2 drops the key over two relations here, and the nulls that are not distinct.
#[tokio::test]
async fn keys_that_eliminate_cross_join_would_lose() {
    let sessions = sessions(chain());
    for session in &sessions {
        let sql = "SELECT count(*), sum(a_id) FROM a \
            CROSS JOIN (SELECT max(b_v) AS m, min(b_c) AS n FROM b) s JOIN one ON n = one_v \
            WHERE a_v + m = one_id";
        let text = plan(session, sql).await.display_indent().to_string();
        assert!(text.contains("a.a_v + s.m"), "{text}");
        let sql = "SELECT * FROM a CROSS JOIN b CROSS JOIN c CROSS JOIN one \
            WHERE (a_v IS NOT DISTINCT FROM b_c) AND c_id = one_v";
        let plan = plan(session, sql).await;
        let found = plan.exists(|node| {
            Ok(match node {
                LogicalPlan::Join(j) if j.filter.is_some() => true,
                LogicalPlan::Join(j) => j.null_equality == NullEquality::NullEqualsNull,
                _ => false,
            })
        });
        assert!(found.expect("walks"), "{}", plan.display_indent());
    }
}
