package driver;

import java.util.Map;

/** One instance of a stock client, which registers, renews and fetches by itself once started. */
public interface StockClient {
    /** Begins the life of an instance; its lease has so many seconds. An empty id is one that the test leaves to the client. */
    void start(String url, String app, String id, String lease);

    /** What the client's own cache holds of an application: status by instance id. */
    Map<String, String> discover(String app);

    /** The hash of all that the client's own cache holds, as it computes it. */
    default String hash() {
        throw new UnsupportedOperationException("it has no hash");
    }

    /** Forces the instance's status. */
    void override(String status);

    /** Ends the forced status. */
    void restore();

    void stop();
}
