import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.StringJoiner;
import java.util.function.Supplier;

/** The loop of a benchmark: acquire, hold, release, again, in many threads. */
final class Load {
    /** One thread, and what it has done: start, enter, exit, token and key of each acquisition. */
    private final class Task implements Runnable {
        final int index;
        final Lines.Lock lock;
        final List<long[]> records = new ArrayList<>();
        long since;
        long errors;
        String why = "";

        Task(int index, Lines.Lock lock) {
            this.index = index;
            this.lock = lock;
        }

        private synchronized void waits(long from) {
            since = from;
        }

        private synchronized void add(long[] record) {
            records.add(record);
        }

        private synchronized void failed(Exception error) {
            errors++;
            why = error.toString();
        }

        @Override
        public void run() {
            for (long turn = 0; System.nanoTime() < to; turn++) {
                long key = keys == 0 ? 0 : index * keys + turn % keys;
                long start = System.nanoTime();
                waits(start);
                try {
                    if (!lock.acquire("bench:" + key, 3_600_000)) {
                        continue;
                    }
                    long enter = System.nanoTime();
                    waits(0);
                    if (holdUs > 0) {
                        Thread.sleep(holdUs / 1_000, (int) (holdUs % 1_000) * 1_000);
                    }
                    long exit = System.nanoTime();
                    add(new long[] {start, enter, exit, lock.token(), key});
                    lock.release();
                } catch (Exception error) {
                    failed(error);
                }
            }
        }
    }

    private final String order;
    private final long keys;
    private final long holdUs;
    private final long to;

    Load(String order) {
        this.order = order;
        keys = Lines.number(order, "keys_per_task");
        holdUs = Lines.number(order, "hold_us");
        to = Lines.number(order, "to");
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
            .getProcessCpuTime();
    }

    private static void sleepUntil(long at) throws InterruptedException {
        Thread.sleep(Math.max(0, at - System.nanoTime()) / 1_000_000);
    }

    /** Answers with what was open or went wrong; the records are in the file. */
    String run(Supplier<Lines.Lock> create) throws Exception {
        List<Task> tasks = new ArrayList<>();
        for (int at = 0; at < Lines.number(order, "tasks"); at++) {
            Task task = new Task((int) Lines.number(order, "first") + at, create.get());
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            thread.start();
            tasks.add(task);
        }
        sleepUntil(Lines.number(order, "from"));
        long before = cpu();
        sleepUntil(to);
        long used = cpu() - before;
        long errors = 0;
        String why = "";
        StringJoiner open = new StringJoiner(", ", "[", "]");
        for (Task task : tasks) {
            synchronized (task) {
                if (task.since != 0 && task.since < to) {
                    open.add(String.valueOf(to - task.since));
                }
                errors += task.errors;
                why = task.errors > 0 ? task.why : why;
            }
        }
        // Holders get time to release. Waiters wait until this process is ended.
        Thread.sleep(100 + holdUs / 1_000);
        return "{\"loaded\": " + write(tasks) + ", \"cpu\": " + used + ", \"open\": " + open + ", \"errors\": " + errors
            + ", \"why\": " + Lines.quoted(why) + "}";
    }

    private long write(List<Task> tasks) throws IOException {
        long count = 0;
        try (OutputStream out = new BufferedOutputStream(Files.newOutputStream(Path.of(Lines.text(order, "file"))))) {
            for (Task task : tasks) {
                synchronized (task) {
                    for (long[] record : task.records) {
                        ByteBuffer bytes = ByteBuffer.allocate(44).order(ByteOrder.LITTLE_ENDIAN);
                        bytes.putLong(record[0]).putLong(record[1]).putLong(record[2]).putLong(record[3]);
                        out.write(bytes.putInt((int) record[4]).putInt(task.index).putInt(1).array());
                        count++;
                    }
                }
            }
        }
        return count;
    }
}
