"""kt zk-acl: all znodes of a cluster closed, opened, looked at; with logins of ZooKeeper's own scheme digest."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kafkatool.commands.main import kt
from kafkatool.core.errors import NoPermissionError
from kafkatool.core.operations import znode_acls
from kafkatool.core.security.zookeeper_security import ZooKeeperSecurity, read_zookeeper_security
from kafkatool.core.zookeeper.acls import ALL_RIGHTS, OPEN, OWN_NODES, SECURED_ROOTS, Acl
from kafkatool.core.zookeeper.session import ZooKeeper
from tests.core.zookeeper import cluster_nodes

READABLE = {"digest:kafka:cdrwa", "world:anyone:r"}
HIDDEN = {"digest:kafka:cdrwa"}
EVERYBODYS = {"world:anyone:cdrwa"}
BELOW = (
    "/config/users/alice",
    "/config/topics/t",
    "/feature",
    "/migration",
    "/admin/delete_topics/old",
    "/consumers/g",
)


def login(directory: Path, user: str) -> Path:
    file = directory / f"{user}.properties"
    file.touch(0o600)
    file.write_text(f"scheme=digest\nusername={user}\npassword=a-word\n")
    return file


@pytest.fixture
def auth_file(tmp_path: Path) -> Path:
    return login(tmp_path, "kafka")


@pytest.fixture
def owner(zk_connect: str, auth_file: Path) -> ZooKeeperSecurity:
    return read_zookeeper_security(auth_file=str(auth_file))


@pytest.fixture(autouse=True)
def nodes(zk: ZooKeeper) -> None:
    cluster_nodes.make_cluster(zk, brokers=(), controller=None, topics={"t": {0: [1, 2]}})
    for path in (*(root for root in SECURED_ROOTS if root != "/controller"), *BELOW):
        if zk.get(path) is None:
            zk.create(path, make_parents=True)


def zk_acl(connect: str, *args: str, auth: Path | None = None) -> Result:
    flags = () if auth is None else ("--zk-auth-file", str(auth))
    return CliRunner(env={"KAFKA_OPTS": ""}).invoke(kt, ["zk-acl", "--zookeeper", connect, *args, *flags])


def rights(connect: str, security: ZooKeeperSecurity) -> Mapping[str, set[str]]:
    """Return who may do what, by path, of all nodes."""
    with ZooKeeper(connect, security=security) as zk:
        paths = ["/", *cluster_nodes.tree(zk)]
        return {path: {str(acl) for acl in zk.acls(path)} for path in paths}


@pytest.mark.spec("SEC-31", "SEC-28")
def test_all_nodes_are_closed_and_opened_again_and_a_second_run_changes_nothing(
    zk_connect: str, auth_file: Path, owner: ZooKeeperSecurity
) -> None:
    closed = zk_acl(zk_connect, "--zookeeper.acl", "secure", auth=auth_file)
    assert (closed.exit_code, closed.stdout) == (0, ""), closed.output
    found = rights(zk_connect, owner)
    hidden = {"/config/users", "/config/users/alice", "/config/brokers", "/delegation_token/tokens"} & found.keys()
    assert {path for path, acl in found.items() if acl == HIDDEN} == hidden
    assert {path for path, acl in found.items() if acl == EVERYBODYS} == {"/consumers", "/consumers/g"}
    assert {path for path, acl in found.items() if acl == READABLE} == found.keys() - hidden - {
        "/consumers",
        "/consumers/g",
    }
    assert {"/", "/feature", "/migration", "/brokers/topics/t/partitions/0/state"} <= found.keys()

    again = zk_acl(zk_connect, "--zookeeper.acl", "secure", auth=auth_file)
    assert (again.exit_code, again.stdout, again.stderr) == (0, "", "nothing to change\n")
    assert zk_acl(zk_connect, "--check", auth=auth_file).exit_code == 0
    opened = zk_acl(zk_connect, "--zookeeper.acl", "unsecure", auth=auth_file)
    assert opened.exit_code == 0, opened.output
    assert set(map(frozenset, rights(zk_connect, owner).values())) == {frozenset(EVERYBODYS)}
    assert zk_acl(zk_connect, "--zookeeper.acl", "unsecure", auth=auth_file).stderr == "nothing to change\n"


@pytest.mark.spec("SEC-31")
def test_the_consumers_of_old_are_left_as_they_are_both_ways(
    zk_connect: str, auth_file: Path, owner: ZooKeeperSecurity
) -> None:
    with ZooKeeper(zk_connect, security=owner) as mine:
        mine.set_acls("/consumers", OWN_NODES.of("/config"))
    for way in ("secure", "unsecure"):
        assert zk_acl(zk_connect, "--zookeeper.acl", way, auth=auth_file).exit_code == 0
        assert rights(zk_connect, owner)["/consumers"] == READABLE


@pytest.mark.spec("SEC-31")
def test_the_nodes_gone_through_are_those_of_kafkas_migrator() -> None:
    assert set(SECURED_ROOTS) == {
        *("/admin", "/brokers", "/cluster", "/config", "/controller", "/controller_epoch"),
        *("/isr_change_notification", "/latest_producer_id_block", "/log_dir_event_notification"),
        *("/delegation_token", "/kafka-acl-extended", "/kafka-acl", "/kafka-acl-changes"),
        *("/kafka-acl-extended/prefixed", "/kafka-acl-extended-changes", "/feature", "/migration"),
    }


@pytest.mark.spec("SEC-31", "COM-6X")
def test_a_dry_run_names_each_write_and_makes_none(zk_connect: str, auth_file: Path, owner: ZooKeeperSecurity) -> None:
    before = rights(zk_connect, owner)
    shown = zk_acl(zk_connect, "--zookeeper.acl", "secure", "--dry-run", auth=auth_file)
    assert shown.exit_code == 0 and shown.stderr == "dry run: nothing was written\n"
    lines = shown.stdout.splitlines()
    assert "set acl / digest:kafka:cdrwa,world:anyone:r" in lines
    assert "set acl /config/users/alice digest:kafka:cdrwa" in lines
    assert len(lines) == len(before) - len({"/consumers", "/consumers/g"})
    assert rights(zk_connect, owner) == before


@pytest.mark.spec("SEC-31")
def test_without_a_login_nothing_is_done(zk_connect: str) -> None:
    for way in ("secure", "unsecure"):
        result = zk_acl(zk_connect, "--zookeeper.acl", way)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == "kt: kt zk-acl needs a login to ZooKeeper: give --zk-auth-file\n"


@pytest.mark.spec("SEC-31")
@pytest.mark.parametrize("flags", [(), ("--check", "--zookeeper.acl", "secure")], ids=["neither", "both"])
def test_what_is_wanted_must_be_said(zk_connect: str, flags: Sequence[str]) -> None:
    assert zk_acl(zk_connect, *flags).exit_code == 2


@pytest.mark.spec("SEC-31")
def test_missing_roots_are_warned_of_and_not_made_and_end_it_with_the_path_check(
    zk: ZooKeeper, zk_connect: str, auth_file: Path, owner: ZooKeeperSecurity
) -> None:
    for path in ("/delegation_token", "/kafka-acl", "/feature", "/migration"):
        zk.delete(path)
    said = (
        "Warning: The following secure root paths do not exist in ZooKeeper: /delegation_token,/kafka-acl\n"
        "That might be due to an incorrect chroot is specified when executing the command.\n"
    )
    ended = zk_acl(zk_connect, "--zookeeper.acl", "secure", "--enable.path.check", auth=auth_file)
    assert (ended.exit_code, ended.stdout) == (1, f"{said}Exit the command.\n")
    assert set(map(frozenset, rights(zk_connect, owner).values())) == {frozenset(EVERYBODYS)}
    done = zk_acl(zk_connect, "--zookeeper.acl", "secure", auth=auth_file)
    assert (done.exit_code, done.stdout) == (0, said)
    found = rights(zk_connect, owner)
    assert found["/cluster/id"] == READABLE and not {"/delegation_token", "/kafka-acl", "/feature"} & found.keys()


@pytest.mark.spec("SEC-31")
def test_what_belongs_to_somebody_else_is_named_and_the_rest_is_done(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, auth_file: Path, owner: ZooKeeperSecurity
) -> None:
    with ZooKeeper(zk_connect, security=read_zookeeper_security(auth_file=str(login(tmp_path, "super")))) as other:
        for path in ("/config/changes", "/config/users/alice"):
            other.set_acls(path, OWN_NODES.of(path))
    done = zk_acl(zk_connect, "--zookeeper.acl", "secure", auth=auth_file)
    assert done.exit_code == 1
    session = "this session is digest:kafka"
    assert f"no permission for znode /config/changes: it belongs to digest:super, {session}\n" in done.stderr
    assert f"no permission for znode /config/users/alice: it belongs to somebody else, {session}\n" in done.stderr
    with ZooKeeper(zk_connect, security=owner) as mine:
        assert {str(acl) for acl in mine.acls("/config/topics/t")} == READABLE
        assert {str(acl) for acl in mine.acls("/controller_epoch")} == READABLE  # comes after those in the list
    checked = zk_acl(zk_connect, "--check", "--output", "json", auth=auth_file)
    document = json.loads(checked.stdout)
    assert checked.exit_code == 1
    assert [item["path"] for item in document["items"]] == ["/config/changes"]
    assert [error["path"] for error in document["errors"]] == ["/config/users/alice"]


@pytest.mark.spec("SEC-31")
@pytest.mark.parametrize("who", ["a broker of nobody's", "a controller of another", "the owner's"])
def test_registered_brokers_are_not_locked_out(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, auth_file: Path, owner: ZooKeeperSecurity, who: str
) -> None:
    path = "/controller" if "controller" in who else "/brokers/ids/7"
    file = auth_file if "owner" in who else login(tmp_path, "super")
    with ZooKeeper(zk_connect, security=read_zookeeper_security(auth_file=str(file))) as registered:
        if who != "a broker of nobody's":
            registered.make_nodes_as(OWN_NODES)
        registered.create(path, ephemeral=True)
        before = rights(zk_connect, owner)
        done = zk_acl(zk_connect, "--zookeeper.acl", "secure", auth=auth_file)
        if "owner" in who:
            assert done.exit_code == 0, done.output
            return
        whose = "digest:super" if "controller" in who else "world:anyone"
        assert done.exit_code == 1
        assert f"kt: {path} belongs to {whose}, this session is digest:kafka: whoever registered it" in done.stderr
        assert rights(zk_connect, owner) == before
        forced = zk_acl(zk_connect, "--zookeeper.acl", "secure", "--force", auth=auth_file)
        assert forced.exit_code == ("controller" in who)  # that node is the other's
        assert rights(zk_connect, owner)["/config/topics/t"] == READABLE


@pytest.mark.spec("SEC-31")
def test_the_check_lists_what_is_not_as_it_should_be_the_worst_first_and_writes_nothing(
    zk: ZooKeeper, zk_connect: str, auth_file: Path, owner: ZooKeeperSecurity
) -> None:
    assert zk_acl(zk_connect, "--zookeeper.acl", "secure", auth=auth_file).exit_code == 0
    with ZooKeeper(zk_connect, security=owner) as mine:
        mine.set_acls("/config/users/alice", [*mine.acls("/config/users/alice"), Acl(1, "world", "anyone")])
        mine.set_acls("/admin", OPEN)
    before = rights(zk_connect, owner)
    checked = zk_acl(zk_connect, "--check", auth=auth_file)
    assert (checked.exit_code, checked.stdout) == (
        1,
        "/config/users/alice digest:kafka:cdrwa,world:anyone:r should be digest:kafka:cdrwa\n"
        "/admin world:anyone:cdrwa should be digest:kafka:cdrwa,world:anyone:r\n",
    )
    assert checked.stderr.startswith("2 of ")
    document = json.loads(zk_acl(zk_connect, "--check", "--output", "json", auth=auth_file).stdout)
    assert document["items"][1] == {
        "path": "/admin",
        "acl": "world:anyone:cdrwa",
        "expected": "digest:kafka:cdrwa,world:anyone:r",
    }
    assert rights(zk_connect, owner) == before
    without = zk_acl(zk_connect, "--check")
    assert without.exit_code == 1 and "no permission for znode /config/users:" in without.stderr


@pytest.mark.spec("SEC-31")
def test_it_goes_on_where_it_was_ended_halfway(
    zk: ZooKeeper, zk_connect: str, auth_file: Path, owner: ZooKeeperSecurity
) -> None:
    """As one who was ended after the first nodes leaves them."""
    with ZooKeeper(zk_connect, security=owner) as mine:
        for path in ("/", "/admin", "/brokers"):
            mine.set_acls(path, OWN_NODES.of(path))
    done = zk_acl(zk_connect, "--zookeeper.acl", "secure", "--output", "json", auth=auth_file)
    assert done.exit_code == 0
    changed = {item["path"] for item in json.loads(done.stdout)["items"]}
    assert not {"/", "/admin", "/brokers"} & changed and "/admin/delete_topics" in changed
    assert set(map(frozenset, rights(zk_connect, owner).values())) == {
        frozenset(READABLE),
        frozenset(HIDDEN),
        frozenset(EVERYBODYS),
    }


@pytest.mark.spec("SEC-32")
def test_credentials_go_where_owners_alone_read(
    zk: ZooKeeper, zk_connect: str, tmp_path: Path, auth_file: Path, owner: ZooKeeperSecurity
) -> None:
    password = tmp_path / "password"
    password.touch(0o600)
    password.write_text("a-word")
    asked = ["users", "alter", "--zookeeper", zk_connect, "--zk-auth-file", str(auth_file), "--entity-name"]
    added = ["--add-config", "SCRAM-SHA-256=[]", "--password-file", str(password)]

    def alter(user: str, *flags: str) -> Result:
        return CliRunner().invoke(kt, [*asked, user, *added, *flags])

    warned = alter("bob")
    assert warned.exit_code == 0
    assert (
        warned.stderr == "kt: warning: the cluster's znodes are open: who reaches ZooKeeper can read bob's credential\n"
    )
    with ZooKeeper(zk_connect, security=owner) as mine:
        mine.set_acls("/brokers/topics", [Acl(ALL_RIGHTS, "auth", ""), Acl(1, "world", "anyone")])
        before = mine.get("/config/users/bob")
        for user, flags in (("bob", ()), ("carol", ()), ("carol", ("--dry-run",))):
            refused = alter(user, *flags)
            assert refused.exit_code == 1, refused.output
            assert "can be read by everybody who reaches ZooKeeper: no credential is written there" in refused.output
            assert "kt zk-acl --zookeeper.acl secure" in refused.stderr
        assert mine.get("/config/users/carol") is None and mine.get("/config/users/bob") == before
        assert zk_acl(zk_connect, "--zookeeper.acl", "secure", auth=auth_file).exit_code == 0
        done = alter("carol")
        assert (done.exit_code, done.stderr) == (0, "")
        assert {str(acl) for acl in mine.acls("/config/users/carol")} == HIDDEN


@pytest.fixture
def chroot_forgotten(zk: ZooKeeper, zk_connect: str) -> str:
    """Return an address whose clusters are further below; one of its other nodes is named as one of Kafka's."""
    for path in ("/ensemble/kafka", "/ensemble/other"):
        zk.create(path, make_parents=True)
    connect = f"{zk_connect}/ensemble"
    with ZooKeeper(f"{connect}/kafka") as cluster:
        cluster_nodes.make_cluster(cluster, brokers=(1,), controller=None, topics={})
    zk.create("/ensemble/admin")
    return connect


