"""What docs/commands tells, page by page; the commands are played in this order by scripts/docs_pages.py."""

from dataclasses import dataclass
from typing import NamedTuple


class Run(NamedTuple):
    """A command that is shown with what it prints; ``codes`` it may exit with."""

    command: str
    codes: tuple[int, ...] = (0,)


class Quiet(NamedTuple):
    """A command that only prepares the next."""

    command: str


class Help(NamedTuple):
    """The --help of a command."""

    words: tuple[str, ...]


class Capture(NamedTuple):
    """A command on a terminal, shown when its screen matches ``until``: the last ``lines``, and as ``svg``.

    ``interrupted``: prose before what it says after Ctrl-C, from the last line that matches ``after`` on.
    """

    command: str
    until: str
    lines: int
    svg: str | None = None
    interrupted: str | None = None
    after: str = ""


@dataclass(frozen=True)
class Page:
    name: str
    title: str
    blocks: tuple[str | Run | Quiet | Help | Capture, ...]


ZK = "--zookeeper localhost:2181"

CLUSTER = Page(
    "cluster",
    "kt cluster",
    (
        "A whole cluster on this machine: ZooKeeper and brokers, each a process of its own on 127.0.0.1. Nothing needs "
        "to be installed. All further pages are played on this one.",
        Run("kt cluster up --brokers 4 --zookeeper-port 2181 --port 9092"),
        "Brokers can be killed as by a crash (`kill`), stopped in good order (`stop`), and started again on the port and "
        "the data they had.",
        Run("kt cluster kill 2 && kt cluster status"),
        Run("kt cluster start 2"),
        "`kt cluster fill TOPIC` writes records into a topic, for something to be there that is moved or lost.",
        "Programs read `kt cluster status --output json` "
        "([schema](../schemas/kt-cluster-status.schema.json)). `kt cluster down` ends everything; data stays.",
        *(Help(("cluster", w)) for w in ("up", "status", "down", "kill", "stop", "start", "fill")),
    ),
)

TOPICS = Page(
    "topics",
    "kt topics",
    (
        "Create, list, describe, alter and delete topics. Texts on stdout are those of Kafka's own tool.\n\n## Create",
        Run(
            f"kt topics create {ZK} --topic orders --partitions 6 --replication-factor 3 --start-index 0 "
            "--replica-shift 0"
        ),
        "`--start-index` and `--replica-shift` are the two random numbers of Kafka's algorithm; without them the "
        "topic starts on a random broker. What would be written, and where:",
        Run(f"kt topics create {ZK} --topic clicks --replica-assignment 1:2,2:1 --dry-run"),
        "## List and describe",
        Run(f"kt topics list {ZK}"),
        Run(f"kt topics describe {ZK} --topic orders"),
        "On a terminal a partition without leader is red, one whose replicas are not all in sync yellow. With a broker "
        "down, only what is wrong:",
        Quiet("kt cluster stop 3"),
        Run(f"kt topics describe {ZK} --under-replicated-partitions"),
        Quiet("kt cluster start 3"),
        "For programs ([schema](../schemas/kt-topics-describe.schema.json)):",
        Run(f"kt topics describe {ZK} --topic orders --output tsv | head -3"),
        Run(f"kt topics describe {ZK} --topic orders --output json | head -c 260; echo ' …'"),
        "## Alter",
        Run(f"kt topics alter {ZK} --topic orders --config retention.ms=3600000 --config min.insync.replicas=2"),
        Run(f"kt topics describe {ZK} --topics-with-overrides"),
        Run(f"kt topics alter {ZK} --topic orders --partitions 8"),
        "## Delete",
        Run(f"kt topics delete {ZK} --topic orders --wait 60"),
        "## Mistakes",
        "Kafka's words stay on stdout; what to do now is said on stderr.",
        Quiet(f"kt topics create {ZK} --topic payments --replica-assignment 1:2,2:1"),
        Run(f"kt topics describe {ZK} --topic payment", (1,)),
        Run("kt topics list --zookeeper localhost:2181/kafka", (1,)),
        Run(f"kt topics alter {ZK} --topic payments --config retention=1h", (1,)),
        Run(f"kt topics --describe {ZK} --topic payments", (2,)),
        *(Help(("topics", w)) for w in ("create", "list", "describe", "alter", "delete")),
    ),
)

