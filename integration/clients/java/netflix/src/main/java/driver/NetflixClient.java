package driver;

import com.netflix.appinfo.ApplicationInfoManager;
import com.netflix.appinfo.EurekaInstanceConfig;
import com.netflix.appinfo.InstanceInfo;
import com.netflix.appinfo.InstanceInfo.InstanceStatus;
import com.netflix.appinfo.MyDataCenterInstanceConfig;
import com.netflix.appinfo.providers.EurekaConfigBasedInstanceInfoProvider;
import com.netflix.config.ConfigurationManager;
import com.netflix.discovery.DefaultEurekaClientConfig;
import com.netflix.discovery.DiscoveryClient;
import com.netflix.discovery.EurekaClient;
import com.netflix.discovery.EurekaClientConfig;
import com.netflix.discovery.shared.Application;
import com.netflix.discovery.shared.resolver.DefaultEndpoint;
import com.netflix.discovery.shared.transport.EurekaHttpClient;
import com.netflix.discovery.shared.transport.EurekaHttpResponse;
import com.netflix.discovery.shared.transport.TransportClientFactory;
import com.netflix.discovery.shared.transport.jersey.TransportClientFactories;
import com.netflix.discovery.shared.transport.jersey3.Jersey3TransportClientFactories;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.BiFunction;
import org.apache.commons.configuration.AbstractConfiguration;

/** The original client, configured by its own properties as a service would do. */
public final class NetflixClient implements StockClient {
    private final TransportClientFactories<?> factories;
    private final BiFunction<ApplicationInfoManager, EurekaClientConfig, EurekaClient> newClient;
    private ApplicationInfoManager manager;
    private EurekaClient client;
    private TransportClientFactory transport;
    private EurekaHttpClient http;

    /** A client by its version's transport and constructor. */
    public NetflixClient(TransportClientFactories<?> factories, BiFunction<ApplicationInfoManager, EurekaClientConfig, EurekaClient> newClient) {
        this.factories = factories;
        this.newClient = newClient;
    }

    public static void main(String[] args) throws IOException {
        Jersey3TransportClientFactories jersey = new Jersey3TransportClientFactories();
        Commands.perform(new NetflixClient(jersey, (manager, settings) -> new DiscoveryClient(manager, settings, jersey)));
    }

    @Override
    public void start(String url, String app, String id, String lease) {
        configure(url, app, id, lease);
        EurekaInstanceConfig config = new MyDataCenterInstanceConfig();
        manager = new ApplicationInfoManager(config, new EurekaConfigBasedInstanceInfoProvider(config).get());
        DefaultEurekaClientConfig settings = new DefaultEurekaClientConfig();
        client = newClient.apply(manager, settings);
        manager.setInstanceStatus(InstanceStatus.UP);

        // The client has no call for overrides; operators' tools use its transport, and so do we.
        transport = factories.newTransportClientFactory(settings, List.of(), manager.getInfo());
        http = transport.newClient(new DefaultEndpoint(url.split(",")[0]));
    }

    private static void configure(String url, String app, String id, String lease) {
        AbstractConfiguration properties = ConfigurationManager.getConfigInstance();
        Map.ofEntries(
            Map.entry("eureka.serviceUrl.default", url),
            Map.entry("eureka.name", app),
            Map.entry("eureka.vipAddress", app),
            Map.entry("eureka.instanceId", id),
            Map.entry("eureka.port", "8080"),
            Map.entry("eureka.lease.renewalInterval", "1"),
            Map.entry("eureka.lease.duration", lease),
            Map.entry("eureka.client.refresh.interval", "1"),
            Map.entry("eureka.shouldFilterOnlyUpInstances", "false"),
            Map.entry("eureka.shouldUseDns", "false"),
            Map.entry("eureka.preferSameZone", "true")
        ).forEach(properties::setProperty);
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
        InstanceInfo own = manager.getInfo();
        expect200(http.statusUpdate(own.getAppName(), own.getId(), InstanceStatus.valueOf(status), own));
    }

    @Override
    public void restore() {
        InstanceInfo own = manager.getInfo();
        expect200(http.deleteStatusOverride(own.getAppName(), own.getId(), own));
    }

    private static void expect200(EurekaHttpResponse<Void> response) {
        if (response.getStatusCode() != 200) {
            throw new IllegalStateException("answered " + response.getStatusCode());
        }
    }

    @Override
    public void stop() {
        client.shutdown();
        http.shutdown();
        transport.shutdown();
    }
}
