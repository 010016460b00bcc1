use super::*;

const MIB: u64 = 1 << 20;

struct Bench {
    ledger: Ledger,
    actions: Vec<Action>,
}

impl Bench {
    /// A server of 64 MiB: 60 are shared, a query is small up to 1.
    fn new() -> Self {
        let mut ledger = Ledger::new();
        let mut actions = Vec::new();
        ledger.set_class(ClassId::DEFAULT, &Class::new("default"), &mut actions);
        ledger.set_limit(Some(64 * MIB), &mut actions);
        Bench { ledger, actions }
    }

    fn open(&mut self, queries: std::ops::RangeInclusive<u64>) {
        queries.for_each(|q| self.ledger.open(QueryId(q), ClassId::DEFAULT, 0, &mut self.actions));
    }

    fn grow(&mut self, query: u64, mib: u64) -> Result<(), Advice> {
        self.actions.clear();
        let result = self.ledger.try_grow(QueryId(query), mib * MIB, &mut self.actions);
        self.ledger.check().unwrap();
        assert!(self.ledger.held <= self.ledger.limit);
        result.map_err(|r| r.advice)
    }

    fn shrink(&mut self, query: u64, mib: u64) {
        self.actions.clear();
        self.ledger.shrink(QueryId(query), mib * MIB, &mut self.actions);
        self.ledger.check().unwrap();
    }
}

#[test]
fn what_is_free_may_be_used_and_is_given_back_to_who_comes() {
    let mut bench = Bench::new();
    bench.open(1..=1);
    assert_eq!(bench.grow(1, 60), Ok(()), "alone it has everything that is shared");
    assert_eq!(bench.grow(1, 1), Err(Advice::Spill), "the rest is for small ones");
    bench.open(2..=2);
    assert_eq!(bench.grow(2, 1), Ok(()), "who need not wait");
    assert_eq!(bench.grow(2, 9), Err(Advice::Wait), "its share is 30");
    assert_eq!(bench.actions, [Action::Spill(QueryId(1))]);
    assert_eq!(bench.grow(2, 9), Err(Advice::Wait));
    assert_eq!(bench.actions, [], "told once");
    bench.shrink(1, 5);
    assert_eq!(bench.actions, [], "8 are free");
    bench.shrink(1, 5);
    assert_eq!(bench.actions, [Action::MemoryFreed(QueryId(2))]);
    assert_eq!(bench.grow(1, 1), Err(Advice::Spill), "not before the one that waited");
    assert_eq!(bench.grow(2, 9), Ok(()));
    assert!(bench.ledger.must_spill(QueryId(1)));
    bench.shrink(1, 20);
    assert!(!bench.ledger.must_spill(QueryId(1)));
    let freed = bench.ledger.close(QueryId(1), &mut bench.actions);
    assert_eq!(freed, 30 * MIB, "what was not returned is taken back");
    bench.ledger.check().unwrap();
}

#[test]
fn all_of_many_queries_get_their_share() {
    let mut bench = Bench::new();
    bench.open(1..=2);
    assert_eq!((bench.grow(1, 30), bench.grow(2, 30)), (Ok(()), Ok(())));
    bench.open(3..=20);
    // Everybody asks for all of its 3 MiB until it has them; who is told to spill spills.
    let mut wanting: Vec<u64> = (3..=20).collect();
    for _ in 0..100 {
        wanting.retain(|q| bench.grow(*q, 3).is_err());
        for query in 1..=2 {
            if bench.ledger.must_spill(QueryId(query)) {
                bench.shrink(query, 9);
            }
        }
    }
    assert_eq!(wanting, []);
    // All at their shares: growth beyond is refused, and the advice is not to wait.
    (1..=2).for_each(|q| while bench.grow(q, 1).is_ok() {});
    assert_eq!(bench.grow(3, 2), Err(Advice::Spill));
}

#[test]
fn limits_of_class_and_query_hold_and_name_themselves() {
    let mut bench = Bench::new();
    let mut class = Class::new("reports");
    class.memory_bytes = Some(10 * MIB);
    class.query_memory_bytes = Some(6 * MIB);
    let reports = ClassId(7);
    bench.ledger.set_class(reports, &class, &mut bench.actions);
    for query in 1..=3 {
        bench.ledger.open(QueryId(query), reports, 0, &mut bench.actions);
    }
    assert_eq!(bench.grow(1, 6), Ok(()));
    let refusal = bench.ledger.try_grow(QueryId(1), 1, &mut bench.actions).unwrap_err();
    assert_eq!(
        (&refusal.limit, refusal.advice),
        (&MemoryLimit::Query("reports".into()), Advice::Spill)
    );
    assert_eq!(bench.grow(2, 3), Ok(()));
    let refusal = bench.ledger.try_grow(QueryId(3), 2 * MIB, &mut bench.actions).unwrap_err();
    assert_eq!(refusal.limit, MemoryLimit::Class("reports".into()));
    assert_eq!(refusal.holders[0], Holder { query: QueryId(1), bytes: 6 * MIB });
    assert_eq!(refusal.advice, Advice::Wait, "10 MiB / 3 queries are its share");
    let text = format!("{:#}", Error::from(&refusal));
    assert!(text.contains("query 3 holds 0 B and cannot have 2.0 MiB more"), "{text}");
    assert!(
        text.contains("workload \"reports\" has 10.0 MiB, of which 6.0 MiB by query 1"),
        "{text}"
    );
    assert!(text.contains("ALTER WORKLOAD \"reports\" (memory = …) raises it"), "{text}");
}

