import java.io.StringReader;
import java.io.StringWriter;
import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.Date;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Timestamp;
import java.util.Arrays;
import java.util.Objects;
import org.postgresql.PGConnection;
import org.postgresql.copy.CopyManager;

/** What an application does with pgJDBC, against a server whose URL it is given; see run.sh. */
public class Use {
    static final String ENDLESS = "SELECT count(*) FROM generate_series(1, 100000000000)";

    static String url;
    static int failed = 0;

    interface Work {
        void on(Connection connection) throws Exception;
    }

    /** A check with a connection of its own. */
    static void check(String feature, Work work) {
        try (Connection connection = DriverManager.getConnection(url)) {
            work.on(connection);
            System.out.println("ok " + feature);
        } catch (Exception | AssertionError e) {
            failed++;
            System.out.println("FAILED " + feature + ": " + String.valueOf(e.getMessage()).split("\n")[0]);
            e.printStackTrace();
        }
    }

    static void equal(Object found, Object expected) {
        if (!Objects.equals(found, expected)) {
            throw new AssertionError("found " + found + ", expected " + expected);
        }
    }

    interface Failing {
        void run() throws Exception;
    }

    static void fails(String state, Failing work) throws Exception {
        try {
            work.run();
        } catch (SQLException e) {
            equal(e.getSQLState(), state);
            return;
        }
        throw new AssertionError("no error " + state);
    }

    static void run(Connection c, String sql) throws SQLException {
        try (Statement statement = c.createStatement()) {
            statement.execute(sql);
        }
    }

    /** The first row, joined. */
    static String row(Connection c, String sql, Object... values) throws SQLException {
        try (PreparedStatement statement = c.prepareStatement(sql)) {
            for (int i = 0; i < values.length; i++) {
                statement.setObject(i + 1, values[i]);
            }
            try (ResultSet rows = statement.executeQuery()) {
                StringBuilder all = new StringBuilder();
                if (rows.next()) {
                    for (int i = 1; i <= rows.getMetaData().getColumnCount(); i++) {
                        all.append(i > 1 ? "|" : "").append(rows.getString(i));
                    }
                }
                return all.toString();
            }
        }
    }

    public static void main(String[] args) {
        url = args[0];
        check("queries", Use::queries);
        check("parameters", Use::parameters);
        check("prepared", Use::prepared);
        check("types as text", c -> types(c, false));
        check("types in binary", c -> types(c, true));
        check("changes", Use::changes);
        check("transactions", Use::transactions);
        check("conflicts", Use::conflicts);
        check("copy in", Use::copyIn);
        check("copy out", Use::copyOut);
        check("server-side cursors", Use::cursors);
        check("cancel", Use::cancel);
        check("errors", Use::errors);
        if (url.contains("sslrootcert")) {
            // The URL asks for it: whoever is here has it.
            check("TLS", c -> equal(row(c, "SELECT 1"), "1"));
            check("passwords", c -> fails("28P01", () ->
                DriverManager.getConnection(url.replaceAll("password=[^&]*", "password=wrong")).close()));
        }
        System.exit(failed > 0 ? 1 : 0);
    }

    static void queries(Connection c) throws Exception {
        equal(row(c, "SELECT 1 AS a, 'x' AS b, NULL AS n"), "1|x|null");
        try (Statement statement = c.createStatement()) {
            equal(statement.execute("SELECT 1; SELECT 2"), true);
            equal(statement.getMoreResults(), true);
            try (ResultSet rows = statement.getResultSet()) {
                rows.next();
                equal(rows.getInt(1), 2);
            }
        }
    }

    static void parameters(Connection c) throws Exception {
        equal(row(c, "SELECT ?::int + 1, ? || 'x'", 5, "y"), "6|yx");
        equal(row(c, "SELECT count(*) FROM generate_series(1, ?)", 100L), "100");
        equal(row(c, "SELECT ?", "'; DROP TABLE x; --"), "'; DROP TABLE x; --");
        equal(row(c, "SELECT ? IS NULL", new Object[] {null}), "t");
    }

    /** After five runs the driver names its statement and asks for binary values. */
    static void prepared(Connection c) throws Exception {
        try (PreparedStatement statement = c.prepareStatement("SELECT ?::bigint * 2, ?::varchar")) {
            for (int i = 0; i < 12; i++) {
                statement.setLong(1, i);
                statement.setString(2, "s" + i);
                try (ResultSet rows = statement.executeQuery()) {
                    rows.next();
                    equal(rows.getLong(1) + rows.getString(2), 2L * i + "s" + i);
                }
            }
        }
    }

