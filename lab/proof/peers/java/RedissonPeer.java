import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson's RLock, RFairLock and RFencedLock, as its documentation shows them: without a lease of its own, so that its watchdog
 * renews; tryLock waits by a subscription. It tells nobody of a loss by itself: `isHeldByCurrentThread` asks the server.
 */
final class RedissonPeer implements Lines.Lock {
    private final RedissonClient client;
    private final String kind;
    private RLock lock;
    private long token;

    private RedissonPeer(RedissonClient client, String kind) {
        this.client = client;
        this.kind = kind;
    }

    @Override
    public boolean acquire(String key, long waitMs) throws InterruptedException {
        token = 0;
        switch (kind) {
            case "RFencedLock":
                RFencedLock fenced = client.getFencedLock(key);
                lock = fenced;
                Long granted = fenced.tryLockAndGetToken(waitMs, TimeUnit.MILLISECONDS);
                token = granted == null ? 0 : granted;
                return granted != null;
            case "RFairLock":
                lock = client.getFairLock(key);
                break;
            default:
                lock = client.getLock(key);
        }
        return lock.tryLock(waitMs, TimeUnit.MILLISECONDS);
    }

    @Override
    public long token() {
        return token;
    }

    @Override
    public boolean held() {
        return lock.isHeldByCurrentThread();
    }

    @Override
    public void release() {
        lock.unlock();
    }

    @Override
    public void force(String key) {
        client.getLock(key).forceUnlock();
    }

    public static void main(String[] words) throws Exception {
        Config config = new Config();
        // The watchdog renews every third of this time.
        config.setLockWatchdogTimeout(Long.parseLong(words[words.length - 1]));
        String address = words[words.length - 2];
        if (address.contains(",")) {
            // In a cluster since Redis 7 its messages are sharded, unless a setting says otherwise.
            config.useClusterServers().addNodeAddress(address.split(","));
        } else {
            config.useSingleServer().setAddress(address);
        }
        RedissonClient client = Redisson.create(config);
        Lines.serve("Redisson 4.7.0 " + words[0], () -> new RedissonPeer(client, words[0]));
    }
}
