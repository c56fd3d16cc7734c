package kafkatool;

import java.util.function.Function;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.sources.BaseRelation;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.PrunedScan;
import org.apache.spark.sql.sources.RelationProvider;
import org.apache.spark.sql.types.StructType;

/**
 * The format "kafka-state-change" of a driver's Spark: asks the driver's Python for the rows of a path.
 *
 * Compiled by Janino, as RangeReader: no generics, no lambdas.
 */
public class StateChangeFormat implements RelationProvider, DataSourceRegister {
    /** Gives for a path (null: none was named) a Dataset, or a String that says what is wrong. Set by register(). */
    public static volatile Function reader;

    public String shortName() {
        return "kafka-state-change";
    }

    public BaseRelation createRelation(SQLContext context, scala.collection.immutable.Map options) {
        scala.Option path = options.get("path");
        Object read = reader.apply(path.isEmpty() ? null : path.get());
        if (read instanceof String) {
            throw new IllegalArgumentException((String) read);
        }
        return new Rows(context, (Dataset) read, (String) path.get());
    }

    static class Rows extends BaseRelation implements PrunedScan {
        private final SQLContext context;
        private final Dataset rows;
        private final String path;

        Rows(SQLContext context, Dataset rows, String path) {
            this.context = context;
            this.rows = rows;
            this.path = path;
        }

        public SQLContext sqlContext() {
            return this.context;
        }

        public StructType schema() {
            return this.rows.schema();
        }

        public boolean needConversion() {
            return false;
        }

        public RDD buildScan(String[] names) {
            Column[] columns = new Column[names.length];
            for (int at = 0; at < names.length; at++) {
                columns[at] = functions.col(names[at]);
            }
            return this.rows.select(columns).queryExecution().toRdd();
        }

        public String toString() {
            return "kafka-state-change " + this.path;
        }
    }
}
