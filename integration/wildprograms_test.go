package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// registerFar registers a node without an agent, with an instance of the service far, whose check consul-esm runs.
func registerFar(t *testing.T, h hosts, url string) {
	t.Helper()
	need.OK(t, second(h.atServer(t).Catalog().Register(&api.CatalogRegistration{
		Node: "far", Address: "127.0.0.1", NodeMeta: map[string]string{"external-node": "true", "external-probe": "true", "rack": "a"},
		Service: &api.AgentService{ID: "far-1", Service: "far", Address: "10.0.0.9", Port: 9090, Tags: []string{"v2"}, Meta: map[string]string{"host": "9"}},
		Check: &api.AgentCheck{
			Node: "far", CheckID: "service:far-1", Name: "http", ServiceID: "far-1", Status: api.HealthCritical,
			Definition: api.HealthCheckDefinition{HTTP: url, IntervalDuration: time.Second, TimeoutDuration: 5 * time.Second},
		},
	}, nil)))
}

// consul-esm starts, takes its lock, probes a node that has no agent, and updates the check of a service there as the
// service's state changes.
func TestWildConsulESMUpdatesChecks(t *testing.T) {
	program := inTheWild(t, "consul-esm", "consul")[0]
	t.Parallel()
	var broken atomic.Bool
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(app.Close)
	besideConsul(t, func(t *testing.T, h hosts) (saw []string) {
		broken.Store(false)
		registerFar(t, h, app.URL)
		config := filepath.Join(t.TempDir(), "esm.hcl")
		need.OK(t, os.WriteFile(config, fmt.Appendf(nil, "http_addr = %q\nlog_level = \"INFO\"\n", h.agents[0]), 0o600))
		launchWild(t, program, "-config-file="+config)
		client := h.atServer(t)
		await := func(what string, look func() (string, error), want string) {
			t.Helper()
			Eventually(t, 2*ReadyLimit, fmt.Sprintf("%s: %s", what, want), func() error {
				got, err := look()
				if err == nil {
					err = unless(got == want, "%q", got)
				}
				return err
			})
			saw = append(saw, what+": "+want)
		}
		check := func(id string) func() (string, error) {
			return func() (string, error) {
				checks, _, err := client.Health().Node("far", nil)
				for _, c := range checks {
					if c.CheckID == id {
						return c.Status + ", " + c.Output, nil
					}
				}
				return "none", err
			}
		}
		await("lock", func() (string, error) {
			pair, _, err := client.KV().Get("consul-esm/leader", nil)
			return fmt.Sprint(pair != nil && pair.Session != ""), err
		}, "true")
		await("consul-esm", func() (string, error) {
			entries, _, err := client.Health().Service("consul-esm", "", true, nil)
			return fmt.Sprint(len(entries), " passing"), err
		}, "1 passing")
		probed := fmt.Sprintf("HTTP GET %s: 200 OK Output: ", app.URL)
		await("service:far-1", check("service:far-1"), "passing, "+probed)
		await("externalNodeHealth", check("externalNodeHealth"), "passing, Node alive or reachable")
		broken.Store(true)
		await("service:far-1", check("service:far-1"), "critical, "+strings.Replace(probed, "200 OK", "503 Service Unavailable", 1))
		broken.Store(false)
		await("service:far-1", check("service:far-1"), "passing, "+probed)
		return saw
	})
}

// discoveries has the ways of telling Prometheus in its settings what to find. Where Consul 1.15.6 finds nothing,
// label marks the targets that later versions find among all.
var discoveries = []struct{ name, settings, label string }{
	{name: "all", settings: "services: [web, far]"},
	{name: "by tag", settings: "services: [web, far], tags: [v2]"},
	// Consul has filtered its list of services by the nodes' metadata since 1.16.3, as its CHANGELOG.md says
	// (GH-18322).
	{name: "by filter", settings: `filter: 'NodeMeta.rack == "a"'`, label: "__meta_consul_metadata_rack=a"},
	{name: "by health filter", settings: `services: [web, far], health_filter: 'Service.Meta.host != "1"'`},
	{name: "by both", settings: `filter: 'ServiceName matches "^(web|far)$"', health_filter: '"v2" in Service.Tags and Node.Meta is not empty'`},
}

// compared matches the labels of a target that do not depend on who the agents are.
var compared = regexp.MustCompile(`^(__address__|__meta_consul_(node|dc|service|service_id|service_address|service_port|tags|health|service_metadata_host|metadata_rack))$`)

