import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** What every adapter in Java does with its standard streams: peers/README.md. */
final class Lines {
    /** One lock at a time, taken and released by one thread. Acquire gives up after a while; a token of 0 is none. */
    interface Lock {
        boolean acquire(String key, long waitMs) throws Exception;

        long token();

        boolean held();

        void release();

        /** Takes a lock away from whoever has it, if the library can. */
        default void force(String key) {
            throw new UnsupportedOperationException("force");
        }
    }

    private Lines() {}

    /** Answers orders until they end. Locks that create returns share their connections. */
    static void serve(String name, Supplier<Lock> create) throws Exception {
        System.out.println("{\"ready\": \"" + name + "\"}");
        Lock lock = create.get();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            System.out.println(answer(lock, order, create));
        }
        System.exit(0);
    }

    private static String answer(Lock lock, String order, Supplier<Lock> create) {
        String kind = order.contains("\"acquire\"") ? "acquired" : order.contains("\"check\"") ? "held" : "released";
        try {
            if (order.contains("\"load\"")) {
                return new Load(order).run(create);
            }
            switch (kind) {
                case "acquired":
                    boolean granted = lock.acquire(text(order, "acquire"), number(order, "wait_ms"));
                    String token = granted && lock.token() > 0 ? ", \"token\": " + lock.token() : "";
                    return "{\"acquired\": " + granted + token + "}";
                case "held":
                    return "{\"held\": " + lock.held() + "}";
                default:
                    if (order.contains("\"force\"")) {
                        lock.force(text(order, "force"));
                    } else {
                        lock.release();
                    }
                    return "{\"released\": true}";
            }
        } catch (Exception error) {
            return "{\"" + kind + "\": false, \"why\": " + quoted(error) + "}";
        }
    }

    static String quoted(Object what) {
        return "\"" + String.valueOf(what).replaceAll("[\\\\\"\\p{Cntrl}]", " ") + "\"";
    }

    static String text(String order, String name) {
        Matcher found = Pattern.compile("\"" + name + "\":\\s*\"([^\"]*)\"").matcher(order);
        return found.find() ? found.group(1) : "";
    }

    static long number(String order, String name) {
        Matcher found = Pattern.compile("\"" + name + "\":\\s*(\\d+)").matcher(order);
        return found.find() ? Long.parseLong(found.group(1)) : 0;
    }
}