@pytest.mark.spec("SEC-31")
@pytest.mark.parametrize("mode", [("--check",), ("--zookeeper.acl", "secure"), ("--zookeeper.acl", "unsecure")])
def test_where_no_cluster_is_nothing_is_looked_at_or_written_and_the_clusters_below_are_named(
    chroot_forgotten: str, auth_file: Path, owner: ZooKeeperSecurity, mode: Sequence[str]
) -> None:
    with ZooKeeper(chroot_forgotten, security=owner) as mine:
        mine.set_acls("/", OWN_NODES.of("/config"))  # others may read it; not as --zookeeper.acl unsecure has it
        before = rights(chroot_forgotten, owner)
        refused = zk_acl(chroot_forgotten, *mode, auth=auth_file)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert refused.stderr == (
            f"kt: no Kafka cluster at {chroot_forgotten}, where /brokers/ids is missing: is the chroot missing? "
            f"There is {chroot_forgotten}/kafka\n"
        )
        assert zk_acl(chroot_forgotten, *mode, "--output", "json", auth=auth_file).exit_code == 1
        assert rights(chroot_forgotten, owner) == before
        assert zk_acl(chroot_forgotten, *mode, "--force", auth=auth_file).exit_code == ("--check" in mode)
        changed = {path for path, acl in rights(chroot_forgotten, owner).items() if acl != before[path]}
        assert changed == ({"/admin"} if "secure" in mode else set()), "the root is the others', too"


@pytest.mark.spec("SEC-31")
def test_a_cluster_whose_brokers_are_all_down_is_one(zk_connect: str, auth_file: Path) -> None:
    assert zk_acl(zk_connect, "--zookeeper.acl", "secure", auth=auth_file).exit_code == 0
    assert zk_acl(zk_connect, "--check", auth=auth_file).exit_code == 0


class ListsWhatIsGone(ZooKeeper):
    """Below each node it names one more, as if that had gone since."""

    def children_where_permitted(self, paths: Sequence[str]) -> list[list[str] | NoPermissionError | None]:
        found = super().children_where_permitted(paths)
        return [[*names, "gone"] if isinstance(names, list) else names for names in found]


@pytest.mark.spec("SEC-31")
def test_a_node_that_goes_meanwhile_is_no_error(zk_connect: str, owner: ZooKeeperSecurity) -> None:
    with ListsWhatIsGone(zk_connect, security=owner) as mine:
        done = znode_acls.migrate(mine, secure=True)
        assert done.changed and not done.refused
        assert not {node.path for node in done.changed if node.path.endswith("gone")}
        assert mine.set_acls_where_permitted([("/gone", OPEN), ("/config/topics/t", OPEN)])[0] is None
