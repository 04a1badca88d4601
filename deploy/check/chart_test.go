package check

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"helm.sh/helm/v4/pkg/strvals"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"

	"github.com/seed-20419f34/rollcall/internal/certfiles"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

var update = flag.Bool("update", false, "write the settings in values.schema.json anew")

const chartDir = "../helm/rollcall"

// sets are values that people may set, by name.
var sets = map[string]string{
	"default":                            "",
	"ap":                                 "{mode: ap, auth: {mode: on, secret: tokens, file: auth.yaml, nodeTokens: true}, settings: {datacenter: dc7, replication: {datacenters: {dc8: 'http://dc8:8761'}, token-files: {dc8: /etc/rollcall/auth/dc8}}}}",
	"certificates of cert-manager":       "{tls: {source: certManager, dnsNames: [registry.example.com]}, networkPolicy: {clients: [{namespaceSelector: {}}]}}",
	"certificates and tokens of secrets": "{tls: {source: secret, secret: certificates}, auth: {mode: on, secret: tokens, file: auth.yaml, bootstrapToken: bootstrap, readerToken: reader}}",
	"monitoring":                         "{monitoring: {serviceMonitor: true, rules: true, dashboard: true, labels: {release: prometheus}}}",
	"one node for a look":                "{replicas: 1, auth: {mode: off}, storage: {size: 1Gi}, networkPolicy: {enabled: false}, shutdownDelay: 0}",
	"everything": `
replicas: 5
image: {repository: "registry.example.com:5000/rollcall", digest: "sha256:` + strings.Repeat("0", 64) + `", pullPolicy: Always, pullSecrets: [{name: pull}]}
tls: {source: certManager, issuer: {name: nodes, kind: ClusterIssuer}, dnsNames: [registry.example.com]}
auth: {mode: on, secret: tokens, file: auth.yaml, bootstrapToken: bootstrap, readerToken: reader}
settings: {log: {format: json}, limits: {instances-total: 2000000, state-bytes: 2147483648}, raft: {heartbeat-timeout: 3s, election-timeout: 3s}, self-preservation: {renewal-percent-threshold: 0.5}, checks: {targets: ["10.0.0.0/8:*"]}, backup: {dir: /backup}, replication: {datacenters: {dc2: "https://a:8761 https://b:8761"}, on-cut: {dc2: "keep-for:1h"}, tls: {ca: /etc/rollcall/tls/ca.crt}}}
shutdownDelay: 30
service: {type: LoadBalancer, annotations: {a: b}}
storage: {size: 20Gi, class: fast}
resources: {requests: {cpu: 1, memory: 1Gi}, limits: {memory: 2Gi}}
spread: {zones: DoNotSchedule, hosts: DoNotSchedule}
networkPolicy: {clients: [{podSelector: {matchLabels: {client: "yes"}}}]}
monitoring: {serviceMonitor: true, rules: true, dashboard: true, cluster: production, labels: {release: prometheus}, dashboardLabels: {folder: x}}
extraVolumes: [{name: backup, emptyDir: {}}]
extraVolumeMounts: [{name: backup, mountPath: /backup}]
podLabels: {team: a}
podAnnotations: {b: c}
priorityClassName: high
nodeSelector: {disk: ssd}
tolerations: [{key: dedicated, operator: Exists}]
`,
}

const (
	release   = "rollcall"
	namespace = "registry"
)

