import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.utils.Exit;

/** Runs the tools of the Kafka on its class path, one after another: reads lines of words, a main class and its arguments,
 *  each "=" and its base64; answers each with "exit-code output-in-base64". One Java for many tools: starting it is most of a tool's time. */
public class AdminTools {
    private static final ByteArrayOutputStream said = new ByteArrayOutputStream();
    private static Integer code;
    private static byte[] text;

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        PrintStream sink = new PrintStream(new OutputStream() {  // Scala keeps the first stream it sees
            @Override
            public synchronized void write(int b) {
                said.write(b);
            }

            @Override
            public synchronized void write(byte[] bytes, int offset, int length) {
                said.write(bytes, offset, length);
            }
        }, true);
        System.setOut(sink);
        System.setErr(sink);
        Exit.setExitProcedure((status, message) -> end(status));
        Exit.setHaltProcedure((status, message) -> end(status));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            for (int i = 0; i < words.length; i++) {
                words[i] = new String(Base64.getDecoder().decode(words[i].substring(1)), "UTF-8");
            }
            said.reset();
            code = null;
            run(words);
            answers.println(code + " " + Base64.getEncoder().encodeToString(text));
            answers.flush();
        }
    }

    private static void run(String[] words) throws Exception {
        String[] arguments = Arrays.copyOfRange(words, 1, words.length);
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            ended(0);
        } catch (InvocationTargetException e) {
            if (code == null) {
                e.getCause().printStackTrace();
            }
            ended(1);
        }
    }

    private static void end(int status) {
        ended(status);
        throw new IllegalStateException("has ended");
    }

    /** The first end counts: some tools catch whatever is thrown, and end once more. */
    private static void ended(int status) {
        if (code == null) {
            code = status;
            text = said.toByteArray();
        }
    }
}

/** One call of Kafka's AdminClient: bootstrap, what, and its arguments; what it answers, in lines. */
class AdminCalls {
    private final Admin admin;
    private final String[] words;
    private int next = 2;

    private AdminCalls(Admin admin, String[] words) {
        this.admin = admin;
        this.words = words;
    }

    public static void main(String[] words) throws Throwable {
        Properties settings = new Properties();
        settings.put(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, words[0]);
        settings.put(AdminClientConfig.REQUEST_TIMEOUT_MS_CONFIG, "90000");
        settings.put(AdminClientConfig.DEFAULT_API_TIMEOUT_MS_CONFIG, "180000");
        try (Admin admin = Admin.create(settings)) {
            new AdminCalls(admin, words).call();
        } catch (ExecutionException e) {
            System.out.println(e.getCause().getClass().getSimpleName() + ": " + e.getCause().getMessage());
            Exit.exit(1);
        }
    }

    private void call() throws Exception {
        switch (words[1]) {
            case "create": create(); break;
            case "grow": admin.createPartitions(Map.of(word(), NewPartitions.increaseTo(number()))).all().get(); break;
            case "delete": admin.deleteTopics(List.of(word())).all().get(); break;
            case "describe": describe(); break;
            case "change": change(); break;
            case "configs": configs(); break;
            case "move": move(); break;
            case "moves": moves(); break;
            case "elect": elect(); break;
            case "quota": quota(); break;
            case "quotas": quotas(); break;
            case "move-log": moveLog(); break;
            case "logs": logs(); break;
            case "brokers": brokers(); break;
            case "producers": producers(); break;
            case "forget": admin.deleteConsumerGroupOffsets(word(), Collections.singleton(partition())).all().get(); break;
            default: throw new IllegalArgumentException(words[1]);
        }
    }

    private String word() {
        return words[next++];
    }

    private int number() {
        return Integer.parseInt(word());
    }

    private boolean more() {
        return next < words.length;
    }

    private TopicPartition partition() {
        return new TopicPartition(word(), number());
    }

    private static List<Integer> numbers(String text) {
        List<Integer> found = new ArrayList<>();
        for (String one : text.split(",")) {
            found.add(Integer.parseInt(one));
        }
        return found;
    }

    /** create TOPIC [REPLICAS ...], by commas; without: the cluster's defaults. */
    private void create() throws Exception {
        String topic = word();
        Map<Integer, List<Integer>> replicas = new HashMap<>();
        while (more()) {
            replicas.put(replicas.size(), numbers(word()));
        }
        NewTopic wanted = replicas.isEmpty() ? new NewTopic(topic, Optional.empty(), Optional.empty()) : new NewTopic(topic, replicas);
        CreateTopicsResult made = admin.createTopics(List.of(wanted));
        made.all().get();
        System.out.println(made.numPartitions(topic).get() + " " + made.replicationFactor(topic).get());
    }

    /** A line for each partition: leader, replicas, ISR. */
    private void describe() throws Exception {
        var found = topics(admin.describeTopics(List.of(word()))).values().iterator().next().get();
        for (var one : found.partitions()) {
            System.out.println(one.partition() + " " + one.leader().id() + " " + ids(one.replicas()) + " " + ids(one.isr()));
        }
    }

