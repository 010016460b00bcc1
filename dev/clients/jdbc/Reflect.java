import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.Statement;
import java.sql.Types;

/**
 * pgJDBC's DatabaseMetaData against a server whose URL it is given; see run.sh. Exits with 1 at the
 * first thing that is not as it should be.
 */
public class Reflect {
    static final String SCHEMA = "jdbc_test";

    static void check(String what, Object found, Object expected) {
        if (!found.equals(expected)) {
            System.out.println("FAILED metadata: " + what + ": expected " + expected + ", found " + found);
            System.exit(1);
        }
        System.out.println("ok metadata: " + what);
    }

    /** Reads all of a result; the values of one column, joined. */
    static String column(ResultSet rows, String name) throws Exception {
        StringBuilder all = new StringBuilder();
        while (rows.next()) {
            all.append(all.length() > 0 ? "," : "").append(rows.getString(name));
            for (int i = 1; i <= rows.getMetaData().getColumnCount(); i++) {
                rows.getString(i);
            }
        }
        rows.close();
        return all.toString();
    }

    public static void main(String[] args) {
        try {
            run(args[0]);
        } catch (Exception e) {
            System.out.println("FAILED metadata: " + String.valueOf(e.getMessage()).split("\n")[0]);
            e.printStackTrace();
            System.exit(1);
        }
    }

    static void run(String url) throws Exception {
        try (Connection connection = DriverManager.getConnection(url)) {
            try (Statement statement = connection.createStatement()) {
                statement.execute("DROP SCHEMA IF EXISTS " + SCHEMA + " CASCADE");
                statement.execute("CREATE SCHEMA " + SCHEMA);
                statement.execute("CREATE TABLE " + SCHEMA + ".t (id BIGINT NOT NULL,"
                    + " name VARCHAR DEFAULT 'x', price DECIMAL(12,2), at TIMESTAMP)");
                statement.execute("CREATE VIEW " + SCHEMA + ".v AS SELECT id FROM " + SCHEMA + ".t");
            }
            try {
                reflect(connection);
            } finally {
                connection.setAutoCommit(true);
                try (Statement statement = connection.createStatement()) {
                    statement.execute("DROP SCHEMA " + SCHEMA + " CASCADE");
                }
            }
        }
    }

    static void reflect(Connection connection) throws Exception {
        DatabaseMetaData data = connection.getMetaData();
        check("product", data.getDatabaseProductName(), "PostgreSQL");
        check("catalogs", column(data.getCatalogs(), "TABLE_CAT").contains("thalweg"), true);
        check("schemas", column(data.getSchemas(null, SCHEMA), "TABLE_SCHEM"), SCHEMA);
        check("tables", column(data.getTables(null, SCHEMA, "%", null), "TABLE_NAME"), "t,v");
        check("only views",
            column(data.getTables(null, SCHEMA, "%", new String[] {"VIEW"}), "TABLE_NAME"), "v");
        check("columns",
            column(data.getColumns(null, SCHEMA, "t", "%"), "COLUMN_NAME"), "id,name,price,at");
        check("types", column(data.getColumns(null, SCHEMA, "t", "%"), "DATA_TYPE"),
            Types.BIGINT + "," + Types.VARCHAR + "," + Types.NUMERIC + "," + Types.TIMESTAMP);
        check("sizes",
            column(data.getColumns(null, SCHEMA, "t", "price"), "DECIMAL_DIGITS"), "2");
        check("nullable",
            column(data.getColumns(null, SCHEMA, "t", "%"), "IS_NULLABLE"), "NO,YES,YES,YES");
        check("primary key", column(data.getPrimaryKeys(null, SCHEMA, "t"), "COLUMN_NAME"), "");
        check("imported", column(data.getImportedKeys(null, SCHEMA, "t"), "FK_NAME"), "");
        check("exported", column(data.getExportedKeys(null, SCHEMA, "t"), "FK_NAME"), "");
        check("indexes",
            column(data.getIndexInfo(null, SCHEMA, "t", false, true), "INDEX_NAME"), "");
        check("type info", column(data.getTypeInfo(), "TYPE_NAME").contains("int8"), true);
        check("procedures", column(data.getProcedures(null, SCHEMA, "%"), "PROCEDURE_NAME"), "");
        check("functions",
            column(data.getFunctions(null, "pg_catalog", "lower"), "FUNCTION_NAME").contains("lower"),
            true);
        column(data.getTablePrivileges(null, SCHEMA, "t"), "PRIVILEGE");
        column(data.getColumnPrivileges(null, SCHEMA, "t", "%"), "PRIVILEGE");
        column(data.getUDTs(null, null, "%", null), "TYPE_NAME");
        check("keywords", data.getSQLKeywords().length() > 0, true);
        check("name length", data.getMaxColumnNameLength(), 63);
        check("schema", connection.getSchema(), "public");
        try (PreparedStatement statement =
                connection.prepareStatement("SELECT * FROM " + SCHEMA + ".t WHERE id = ?")) {
            ResultSetMetaData result = statement.getMetaData();
            check("described", result.getColumnCount() + " " + result.getColumnTypeName(3),
                "4 numeric");
            check("not an identity", result.isAutoIncrement(1), false);
        }
        connection.setAutoCommit(false);
        try (Statement statement = connection.createStatement()) {
            statement.setFetchSize(3);
            check("in portions",
                column(statement.executeQuery("SELECT * FROM generate_series(1, 10) AS x(n)"), "n"),
                "1,2,3,4,5,6,7,8,9,10");
        }
        connection.commit();
        check("valid", connection.isValid(5), true);
        connection.setClientInfo("ApplicationName", "reflect");
    }
}