// Prometheus, which asks Consul and Rollcall with and without filters, finds the same targets.
func TestWildPrometheusDiscoversTheSame(t *testing.T) {
	program := inTheWild(t, "prometheus", "consul")[0]
	t.Parallel()
	var jobs strings.Builder
	for _, place := range places {
		h := place.start(t)
		registerAtBoth(t, h)
		registerFar(t, h, "http://127.0.0.1:1")
		for _, d := range discoveries {
			fmt.Fprintf(&jobs, "- job_name: %s %s\n  consul_sd_configs: [{server: %q, refresh_interval: 1s, %s}]\n", place.name, d.name, h.server, d.settings)
		}
	}
	dir, addr := t.TempDir(), FreeAddr(t)
	config := filepath.Join(dir, "prometheus.yml")
	need.OK(t, os.WriteFile(config, []byte("global: {scrape_interval: 1h}\nscrape_configs:\n"+jobs.String()), 0o600))
	launchWild(t, program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	for _, d := range discoveries {
		t.Run(d.name, func(t *testing.T) {
			var found [2][]string
			Eventually(t, ReadyLimit, "targets are found", func() (err error) {
				for i, place := range places {
					if found[i], err = targets(addr, place.name+" "+d.name); err != nil {
						return err
					}
				}
				if d.label != "" && len(found[0]) == 0 {
					if found[0], err = targets(addr, "Consul all"); err != nil {
						return err
					}
					found[0] = slices.DeleteFunc(found[0], func(labels string) bool { return !strings.Contains(labels+" ", d.label+" ") })
				}
				return unless(len(found[0]) > 0 && slices.Equal(found[0], found[1]), "Consul:\n%s\nRollcall:\n%s", strings.Join(found[0], "\n"), strings.Join(found[1], "\n"))
			})
			t.Logf("%d targets:\n%s", len(found[0]), strings.Join(found[0], "\n"))
		})
	}
}

// Prometheus finds the services by both of its discoveries that ask us, and scrapes a node, with the token of its
// role in each place where its settings have one. Without it, it finds and scrapes nothing.
func TestWildPrometheusLivesByItsToken(t *testing.T) {
	program := inTheWild(t, "prometheus")[0]
	t.Parallel()
	c := StartCluster(t, withSteadyLeader(Config{Auth: "on"}))
	n := c.Others(c.Leader())[0]
	mustRegister(t, n, Instance{App: "ORDERS", ID: "orders-1"})
	need.OK(t, consulClient(t, n).Agent().ServiceRegister(&api.AgentServiceRegistration{ID: "web-1", Name: "web", Address: "10.0.0.7", Port: 80}))
	c.PutRole(t, "prometheus", "app * read", "metrics read")
	token := c.NewToken(t, "prometheus", "", "prometheus").Secret
	dir, addr := t.TempDir(), FreeAddr(t)
	file := filepath.Join(dir, "token")
	writePrivate(t, file, token)
	ways := map[string]string{
		"basic":         fmt.Sprintf("basic_auth: {username: prometheus, password_file: %q}", file),
		"authorization": fmt.Sprintf("authorization: {credentials_file: %q}", file),
		"token":         fmt.Sprintf("token: %q", token),
		"none":          "",
	}
	var jobs strings.Builder
	for way, settings := range ways {
		if way != "token" {
			fmt.Fprintf(&jobs, "- {job_name: eureka %s, eureka_sd_configs: [{server: %q, refresh_interval: 1s, %s}]}\n", way, n.URL()+"/eureka", settings)
			fmt.Fprintf(&jobs, "- {job_name: scrape %s, scrape_interval: 1s, static_configs: [{targets: [%q]}], %s}\n", way, n.HTTP, settings)
		}
		fmt.Fprintf(&jobs, "- {job_name: consul %s, consul_sd_configs: [{server: %q, refresh_interval: 1s, services: [web], %s}]}\n", way, n.HTTP, settings)
	}
	config := filepath.Join(dir, "prometheus.yml")
	writePrivate(t, config, "global: {scrape_interval: 1h}\nscrape_configs:\n"+jobs.String())
	launchWild(t, program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	want := map[string]string{
		"eureka basic": "2", "eureka authorization": "2", "consul basic": "1", "consul authorization": "1", "consul token": "1",
		"scrape basic": "1, up", "scrape authorization": "1, up", "scrape none": "1, down",
	}
	look := func() error {
		active, err := activeTargets(addr)
		found := make(map[string]string)
		for job, targets := range active {
			found[job] = fmt.Sprint(len(targets))
			if strings.HasPrefix(job, "scrape") {
				found[job] += ", " + targets[0].Health
			}
		}
		return errors.Join(err, unless(maps.Equal(found, want), "found %v, want %v", found, want))
	}
	Eventually(t, ReadyLimit, "the token finds, and nothing else does", look)
	time.Sleep(3 * time.Second) // during which a client without a token asks again
	need.OK(t, look())
}

// target is one that a Prometheus has found.
type target struct {
	DiscoveredLabels map[string]string `json:"discoveredLabels"`
	ScrapePool       string            `json:"scrapePool"`
	Health           string            `json:"health"`
}

// activeTargets returns those of a Prometheus, by their jobs.
func activeTargets(addr string) (map[string][]target, error) {
	response := serverAt(addr).Get("/api/v1/targets?state=active")
	if response.Status != http.StatusOK {
		return nil, fmt.Errorf("Prometheus: %v", response)
	}
	var body struct {
		Data struct {
			ActiveTargets []target `json:"activeTargets"`
		} `json:"data"`
	}
	if err := json.Unmarshal(response.Body, &body); err != nil {
		return nil, err
	}
	active := make(map[string][]target)
	for _, t := range body.Data.ActiveTargets {
		active[t.ScrapePool] = append(active[t.ScrapePool], t)
	}
	return active, nil
}

// targets returns those that a Prometheus found for a job, each by its labels.
func targets(addr, job string) ([]string, error) {
	active, err := activeTargets(addr)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, target := range active[job] {
		var labels []string
		for name, label := range target.DiscoveredLabels {
			if compared.MatchString(name) {
				labels = append(labels, name+"="+label)
			}
		}
		slices.Sort(labels)
		found = append(found, strings.Join(labels, " "))
	}
	slices.Sort(found)
	return found, nil
}

// ofMembers matches the metrics of consul_exporter about the servers themselves, and their services.
var ofMembers = regexp.MustCompile(`^consul_(exporter_|raft_|serf_)|service_name="consul"|service_id="consul"|check="serfHealth"`)

// consul_exporter has the same metrics of the catalog, of health and of keys.
func TestWildConsulExporterCountsTheSame(t *testing.T) {
	program := inTheWild(t, "consul_exporter", "consul")[0]
	t.Parallel()
	besideConsul(t, func(t *testing.T, h hosts) (saw []string) {
		registerAtBoth(t, h)
		registerFar(t, h, "http://127.0.0.1:1")
		need.OK(t, second(h.atServer(t).KV().Put(&api.KVPair{Key: "app/limit", Value: []byte("17")}, nil)))
		addr := FreeAddr(t)
		launchWild(t, program, "--consul.server=http://"+h.server, "--kv.prefix=app/", "--web.listen-address="+addr)
		Eventually(t, ReadyLimit, "the metrics have three instances", func() error {
			page := serverAt(addr).Get("/metrics")
			saw = nil
			for line := range strings.SplitSeq(string(page.Body), "\n") {
				if strings.HasPrefix(line, "consul_") && !ofMembers.MatchString(line) {
					saw = append(saw, line)
				}
			}
			slices.Sort(saw)
			if !slices.Contains(saw, "consul_up 1") { // it waits for half a second
				return errors.New("the exporter had no response in time")
			}
			return notYet(strings.Count(strings.Join(saw, "\n"), "consul_catalog_service_node_healthy{"), 3)
		})
		return saw
	})
}

// The tests of Vault's storage in Consul, including locks, have the same outcome.
func TestWildVaultsStoragePassesItsTests(t *testing.T) {
	program := inTheWild(t, "vault-consul.test", "consul")[0]
	t.Parallel()
	besideConsul(t, func(t *testing.T, h hosts) (saw []string) {
		cmd := exec.CommandContext(t.Context(), program, "-test.v", "-test.timeout=10m")
		cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "CONSUL_HTTP_ADDR="+h.server)
		out, err := cmd.CombinedOutput()
		for _, m := range regexp.MustCompile(`(?m)^--- (\w+: \w+)`).FindAllStringSubmatch(string(out), -1) {
			saw = append(saw, m[1])
		}
		expect.That(t, len(saw) > 0, "no test ran: %v\n%s", err, out)
		slices.Sort(saw)
		return saw
	})
}

// writePrivate replaces a file in one step, like programs that hand out secrets.
func writePrivate(t *testing.T, path, text string) {
	t.Helper()
	need.OK(t, os.WriteFile(path+".new", []byte(text), 0o600))
	need.OK(t, os.Rename(path+".new", path))
}
