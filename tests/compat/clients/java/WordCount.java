import java.util.Arrays;
import java.util.Properties;

import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.Stores;

/** Kafka Streams with exactly_once_v2: every word of FROM is counted, and each new count of it goes to TO. */
public final class WordCount {
    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], from = args[1], to = args[2], application = args[3], directory = args[4];
        Properties settings = StreamsProgram.settings(bootstrap, application);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0); // every count is told, none skipped

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(from)
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.as(Stores.inMemoryKeyValueStore("counts")))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(to);

        StreamsProgram.run(builder.build(), settings);
    }
}
