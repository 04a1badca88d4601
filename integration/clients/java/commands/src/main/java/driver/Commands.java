package driver;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.Map;

/**
 * Drives a client for the integration tests: one JSON command per line on stdin, one JSON answer per
 * line on stdout, in order.
 */
public final class Commands {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Commands() {
    }

    /** Performs commands until stdin ends, and then ends the process, whatever threads the client has. */
    public static void perform(StockClient client) throws IOException {
        PrintStream answers = System.out;
        System.setOut(System.err); // stdout belongs to the answers
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.println(JSON.writeValueAsString(answer(client, JSON.readTree(line))));
        }
        System.exit(0);
    }

    private static Map<String, ?> answer(StockClient client, JsonNode command) {
        try {
            switch (command.get("do").asText()) {
                case "start" -> client.start(command.get("url").asText(), command.get("app").asText(), command.path("id").asText(), command.get("lease").asText());
                case "discover" -> {
                    return Map.of("instances", client.discover(command.get("app").asText()));
                }
                case "hash" -> {
                    return Map.of("result", client.hash());
                }
                case "override" -> client.override(command.get("status").asText());
                case "restore" -> client.restore();
                case "stop" -> client.stop();
                default -> throw new IllegalArgumentException("unknown command " + command);
            }
            return Map.of();
        } catch (Exception e) { // the test decides what a failure means
            return Map.of("error", withCauses(e));
        }
    }

    private static String withCauses(Throwable e) {
        return e.getCause() == null ? e.toString() : e + "; caused by " + withCauses(e.getCause());
    }
}
