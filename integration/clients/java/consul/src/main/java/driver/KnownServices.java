package driver;

import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.springframework.cloud.client.ServiceInstance;
import org.springframework.cloud.client.discovery.DiscoveryClient;
import org.springframework.cloud.client.discovery.event.HeartbeatEvent;
import org.springframework.context.event.EventListener;
import org.springframework.stereotype.Component;

/** Keeps what is in the catalog, and looks again only when Spring says that it changed, as its gateway does. */
@Component
class KnownServices {
    private final DiscoveryClient client;
    private volatile Map<String, List<ServiceInstance>> services = Map.of();

    KnownServices(DiscoveryClient client) {
        this.client = client;
    }

    @EventListener
    void refresh(HeartbeatEvent change) {
        services = client.getServices().stream().collect(Collectors.toMap(Function.identity(), client::getInstances));
    }

    List<ServiceInstance> of(String service) {
        return services.getOrDefault(service, List.of());
    }
}
