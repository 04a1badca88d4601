package driver;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Map;

/**
 * Drives the original Netflix client for the integration tests: one JSON command per line on stdin,
 * one JSON answer per line on stdout, in order.
 */
public final class Main {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Main() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // stdout belongs to the answers
        NetflixClient client = new NetflixClient();
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.println(JSON.writeValueAsString(perform(client, JSON.readTree(line))));
        }
        System.exit(0);
    }

    private static Map<String, ?> perform(NetflixClient client, JsonNode command) {
        try {
            switch (command.get("do").asText()) {
                case "start":
                    client.start(command.get("url").asText(), command.get("app").asText(), command.get("id").asText());
                    return Map.of();
                case "discover":
                    return Map.of("instances", client.discover(command.get("app").asText()));
                case "override":
                    client.override(command.get("status").asText());
                    return Map.of();
                case "restore":
                    client.restore();
                    return Map.of();
                case "stop":
                    client.stop();
                    return Map.of();
                default:
                    return Map.of("error", "unknown command " + command);
            }
        } catch (Exception e) {
            return Map.of("error", e.toString());
        }
    }
}
