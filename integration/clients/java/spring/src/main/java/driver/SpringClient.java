package driver;

import com.netflix.appinfo.InstanceInfo;
import com.netflix.appinfo.InstanceInfo.InstanceStatus;
import com.netflix.discovery.shared.Application;
import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.cloud.netflix.eureka.CloudEurekaClient;
import org.springframework.context.ConfigurableApplicationContext;

/** A Spring Boot application whose only purpose is to be registered; its settings are those of any service. */
@SpringBootApplication
public class SpringClient implements StockClient {
    private ConfigurableApplicationContext context;
    private CloudEurekaClient client;

    public static void main(String[] args) throws IOException {
        Commands.perform(new SpringClient());
    }

    @Override
    public void start(String url, String app, String id, String lease) {
        context = new SpringApplicationBuilder(SpringClient.class).web(WebApplicationType.NONE).properties(Map.ofEntries(
            Map.entry("spring.application.name", app),
            Map.entry("server.port", "8080"),
            Map.entry("eureka.client.service-url.defaultZone", url),
            Map.entry("eureka.client.registry-fetch-interval-seconds", "1"),
            Map.entry("eureka.client.filter-only-up-instances", "false"),
            Map.entry("eureka.instance.instance-id", id),
            Map.entry("eureka.instance.hostname", "127.0.0.1"),
            Map.entry("eureka.instance.lease-renewal-interval-in-seconds", "1"),
            Map.entry("eureka.instance.lease-expiration-duration-in-seconds", lease)
        )).run();
        client = context.getBean(CloudEurekaClient.class);
    }

    @Override
    public Map<String, String> discover(String app) {
        Map<String, String> found = new TreeMap<>();
        Application application = client.getApplication(app);
        if (application != null) {
            application.getInstancesAsIsFromEureka().forEach(i -> found.put(i.getId(), i.getStatus().name()));
        }
        return found;
    }

    @Override
    public String hash() {
        return client.getApplications().getReconcileHashCode();
    }

    @Override
    public void override(String status) {
        client.setStatus(InstanceStatus.valueOf(status), own());
    }

    @Override
    public void restore() {
        client.cancelOverrideStatus(own());
    }

    private InstanceInfo own() {
        return client.getApplicationInfoManager().getInfo();
    }

    @Override
    public void stop() {
        context.close();
    }
}
