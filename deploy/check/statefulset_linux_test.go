package check

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"

	"github.com/seed-20419f34/rollcall/internal/certfiles"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// statefulSet does with the rendered chart what Kubernetes does: it starts the pods, and replaces them one by one.
type statefulSet struct {
	*network
	t     *testing.T
	all   objects
	spec  apps.StatefulSetSpec
	pods  []*container
	data  []string // the volumes, which stay
	ready []bool   // which pods are behind the clients' service
	calls *http.Client
	mu    sync.Mutex
}

func startStatefulSet(t *testing.T, values string) *statefulSet {
	t.Helper()
	n := newNetwork(t)
	all := decode(t, need.Got(render(t, values))(t))
	s := &statefulSet{network: n, t: t, all: all, spec: of[*apps.StatefulSet](t, all, "StatefulSet rollcall").Spec, calls: n.client()}
	a := need.Got(authority())(t)
	file := filepath.Join(t.TempDir(), "authority")
	need.OK(t, os.WriteFile(file, a.PEM(), 0o600))
	s.calls.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: need.Got(certfiles.ReadPool(file))(t)}
	t.Cleanup(s.calls.CloseIdleConnections)
	replicas := int(*s.spec.Replicas)
	s.pods, s.ready = make([]*container, replicas), make([]bool, replicas)
	for range replicas {
		s.data = append(s.data, emptyVolume(t))
	}
	for i := range replicas { // podManagementPolicy: Parallel
		s.create(i)
	}
	for i := range replicas {
		s.awaitReady(i)
	}
	return s
}

// emptyVolume returns a directory like a new volume, with the group of fsGroup.
func emptyVolume(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	need.OK(t, os.Chmod(dir, 0o770))
	chown(t, dir)
	return dir
}

// mountVolume gives a pod the volume of a node.
func (s *statefulSet) mountVolume(p *container, node int) {
	s.t.Helper()
	at := filepath.Join(p.root, "var/lib/rollcall")
	need.OK(s.t, os.Remove(at))
	need.OK(s.t, os.Rename(s.data[node], at))
	s.data[node] = at
}

func host(pod int) string { return fmt.Sprintf("rollcall-%d.rollcall-nodes.registry.svc", pod) }

// create makes a pod, with a new address, and its old volume. Listeners on all addresses use this one instead,
// because the pods share a machine.
func (s *statefulSet) create(i int) {
	s.t.Helper()
	p := newPod(s.t, s.all, fmt.Sprintf("rollcall-%d", i), s.spec.Template.Spec)
	address := s.address()
	file := filepath.Join(p.root, "etc/rollcall/settings/rollcall.yaml")
	text := string(need.Got(os.ReadFile(file))(s.t))
	text = strings.ReplaceAll(text, "addr: :", "addr: "+address+":")
	// which a node on loopback must be told
	text = strings.Replace(text, "\nhttp:\n", "\nhttp:\n  hosts: [rollcall.registry.svc]\n", 1)
	need.OK(s.t, os.WriteFile(file, []byte(text), 0o644))
	s.mountVolume(p, i)
	s.set(s.t, host(i), address) // publishNotReadyAddresses
	s.pods[i] = p
	s.start(s.t, p)
}

func (s *statefulSet) probe(i int, p *core.Probe) error {
	url := fmt.Sprintf("%s://%s:8761%s", strings.ToLower(string(p.HTTPGet.Scheme)), host(i), p.HTTPGet.Path)
	return s.call(http.MethodGet, url, "", "", nil)
}

func (s *statefulSet) awaitReady(i int) {
	s.t.Helper()
	c := s.spec.Template.Spec.Containers[0]
	await(s.t, host(i)+" is ready", func() error { return s.probe(i, c.ReadinessProbe) })
	need.OK(s.t, s.probe(i, c.LivenessProbe))
	s.setReady(i, true)
}

