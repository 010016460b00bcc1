"""TLS and passwords, as clients of PostgreSQL ask for them. The server is in PGHOST, …, its
certificate in PGSSLROOTCERT.

Lines are of several clients: `ok CLIENT/FEATURE: what`.
"""

import asyncio
import os
import ssl
import subprocess

import asyncpg
import psycopg
from checks import check, equal, main

CERTIFICATE = os.environ["PGSSLROOTCERT"]
# The certificate of somebody else.
STRANGE = os.path.join(os.environ.get("TMPDIR", "/tmp"), "strange.pem")


def psql(sql, fails=False, **environment):
    done = subprocess.run(
        ["psql", "-X", "-At", "-w", "-v", "VERBOSITY=verbose", "-c", sql],
        env=os.environ | environment, capture_output=True, text=True, timeout=60,
    )
    if (done.returncode != 0) != fails:
        raise AssertionError(done.stderr or f"let in: {done.stdout}")
    return done.stderr if fails else done.stdout.strip()


def conninfo(**environment):
    return psql("\\conninfo", **environment)


@check("psql/TLS: sslmode=require")
def require():
    said = conninfo(PGSSLMODE="require")
    assert "SSL" in said and "TLSv1.3" in said, said


@check("psql/TLS: TLS 1.2")
def older():
    said = conninfo(PGSSLMODE="require", PGSSLMAXPROTOCOLVERSION="TLSv1.2")
    assert "TLSv1.2" in said, said
    psql("SELECT 1", fails=True, PGSSLMODE="require", PGSSLMINPROTOCOLVERSION="TLSv1", PGSSLMAXPROTOCOLVERSION="TLSv1.1")


@check("psql/TLS: sslmode=verify-full")
def verify():
    equal(psql("SELECT 1", PGSSLMODE="verify-full"), "1")
    equal(psql("SELECT 1", PGSSLMODE="verify-full", PGHOST="localhost", PGHOSTADDR="127.0.0.1"), "1")
    said = psql("SELECT 1", fails=True, PGSSLMODE="verify-full", PGHOST="elsewhere", PGHOSTADDR="127.0.0.1")
    assert "elsewhere" in said, said


@check("psql/TLS: another certificate is not trusted")
def strange():
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-subj", "/CN=localhost", "-keyout", "/dev/null", "-out", STRANGE],
        check=True, capture_output=True,
    )
    said = psql("SELECT 1", fails=True, PGSSLMODE="verify-ca", PGSSLROOTCERT=STRANGE)
    assert "certificate verify failed" in said, said


@check("psql/TLS: sslmode=disable on loopback")
def disable():
    equal(psql("SELECT 1", PGSSLMODE="disable"), "1")
    assert "SSL" not in conninfo(PGSSLMODE="disable")


@check("psql/passwords: channel binding")
def binding():
    equal(psql("SELECT 1", PGSSLMODE="require", PGCHANNELBINDING="require"), "1")
    # Without TLS there is nothing to bind to.
    psql("SELECT 1", fails=True, PGSSLMODE="disable", PGCHANNELBINDING="require")


@check("psql/passwords: a wrong one")
def wrong():
    said = psql("SELECT 1", fails=True, PGPASSWORD="wrong", PGSSLMODE="require")
    assert "password authentication failed" in said, said
    equal(psql("SELECT current_user"), os.environ["PGUSER"])


@check("psycopg/TLS: sslmode=verify-full")
def psycopg_tls():
    with psycopg.connect(sslmode="verify-full") as c:
        equal(c.execute("SELECT 1").fetchone(), (1,))
        assert c.pgconn.ssl_in_use


@check("psycopg/passwords: SCRAM-SHA-256-PLUS, 28P01")
def psycopg_passwords():
    with psycopg.connect(sslmode="require", channel_binding="require") as c:
        equal(c.execute("SELECT current_user").fetchone(), (os.environ["PGUSER"],))
    try:
        psycopg.connect(password="wrong", sslmode="disable").close()
    except psycopg.OperationalError as error:
        assert "password authentication failed" in str(error), error
        return
    raise AssertionError("let in")


async def asyncpg_one(**options):
    c = await asyncpg.connect(**options)
    try:
        return await c.fetchval("SELECT 1"), c._transport.get_extra_info("ssl_object")
    finally:
        await c.close()


@check("asyncpg/TLS: with the certificate")
def asyncpg_tls():
    context = ssl.create_default_context(cafile=CERTIFICATE)
    one, encrypted = asyncio.run(asyncpg_one(ssl=context))
    equal(one, 1)
    assert encrypted is not None
    equal(asyncio.run(asyncpg_one(ssl=False)), (1, None))


@check("asyncpg/passwords: 28P01")
def asyncpg_passwords():
    try:
        asyncio.run(asyncpg_one(password="wrong"))
    except asyncpg.InvalidPasswordError as error:
        equal(error.sqlstate, "28P01")
        return
    raise AssertionError("let in")


if __name__ == "__main__":
    main()