    static void types(Connection c, boolean binary) throws Exception {
        run(c, "DROP TABLE IF EXISTS jdbc_t");
        run(c, "CREATE TABLE jdbc_t (i int, b bigint, f double, n decimal(12,3), s varchar,"
            + " d date, ts timestamp, by bytea, ok boolean, l int[])");
        Timestamp at = Timestamp.valueOf("2024-01-01 01:02:03.000456");
        try (PreparedStatement statement =
                c.prepareStatement("INSERT INTO jdbc_t VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")) {
            ((org.postgresql.PGStatement) statement).setPrepareThreshold(binary ? -1 : 0);
            statement.setInt(1, 1);
            statement.setLong(2, 1L << 40);
            statement.setDouble(3, 1.5);
            statement.setBigDecimal(4, new BigDecimal("12.345"));
            statement.setString(5, "it's ü");
            statement.setDate(6, Date.valueOf("2024-02-29"));
            statement.setTimestamp(7, at);
            statement.setBytes(8, new byte[] {0, -1});
            statement.setBoolean(9, true);
            statement.setArray(10, c.createArrayOf("int4", new Integer[] {1, 2, null}));
            equal(statement.executeUpdate(), 1);
        }
        try (PreparedStatement statement = c.prepareStatement("SELECT * FROM jdbc_t")) {
            ((org.postgresql.PGStatement) statement).setPrepareThreshold(binary ? -1 : 0);
            try (ResultSet rows = statement.executeQuery()) {
                rows.next();
                equal(rows.getInt(1), 1);
                equal(rows.getLong(2), 1L << 40);
                equal(rows.getDouble(3), 1.5);
                equal(rows.getBigDecimal(4), new BigDecimal("12.345"));
                equal(rows.getString(5), "it's ü");
                equal(rows.getDate(6), Date.valueOf("2024-02-29"));
                equal(rows.getTimestamp(7), at);
                equal(Arrays.toString(rows.getBytes(8)), "[0, -1]");
                equal(rows.getBoolean(9), true);
                equal(Arrays.toString((Object[]) rows.getArray(10).getArray()), "[1, 2, null]");
            }
        }
        run(c, "DROP TABLE jdbc_t");
    }

    static void changes(Connection c) throws Exception {
        run(c, "CREATE TABLE jdbc_c (i int, s varchar)");
        try (PreparedStatement statement = c.prepareStatement("INSERT INTO jdbc_c VALUES (?, ?)")) {
            for (int i = 0; i < 10; i++) {
                statement.setInt(1, i);
                statement.setString(2, "s" + i);
                statement.addBatch();
            }
            equal(Arrays.stream(statement.executeBatch()).sum(), 10);
        }
        try (Statement statement = c.createStatement()) {
            equal(statement.executeUpdate("UPDATE jdbc_c SET s = 'new' WHERE i > 6"), 3);
            equal(statement.executeUpdate("DELETE FROM jdbc_c WHERE i < 2"), 2);
        }
        equal(row(c, "INSERT INTO jdbc_c VALUES (?, 'r') RETURNING i, s", 77), "77|r");
        equal(row(c, "SELECT count(*), count(DISTINCT s) FROM jdbc_c"), "9|7");
    }

    static void transactions(Connection c) throws Exception {
        c.setAutoCommit(false);
        run(c, "DELETE FROM jdbc_c");
        Savepoint savepoint = c.setSavepoint("here");
        fails("42703", () -> row(c, "SELECT nosuch FROM jdbc_c"));
        fails("25P02", () -> row(c, "SELECT 1"));
        c.rollback(savepoint);
        equal(row(c, "SELECT count(*) FROM jdbc_c"), "0");
        c.rollback();
        equal(row(c, "SELECT count(*) FROM jdbc_c"), "9");
        c.commit();
        c.setReadOnly(true);
        fails("25006", () -> run(c, "DELETE FROM jdbc_c"));
        c.rollback();
    }

    static void conflicts(Connection a) throws Exception {
        run(a, "CREATE TABLE jdbc_k AS SELECT 1 AS k, 0 AS v");
        try (Connection b = DriverManager.getConnection(url)) {
            a.setAutoCommit(false);
            b.setAutoCommit(false);
            run(a, "UPDATE jdbc_k SET v = 1");
            run(b, "UPDATE jdbc_k SET v = 2");
            a.commit();
            fails("40001", b::commit);
        }
    }

    static void copyIn(Connection c) throws Exception {
        CopyManager copy = c.unwrap(PGConnection.class).getCopyAPI();
        equal(copy.copyIn("COPY jdbc_c FROM STDIN CSV", new StringReader("100,\"a,b\"\n101,\n")), 2L);
        fails("22P02", () -> copy.copyIn("COPY jdbc_c FROM STDIN CSV", new StringReader("x,y\n")));
        equal(row(c, "SELECT count(*), count(s) FROM jdbc_c WHERE i >= 100"), "2|1");
    }

    static void copyOut(Connection c) throws Exception {
        StringWriter text = new StringWriter();
        c.unwrap(PGConnection.class).getCopyAPI()
            .copyOut("COPY (SELECT * FROM jdbc_c WHERE i >= 100 ORDER BY i) TO STDOUT CSV", text);
        equal(text.toString(), "100,\"a,b\"\n101,\n");
    }

    static void cursors(Connection c) throws Exception {
        c.setAutoCommit(false);
        try (Statement statement = c.createStatement()) {
            statement.setFetchSize(100);
            long sum = 0;
            try (ResultSet rows = statement.executeQuery("SELECT * FROM generate_series(1, 10000)")) {
                while (rows.next()) {
                    sum += rows.getLong(1);
                }
            }
            equal(sum, 50005000L);
        }
        c.commit();
    }

    static void cancel(Connection c) throws Exception {
        try (Statement statement = c.createStatement()) {
            statement.setQueryTimeout(1);
            long begun = System.nanoTime();
            fails("57014", () -> statement.executeQuery(ENDLESS));
            equal(System.nanoTime() - begun < 10_000_000_000L, true);
        }
        equal(row(c, "SELECT 1"), "1");
    }

    static void errors(Connection c) throws Exception {
        fails("42601", () -> row(c, "SELEC 1"));
        fails("42P01", () -> row(c, "SELECT * FROM no_such_table WHERE a = ?", 1));
        fails("22012", () -> row(c, "SELECT 1 / 0"));
    }
}