// setReady puts a pod behind the clients' service, or takes it away.
func (s *statefulSet) setReady(i int, ready bool) {
	s.mu.Lock()
	s.ready[i] = ready
	s.mu.Unlock()
	var addresses []string
	for _, i := range s.serving() {
		addresses = append(addresses, s.addresses(host(i))...)
	}
	s.set(s.t, "rollcall.registry.svc", addresses...)
}

func (s *statefulSet) serving() (pods []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, ready := range s.ready {
		if ready {
			pods = append(pods, i)
		}
	}
	return pods
}

// roll replaces the pods from the last one on, each when the one before it has been ready for minReadySeconds.
func (s *statefulSet) roll() {
	s.t.Helper()
	grace := time.Duration(*s.spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	for i := range slices.Backward(s.pods) {
		s.setReady(i, false)
		s.stop(s.t, s.pods[i], grace)
		s.set(s.t, host(i))
		s.create(i)
		s.awaitReady(i)
		time.Sleep(time.Duration(s.spec.MinReadySeconds) * time.Second)
	}
}

func (s *statefulSet) call(method, url, token, body string, answer any) error {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if token != "" {
		req.Header.Set("X-Consul-Token", strings.TrimSpace(need.Got(tokens())(s.t)[token]))
	}
	resp, err := s.calls.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %s: %s %w", method, url, resp.Status, text, err)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// test runs the pod of helm test, and a command as kubectl exec does.
func (s *statefulSet) test() {
	s.t.Helper()
	pod := newPod(s.t, s.all, "rollcall-status", of[*core.Pod](s.t, s.all, "Pod rollcall-status").Spec)
	for what, command := range map[string]func() *exec.Cmd{
		"helm test":    func() *exec.Cmd { return s.command(s.t, pod, pod.args...) },
		"kubectl exec": func() *exec.Cmd { return s.command(s.t, s.pods[0], "status", "--check") },
	} {
		await(s.t, what, func() error { // on a busy machine a node may answer too late to count
			out, err := command().CombinedOutput()
			if err != nil || !bytes.Contains(out, []byte("rollcall-2")) {
				return fmt.Errorf("%v: %s", err, out)
			}
			return nil
		})
	}
}

// It replaces all pods of the chart, each with one at another address, while a client writes without pause.
func TestStatefulSetIsRolledUnderWrites(t *testing.T) {
	s := startStatefulSet(t, "{tls: {source: certManager}, auth: {mode: 'on', secret: tokens, file: auth.yaml, bootstrapToken: bootstrap, readerToken: reader}, shutdownDelay: 3}")
	s.test()
	stop, stopped := make(chan bool), make(chan bool)
	var longest time.Duration
	var acked, failed int
	go func() {
		defer close(stopped)
		last := time.Now()
		for {
			for _, i := range s.serving() {
				err := s.call(http.MethodPut, fmt.Sprintf("https://%s:8761/v1/kv/rolled/%06d", host(i), acked), "writer", "x", nil)
				if err == nil {
					longest, last, acked = max(longest, time.Since(last)), time.Now(), acked+1
					break
				}
				failed++
			}
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	s.roll()
	close(stop)
	<-stopped
	t.Logf("%d writes acknowledged, %d tries failed, longest gap %v", acked, failed, longest.Round(time.Millisecond))
	// The pages promise an election, 1 to 3 s; this bound only checks that writes go on, even on a busy
	// machine.
	const most = 10 * time.Second
	expect.That(t, acked > 100 && longest < most, "%d writes, longest gap %v, want at most %v", acked, longest, most)
	var keys []string
	need.OK(t, s.call(http.MethodGet, "https://"+host(0)+":8761/v1/kv/rolled/?keys", "writer", "", &keys))
	expect.That(t, len(keys) >= acked, "%d of %d acknowledged writes are there", len(keys), acked)
	s.test()
}

// It registers at one pod, and finds the instance at all.
func TestStatefulSetWithoutConsensusReplicates(t *testing.T) {
	s := startStatefulSet(t, "{mode: ap, tls: {source: certManager}, auth: {mode: 'on', secret: tokens, file: auth.yaml, nodeTokens: true, readerToken: reader}, shutdownDelay: 0}")
	s.test()
	const instance = `{"instance": {"instanceId": "orders-1", "app": "ORDERS", "hostName": "orders", "ipAddr": "10.0.0.1", "status": "UP",
		"dataCenterInfo": {"@class": "com.netflix.appinfo.InstanceInfo$DefaultDataCenterInfo", "name": "MyOwn"}}}`
	need.OK(t, s.call(http.MethodPost, "https://"+host(0)+":8761/eureka/apps/ORDERS", "service", instance, nil))
	for i := range s.pods {
		await(t, "the instance is listed by "+host(i), func() error {
			return s.call(http.MethodGet, "https://"+host(i)+":8761/eureka/apps/ORDERS/orders-1", "service", "", nil)
		})
	}
}

// It loses two of three volumes, and runs the pod of docs/run/kubernetes.md at the third.
func TestLostMajorityIsRecoveredByThePod(t *testing.T) {
	s := startStatefulSet(t, "{tls: {source: certManager}, shutdownDelay: 0}")
	key := "https://" + host(0) + ":8761/v1/kv/kept"
	need.OK(t, s.call(http.MethodPut, key, "", "x", nil))
	const grace = 2 * time.Minute
	for i := range s.pods {
		s.setReady(i, false)
		s.stop(t, s.pods[i], grace)
		s.set(t, host(i))
	}
	for i := 1; i < len(s.data); i++ {
		s.data[i] = emptyVolume(t)
	}

	page := string(need.Got(os.ReadFile("../../docs/run/kubernetes.md"))(t))
	_, page, _ = strings.Cut(page, "Write `recover.yaml`")
	_, page, _ = strings.Cut(page, "```yaml\n")
	text, _, ok := strings.Cut(page, "```")
	need.That(t, ok, "docs/run/kubernetes.md has no recover.yaml")
	// the release has another name here
	text = strings.ReplaceAll(strings.ReplaceAll("\n"+text, "\n   ", "\n"), "registry-rollcall", "rollcall")
	spec := of[*core.Pod](t, decode(t, map[string]string{"recover.yaml": text}), "Pod registry-recover").Spec
	pod := newPod(t, s.all, "registry-recover", spec)
	s.mountVolume(pod, 0)
	said, err := s.command(t, pod, pod.args...).CombinedOutput()
	need.OKf(t, err, "recover: %s", said)
	expect.That(t, bytes.Contains(said, []byte("recovered")), "recover said\n%s", said)

	for i := range s.pods {
		s.create(i)
	}
	for i := range s.pods {
		s.awaitReady(i)
	}
	s.test()
	expect.OK(t, s.call(http.MethodGet, key, "", "", nil))
}

// network has the names and addresses of containers. Each address is one of loopback, and a container resolves names
// with its hosts file, which Go reads again after 5 s, much like a cluster's DNS.
type network struct {
	mu         sync.Mutex
	names      map[string][]string // addresses by name
	containers map[*container]bool
	last       int // of the addresses
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	need.Present(t, os.Geteuid() == 0, "containers are imitated by chroot: run as root")
	return &network{names: map[string][]string{}, containers: map[*container]bool{}}
}

// address returns one that no container had before.
func (n *network) address() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d", 64+pid>>8&127, pid&255, n.last)
}

// set gives a name its addresses, and rewrites the hosts files.
func (n *network) set(t *testing.T, name string, addresses ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names[name] = addresses
	for c := range n.containers {
		n.writeHosts(t, c)
	}
}

func (n *network) addresses(name string) []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.names[name]
}

func (n *network) writeHosts(t *testing.T, c *container) {
	t.Helper()
	text := "127.0.0.1 localhost\n"
	for name, addresses := range n.names {
		for _, address := range addresses {
			text += address + " " + name + "\n"
		}
	}
	need.OK(t, os.WriteFile(filepath.Join(c.root, "etc/hosts"), []byte(text), 0o644))
}

// client calls containers by their names.
func (n *network) client() *http.Client {
	dial := func(ctx context.Context, _, to string) (net.Conn, error) {
		name, port, _ := net.SplitHostPort(to)
		addresses := n.addresses(name)
		if len(addresses) == 0 {
			return nil, fmt.Errorf("no such host: %s", name)
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", net.JoinHostPort(addresses[0], port))
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: 5 * time.Second}
}

// command returns the program in a container, as its user, with its arguments and nothing else, because the image holds
// no other file.
func (n *network) command(t *testing.T, c *container, args ...string) *exec.Cmd {
	t.Helper()
	c.mount(t, "etc")
	n.mu.Lock()
	n.containers[c] = true
	n.writeHosts(t, c)
	n.mu.Unlock()
	inside := filepath.Join(c.root, "rollcall")
	if err := os.Link(program(t), inside); !errors.Is(err, os.ErrExist) {
		need.OK(t, err)
	}
	command := exec.CommandContext(t.Context(), "/rollcall", args...)
	command.Dir, command.Env = "/", c.env
	command.SysProcAttr = &syscall.SysProcAttr{Chroot: c.root, Credential: &syscall.Credential{Uid: user, Gid: user}, Pdeathsig: syscall.SIGKILL}
	return command
}

func (n *network) start(t *testing.T, c *container) {
	t.Helper()
	c.process, c.ended = n.command(t, c, c.args...), make(chan error, 1)
	log := need.Got(os.Create(filepath.Join(c.root, "log")))(t)
	c.process.Stdout, c.process.Stderr = log, log
	need.OK(t, c.process.Start())
	log.Close()
	process := c.process
	go func() { c.ended <- process.Wait(); close(c.ended) }()
	t.Cleanup(func() {
		process.Process.Kill()
		<-c.ended
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(c.root, "log"))
			lines := strings.Split(strings.TrimSpace(string(text)), "\n")
			t.Logf("%s said:\n%s", c.root, strings.Join(lines[max(0, len(lines)-15):], "\n"))
		}
	})
}

// stop ends a container as Kubernetes and Compose do.
func (n *network) stop(t *testing.T, c *container, grace time.Duration) {
	t.Helper()
	need.OK(t, c.process.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-c.ended:
		expect.OKf(t, err, "the end of a container")
	case <-time.After(grace):
		t.Fatalf("a container still runs after %v of grace", grace)
	}
	n.mu.Lock()
	delete(n.containers, c)
	n.mu.Unlock()
}

func await(t *testing.T, what string, condition func() error) {
	t.Helper()
	const limit = 2 * time.Minute
	for deadline := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		err := condition()
		if err == nil {
			return
		}
		need.That(t, time.Now().Before(deadline), "%s: not within %v: %v", what, limit, err)
	}
}