PLAN = "--reassignment-json-file plan.json"

REASSIGN = Page(
    "reassign",
    "kt reassign",
    (
        "Move replicas to other brokers. Plan files are Kafka's, both ways. A topic of four partitions on brokers 1 "
        "and 2, with 40 MiB in each:",
        Quiet(f"kt topics create {ZK} --topic clicks --replica-assignment 1:2,2:1,1:2,2:1"),
        Quiet("$PYTHON produce.py 127.0.0.1:9092 clicks 4 40"),
        "## Plan",
        Run(
            'echo \'{"topics":[{"topic":"clicks"}]}\' > topics.json\n'
            f"kt reassign {ZK} --generate --topics-to-move-json-file topics.json --broker-list 3,4 "
            "--strategy minimal --out plan.json"
        ),
        "Without `--out` stdout is exactly Kafka's five lines, the plan being the last; the table on stderr says what will "
        "happen, with bytes where brokers tell them (DescribeLogDirs, Kafka 1.0 and later). `--strategy minimal` moves as "
        "little as evens things out; `--explain` gives the reason for each partition. To empty a broker:",
        Run(
            f"kt reassign {ZK} --generate --topics-to-move-json-file topics.json --broker-list 1,2,3,4 "
            "--strategy minimal --exclude-brokers 1 --explain"
        ),
        "## Execute, and watch",
        "`--wait` follows the plan to its end and takes the throttle off again. On a terminal one line is rewritten: "
        "partitions finished, replicas in sync, bytes copied, rate, and the time left by that rate.",
        Capture(
            f"kt reassign {ZK} --execute {PLAN} --throttle 4000000 --wait",
            r"(8\d|9\d|1\d\d) of 32\d MiB",
            6,
            "reassign-wait",
            "Ctrl-C ends kt, not the reassignment. It says which commands go on from here:",
            "the brokers go on",
        ),
        Run(f"kt reassign {ZK} --list"),
        Run(f"kt reassign {ZK} --verify {PLAN}", (0, 1)),
        "Not on a terminal there is a line per 10 s:",
        Run(f"kt reassign {ZK} --execute --resume {PLAN}"),
        "`--verify --wait` watches what somebody else has started, with Kafka's own tool or without `--wait`.",
        "## Go back",
        "`--execute` saves what was there before, as a plan, with the hash of the plan that it undoes: the next plan in the "
        "same file saves its own, and the earlier one is kept beside it. `--cancel` sends back what is under way, and with "
        "`--rollback` what has ended too: under the plan's throttle while that stands, and else under `--throttle`.",
        Run("cat plan.rollback.json"),
        Run(f"kt reassign {ZK} --cancel --rollback {PLAN}"),
        Run(f"kt reassign {ZK} --verify --rollback {PLAN}"),
        "## Mistakes",
        Quiet(
            'echo \'{"version":1,"partitions":[{"topic":"clicks","partition":9,"replicas":[1,2]}]}\' > stale.json; '
            "echo '{“version”:1}' > pasted.json"
        ),
        Run(f"kt reassign {ZK} --execute --reassignment-json-file stale.json", (1,)),
        Run(f"kt reassign {ZK} --execute --reassignment-json-file pasted.json", (2,)),
        "Programs read `--output json` ([schema](../schemas/kt-reassign.schema.json)).",
        Help(("reassign",)),
    ),
)

ELECT = Page(
    "elect",
    "kt elect",
    (
        "Give leadership back to the preferred replica, the first of a partition's assignment. After a broker was away, "
        "others lead in its place:",
        Quiet(f"kt topics create {ZK} --topic events --replica-assignment 1:2:3,2:3:1,3:1:2,1:3:2"),
        Quiet("kt cluster stop 1"),
        Quiet("kt cluster start 1"),
        Run(f"kt elect {ZK} --report"),
        Run(f"kt elect {ZK} --topic events --only-imbalanced"),
        "Nothing is lost: a replica that is not in sync, or whose broker is down, is not elected, and kt says so and "
        "exits 1. Many partitions go in batches, with a pause if wanted: `--batch-partitions 50 --interval 30`.",
        Quiet("kt cluster stop 3"),
        Run(f"kt elect {ZK} --topic events", (1,)),
        Quiet("kt cluster start 3"),
        "Programs read `--output json` ([schema](../schemas/kt-elect.schema.json)).",
        Help(("elect",)),
    ),
)

