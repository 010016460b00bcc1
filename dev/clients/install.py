"""What the checks of clients need, installed by the ordinary means, once, into a folder."""

import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
PG = "8.23.1"
PGJDBC = "42.7.4"
SQLLOGICTEST = "0.29.1"

# Programs, and the package of Debian that has each.
PACKAGES = {
    "psql": "postgresql-client",
    "pgbench": "postgresql-contrib",
    "openssl": "openssl",
    "node": "nodejs",
    "npm": "npm",
    "javac": "default-jdk-headless",
    "mvn": "maven",
}


def run(*command, **options):
    subprocess.run(command, check=True, **options)


def programs(names):
    """Sees to it that they are there, or says what is missing."""
    missing = [name for name in names if not shutil.which(name)]
    packages = sorted({PACKAGES[name] for name in missing})
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"== Installing {' '.join(packages)}", flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        run("apt-get", "update", "-qq", env=environment)
        run("apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages, env=environment)
        missing = [name for name in missing if not shutil.which(name)]
    if missing:
        sys.exit(f"missing: {', '.join(missing)}; install {' '.join(packages)} (names as in Debian)")


def once(folder, wanted, work):
    """Runs `work` unless the folder says that just this was installed."""
    stamp = folder / "installed"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    work()
    stamp.write_text(wanted)


def python(cache):
    """The interpreter of an environment with the clients of Python."""
    folder = cache / "venv"
    requirements = HERE / "requirements.txt"
    binary = folder / "bin" / "python"

    def work():
        print("== Installing the clients for Python", flush=True)
        run(sys.executable, "-m", "venv", folder)
        run(binary, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements)

    once(folder, requirements.read_text(), work)
    return binary


def node(cache):
    """The folder of node's packages."""
    folder = cache / "node"

    def work():
        print("== Installing node-postgres", flush=True)
        (folder / "package.json").write_text('{"private": true}\n')
        run("npm", "install", "--silent", "--no-fund", "--no-audit", f"pg@{PG}", cwd=folder)

    once(folder, PG, work)
    return folder / "node_modules"


def jdbc(cache):
    """The jar of pgJDBC."""
    folder = cache / "jdbc"

    def work():
        print("== Installing pgJDBC", flush=True)
        artifact = f"-Dartifact=org.postgresql:postgresql:{PGJDBC}"
        run("mvn", "-q", "-B", "dependency:copy", artifact, f"-DoutputDirectory={folder}")

    once(folder, PGJDBC, work)
    return folder / f"postgresql-{PGJDBC}.jar"


def sqllogictest(cache):
    """The program sqllogictest, built by cargo."""
    folder = cache / "sqllogictest"

    def work():
        print("== Installing sqllogictest-bin", flush=True)
        target = folder / "target"
        install = ["cargo", "install", "--debug", "--locked", "--quiet", "--root", folder]
        run(*install, f"sqllogictest-bin@{SQLLOGICTEST}", env={**os.environ, "CARGO_TARGET_DIR": str(target)})
        shutil.rmtree(target)

    once(folder, SQLLOGICTEST, work)
    return folder / "bin" / "sqllogictest"