    @SuppressWarnings("unchecked")
    private static Map<String, KafkaFuture<org.apache.kafka.clients.admin.TopicDescription>> topics(Object result) throws Exception {
        String name = Arrays.stream(result.getClass().getMethods()).anyMatch(m -> m.getName().equals("topicNameValues"))
            ? "topicNameValues" : "values";  // of 3.1 and later
        return (Map<String, KafkaFuture<org.apache.kafka.clients.admin.TopicDescription>>) result.getClass().getMethod(name).invoke(result);
    }

    private static String ids(Collection<Node> nodes) {
        List<String> found = new ArrayList<>();
        nodes.forEach(node -> found.add(node.idString()));
        return String.join(",", found);
    }

    private ConfigResource resource() {
        return new ConfigResource(ConfigResource.Type.valueOf(word()), word());
    }

    /** change TYPE NAME (OPERATION KEY VALUE)... */
    private void change() throws Exception {
        ConfigResource resource = resource();
        List<AlterConfigOp> operations = new ArrayList<>();
        while (more()) {
            AlterConfigOp.OpType type = AlterConfigOp.OpType.valueOf(word());
            operations.add(new AlterConfigOp(new ConfigEntry(word(), word()), type));
        }
        admin.incrementalAlterConfigs(Map.of(resource, operations)).all().get();
    }

    /** A line for each config: name, source, type, whether it has a documentation and can be written, value. */
    private void configs() throws Exception {
        ConfigResource resource = resource();
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource), options).all().get().get(resource).entries()) {
            String documented = entry.documentation() == null || entry.documentation().isEmpty() ? "undocumented" : "documented";
            String writable = entry.isReadOnly() ? "read-only" : "writable";
            System.out.println(String.join(" ", entry.name(), entry.source().name(), entry.type().name(), documented, writable, "" + entry.value()));
        }
    }

    /** move (TOPIC PARTITION REPLICAS)...; "cancel" for the replicas. */
    private void move() throws Exception {
        Map<TopicPartition, Optional<NewPartitionReassignment>> wanted = new HashMap<>();
        while (more()) {
            TopicPartition partition = partition();
            String replicas = word();
            wanted.put(partition, replicas.equals("cancel") ? Optional.empty() : Optional.of(new NewPartitionReassignment(numbers(replicas))));
        }
        admin.alterPartitionReassignments(wanted).all().get();
    }

    private void moves() throws Exception {
        for (var one : admin.listPartitionReassignments().reassignments().get().entrySet()) {
            System.out.println(one.getKey() + ": replicas: " + text(one.getValue().replicas()) + ". adding: "
                + text(one.getValue().addingReplicas()) + ". removing: " + text(one.getValue().removingReplicas()) + ".");
        }
    }

    private static String text(List<Integer> numbers) {
        return numbers.toString().replaceAll("[\\[\\] ]", "");
    }

    private void elect() throws Exception {
        ElectionType type = ElectionType.valueOf(word());
        TopicPartition partition = partition();
        Optional<Throwable> failed = admin.electLeaders(type, Collections.singleton(partition)).partitions().get().get(partition);
        if (failed.isPresent()) {
            throw new ExecutionException(failed.get());
        }
    }

    /** quota TYPE NAME KEY VALUE; "default" for the name, "none" for the value. */
    private void quota() throws Exception {
        String type = word();
        String name = word();
        ClientQuotaEntity entity = new ClientQuotaEntity(Collections.singletonMap(type, name.equals("default") ? null : name));
        String key = word();
        String value = word();
        Double limit = value.equals("none") ? null : Double.valueOf(value);
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity, List.of(new ClientQuotaAlteration.Op(key, limit))))).all().get();
    }

    private void quotas() throws Exception {
        for (var one : admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().entrySet()) {
            one.getValue().forEach((key, value) -> one.getKey().entries().forEach(
                (type, name) -> System.out.println(type + " " + (name == null ? "default" : name) + " " + key + "=" + value)));
        }
    }

    /** move-log TOPIC PARTITION BROKER DIRECTORY */
    private void moveLog() throws Exception {
        TopicPartition partition = partition();
        TopicPartitionReplica replica = new TopicPartitionReplica(partition.topic(), partition.partition(), number());
        admin.alterReplicaLogDirs(Map.of(replica, word())).all().get();
    }

    /** A line for each replica on that broker: partition, size, whether it is on its way there, directory. */
    private void logs() throws Exception {
        int broker = number();
        var found = admin.describeLogDirs(List.of(broker));
        var directories = found.descriptions().get(broker).get();
        for (var directory : directories.entrySet()) {
            directory.getValue().replicaInfos().forEach((partition, replica) -> System.out.println(
                partition + " " + replica.size() + " " + replica.isFuture() + " " + directory.getKey()));
        }
    }

    private void brokers() throws Exception {
        DescribeClusterResult found = admin.describeCluster();
        TreeSet<Integer> brokers = new TreeSet<>();
        found.nodes().get().forEach(node -> brokers.add(node.id()));
        System.out.println(found.clusterId().get() + " " + found.controller().get().id() + " " + text(new ArrayList<>(brokers)));
    }

    /** Of 3.0 and later. */
    private void producers() throws Exception {
        TopicPartition partition = partition();
        Object result = Admin.class.getMethod("describeProducers", Collection.class).invoke(admin, List.of(partition));
        KafkaFuture<?> future = (KafkaFuture<?>) result.getClass().getMethod("all").invoke(result);
        System.out.println(future.get());
    }
}
