package driver;

import com.netflix.discovery.DiscoveryClient;
import com.netflix.discovery.shared.transport.jersey.Jersey1DiscoveryClientOptionalArgs;
import com.netflix.discovery.shared.transport.jersey.Jersey1TransportClientFactories;
import com.sun.jersey.api.client.ClientHandlerException;
import com.sun.jersey.api.client.ClientRequest;
import com.sun.jersey.api.client.ClientResponse;
import com.sun.jersey.api.client.filter.ClientFilter;
import java.io.IOException;
import java.util.List;

/**
 * The client of the 1.x line. Its codecs are properties of the command line, such as eureka.decoderName. Its transport
 * asks for JSON and sends JSON, whatever its codecs; the property driver.xml has a filter say XML instead.
 */
public final class Netflix1Client {
    private Netflix1Client() {
    }

    public static void main(String[] args) throws IOException {
        Jersey1DiscoveryClientOptionalArgs more = new Jersey1DiscoveryClientOptionalArgs();
        if (Boolean.getBoolean("driver.xml")) {
            more.setAdditionalFilters(List.of(new SpeakXML()));
        }
        Commands.perform(new NetflixClient(new Jersey1TransportClientFactories(),
            (manager, settings) -> new DiscoveryClient(manager, settings, more)));
    }

    private static final class SpeakXML extends ClientFilter {
        @Override
        public ClientResponse handle(ClientRequest request) throws ClientHandlerException {
            for (String header : List.of("Accept", "Content-Type")) {
                if (request.getHeaders().containsKey(header)) {
                    request.getHeaders().putSingle(header, "application/xml");
                }
            }
            return getNext().handle(request);
        }
    }
}
