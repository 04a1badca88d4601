package driver;

import java.io.IOException;
import java.net.URI;
import java.util.Map;
import java.util.TreeMap;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.cloud.consul.ConsulClient;
import org.springframework.cloud.consul.serviceregistry.ConsulRegistration;
import org.springframework.context.ConfigurableApplicationContext;

/**
 * A Spring Boot service that reads its configuration from Consul's keys and registers with the defaults:
 * an HTTP check of the actuator's health. Its properties are asked of the actuator, by HTTP.
 */
@SpringBootApplication
public class SpringConsulClient implements StockClient {
    private ConfigurableApplicationContext context;

    public static void main(String[] args) throws IOException {
        Commands.perform(new SpringConsulClient());
    }

    /**
     * There is no lease; what is said of it is the interval of the check, by default 10 s. The watch of the
     * configuration waits for its prefixes one after the other, each for so many seconds, by default 55. Without
     * an id the service has Spring's default one.
     */
    @Override
    public void start(String url, String app, String id, String lease) {
        URI consul = URI.create(url);
        context = new SpringApplicationBuilder(SpringConsulClient.class).properties(Map.ofEntries(
            Map.entry("spring.application.name", app),
            Map.entry("spring.config.import", "consul:"),
            Map.entry("spring.cloud.consul.host", consul.getHost()),
            Map.entry("spring.cloud.consul.port", consul.getPort()),
            Map.entry("spring.cloud.consul.config.watch.wait-time", "1"),
            Map.entry("spring.cloud.consul.discovery.instance-id", id),
            Map.entry("spring.cloud.consul.discovery.hostname", "127.0.0.1"),
            Map.entry("spring.cloud.consul.discovery.health-check-interval", lease + "s"),
            Map.entry("server.address", "127.0.0.1"),
            Map.entry("server.port", "0"),
            Map.entry("management.endpoints.web.exposure.include", "health,env"),
            Map.entry("management.endpoint.env.show-values", "always")
        )).run();
    }

    /** What was found after the last change of the catalog that the client's watch reported: the address by id. */
    @Override
    public Map<String, String> discover(String app) {
        Map<String, String> found = new TreeMap<>();
        context.getBean(KnownServices.class).of(app).forEach(i -> found.put(i.getInstanceId(), i.getUri().toString()));
        return found;
    }

    @Override
    public void override(String status) {
        maintain(!status.equals("UP"));
    }

    @Override
    public void restore() {
        maintain(false);
    }

    /** What ConsulServiceRegistry.setStatus calls: in 5.0.0 that fails afterwards, in the format of a line for its log. */
    private void maintain(boolean maintenance) {
        String id = context.getBean(ConsulRegistration.class).getInstanceId();
        context.getBean(ConsulClient.class).agentServiceSetMaintenance(id, maintenance, null, "");
    }

    @Override
    public void stop() {
        context.close();
    }
}
