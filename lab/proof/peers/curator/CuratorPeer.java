import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * Curator's InterProcessMutex, as its documentation shows it: a listener watches for SUSPENDED and LOST, after either of which the holder
 * cannot be certain that it still has the lock.
 */
final class CuratorPeer implements Lines.Lock {
    private final CuratorFramework client;
    private final AtomicLong interruptions;
    private InterProcessMutex lock;
    private long before;

    private CuratorPeer(CuratorFramework client, AtomicLong interruptions) {
        this.client = client;
        this.interruptions = interruptions;
    }

    @Override
    public boolean acquire(String key, long waitMs) throws Exception {
        before = interruptions.get();
        lock = new InterProcessMutex(client, "/curator/" + key);
        return lock.acquire(waitMs, TimeUnit.MILLISECONDS);
    }

    @Override
    public long token() {
        return 0;
    }

    @Override
    public boolean held() {
        return lock.isAcquiredInThisProcess() && interruptions.get() == before;
    }

    @Override
    public void release() {
        try {
            lock.release();
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    /** Arguments: zookeeper://host:port,…/path?session=4s, and the length of a lease, which is the session here. */
    public static void main(String[] words) throws Exception {
        String hosts = words[words.length - 2].replaceFirst("^zookeeper://", "").replaceFirst("/.*$", "");
        int session = Integer.parseInt(words[words.length - 1]);
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(hosts, session, session / 2, new ExponentialBackoffRetry(50, 3));
        AtomicLong interruptions = new AtomicLong();
        client.getConnectionStateListenable().addListener((same, state) -> {
            if (state == ConnectionState.SUSPENDED || state == ConnectionState.LOST) {
                interruptions.incrementAndGet();
            }
        });
        client.start();
        client.blockUntilConnected();
        Lines.serve("Curator 5.9.0 InterProcessMutex", () -> new CuratorPeer(client, interruptions));
    }
}
