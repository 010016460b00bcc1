// node-postgres. The server is in PGHOST, PGPORT, …

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const pg = createRequire(process.env.NODE_MODULES + "/")("pg");
const checks = [];
const check = (feature, work) => checks.push([feature, work]);
const connect = async () => {
  const client = new pg.Client({ database: "thalweg" });
  await client.connect();
  return client;
};
const fails = async (code, promise) => {
  const error = await promise.then(() => null, (e) => e);
  assert.equal(error?.code, code);
};

check("queries", async (c) => {
  const found = await c.query("SELECT 1 AS a, 'x' AS b, NULL AS n");
  assert.deepEqual(found.rows, [{ a: 1, b: "x", n: null }]);
  const both = await c.query("SELECT 1 AS a; SELECT 2 AS b");
  assert.deepEqual(both.map((r) => r.rows.length), [1, 1]);
});

check("parameters", async (c) => {
  const one = async (sql, ...values) => (await c.query(sql, values)).rows[0];
  assert.deepEqual(await one("SELECT $1::int + 1 AS a, $2 || 'x' AS b", 5, "y"), { a: 6, b: "yx" });
  const named = { name: "again", text: "SELECT $1::text AS a" };
  for (const value of ["a", "b"]) {
    assert.deepEqual((await c.query({ ...named, values: [value] })).rows, [{ a: value }]);
  }
  assert.deepEqual(await one("SELECT 1 AS a WHERE 'x' = ANY ($1) AND 2 <> ALL ($2)", ["x", "y"], [1]), { a: 1 });
});

check("types as text", async (c) => {
  await c.query("CREATE OR REPLACE TABLE node_t (i int, b boolean, d timestamp, n decimal(10,2), y bytea, l int[], s varchar)");
  const when = new Date(Date.UTC(2024, 0, 2, 3, 4, 5));
  await c.query("INSERT INTO node_t VALUES ($1, $2, $3, $4, $5, $6, $7)",
    [1, true, "2024-01-02 03:04:05", "1.50", Buffer.from([0, 255]), [1, 2], "ü"]);
  const { rows } = await c.query("SELECT * FROM node_t");
  assert.deepEqual([rows[0].i, rows[0].b, rows[0].n, rows[0].l, rows[0].s], [1, true, "1.50", [1, 2], "ü"]);
  assert.deepEqual([...rows[0].y], [0, 255]);
  assert.equal(rows[0].d.getUTCFullYear(), when.getUTCFullYear());
});

check("changes", async (c) => {
  const done = await c.query("INSERT INTO node_t (i) VALUES ($1), ($2)", [2, 3]);
  assert.equal(done.rowCount, 2);
  const deleted = await c.query("DELETE FROM node_t WHERE i > $1 RETURNING *", [1]);
  assert.deepEqual([deleted.rows.length, Object.keys(deleted.rows[0]).length], [2, 7]);
});

check("transactions", async (c) => {
  await c.query("BEGIN");
  await c.query("DELETE FROM node_t");
  await fails("42703", c.query("SELECT nosuch FROM node_t"));
  await fails("25P02", c.query("SELECT 1"));
  await c.query("ROLLBACK");
  assert.equal((await c.query("SELECT count(*) AS n FROM node_t")).rows[0].n, "1");
});

check("errors", async (c) => {
  await fails("42601", c.query("SELEC"));
  await fails("42P01", c.query("SELECT * FROM no_such_table WHERE a = $1", [1]));
});

check("cancel", async (c) => {
  const other = await connect();
  const running = fails("57014", c.query("SELECT count(*) FROM generate_series(1, 100000000000)"));
  await new Promise((done) => setTimeout(done, 500));
  const { rows } = await other.query("SELECT query_id FROM system.queries WHERE query LIKE '%100000000000)'");
  await other.query(`KILL QUERY ${rows[0].query_id}`);
  await running;
  await other.end();
});

if (process.env.PGSSLROOTCERT) {
  check("TLS", async () => {
    const ca = readFileSync(process.env.PGSSLROOTCERT, "utf8");
    const client = new pg.Client({ database: "thalweg", ssl: { ca } });
    await client.connect();
    assert.equal((await client.query("SELECT 1 AS a")).rows[0].a, 1);
    assert.ok(client.connection.stream.encrypted);
    await client.end();
  });
  check("passwords", async () => {
    const client = new pg.Client({ database: "thalweg", password: "wrong" });
    await fails("28P01", client.connect());
  });
}

let failed = 0;
for (const [feature, work] of checks) {
  const client = await connect();
  try {
    await work(client);
    console.log(`ok ${feature}`);
  } catch (e) {
    failed += 1;
    console.log(`FAILED ${feature}: ${String(e.message).split("\n")[0]}`);
    console.error(e);
  }
  await client.end();
}
process.exit(failed ? 1 : 0);
