package check

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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

// emptyVolume is a directory as a new volume is, with the group of fsGroup.
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

// create makes a pod, which has a new address, and its volume of before. Listeners on all addresses are of this one, for the pods share
// a machine.
func (s *statefulSet) create(i int) {
	s.t.Helper()
	p := newPod(s.t, s.all, fmt.Sprintf("rollcall-%d", i), s.spec.Template.Spec)
	address := s.address()
	file := filepath.Join(p.root, "etc/rollcall/settings/rollcall.yaml")
	text := string(need.Got(os.ReadFile(file))(s.t))
	text = strings.ReplaceAll(text, "addr: :", "addr: "+address+":")
	text = strings.Replace(text, "\nhttp:\n", "\nhttp:\n  hosts: [rollcall.registry.svc]\n", 1) // which a node on loopback must be told
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

// TestStatefulSetIsRolledUnderWrites replaces all pods of the chart, each by one with another address, while a client writes without pause.
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
	const most = 10 * time.Second // The pages promise an election, 1 to 3 s; this bound says no more than that writes go on, also on a busy machine.
	expect.That(t, acked > 100 && longest < most, "%d writes, longest gap %v, want at most %v", acked, longest, most)
	var keys []string
	need.OK(t, s.call(http.MethodGet, "https://"+host(0)+":8761/v1/kv/rolled/?keys", "writer", "", &keys))
	expect.That(t, len(keys) >= acked, "%d of %d acknowledged writes are there", len(keys), acked)
	s.test()
}

// TestStatefulSetWithoutConsensusReplicates registers at one pod, and finds it at all.
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

// TestLostMajorityIsRecoveredByThePod loses two of three volumes, and runs the pod of docs/run/kubernetes.md at the third.
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
	text = strings.ReplaceAll(strings.ReplaceAll("\n"+text, "\n   ", "\n"), "registry-rollcall", "rollcall") // the release has another name here
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