VERIFY = Page(
    "replica-verify",
    "kt replica-verify",
    (
        "Do all replicas of a partition hold the same data? Every replica is read from its own broker and compared up "
        "to its high watermark. `--once` gives an answer and an exit code; without it, it watches.",
        Run(f"kt replica-verify {ZK} --once --topic-white-list clicks"),
        "With a broker down, the others are compared, and the missing replica is named:",
        Quiet("kt cluster kill 2"),
        Run(f"kt replica-verify {ZK} --once --topic-white-list clicks", (1,)),
        Quiet("kt cluster start 2"),
        "`--allow-missing` forgives a broker that is down, and nothing else: a replica that is unreadable, whose broker "
        "answers that it is damaged, refused or not there, may not hold the data. Without `--once` each report says on "
        "stderr which partitions and replicas are not read; the lag is that of the others.",
        "Programs read `--output json` ([schema](../schemas/kt-replica-verify.schema.json)).",
        Help(("replica-verify",)),
    ),
)

LOGS = Page(
    "logs",
    "kt logs",
    (
        "State-change logs of all brokers, merged and explained; [logs.md](../logs.md) tells the whole story. "
        "`collected/` is `docs/logs-example`, an outage of a real Kafka 2.8.2.",
        Run("kt logs report --logs collected/ --top 3"),
        Run("kt logs timeline --logs collected/ --topic payments --partition 2 | head -8"),
        Run("kt logs merge --logs collected/ --topic payments --partitions 2 --level WARN | cut -c 1-150 | tail -4"),
        "Programs read `--output json` ([report](../schemas/kt-logs-report.schema.json), "
        "[timeline](../schemas/kt-logs-timeline.schema.json)) and `merge --format jsonl` "
        "([rows](../logs-rows.schema.json)).",
        *(Help(("logs", w)) for w in ("merge", "timeline", "report")),
    ),
)

SETTINGS = Page(
    "settings",
    "Settings, contexts, completion",
    (
        "A flag that is not given comes from `KAFKATOOL_…` in the environment, else from `./.kafkatool.toml`, else from "
        "`~/.config/kafkatool/config.toml`. A context is one of several clusters:",
        Run(
            "cat > .kafkatool.toml <<'END'\n"
            'context = "test"\n\n'
            "[contexts.test]\n"
            'zookeeper = "localhost:2181"\n\n'
            "[contexts.prod]\n"
            'zookeeper = "zk1.example:2181,zk2.example:2181/kafka"\n'
            'cluster-id = "Jx1ZkR0LQ9-5E6gSvTVGow"\n'
            "END\n"
            "kt topics list"
        ),
        Run("kt --context staging topics list", (2,)),
        "`./.kafkatool.toml` goes before the user's file, also before a context that the user's file chooses. A context "
        "that you name goes before both; named by `--context`, before `KAFKATOOL_ZOOKEEPER` and the like too. What it "
        "does not say comes from where it would come from without it.\n\n"
        "`cluster-id` keeps a command meant for one cluster from writing to another.",
        Quiet("rm .kafkatool.toml"),
        "Tab completes commands, flags, and, from ZooKeeper, topics and broker ids:\n\n"
        "    kt completion bash > ~/.local/share/bash-completion/completions/kt",
        Help(()),
        Help(("completion",)),
    ),
)

SERVERS = Page(
    "servers",
    "kt broker, kt controller",
    (
        "One broker, or a controller without a broker, in the foreground until SIGTERM. Properties have Kafka's names.",
        Help(("broker", "start")),
        Help(("controller", "start")),
    ),
)