func render(t *testing.T, values string) (map[string]string, error) {
	t.Helper()
	chart := need.Got(loader.LoadDir(chartDir))(t)
	given := need.Got(common.ReadValues([]byte(values)))(t)
	all, err := util.ToRenderValues(chart, given, common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

// It renders the chart as the Kubernetes page installs it, and as the page changes it afterwards.
func TestStepsOfThePageForProductionRender(t *testing.T) {
	_, page, ok := strings.Cut(string(need.Got(os.ReadFile("../../docs/run/kubernetes.md"))(t)), "\n2. Write `production.yaml`:\n")
	need.That(t, ok, "docs/run/kubernetes.md has no production.yaml")
	_, values, _ := strings.Cut(page, "```yaml\n")
	values, page, _ = strings.Cut(values, "   ```\n")
	_, err := render(t, values)
	need.OKf(t, err, "helm install")
	all := need.Got(common.ReadValues([]byte(values)))(t)
	_, upgrade, ok := strings.Cut(page, "helm upgrade ")
	need.That(t, ok, "docs/run/kubernetes.md changes nothing afterwards")
	upgrade, _, _ = strings.Cut(upgrade, "\n")
	for _, set := range regexp.MustCompile(`--set (\S+)`).FindAllStringSubmatch(upgrade, -1) {
		need.OK(t, strvals.ParseInto(set[1], all))
	}
	text := need.Got(yaml.Marshal(all))(t)
	files, err := render(t, string(text))
	need.OKf(t, err, "helm upgrade")
	of[*monitoring.ServiceMonitor](t, decode(t, files), "ServiceMonitor "+release)
}

// objects has what a rendered chart creates, by kind and name, in the API's own types.
type objects map[string]any

// decode decodes what was rendered, and refuses fields that the types do not have.
func decode(t *testing.T, files map[string]string) objects {
	t.Helper()
	all := objects{}
	for file, text := range files {
		if filepath.Ext(file) != ".yaml" {
			continue
		}
		for _, doc := range regexp.MustCompile(`(?m)^---$`).Split(text, -1) {
			if strings.TrimSpace(doc) == "" {
				continue
			}
			var head struct {
				APIVersion, Kind string
				Metadata         struct{ Name string }
			}
			need.OKf(t, yaml.Unmarshal([]byte(doc), &head), "%s: %s", file, doc)
			object := map[string]any{
				"apps/v1 StatefulSet": &apps.StatefulSet{}, "v1 Service": &core.Service{}, "v1 ConfigMap": &core.ConfigMap{}, "v1 Pod": &core.Pod{},
				"policy/v1 PodDisruptionBudget": &policy.PodDisruptionBudget{}, "networking.k8s.io/v1 NetworkPolicy": &networking.NetworkPolicy{},
				"cert-manager.io/v1 Certificate": &certmanager.Certificate{}, "cert-manager.io/v1 Issuer": &certmanager.Issuer{},
				"monitoring.coreos.com/v1 ServiceMonitor": &monitoring.ServiceMonitor{}, "monitoring.coreos.com/v1 PrometheusRule": &monitoring.PrometheusRule{},
			}[head.APIVersion+" "+head.Kind]
			need.That(t, object != nil, "%s has a %s %s, of which this test knows no type", file, head.APIVersion, head.Kind)
			need.OKf(t, yaml.UnmarshalStrict([]byte(doc), object), "%s: %s", file, doc)
			key := head.Kind + " " + head.Metadata.Name
			expect.That(t, all[key] == nil, "%s is there twice", key)
			all[key] = object
		}
	}
	return all
}

func of[T any](t *testing.T, all objects, key string) T {
	t.Helper()
	object, ok := all[key].(T)
	need.That(t, ok, "no %s was rendered", key)
	return object
}

func eachSet(t *testing.T, test func(*testing.T, objects)) {
	for name, values := range sets {
		t.Run(name, func(t *testing.T) { test(t, decode(t, need.Got(render(t, values))(t))) })
	}
}

func TestChartHasFewTemplatesAndPassesLint(t *testing.T) {
	templates := 0
	need.OK(t, filepath.WalkDir(filepath.Join(chartDir, "templates"), func(_ string, e os.DirEntry, err error) error {
		if !e.IsDir() {
			templates++
		}
		return err
	}))
	expect.That(t, templates <= 15, "%d templates, want at most 15", templates)
	for name, values := range sets {
		result := lint.RunAll(chartDir, need.Got(common.ReadValues([]byte(values)))(t), namespace)
		for _, m := range result.Messages {
			expect.That(t, m.Severity <= support.InfoSev, "%s: %v", name, m)
		}
	}
}

func TestPodsMayDoNothingButServe(t *testing.T) {
	eachSet(t, func(t *testing.T, all objects) {
		set := of[*apps.StatefulSet](t, all, "StatefulSet rollcall")
		for _, spec := range []core.PodSpec{set.Spec.Template.Spec, of[*core.Pod](t, all, "Pod rollcall-status").Spec} {
			p, c := spec.SecurityContext, spec.Containers[0]
			expect.That(t, *p.RunAsNonRoot && *p.RunAsUser == 65532 && p.SeccompProfile.Type == core.SeccompProfileTypeRuntimeDefault, "it runs as %+v", p)
			expect.That(t, !*spec.AutomountServiceAccountToken, "it has a token of a service account")
			expect.That(t, *c.SecurityContext.ReadOnlyRootFilesystem && !*c.SecurityContext.AllowPrivilegeEscalation && len(c.SecurityContext.Capabilities.Add) == 0, "it may %+v", c.SecurityContext)
			expect.Slice(t, c.SecurityContext.Capabilities.Drop, []core.Capability{"ALL"}, "it drops")
			expect.That(t, len(spec.Containers) == 1 && len(spec.InitContainers) == 0 && c.Command == nil && c.Lifecycle == nil, "it runs more than the program: %+v", c)
			for _, v := range spec.Volumes {
				expect.That(t, v.Secret == nil || *v.Secret.DefaultMode == 0o440, "secret %s is readable for others", v.Name)
			}
		}
		c := set.Spec.Template.Spec.Containers[0]
		for path, probe := range map[string]*core.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
			expect.That(t, probe.HTTPGet != nil && probe.HTTPGet.Path == path, "the probe %s asks %+v", path, probe.HTTPGet)
		}
		expect.Equal(t, set.Spec.PodManagementPolicy, apps.ParallelPodManagement, "pods are managed")
		expect.That(t, of[*core.Service](t, all, "Service rollcall-nodes").Spec.PublishNotReadyAddresses, "nodes have no name until they are ready")
		expect.Equal(t, of[*policy.PodDisruptionBudget](t, all, "PodDisruptionBudget rollcall").Spec.MaxUnavailable.IntValue(), 1, "evicted at a time")
		expect.Equal(t, set.Spec.Template.Spec.TopologySpreadConstraints[0].TopologyKey, core.LabelTopologyZone, "the nodes are spread over")
	})
}

func TestRulesAndDashboardMatchDeploy(t *testing.T) {
	all := decode(t, need.Got(render(t, sets["monitoring"]))(t))
	var rules monitoring.PrometheusRuleSpec
	need.OK(t, yaml.UnmarshalStrict(need.Got(os.ReadFile("../prometheus/rollcall.rules.yaml"))(t), &rules))
	expect.Deep(t, of[*monitoring.PrometheusRule](t, all, "PrometheusRule rollcall").Spec, rules, "the rules")
	dashboard := of[*core.ConfigMap](t, all, "ConfigMap rollcall-dashboard").Data["rollcall.json"]
	expect.Equal(t, strings.TrimSpace(dashboard), strings.TrimSpace(string(need.Got(os.ReadFile("../grafana/rollcall.json"))(t))), "the dashboard")
	labels := map[string]string{}
	for _, r := range of[*monitoring.ServiceMonitor](t, all, "ServiceMonitor rollcall").Spec.Endpoints[0].RelabelConfigs {
		labels[r.TargetLabel] = fmt.Sprint(r.SourceLabels)
		if r.Replacement != nil {
			labels[r.TargetLabel] = *r.Replacement
		}
	}
	expect.Deep(t, labels, map[string]string{"job": "rollcall", "cluster": "registry/rollcall", "instance": "[__meta_kubernetes_pod_name]"}, "the labels by which rules go")
}

// The program shows the settings of the first and the last pod.
func TestServerAcceptsWhatTheChartSets(t *testing.T) {
	eachSet(t, func(t *testing.T, all objects) {
		set := of[*apps.StatefulSet](t, all, "StatefulSet rollcall").Spec
		for _, ordinal := range slices.Compact([]int{0, int(*set.Replicas) - 1}) {
			name := fmt.Sprintf("rollcall-%d", ordinal)
			p := newPod(t, all, name, set.Template.Spec)
			need.That(t, p.args[0] == "server", "the pod runs %q", p.args)
			args := []string{"config", "show"}
			for _, arg := range p.args[1:] {
				arg = p.below(arg)
				args = append(args, arg)
				if file, ok := strings.CutPrefix(arg, "--config="); ok {
					text := need.Got(os.ReadFile(file))(t)
					need.OK(t, os.WriteFile(file, []byte(p.below(string(text))), 0o644))
				}
			}
			command := exec.Command(program(t), args...)
			for _, e := range p.env {
				command.Env = append(command.Env, p.below(e))
			}
			out, err := command.CombinedOutput()
			need.OKf(t, err, "config show: %s", out)
			for _, want := range []string{"name: " + name, "advertise: " + name + ".rollcall-nodes.registry.svc:8761"} {
				expect.That(t, strings.Contains(string(out), want), "the settings of %s have no %q:\n%s", name, want, out)
			}
			delay := regexp.MustCompile(`shutdown-delay: (\d+)s`).FindSubmatch(out)
			need.That(t, delay != nil, "no shutdown-delay in\n%s", out)
			expect.Equal(t, fmt.Sprint(*set.Template.Spec.TerminationGracePeriodSeconds-20), string(delay[1]), "seconds of delay, and of grace less 20")
		}
	})
}

func TestWrongValueIsRefusedByItsName(t *testing.T) {
	for values, says := range map[string]string{
		"{replcas: 3}":                                           "replcas",
		"{mode: raft}":                                           "/mode",
		"{replicas: 0}":                                          "/replicas",
		"{replicas: three}":                                      "/replicas",
		"{replicas: 4}":                                          "replicas: 4",
		"{image: {tag: 1.0}}":                                    "/image/tag",
		"{image: {repository: 'a b'}}":                           "/image/repository",
		"{image: {digest: latest}}":                              "/image/digest",
		"{tls: {source: yes}}":                                   "/tls/source",
		"{tls: {source: secret}}":                                "tls.secret",
		"{tls: {secret: a}}":                                     "tls.secret",
		"{tls: {dnsNames: [a]}}":                                 "tls.dnsNames",
		"{auth: {mode: strict}}":                                 "/auth/mode",
		"{auth: {token: a}}":                                     "token",
		"{auth: {file: auth.yaml}}":                              "auth.secret",
		"{auth: {nodeTokens: true, secret: a}}":                  "auth.nodeTokens",
		"{mode: ap, auth: {mode: on, secret: a}}":                "auth.file",
		"{mode: ap, auth: {secret: a, bootstrapToken: b}}":       "auth.bootstrapToken",
		"{auth: {mode: on}, monitoring: {serviceMonitor: true}}": "auth.readerToken",
		"{settings: {raft: {heartbeat: 1s}}}":                    "heartbeat",
		"{settings: {raft: {heartbeat-timeout: fast}}}":          "/settings/raft/heartbeat-timeout",
		"{settings: {limits: {watchers: many}}}":                 "/settings/limits/watchers",
		"{settings: {limits: {watchers: 0}}}":                    "/settings/limits/watchers",
		"{settings: {log: {level: loud}}}":                       "/settings/log/level",
		"{settings: {http: {addr: ':80'}}}":                      "addr",
		"{settings: {cluster: {join: [a]}}}":                     "join",
		"{settings: {auth: {mode: off}}}":                        "mode",
		"{settings: {test: {sync-delay: 1s}}}":                   "test",
		"{settings: []}":                                         "settings",
		"{shutdownDelay: 10s}":                                   "/shutdownDelay",
		"{storage: {size: 8}}":                                   "/storage/size",
		"{spread: {zones: Always}}":                              "/spread/zones",
		"{networkPolicy: {enabled: 'yes'}}":                      "/networkPolicy/enabled",
		"{monitoring: {rules: 1}}":                               "/monitoring/rules",
		"{podLabels: {a: 1}}":                                    "/podLabels/a",
		"{extraVolumeMounts: [{name: a}]}":                       "mountPath",
		"{service: {type: ExternalName}}":                        "/service/type",
		"{resources: {request: {}}}":                             "request",
		"{image: null, tolerations: {}}":                         "/tolerations",
	} {
		_, err := render(t, values)
		if !expect.That(t, err != nil, "%s is accepted", values) {
			continue
		}
		lines := strings.Split(strings.TrimSpace(err.Error()), "\n")
		named := 0
		for _, line := range lines {
			if strings.Contains(line, says) {
				named++
			}
		}
		expect.That(t, named == 1, "%s: %d lines name %q in\n%v", values, named, says, err)
	}
}

// owned has the settings that the chart sets from other values, or that can have no effect in a pod.
var owned = []string{
	"mode", "node.*", "http.addr", "http.advertise", "http.hosts", "http.plain", "http.tls.*", "cluster.addr", "cluster.advertise", "cluster.join",
	"cluster.bootstrap-expect", "cluster.plain", "cluster.tls.*", "data.dir", "auth.mode", "auth.file", "auth.bootstrap-token-file", "replication.nodes",
	"shutdown-delay", "test.*",
}

// It compares the schema of the values with that of the program.
func TestSettingsOfTheChartMatchTheServer(t *testing.T) {
	out := need.Got(exec.Command(program(t), "config", "schema").Output())(t)
	var settings map[string]any
	need.OK(t, json.Unmarshal(out, &settings))
	delete(settings, "$schema")
	for _, key := range owned {
		remove(t, settings, strings.Split(key, "."))
	}
	strict(settings)
	file := filepath.Join(chartDir, "values.schema.json")
	text := need.Got(os.ReadFile(file))(t)
	var schema map[string]any
	need.OK(t, json.Unmarshal(text, &schema))
	schema["properties"].(map[string]any)["settings"] = settings
	var want bytes.Buffer
	encoder := json.NewEncoder(&want)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	need.OK(t, encoder.Encode(schema))
	if *update {
		need.OK(t, os.WriteFile(file, want.Bytes(), 0o644))
		return
	}
	expect.That(t, bytes.Equal(text, want.Bytes()), "values.schema.json does not allow what the server does; run this test with -update")
}

func remove(t *testing.T, schema map[string]any, key []string) {
	t.Helper()
	properties := schema["properties"].(map[string]any)
	need.That(t, properties[key[0]] != nil, "the server has no setting %s", key)
	if len(key) == 1 || key[1] == "*" {
		delete(properties, key[0])
		return
	}
	within := properties[key[0]].(map[string]any)
	remove(t, within, key[1:])
	if len(within["properties"].(map[string]any)) == 0 {
		delete(properties, key[0])
	}
}

var duration = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h)`)

// strict makes a key without a value a mistake, and so also a duration without a unit.
func strict(schema map[string]any) {
	if types, ok := schema["type"].([]any); ok {
		schema["type"] = slices.DeleteFunc(types, func(of any) bool { return of == "null" })
	}
	if words, ok := schema["enum"].([]any); ok {
		schema["enum"] = slices.DeleteFunc(words, func(word any) bool { return word == nil })
	}
	if text, ok := schema["default"].(string); ok && duration.MatchString(text) {
		schema["pattern"] = "^([0-9]+(\\.[0-9]+)?(ns|us|ms|s|m|h))+$"
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, each := range properties {
		strict(each.(map[string]any))
	}
}

// Two of five pods that go and a third that restarts would take the majority. Without consensus the others must be
// told.
func TestMoreOrFewerPodsRestartTheOthersInModeAPAlone(t *testing.T) {
	checksum := func(values string) string {
		return of[*apps.StatefulSet](t, decode(t, need.Got(render(t, values))(t)), "StatefulSet rollcall").Spec.Template.Annotations["checksum/settings"]
	}
	for mode, same := range map[string]bool{"cp": true, "ap": false} {
		three, five := checksum("{mode: "+mode+", replicas: 3}"), checksum("{mode: "+mode+", replicas: 5}")
		expect.That(t, (three == five) == same, "mode %s: %s with three nodes, %s with five", mode, three, five)
	}
	expect.That(t, checksum("{settings: {log: {level: debug}}}") != checksum("{}"), "a setting restarts no pod")
}

// built is the directory of what the tests make for each other; it is removed after them.
var built string

func TestMain(m *testing.M) {
	slog.SetLogLoggerLevel(slog.LevelWarn) // Helm reports that it follows links
	var err error
	if built, err = os.MkdirTemp("", "rollcall-check"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(built)
	os.Exit(code)
}

// build builds the program once, without cgo, as in the image.
var build = sync.OnceValues(func() (string, error) {
	path := filepath.Join(built, "rollcall")
	command := exec.Command("go", "build", "-trimpath", "-o", path, "./cmd/rollcall")
	command.Dir, command.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w: %s", err, out)
	}
	return path, nil
})

func program(t *testing.T) string {
	t.Helper()
	return need.Got(build())(t)
}

// authority signs the certificates of all pods.
var authority = sync.OnceValues(func() (*certfiles.Authority, error) {
	a, _, err := certfiles.NewAuthority("nodes", time.Now())
	return a, err
})

// The user of the image.
const user = 65532

// container is a container with its mounts, below a directory that stands for its root.
type container struct {
	root      string
	args, env []string
	process   *exec.Cmd
	ended     chan error // the end of the process
}

// newPod lays out the container of a pod as the kubelet does.
func newPod(t *testing.T, all objects, name string, spec core.PodSpec) *container {
	t.Helper()
	c := &container{root: t.TempDir()}
	volumes := map[string]core.Volume{}
	for _, v := range spec.Volumes {
		volumes[v.Name] = v
	}
	runs := spec.Containers[0]
	for _, m := range runs.VolumeMounts {
		dir := c.mount(t, m.MountPath)
		switch v := volumes[m.Name]; {
		case v.ConfigMap != nil:
			for file, text := range of[*core.ConfigMap](t, all, "ConfigMap "+v.ConfigMap.Name).Data {
				need.OK(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
			}
		case v.Secret != nil && m.Name == "tls":
			writeSecrets(t, dir, certificate(t, all), v.Secret.DefaultMode)
		case v.Secret != nil:
			writeSecrets(t, dir, need.Got(tokens())(t), v.Secret.DefaultMode)
		default: // the group may write, because of fsGroup
			need.OK(t, os.Chmod(dir, 0o770))
			chown(t, dir)
		}
	}
	values := map[string]string{}
	for _, e := range runs.Env {
		value := e.Value
		if e.ValueFrom != nil {
			value = map[string]string{"metadata.name": name}[e.ValueFrom.FieldRef.FieldPath]
		}
		for known, is := range values { // those that precede it
			value = strings.ReplaceAll(value, "$("+known+")", is)
		}
		values[e.Name] = value
		c.env = append(c.env, e.Name+"="+value)
	}
	c.args = runs.Args
	return c
}

func (c *container) mount(t *testing.T, path string) (dir string) {
	t.Helper()
	dir = filepath.Join(c.root, path)
	need.OK(t, os.MkdirAll(dir, 0o755))
	return dir
}

// chown gives a file to the image's group, if the test may.
func chown(t *testing.T, path string) {
	t.Helper()
	if os.Geteuid() == 0 {
		need.OK(t, os.Chown(path, 0, user))
	}
}

func writeSecrets(t *testing.T, dir string, files map[string]string, mode *int32) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		need.OK(t, os.WriteFile(path, []byte(text), 0o600))
		need.OK(t, os.Chmod(path, os.FileMode(*mode)))
		chown(t, path)
	}
}

// below makes the mounted paths in a text lead below the container's root, for tests that run outside.
func (c *container) below(text string) string {
	return strings.NewReplacer("/etc/rollcall/", c.root+"/etc/rollcall/", "/var/lib/rollcall/", c.root+"/var/lib/rollcall/").Replace(text)
}

// certificate returns a certificate as cert-manager makes it, for the names that the chart asks for; without a
// Certificate, for those of the chart's README.
func certificate(t *testing.T, all objects) map[string]string {
	t.Helper()
	names := []string{"rollcall-0", "rollcall-1", "rollcall-2", "*.rollcall-nodes.registry.svc", "rollcall.registry.svc"}
	if c, ok := all["Certificate rollcall"].(*certmanager.Certificate); ok {
		names = c.Spec.DNSNames
	}
	a := need.Got(authority())(t)
	pair := need.Got(a.Issue(names[0], names[1:], time.Hour, time.Now()))(t)
	return map[string]string{"tls.crt": string(pair.Cert), "tls.key": string(pair.Key), "ca.crt": string(a.PEM())}
}

// tokens returns the texts of tokens, and the file with their hashes, made as the chart's README describes.
var tokens = sync.OnceValues(func() (map[string]string, error) {
	path, err := build()
	if err != nil {
		return nil, err
	}
	texts, file := map[string]string{}, `roles:
  reader: ["metrics read", "operator read"]
  writer: ["kv * read,write"]
  service: ["app ORDERS read,register"]
  node: ["peer dc1 exchange", "peer dc7 exchange"]
tokens:
`
	for _, each := range []struct{ name, role string }{
		{"bootstrap", ""}, {"reader", "reader"}, {"writer", "writer"}, {"service", "service"}, {"dc8", "node"},
		{"rollcall-0", "node"}, {"rollcall-1", "node"}, {"rollcall-2", "node"},
	} {
		text := filepath.Join(built, each.name)
		args := []string{"auth", "hash", "--name", each.name, "--out", text}
		if each.role != "" {
			args = append(args, "--role", each.role)
		}
		lines, err := exec.Command(path, args...).Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", args, err)
		}
		if each.role != "" {
			file += string(lines)
		}
		token, err := os.ReadFile(text)
		if err != nil {
			return nil, err
		}
		texts[each.name] = string(token)
	}
	texts["auth.yaml"] = file
	return texts, nil
})