#[test]
fn a_lowered_limit_refuses_growth_until_below() {
    let mut bench = Bench::new();
    bench.open(1..=2);
    assert_eq!((bench.grow(1, 20), bench.grow(2, 5)), (Ok(()), Ok(())));
    bench.ledger.set_limit(Some(16 * MIB), &mut bench.actions);
    assert_eq!(bench.actions, [Action::Spill(QueryId(1))], "query 2 is within its 7.5 MiB");
    assert_eq!(
        bench.ledger.try_grow(QueryId(1), 1, &mut Vec::new()).unwrap_err().advice,
        Advice::Spill
    );
    assert_eq!(
        bench.ledger.try_grow(QueryId(2), MIB, &mut Vec::new()).unwrap_err().advice,
        Advice::Wait
    );
    bench.shrink(1, 18);
    assert_eq!(bench.actions, [Action::MemoryFreed(QueryId(2))]);
    assert_eq!(bench.grow(2, 2), Ok(()));
}

#[test]
fn a_promise_is_kept_before_any_share() {
    let mut bench = Bench::new();
    bench.open(1..=1);
    assert_eq!(bench.ledger.can_promise(ClassId::DEFAULT, 40 * MIB), Ok(()));
    bench.ledger.open(QueryId(2), ClassId::DEFAULT, 40 * MIB, &mut bench.actions);
    assert_eq!(bench.ledger.share_of(QueryId(2)), Some(50 * MIB));
    assert_eq!(bench.ledger.share_of(QueryId(1)), Some(10 * MIB));
    assert!(bench.ledger.can_promise(ClassId::DEFAULT, 21 * MIB).is_err());
    assert!(bench.ledger.could_ever_promise(ClassId::DEFAULT, 21 * MIB).is_ok());
    assert!(bench.ledger.could_ever_promise(ClassId::DEFAULT, 61 * MIB).is_err());
    assert_eq!(bench.grow(1, 40), Ok(()), "unused promises are lent");
    assert_eq!(bench.grow(2, 40), Err(Advice::Wait));
    assert_eq!(bench.actions, [Action::Spill(QueryId(1))]);
}

#[test]
fn promises_are_made_in_order_and_nobody_who_wants_little_waits() {
    let mut bench = Bench::new();
    bench.open(1..=6);
    let mut actions = Vec::new();
    let mut promise = |bench: &mut Bench, query: u64, mib: u64| {
        let promised = bench.ledger.promise(QueryId(query), mib * MIB, &mut actions);
        bench.ledger.check().unwrap();
        (promised, std::mem::take(&mut actions))
    };
    for query in 1..=4 {
        assert_eq!(promise(&mut bench, query, 100), (true, vec![]), "15 of 60 each");
    }
    assert_eq!(promise(&mut bench, 6, 20), (false, vec![]));
    assert_eq!(promise(&mut bench, 5, 10), (false, vec![]), "which came before it");
    let open = QueryId(7);
    bench.ledger.open(open, ClassId::DEFAULT, 0, &mut bench.actions);
    assert_eq!(promise(&mut bench, 7, 1), (true, vec![]), "a 64th of the limit");
    assert!(bench.ledger.awaits(QueryId(5)) && !bench.ledger.awaits(open));
    let holders = bench.ledger.awaited_limit(QueryId(5)).unwrap();
    assert_eq!(holders, (MemoryLimit::Server, 64 * MIB));

    bench.actions.clear();
    bench.ledger.close(QueryId(2), &mut bench.actions);
    assert_eq!(bench.actions, [Action::MemoryFreed(QueryId(5))], "the first of two");
    let (promised, actions) = promise(&mut bench, 5, 10);
    assert_eq!((promised, actions), (true, vec![]), "5 are left, and the next wants 15");
    bench.actions.clear();
    bench.ledger.close(QueryId(5), &mut bench.actions);
    assert_eq!(bench.actions, [Action::MemoryFreed(QueryId(6))]);
    bench.actions.clear();
    bench.ledger.close(QueryId(6), &mut bench.actions);
    assert_eq!(bench.actions, [], "it went without having asked again");
}