MIGRATE = Page(
    "migrate",
    "kt migrate check",
    (
        "Is a cluster with ZooKeeper ready for KRaft, and how far is a migration under way? The phase is told by who holds "
        "`/controller`, by `/migration`, and by which brokers are registered; then comes a row for each condition with "
        "its evidence and what to do, the next step, and the way back. Nothing is written. kt's own brokers cannot be "
        "migrated, which is what it says of them:",
        Run(f"kt migrate check {ZK} --bootstrap-server 127.0.0.1:9092", (1,)),
        "The exit code is 0 only if nothing stands in the way, and nothing that could was left unread; `--strict` counts "
        "warnings too. Programs read `--output json` ([schema](../schemas/kt-migrate-check.schema.json)). It was played "
        "against Kafka 3.9.1, through the phases and back, and with most conditions broken on purpose.",
        "`diverged` compares ZooKeeper with what the brokers say while both are written: replicas, leader, epoch and ISR "
        "of each partition, each topic's id and, once a broker is without ZooKeeper, its overrides. ZooKeeper is written "
        "behind, so what differs is looked at again after 2 and 5 s and told, with both values, if neither side has "
        "changed by then.",
        "With `--bootstrap-controller` the KRaft controllers are asked as well, from Kafka 3.7 on: whether they migrate, "
        "who leads their quorum, how far its voters are, and which metadata.version holds. They alone tell `finalized` "
        "from `dual_write`, and that none of them answers tells `rolling_back` from `hybrid`.",
        Help(("migrate",)),
        Help(("migrate", "check")),
    ),
)

OPERATE = Page(
    "operate",
    "kt brokers, kt health, kt drain",
    (
        "## Who holds and leads how much\n\n"
        "Who holds and leads how much, and what the brokers say of their disks and of themselves. Nothing is written.",
        Run(f"kt brokers {ZK}"),
        "The brokers are asked all at once, and each for 5 s at most: one that does not answer leaves its own columns "
        "empty, and the exit code is 1. One that is named in an assignment and not registered is listed as dead. A "
        "broker's software is told by the requests that it serves; kt's own brokers serve requests of several releases "
        "of Kafka (`like 2.4`).\n\nPrograms read `--output json` ([schema](../schemas/kt-brokers.schema.json)).",
        "## Is the cluster well?\n\nOne page, a line for each check, with exit codes that monitoring plug-ins know: 0 "
        "ok, 1 degraded, 2 critical, 3 not known.",
        Run(f"kt health {ZK}", (0, 1)),
        "With a broker down:",
        Quiet("kt cluster stop 3"),
        Run(f"kt health {ZK}", (1, 2)),
        Quiet("kt cluster start 3"),
        "`--bootstrap-server` asks brokers alone, of clusters with and without ZooKeeper. What they do not tell is "
        "`unknown`, which changes no exit code: since when there is this controller, elections of before the first "
        "look, and with ZooKeeper what waits in `/admin`. Without ZooKeeper the controller is the leader of the quorum, "
        "and its voters are watched. Topics on disks that this login may not describe are named as unknown, too; grant "
        "a monitor Describe on the cluster, and Describe and DescribeConfigs on all topics.",
        "`--watch 60` looks again every minute, which also finds what only time tells: moves that stand still, disks "
        "that fill, leaders that were not in sync. A look that fails is shown, and the next one knows what was before. "
        "A throttle that is set while nothing moves is looked at twice, 10 s apart; `--remove-throttles` then deletes "
        "just its keys, looking again before each write whether something moves. Programs read `--output json` "
        "([schema](../schemas/kt-health.schema.json)).",
        "A monitor that runs `kt health` every minute or so is told the same by the exit code, with `--state FILE`: "
        "there each run leaves what the next one needs, and nothing of it is written to the cluster. Give each cluster "
        "a file of its own. One that is damaged, or another cluster's, is named, not used and left as it is; what is "
        "`ok` without it is then 3. What may have been an unclean election is told for a day, or until the file is "
        "removed.",
        "## Empty a broker\n\nThe plan is shown with what it means for each broker, carried out in batches under a "
        "throttle, and proven: no assignment, ISR or leader names the broker, its disks hold no replica, throttles are "
        "as they were. Only then the exit code is 0.",
        Run(f"kt drain 4 {ZK} --throttle 50000000"),
        "Ctrl-C leaves the drain to be gone on with; `--cancel --rollback` brings all back to where it was, also after its "
        "end, in batches and under a throttle as well:",
        Run(f"kt drain 4 {ZK} --cancel --rollback --throttle 50000000"),
        "A dead broker is drained too: its replicas are rebuilt elsewhere. Nothing is begun where the other brokers "
        "cannot hold every partition's replicas, where one of them is down, or while something moves. Topics that come "
        "onto the broker meanwhile are moved in further rounds, three at most. Programs read `--output json` "
        "([schema](../schemas/kt-drain.schema.json)).",
        Help(("brokers",)),
        Help(("health",)),
        Help(("drain",)),
    ),
)

