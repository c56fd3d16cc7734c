import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads "hex-of-key hex-of-value" lines, a record of __transaction_state each; answers by Kafka's own classes:
 * "transactional-id-in-hex bytes-left key-again value-again value-in-newest-version state fields".
 */
public class KafkasRecords {
    private static final HexFormat HEX = HexFormat.of();
    private static final String[] PACKAGES = {"kafka.internals.generated", "org.apache.kafka.coordinator.transaction.generated"};
    private static final String[] NUMBERS = {
        "producerId", "producerEpoch", "transactionTimeoutMs", "transactionStatus",
        "transactionLastUpdateTimestampMs", "transactionStartTimestampMs"};
    private static final String[] TAGGED = {
        "setPreviousProducerId", "setNextProducerId", "setNextProducerEpoch", "setClientTransactionVersion"};

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                String[] words = line.split(" ", -1);
                System.out.println(told(HEX.parseHex(words[0]), HEX.parseHex(words[1])));
            } catch (Exception e) {
                System.out.println("error " + e + " " + e.getCause());
            }
        }
    }

    private static String told(byte[] keyBytes, byte[] valueBytes) throws Exception {
        ApiMessage key = message("TransactionLogKey");
        ApiMessage value = message("TransactionLogValue");
        int left = read(key, keyBytes) + read(value, valueBytes);
        String id = (String) get(key, "transactionalId");
        List<String> fields = new ArrayList<>();
        for (String name : NUMBERS) {
            fields.add(get(value, name).toString());
        }
        List<?> topics = (List<?>) get(value, "transactionPartitions");
        fields.add(topics == null ? "null" : "array");
        for (Object topic : topics == null ? List.of() : topics) {
            for (Object partition : (List<?>) get(topic, "partitionIds")) {
                fields.add(HEX.formatHex(get(topic, "topic").toString().getBytes("UTF-8")) + ":" + partition);
            }
        }
        String again = written(key, (short) 0) + " " + written(value, (short) 0);
        return HEX.formatHex(id.getBytes("UTF-8")) + " " + left + " " + again + " " + newest(value) + " "
            + state(id, valueBytes) + " " + String.join(",", fields);
    }

    private static ApiMessage message(String name) throws Exception {
        for (String place : PACKAGES) {
            try {
                return (ApiMessage) Class.forName(place + "." + name).getDeclaredConstructor().newInstance();
            } catch (ClassNotFoundException e) {
                continue; // of another version
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static int read(ApiMessage message, byte[] bytes) {
        ByteBuffer in = ByteBuffer.wrap(bytes);
        message.read(new ByteBufferAccessor(in), in.getShort());
        return in.remaining();
    }

    private static String written(ApiMessage message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(2 + message.size(cache, version));
        out.putShort(version);
        message.write(new ByteBufferAccessor(out), cache, version);
        return HEX.formatHex(out.array());
    }

    /** Writes it as a newer Kafka may: with the tagged fields that it has. */
    private static String newest(ApiMessage value) throws Exception {
        for (Method method : value.getClass().getMethods()) {
            if (List.of(TAGGED).contains(method.getName()) && value.highestSupportedVersion() > 0) {
                boolean isLong = method.getParameterTypes()[0] == long.class;
                method.invoke(value, isLong ? (Object) 77L : (Object) (short) 2);
            }
        }
        return written(value, value.highestSupportedVersion());
    }

    /** Returns what the coordinator of that version makes of the record: the words of its TransactionMetadata. */
    private static String state(String id, byte[] value) throws Exception {
        Object read = Class.forName("kafka.coordinator.transaction.TransactionLog")
            .getMethod("readTxnRecordValue", String.class, ByteBuffer.class)
            .invoke(null, id, ByteBuffer.wrap(value));
        Object found = read.getClass().getMethod("get").invoke(read);
        return get(found, "state").toString().replaceAll("[_ ]", "").toLowerCase();
    }

    private static Object get(Object of, String name) throws Exception {
        Method method = of.getClass().getMethod(name);
        method.setAccessible(true);
        return method.invoke(of);
    }
}
