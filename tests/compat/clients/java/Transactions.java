import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/** The transactional half of the Java client, of any version from 2.5 on; see ../README.md. */
class Transactions {
    static void run(String bootstrap) throws Exception {
        Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            try {
                if (words[1].equals("init")) {
                    producers.put(words[0], Client.producer(
                        bootstrap, "transactional.id", words[2], "transaction.timeout.ms", words[3]));
                }
                act(producers.get(words[0]), words);
                Client.emit("{\"done\": \"" + words[1] + "\"}");
            } catch (Exception e) {
                Client.emit("{\"failed\": \"" + e.toString().replaceAll("[\"\\\\\n]", " ") + "\"}");
            }
        }
    }

    private static void act(KafkaProducer<String, String> producer, String[] words) throws Exception {
        switch (words[1]) {
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "send" -> producer.send(new ProducerRecord<>(
                words[2], Integer.valueOf(words[3]), words[4],
                Client.value(words[5], Integer.parseInt(words[4])))).get();
            case "offsets" -> producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(words[3], Integer.parseInt(words[4])),
                    new OffsetAndMetadata(Long.parseLong(words[5]))),
                new ConsumerGroupMetadata(words[2]));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> throw new IllegalArgumentException(words[1]);
        }
    }

    static void copy(String bootstrap, String source, String sink, String group, String member) {
        var config = Client.config(bootstrap);
        Client.member(config, group);
        List<String> settings = new ArrayList<>(List.of("transactional.id", member == null ? group : member));
        if (member != null) {
            config.put("client.id", member);
            config.put("session.timeout.ms", "15000");
            settings.addAll(List.of("client.id", member));
        }
        config.put("enable.auto.commit", "false");
        config.put("isolation.level", "read_committed");
        var ended = Client.stdinEnded();
        boolean first = true;
        try (var consumer = new KafkaConsumer<String, String>(config);
             var producer = Client.producer(bootstrap, settings.toArray(String[]::new))) {
            consumer.subscribe(List.of(source));
            producer.initTransactions();
            while (ended.getCount() > 0) {
                var records = consumer.poll(Duration.ofMillis(100));
                if (records.isEmpty()) {
                    continue;
                }
                Map<TopicPartition, Long> starts = new HashMap<>();
                Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
                producer.beginTransaction();
                for (ConsumerRecord<String, String> r : records) {
                    var place = new TopicPartition(r.topic(), r.partition());
                    starts.putIfAbsent(place, r.offset());
                    ends.put(place, new OffsetAndMetadata(r.offset() + 1));
                    producer.send(new ProducerRecord<>(sink, r.partition(), r.key(), r.value()));
                }
                producer.sendOffsetsToTransaction(ends, consumer.groupMetadata());
                if (first) {
                    producer.flush();
                    producer.abortTransaction();
                    starts.forEach(consumer::seek);
                } else {
                    producer.commitTransaction();
                }
                first = false;
            }
        }
    }
}