const composeDir = "../compose"

func compose(t *testing.T) *types.Project {
	t.Helper()
	options := need.Got(cli.NewProjectOptions([]string{filepath.Join(composeDir, "compose.yaml")}, cli.WithProfiles([]string{"*"})))(t)
	return need.Got(options.LoadProject(context.Background()))(t)
}

func TestComposeMountsFilesThatAreThere(t *testing.T) {
	for name, service := range compose(t).Services {
		for _, v := range service.Volumes {
			if v.Type == types.VolumeTypeBind {
				expect.OKf(t, expect.Err(os.Stat(v.Source)), "%s mounts", name)
			}
		}
		for _, port := range service.Ports {
			expect.Equal(t, port.HostIP, "127.0.0.1", "%s is open at", name)
		}
	}
}

// It starts the services of the nodes as Compose does, except for the addresses, and asks as their health checks do.
func TestComposeRunsACluster(t *testing.T) {
	n := newNetwork(t)
	project := compose(t)
	nodes := map[string]*container{}
	for _, name := range []string{"n1", "n2", "n3"} {
		service := project.Services[name]
		c := &container{root: t.TempDir(), args: service.Command}
		address := n.address()
		for key, value := range service.Environment {
			if text, ok := strings.CutPrefix(*value, ":"); ok { // all addresses
				*value = address + ":" + text
			}
			c.env = append(c.env, key+"="+*value)
		}
		data := c.mount(t, service.Volumes[0].Target)
		need.OK(t, os.Chown(data, user, user))
		n.set(t, name, address)
		nodes[name] = c
	}
	for _, c := range nodes {
		n.start(t, c)
	}
	for name, c := range nodes {
		check := project.Services[name].HealthCheck.Test
		need.That(t, check[0] == "CMD" && check[1] == "rollcall", "the health check is %q", check)
		await(t, name+" is healthy", func() error { return n.command(t, c, check[2:]...).Run() })
	}
	out, err := n.command(t, nodes["n1"], "register", "orders", "--id", "orders-1", "--port", "8080").CombinedOutput()
	need.OKf(t, err, "register: %s", out)
	out, err = n.command(t, nodes["n3"], "ls", "orders").CombinedOutput()
	expect.That(t, err == nil && strings.Contains(string(out), "orders-1"), "n3 lists %s, %v", out, err)
	t.Run("a Spring service", func(t *testing.T) { springRegisters(t, n, project.Services["orders"], nodes["n2"]) })
	for name, c := range nodes {
		n.stop(t, c, time.Duration(*project.Services[name].StopGracePeriod))
	}
}

