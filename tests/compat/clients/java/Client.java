import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.AppInfoParser;

/** The Java client, of any version from 2.0 on; see ../README.md. */
public class Client {
    private static final String STRINGS = "org.apache.kafka.common.serialization.String";
    private static final AtomicReference<Exception> failure = new AtomicReference<>();

    public static void main(String[] a) throws Exception {
        emit("{\"client\": \"Java client " + AppInfoParser.getVersion() + "\"}");
        switch (a[0]) {
            case "produce" -> produce(a[1], a[2], a[3], Integer.parseInt(a[4]), a[5]);
            case "load" -> load(a[1], a[2], a[3]);
            case "consume" -> consume(
                a[1], a[2].split(","), Integer.parseInt(a[3]), a.length > 4 ? a[4] : "read_uncommitted");
            case "group" -> group(a[1], a[2], a[3]);
            case "transactions" -> Transactions.run(a[1]);
            case "copy" -> Transactions.copy(a[1], a[2], a[3], a[4], a.length > 5 ? a[5] : null);
            default -> throw new IllegalArgumentException(a[0]);
        }
        if (failure.get() != null) {
            throw failure.get();
        }
    }

    private static void produce(String bootstrap, String topic, String prefix, int count, String codec) {
        try (var producer = producer(bootstrap, "compression.type", codec)) {
            for (int number = 0; number < count; number++) {
                send(producer, topic, prefix, number);
            }
        }
    }

    private static void load(String bootstrap, String topic, String prefix) throws InterruptedException {
        var ended = stdinEnded();
        try (var producer = producer(bootstrap, "acks", "all")) {
            for (int number = 0; !ended.await(50, TimeUnit.MILLISECONDS); number++) {
                send(producer, topic, prefix, number);
            }
        }
    }

    private static void consume(String bootstrap, String[] topics, int count, String isolation) {
        var config = config(bootstrap);
        config.put("isolation.level", isolation);
        try (var consumer = new KafkaConsumer<String, String>(config)) {
            List<TopicPartition> all = new ArrayList<>();
            for (String topic : topics) {
                for (PartitionInfo p : consumer.partitionsFor(topic)) {
                    all.add(new TopicPartition(topic, p.partition()));
                }
            }
            consumer.assign(all);
            consumer.seekToBeginning(all);
            while (count > 0) {
                count -= emitPolled(consumer, 1000);
            }
        }
    }

    private static void group(String bootstrap, String topic, String group) {
        var ended = stdinEnded();
        var config = config(bootstrap);
        member(config, group);
        String told = "";
        try (var consumer = new KafkaConsumer<String, String>(config)) {
            consumer.subscribe(List.of(topic));
            while (ended.getCount() > 0) {
                emitPolled(consumer, 100);
                String now = consumer.assignment().stream().map(TopicPartition::partition).sorted()
                    .map(String::valueOf).collect(Collectors.joining(", "));
                if (!now.equals(told)) {
                    emit("{\"assigned\": [" + now + "]}");
                    told = now;
                }
            }
        }
    }

    /** Settings of a member: before 3.0 its session lasted ten seconds, not so long as a busy machine may have it stand. */
    static void member(Properties config, String group) {
        config.put("group.id", group);
        config.put("auto.offset.reset", "earliest");
        config.put("session.timeout.ms", "45000");
    }

    static Properties config(String bootstrap) {
        var config = new Properties();
        logIn(config);
        config.put("bootstrap.servers", bootstrap);
        config.put("key.deserializer", STRINGS + "Deserializer");
        config.put("value.deserializer", STRINGS + "Deserializer");
        return config;
    }

    /** A producer with these settings: a name, its value, and so on. */
    static KafkaProducer<String, String> producer(String bootstrap, String... settings) {
        var config = new Properties();
        logIn(config);
        config.put("bootstrap.servers", bootstrap);
        config.put("key.serializer", STRINGS + "Serializer");
        config.put("value.serializer", STRINGS + "Serializer");
        for (int i = 0; i < settings.length; i += 2) {
            config.put(settings[i], settings[i + 1]);
        }
        return new KafkaProducer<>(config);
    }

    private static void logIn(Properties config) {
        String file = System.getenv("CLIENT_CONFIG");
        if (file == null) {
            return;
        }
        try (var reader = Files.newBufferedReader(Path.of(file))) {
            config.load(reader);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static void send(KafkaProducer<String, String> producer, String topic, String prefix, int number) {
        producer.send(new ProducerRecord<>(topic, String.valueOf(number), value(prefix, number)), (sent, error) -> {
            if (error == null) {
                emit("{\"acknowledged\": " + number + "}");
            } else {
                failure.set(error);
            }
        });
    }

    static String value(String prefix, int number) {
        return prefix + "-" + number + "-" + "x".repeat(100);
    }

    private static int emitPolled(KafkaConsumer<String, String> consumer, long timeoutMs) {
        var records = consumer.poll(Duration.ofMillis(timeoutMs));
        for (ConsumerRecord<String, String> r : records) {
            emit("{\"record\": [\"%s\", %d, %d, \"%s\", \"%s\"]}".formatted(
                r.topic(), r.partition(), r.offset(), r.key(), r.value()));
        }
        return records.count();
    }

    static CountDownLatch stdinEnded() {
        var ended = new CountDownLatch(1);
        var waiting = new Thread(() -> {
            try {
                System.in.transferTo(java.io.OutputStream.nullOutputStream());
            } catch (IOException e) {
                failure.set(e);
            }
            ended.countDown();
        });
        waiting.setDaemon(true);
        waiting.start();
        return ended;
    }

    static synchronized void emit(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
