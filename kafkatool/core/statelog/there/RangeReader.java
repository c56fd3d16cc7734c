package kafkatool;

import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.Serializable;
import java.util.Iterator;
import java.util.zip.CRC32;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.deploy.SparkHadoopUtil;

/**
 * Reads ranges of files through Hadoop's file systems, which are Spark's connectors (hdfs, s3a, ...).
 *
 * Spark offers Python whole files or lines as text, but neither pieces of a large file nor bytes that are no UTF-8. Janino,
 * the compiler that Spark brings for its own generated code, compiles this on the driver: no generics, no lambdas.
 *
 * An element is a text of requests, one on a line: header, offset, length, then of the file as it was when it was listed
 * its size, its time of modification and the checksum of its first bytes (empty: not known yet), and its name; with tabs
 * between. Each becomes one byte array: the header, a line's end, the bytes.
 *
 * A file is opened by name each time, so another may have taken the name: a log is rolled every hour. One that grew is
 * read as it was.
 */
public class RangeReader implements FlatMapFunction, Serializable {
    /** Of these a file's checksum is made, or of all it had: ranges.FIRST_BYTES. */
    private static final int FIRST_BYTES = 256;

    public Iterator call(Object requests) {
        return new Frames(((String) requests).split("\n"));
    }

    /** Reads what one request asks for, but for the header. */
    public byte[] read(String request) throws IOException {
        return range(new byte[0], request.split("\t", 7));
    }

    /**
     * Finds the files that a path names, or a pattern if nothing has that name, a line for each: size TAB time of
     * modification TAB uri. Of a directory those at any depth whose names contain a word. All in one call, and not by listFiles: on disks here that runs a program for each file, to
     * learn of rights that nobody asks for.
     */
    public String list(String uri, String word) throws IOException {
        Path path = new Path(uri);
        FileSystem files = path.getFileSystem(SparkHadoopUtil.get().conf());
        StringBuilder found = new StringBuilder();
        FileStatus[] named;
        try {
            named = new FileStatus[] {files.getFileStatus(path)};
        } catch (FileNotFoundException e) {
            named = files.globStatus(path);
        }
        for (int i = 0; named != null && i < named.length; i++) {
            if (named[i].isFile()) {
                add(found, named[i]);
            } else {
                below(files, named[i].getPath(), word, found);
            }
        }
        return found.toString();
    }

    private static void below(FileSystem files, Path directory, String word, StringBuilder found) throws IOException {
        FileStatus[] in = files.listStatus(directory);
        for (int i = 0; i < in.length; i++) {
            if (in[i].isDirectory()) {
                below(files, in[i].getPath(), word, found);
            } else if (in[i].getPath().getName().indexOf(word) >= 0) {
                add(found, in[i]);
            }
        }
    }

    private static void add(StringBuilder found, FileStatus file) {
        found.append(file.getLen()).append('\t').append(file.getModificationTime()).append('\t');
        found.append(file.getPath().toString()).append('\n');
    }

    static byte[] range(byte[] header, String[] request) throws IOException {
        int length = Integer.parseInt(request[2]);
        Path path = new Path(request[6]);
        byte[] frame = new byte[header.length + length];
        System.arraycopy(header, 0, frame, 0, header.length);
        FileSystem files = path.getFileSystem(SparkHadoopUtil.get().conf());
        try {
            FSDataInputStream in = files.open(path);
            try {
                // What is open now is looked at after it: a name that is taken in between is noticed.
                check(files.getFileStatus(path), in, Long.parseLong(request[3]), Long.parseLong(request[4]), request[5]);
                in.readFully(Long.parseLong(request[1]), frame, header.length, length);
            } finally {
                in.close();
            }
        } catch (EOFException e) {
            throw new IOException(request[6] + " became shorter while it was read; merge a copy of it");
        } catch (IOException e) {
            // What was thrown goes into the text and not with it: of a chain, the driver tells the last one alone.
            String why = String.valueOf(e.getMessage()).split("\n", 2)[0]; // HDFS's goes on with a trace of its server
            if (request[5].isEmpty()) {
                // Nobody has read anything of the file yet: the driver, which listed it, may see what is not here.
                throw new IOException(request[6] + " cannot be read where the work is done: " + why);
            }
            if (e instanceof FileNotFoundException) {
                throw new IOException(request[6] + " was removed while it was read; merge a copy of it: " + why);
            }
            throw e;
        }
        return frame;
    }

    private static void check(FileStatus now, FSDataInputStream in, long size, long modified, String checksum)
            throws IOException {
        if (now.getLen() < size) {
            throw new EOFException();
        }
        if (checksum.isEmpty() || (now.getLen() == size && now.getModificationTime() == modified)) {
            return;
        }
        byte[] first = new byte[(int) Math.min(size, FIRST_BYTES)];
        in.readFully(0, first);
        CRC32 found = new CRC32();
        found.update(first);
        if (found.getValue() != Long.parseLong(checksum)) {
            throw new IOException(
                now.getPath() + " was replaced while it was read, as when it is rolled; start again, or merge a copy of it"
            );
        }
    }

    static class Frames implements Iterator {
        private final String[] requests;
        private int at = 0;

        Frames(String[] requests) {
            this.requests = requests;
        }

        public boolean hasNext() {
            return this.at < this.requests.length;
        }

        public void remove() {
            throw new UnsupportedOperationException();
        }

        public Object next() {
            String[] request = this.requests[this.at++].split("\t", 7);
            try {
                return range((request[0] + "\n").getBytes("UTF-8"), request);
            } catch (IOException e) {
                throw new RuntimeException(e.getMessage(), e);
            }
        }
    }
}