TRANSACTIONS = Page(
    "transactions",
    "kt transactions",
    (
        "Who writes in transactions, which of them are under way, and which will never end: what kafka-transactions of "
        "Kafka 3.0 and later does, in its words. Brokers are asked, of kt or of Kafka: `list` and `describe` are known "
        "from 3.0 on, `describe-producers` from 2.8 on.",
        "## One that hangs\n\nA transaction hangs if it is open in a partition and its coordinator does not know of it. "
        "Nobody will end it; who reads the partition with `read_committed` stands still before it, and compaction too. "
        "Brokers of kt, and of Kafka from 3.6 on, let none arise: they ask the coordinator before the first record of a "
        "transaction is written. Older ones can have them after a late request.",
        "`find-hanging` looks at the partitions of a topic or a broker and asks the coordinators about each transaction "
        "that nothing was written to for longer than `transaction.max.timeout.ms` of the brokers (15 minutes unless "
        "told). `abort` ends one, by its start offset; its records are aborted. Kafka before 2.8 cannot tell its "
        "producers: there the producer's id and epoch and the coordinator's epoch say which, as `kafka-dump-log` shows "
        "them.\n\n"
        "    kt transactions find-hanging --bootstrap-server b1:9092 --broker-id 3\n"
        "    kt transactions abort --bootstrap-server b1:9092 --topic orders --partition 0 --start-offset 4711",
        "Programs read `--output json` ([list](../schemas/kt-transactions-list.schema.json), "
        "[describe](../schemas/kt-transactions-describe.schema.json), "
        "[describe-producers](../schemas/kt-transactions-describe-producers.schema.json), "
        "[find-hanging](../schemas/kt-transactions-find-hanging.schema.json), "
        "[abort](../schemas/kt-transactions-abort.schema.json)).",
        Help(("transactions", "list")),
        Help(("transactions", "describe")),
        Help(("transactions", "describe-producers")),
        Help(("transactions", "find-hanging")),
        Help(("transactions", "abort")),
    ),
)

ACCESS = Page(
    "access",
    "kt acls, kt users, kt zk-acl",
    (
        "Who may do what, and who logs in with SCRAM: kafka-acls and kafka-configs in their words, through ZooKeeper, so "
        "that no broker need run. Brokers with an authorizer go by ACLs, kt's own and Kafka's alike.\n\n"
        "`kt acls add` tells what a first ACL on a resource takes from others, and which reader has no group to commit "
        "in. `kt acls remove` asks on a terminal, needs `--force` elsewhere, and prints, before it takes anything, the "
        "command that puts it back. Both take `--dry-run`. Through ZooKeeper both tell brokers to read what is named "
        "again, even where nothing of it changes: after a command that was cut short the same one ends its work. ACLs of "
        "kinds that kt does not know are shown as `UNKNOWN(…)` and left as they are.\n\n"
        "`kt users alter` reads the password from `--password-file`, from stdin (`-`), or asks for it twice; it is never "
        "an argument, and neither it nor salts and keys are shown anywhere. Quotas in the user's node stay.\n\n"
        "`kt zk-acl` is zookeeper-security-migration: logged in to ZooKeeper as the brokers are, it closes every znode to "
        "others, or opens them all. It makes no node, writes no ACL that is right already, and refuses to lock out brokers "
        "that are registered by somebody else, or to touch a ZooKeeper where no cluster is, as without the chroot. "
        "`kt zk-acl --check` lists what is not as it should be.\n\n"
        "Programs read `--output json` ([acls](../schemas/kt-acls-list.schema.json), "
        "[users](../schemas/kt-users-list.schema.json), [zk-acl](../schemas/kt-zk-acl.schema.json)).",
        Help(("acls", "list")),
        Help(("acls", "add")),
        Help(("acls", "remove")),
        Help(("users", "list")),
        Help(("users", "describe")),
        Help(("users", "alter")),
        Help(("zk-acl",)),
    ),
)

PAGES = (CLUSTER, TOPICS, REASSIGN, ELECT, VERIFY, OPERATE, ACCESS, TRANSACTIONS, MIGRATE, LOGS, SETTINGS, SERVERS)