// springRegisters has an application with Spring Cloud's client register with the environment of the example.
func springRegisters(t *testing.T, n *network, service types.ServiceConfig, at *container) {
	t.Helper()
	driver := need.Got(filepath.Abs("../../integration/clients/java/spring/target/driver.jar"))(t)
	_, err := os.Stat(driver)
	need.Present(t, err == nil, "the Spring application is not built: make clients")
	command := exec.CommandContext(t.Context(), "java", "-jar", driver)
	command.Env = os.Environ()
	for key, value := range service.Environment {
		text := *value
		for _, name := range []string{"n1", "n2", "n3"} { // whose names only the containers know
			text = strings.ReplaceAll(text, "//"+name+":", "//"+n.addresses(name)[0]+":")
		}
		command.Env = append(command.Env, key+"="+text)
	}
	stdin := need.Got(command.StdinPipe())(t)
	need.OK(t, command.Start())
	defer command.Wait()
	defer stdin.Close()
	need.OK(t, expect.Err(io.WriteString(stdin, `{"do": "start", "url": "http://127.0.0.1:1/eureka", "app": "OTHER", "id": "spring-1", "lease": "30"}`+"\n")))
	await(t, "the Spring service is listed", func() error {
		return n.command(t, at, "explain", "ORDERS/spring-1").Run()
	})
}

// Prometheus' own program reads the configuration where it is mounted.
func TestPrometheusAcceptsTheExample(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	need.Present(t, err == nil, "promtool is not on the PATH: apt-get install prometheus")
	service := compose(t).Services["prometheus"]
	root := t.TempDir()
	for _, v := range service.Volumes {
		text := need.Got(os.ReadFile(v.Source))(t)
		path := filepath.Join(root, v.Target)
		need.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
		need.OK(t, os.WriteFile(path, text, 0o600))
	}
	file, ok := strings.CutPrefix(service.Command[0], "--config.file=")
	need.That(t, ok, "Prometheus runs %q", service.Command)
	out, err := exec.Command(promtool, "check", "config", filepath.Join(root, file)).CombinedOutput()
	expect.OKf(t, err, "promtool: %s", out)
	expect.That(t, strings.Contains(string(out), "1 rule files found"), "promtool says %s", out)
}
